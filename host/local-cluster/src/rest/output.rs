//! In which form a client wants objects. Input: the Accept header. Output: the form, and responses in it. It must not know
//! verbs.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::attributes::Attributes;
use crate::body::MEDIA_TYPES;
use crate::context::Context;
use crate::halt::{Halt, Status};
use crate::output::{Output, Texts};
use crate::request::{Request, Response};
use crate::resource::Resource;
use crate::store::Object;
use crate::table::Include;
use crate::{Cluster, definition};

/// The most preferred media type that is served: by `q`, then in the order they are listed in.
pub(crate) fn read(request: &Request) -> Result<Output, Halt> {
    let accept = request.header("accept").filter(|accept| !accept.trim().is_empty()).unwrap_or("*/*");
    let mut entries: Vec<(f64, &str)> = accept.split(',').map(|entry| (quality(entry), entry)).collect();
    entries.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    let included = request.parameter("includeObject").unwrap_or_default();
    let found =
        entries.into_iter().filter(|(quality, _)| *quality > 0.0).find_map(|(_, entry)| served(included, entry));
    if matches!(found, Some(Output::Table(_))) && !matches!(included, "" | "None" | "Metadata" | "Object") {
        let why = format!("includeObject: Invalid value: {included:?}: must be 'Metadata', 'Object', 'None', or empty");
        return Err(Status::bad_request(format!("Unable to convert to Table as requested: {why}")).into());
    }
    found.ok_or_else(|| {
        let message = format!("only the following media types are accepted: {}", MEDIA_TYPES.join(", "));
        Status::not_acceptable(message).into()
    })
}

/// Of built-in kinds the router refuses media types, before anything reads what else a client accepts.
pub(super) fn acceptable(request: &Request, resource: &Resource) -> Result<(), Halt> {
    let accept = request.header("accept").filter(|accept| !accept.trim().is_empty()).unwrap_or("*/*");
    let mut types = accept.split(',').map(|entry| entry.split(';').next().unwrap_or_default().trim());
    let served = |media: &str| media == "*/*" || MEDIA_TYPES.contains(&media);
    if resource.custom.is_some() || types.any(served) {
        return Ok(());
    }
    let known = MEDIA_TYPES.join(", ");
    let mut status = Status::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {known}"));
    status.details = Some(Value::Object(serde_json::Map::new()));
    Err(status.into())
}

fn quality(entry: &str) -> f64 {
    let quality = entry.split(';').find_map(|part| part.trim().strip_prefix("q="));
    quality.and_then(|quality| quality.parse().ok()).unwrap_or(1.0)
}

/// The form that an entry of the Accept header asks for, if it is served.
fn served(included: &str, entry: &str) -> Option<Output> {
    let mut parts = entry.split(';').map(str::trim);
    if !matches!(parts.next(), Some("application/json" | "*/*" | "application/*")) {
        return None;
    }
    let parameter = |name: &str| parts.clone().find_map(|part| part.strip_prefix(name));
    let known = parameter("g=") == Some("meta.k8s.io") && matches!(parameter("v="), Some("v1" | "v1beta1"));
    match parameter("as=") {
        None | Some("") => Some(Output::Whole),
        Some("Table") if known => Some(Output::Table(match included {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        })),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") if known => Some(Output::Metadata),
        Some(_) => None,
    }
}

/// A list of stored objects in the version of a resource.
pub(super) fn list(
    cluster: &Cluster,
    output: Output,
    resource: &Arc<Resource>,
    objects: &[Arc<Object>],
    metadata: Value,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    if let (Output::Whole, Some(text)) = (output, Texts::of(resource).list(resource, objects, &metadata)) {
        return Ok(Response::document(200, text));
    }
    let values: Vec<Cow<'_, Value>> = objects.iter().map(|object| object.read()).collect();
    let values: Vec<&Value> = values.iter().map(AsRef::as_ref).collect();
    let values = definition::all_at_version(cluster, resource, &values, context.answers)?;
    let values: Vec<&Value> = values.iter().map(AsRef::as_ref).collect();
    Ok(Response::json(200, output.list(resource, &values, metadata, context.now)))
}

/// A response with a stored object in the version of a resource.
pub(super) fn one(
    cluster: &Cluster,
    output: Output,
    attributes: &Attributes,
    status: u16,
    object: &Object,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let resource = &attributes.resource;
    // What was created for the sake of its answer has no version.
    let unversioned = context.dry_run && status == 201;
    if let (Output::Whole, false, Some(text)) = (output, unversioned, Texts::of(resource).object(object)) {
        return Ok(Response::document(status, format!("{text}\n")));
    }
    let stored = object.read();
    let mut value = definition::at_version(cluster, resource, &stored, context.answers)?;
    if unversioned && let Some(metadata) = value.to_mut()["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    Ok(Response::json(status, output.object(resource, &value, context.now)))
}
