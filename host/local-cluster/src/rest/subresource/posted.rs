//! What the subresources share that are created: the document, its admission, and the answer. Input: a request. Output: parts
//! of its response. It must not know which subresource it is.

use serde_json::{Value, json};

use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Halt, Status};
use crate::request::{Request, Response};
use crate::resource::group_version;
use crate::{Cluster, admission, body};

/// The document of a request for this kind; its kind may be left out.
pub(super) fn document(request: &Request, api_version: &str, kind: &str) -> Result<Value, Halt> {
    let mut object = body::yaml(request)?;
    let Some(fields) = object.as_object_mut() else {
        return Err(Status::bad_request("the object provided is unrecognized (must be of type Object)").into());
    };
    let said = |key: &str, wanted: &str| {
        let said = fields.get(key).and_then(Value::as_str).filter(|said| !said.is_empty());
        said.unwrap_or(wanted).to_owned()
    };
    let group = group_version(api_version).0;
    body::check_convertible(&said("kind", kind), &said("apiVersion", api_version), group, kind)?;
    fields.insert("apiVersion".to_owned(), api_version.into());
    fields.insert("kind".to_owned(), kind.into());
    if !fields.get("metadata").is_some_and(Value::is_object) {
        fields.insert("metadata".to_owned(), json!({}));
    }
    Ok(object)
}

/// Lets admission see what a create of a subresource brings.
pub(super) fn admit(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: &mut Value,
) -> Result<(), Halt> {
    admission::mutate(cluster, context, attributes, object, None)?;
    admission::validate(cluster, context, attributes, Some(object), None)
}

/// That a create was done that has no object.
pub(super) fn success() -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Response::json(201, status)
}
