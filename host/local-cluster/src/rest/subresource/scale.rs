//! The scale subresource of Deployments and their like, and of custom resources that have one. Input: a request for it.
//! Output: a Scale. It must not know what scaling starts.

use serde_json::{Value, json};

use super::posted::document;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::request::{Request, Response};
use crate::rest::patch::{APPLY, force};
use crate::rest::{Update, update};
use crate::{Cluster, apply, body, definition, patch, scale};

pub(super) fn answer(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let resource = &attributes.resource;
    let sent = if attributes.verb == "update" { Some(document(request, "autoscaling/v1", "Scale")?) } else { None };
    let stored = cluster.store.get(&resource.storage, &attributes.namespace, &attributes.name).cloned();
    let stored = stored.ok_or_else(|| attributes.not_found())?;
    let mut object = definition::at_version(cluster, resource, &stored.value, context.answers)?.into_owned();
    let old = scale::of(resource, &object);
    if attributes.verb == "get" {
        return Ok(Response::json(200, old));
    }
    let (object, how) = match sent {
        None if body::media_type(request) == APPLY => {
            (applied(request, attributes, context, &object)?, Update::Applied)
        }
        sent => {
            let new = sent.map_or_else(|| patched(request, &old), Ok)?;
            set(attributes, &mut object, &new)?;
            (object, Update::Whole)
        }
    };
    let stored = update(cluster, context, attributes, object, how)?;
    let object = definition::at_version(cluster, resource, &stored.value, context.answers)?;
    Ok(Response::json(200, scale::of(resource, &object)))
}

/// Gives an object the replicas of a Scale, whose UID and version are preconditions.
fn set(attributes: &Attributes, object: &mut Value, scale: &Value) -> Result<(), Halt> {
    let text = |key: &str| scale["metadata"][key].as_str().unwrap_or_default();
    if text("name") != attributes.name {
        let (name, wanted) = (text("name"), &attributes.name);
        let message = format!("the name of the object ({name}) does not match the name on the URL ({wanted})");
        return Err(Status::bad_request(message).into());
    }
    scale::set_replicas(&attributes.resource, object, replicas(scale, &attributes.name)?);
    for key in ["uid", "resourceVersion"] {
        if !text(key).is_empty() {
            object["metadata"][key] = text(key).into();
        }
    }
    Ok(())
}

/// An applied Scale is an object with nothing but its replicas.
fn applied(request: &Request, attributes: &Attributes, context: &Context<'_>, object: &Value) -> Result<Value, Halt> {
    body::check_options(request, Some(true))?;
    let (resource, (scale, _)) = (&attributes.resource, body::applied(request)?);
    let name = json!({"name": attributes.name});
    let mut wanted = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind, "metadata": name});
    if scale["spec"].get("replicas").is_some() {
        scale::set_replicas(resource, &mut wanted, replicas(&scale, &attributes.name)?);
    }
    let (manager, subresource) = (context.manager.as_str(), attributes.subresource.as_str());
    let applier = apply::Applier { manager, force: force(request), subresource, now: context.now };
    apply::apply(resource, Some(object), &wanted, &applier)
}

fn patched(request: &Request, old: &Value) -> Result<Value, Halt> {
    match body::media_type(request) {
        "application/json-patch+json" => patch::json(old, &body::patch(request)?),
        // A Scale has no lists: all merges are the same.
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            patch::merge(old, &body::patch(request)?)
        }
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
