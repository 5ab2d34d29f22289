//! Bodies of requests. Input: bytes with a content type. Output: objects, patches and options, with fields that the schema
//! does not know refused, reported or dropped as the client wants. It must not know verbs.

use serde_json::Value;

use crate::halt::{Halt, Status};
use crate::request::Request;
use crate::resource::{Resource, group_version};
use crate::rest::Context;

fn media_type(request: &Request) -> &str {
    request.header("content-type").unwrap_or("application/json").split(';').next().unwrap_or_default().trim()
}

/// An object in JSON or YAML. Fields that are missing in it say the request's kind.
pub(crate) fn object(request: &Request, resource: &Resource, _context: &Context<'_>) -> Result<Value, Halt> {
    let mut object = match media_type(request) {
        "application/json" | "" | "*/*" => json(&request.body)?,
        "application/yaml" | "text/yaml" => yaml(request)?,
        other => {
            let known = "application/json, application/yaml";
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: {known} (it was {other})"
            );
            return Err(Status::unsupported_media_type(message).into());
        }
    };
    if !object.is_object() {
        let message = "the object provided is unrecognized (must be of type Object)";
        return Err(Status::bad_request(message).into());
    }
    // A typed endpoint knows what its body is; custom resources must say it.
    if resource.custom.is_none() {
        for (key, value) in [("apiVersion", resource.api_version()), ("kind", resource.kind.to_string())] {
            if object[key].as_str().unwrap_or_default().is_empty() {
                object[key] = value.into();
            }
        }
    }
    Ok(object)
}

fn json(bytes: &[u8]) -> Result<Value, Halt> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the object provided is unrecognized (must be of type JSON): {error}");
        Status::bad_request(message).into()
    })
}

/// A patch in JSON.
pub(crate) fn patch(request: &Request) -> Result<Value, Halt> {
    let patch: Result<Value, _> = serde_json::from_slice(&request.body);
    patch.map_err(|error| Status::bad_request(format!("error decoding patch: {error}")).into())
}

/// A document in YAML, which JSON is too.
pub(crate) fn yaml(request: &Request) -> Result<Value, Halt> {
    if let Ok(value) = serde_json::from_slice(&request.body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(&request.body).map_err(|error| Status::bad_request(error.to_string()))?;
    serde_saphyr::from_str(text).map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")).into())
}

/// The options in the body of a deletion; empty without a body.
pub(crate) fn delete_options(request: &Request) -> Result<Value, Halt> {
    if request.body.is_empty() { Ok(Value::Null) } else { yaml(request) }
}

/// Refuses an object of another kind than the path's.
pub(crate) fn check_kind(object: &Value, resource: &Resource) -> Result<(), Halt> {
    let (kind, api_version) =
        (object["kind"].as_str().unwrap_or_default(), object["apiVersion"].as_str().unwrap_or_default());
    if kind == &*resource.kind && api_version == resource.api_version() {
        return Ok(());
    }
    if kind.is_empty() {
        return Err(Status::bad_request("Object 'Kind' is missing in the body of the request").into());
    }
    if api_version.is_empty() {
        return Err(Status::bad_request("Object 'apiVersion' is missing in the body of the request").into());
    }
    let (group, version) = group_version(api_version);
    if kind == &*resource.kind && group == &*resource.group && version != &*resource.version {
        let message = format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version()
        );
        return Err(Status::bad_request(message).into());
    }
    let message = format!(
        "{kind} in version {version:?} cannot be handled as a {}: no kind {kind:?} is registered for version {api_version:?}",
        resource.kind
    );
    Err(Status::bad_request(message).into())
}

/// Drops what the schema does not know, and says so as `fieldValidation` wants: `Strict` refuses, `Warn` warns, `Ignore`
/// is silent.
pub(crate) fn unknown_fields(
    request: &Request,
    resource: &Resource,
    object: &mut Value,
    context: &Context<'_>,
) -> Result<(), Halt> {
    if let Some(misfit) = resource.schema().misfit(object) {
        let (kind, version) = (&resource.kind, &resource.version);
        let message = format!("{kind} in version {version:?} cannot be handled as a {kind}: {misfit}");
        return Err(Status::bad_request(message).into());
    }
    let unknown = resource.schema().prune(object);
    if unknown.is_empty() {
        return Ok(());
    }
    match request.parameter("fieldValidation").unwrap_or("Warn") {
        "Ignore" => {}
        "Strict" => {
            let words: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
            let (kind, version) = (&resource.kind, &resource.version);
            let message = if resource.custom.is_some() {
                format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                    words.join(", ")
                )
            } else {
                format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                    words.join(", ")
                )
            };
            return Err(Status::bad_request(message).into());
        }
        _ => unknown.iter().for_each(|path| context.warn(format!("unknown field {path:?}"))),
    }
    Ok(())
}
