//! In which form a client wants objects. Input: the Accept header. Output: the form, and responses in it. It must not know
//! verbs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::attributes::Attributes;
use crate::halt::{Halt, Status};
use crate::output::Output;
use crate::request::{Body, Request, Response};
use crate::store::Object;
use crate::table::Include;

/// The most preferred media type that is served: by `q`, then in the order they are listed in.
pub(crate) fn read(request: &Request) -> Result<Output, Halt> {
    let accept = request.header("accept").filter(|accept| !accept.trim().is_empty()).unwrap_or("*/*");
    let mut entries: Vec<(f64, &str)> = accept.split(',').map(|entry| (quality(entry), entry)).collect();
    entries.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    let found = entries.into_iter().filter(|(quality, _)| *quality > 0.0).find_map(|(_, entry)| served(request, entry));
    found.ok_or_else(|| {
        let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let message = format!("only the following media types are accepted: {known}");
        Status::not_acceptable(message).into()
    })
}

fn quality(entry: &str) -> f64 {
    let quality = entry.split(';').find_map(|part| part.trim().strip_prefix("q="));
    quality.and_then(|quality| quality.parse().ok()).unwrap_or(1.0)
}

/// The form that an entry of the Accept header asks for, if it is served.
fn served(request: &Request, entry: &str) -> Option<Output> {
    let mut parts = entry.split(';').map(str::trim);
    if !matches!(parts.next(), Some("application/json" | "*/*" | "application/*")) {
        return None;
    }
    let parameter = |name: &str| parts.clone().find_map(|part| part.strip_prefix(name));
    let known = parameter("g=") == Some("meta.k8s.io") && matches!(parameter("v="), Some("v1" | "v1beta1"));
    match parameter("as=") {
        None | Some("") => Some(Output::Whole),
        Some("Table") if known => Some(Output::Table(match request.parameter("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        })),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") if known => Some(Output::Metadata),
        Some(_) => None,
    }
}

/// The values of stored objects.
pub(crate) fn values<'a>(objects: &[&'a Arc<Object>]) -> Vec<&'a Value> {
    objects.iter().map(|object| &object.value).collect()
}

/// A response with one object.
pub(super) fn one(output: &Output, attributes: &Attributes, status: u16, object: &Value, now: Timestamp) -> Response {
    let body = output.object(&attributes.resource, object, now);
    Response { body: Body::Json(body), ..Response::json(status, Value::Null) }
}
