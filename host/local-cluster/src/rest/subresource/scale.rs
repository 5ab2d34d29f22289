//! The scale subresource of Deployments and their like, and of custom resources that have one. Input: a request for it.
//! Output: a Scale. It must not know what scaling starts.

use serde_json::Value;

use super::posted::document;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::request::{Request, Response};
use crate::rest::{Update, update};
use crate::{Cluster, body, definition, patch, scale};

pub(super) fn answer(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let resource = &attributes.resource;
    let stored = cluster.store.get(&resource.storage, &attributes.namespace, &attributes.name).cloned();
    let stored = stored.ok_or_else(|| attributes.not_found())?;
    let mut object = definition::at_version(cluster, resource, &stored.value, context.answers)?.into_owned();
    let old = scale::of(resource, &object);
    let new = match attributes.verb {
        "get" => return Ok(Response::json(200, old)),
        "patch" => patched(request, &old)?,
        _ => document(request, "autoscaling/v1", "Scale")?,
    };
    if !new.is_object() {
        return Err(Status::bad_request("the object provided is unrecognized (must be of type Object)").into());
    }
    let replicas = replicas(&new, &attributes.name)?;
    let uid = new["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && new["metadata"]["uid"] != old["metadata"]["uid"] {
        let found = old["metadata"]["uid"].as_str().unwrap_or_default();
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        let plural = format!("{}/scale", resource.plural);
        return Err(Status::conflict(&resource.group, &plural, &attributes.name, &why).into());
    }
    scale::set_replicas(resource, &mut object, replicas);
    if let Some(revision) = new["metadata"]["resourceVersion"].as_str().filter(|revision| !revision.is_empty()) {
        object["metadata"]["resourceVersion"] = revision.into();
    }
    let stored = update(cluster, context, attributes, object, Update::Whole)?;
    let object = definition::at_version(cluster, resource, &stored.value, context.answers)?;
    Ok(Response::json(200, scale::of(resource, &object)))
}

fn patched(request: &Request, old: &Value) -> Result<Value, Halt> {
    let media_type = request.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match media_type {
        "application/json-patch+json" => patch::json(old, &body::patch(request)?),
        // A Scale has no lists: all merges are the same.
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            patch::merge(old, &body::patch(request)?)
        }
        "application/apply-patch+yaml" => patch::merge(old, &body::yaml(request)?),
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            Err(Status::unsupported_media_type(message).into())
        }
    }
}

fn replicas(scale: &Value, name: &str) -> Result<i64, Halt> {
    let found = match &scale["spec"]["replicas"] {
        Value::Null => Some(0),
        other => other.as_i64().filter(|number| i32::try_from(*number).is_ok()),
    };
    let Some(replicas) = found else {
        let message = "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal into Go struct field \
                       ScaleSpec.spec.replicas of type int32";
        return Err(Status::bad_request(message).into());
    };
    if replicas < 0 {
        let cause = Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
            field: "spec.replicas".to_owned(),
        };
        return Err(Status::invalid("autoscaling", "Scale", name, &[cause]).into());
    }
    Ok(replicas)
}
