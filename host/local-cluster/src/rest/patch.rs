//! patch: JSON, merge, strategic merge, and server-side apply. Input: a patch. Output: an update, or of apply a create. It
//! must not know how patches are merged.

use serde_json::Value;

use super::create::create_as;
use super::{Update, output, update};
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::output::Output;
use crate::request::{Request, Response};
use crate::{Cluster, access, apply, body, definition, patch};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

pub(super) fn from_request(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let resource = &attributes.resource;
    let media_type = body::media_type(request);
    let known: &[&str] =
        if resource.custom.is_some() { &[JSON, MERGE, APPLY] } else { &[JSON, MERGE, STRATEGIC, APPLY] };
    if !known.contains(&media_type) {
        if resource.custom.is_some() {
            return Err(body::unsupported(known).into());
        }
        // Of built-in kinds the router refuses it.
        let mut status = Status::unsupported_media_type("415: Unsupported Media Type");
        status.details = Some(Value::Object(serde_json::Map::new()));
        return Err(status.into());
    }
    let output = output::read(request)?;
    body::check_options(request, Some(media_type == APPLY))?;
    let stored = cluster.store.get(&resource.storage, &attributes.namespace, &attributes.name).cloned();
    let of_version = |stored| definition::at_version(cluster, resource, stored, context.answers);
    let old = stored.as_ref().map(|stored| of_version(&stored.value)).transpose()?;
    if media_type == APPLY {
        return apply_patch(cluster, request, attributes, context, output, old.as_deref());
    }
    let old = old.ok_or_else(|| attributes.not_found())?;
    let (sent, faults) = body::checked_patch(request)?;
    let mut object = match media_type {
        JSON => patch::json(&old, &sent)?,
        MERGE => patch::merge(&old, &sent)?,
        _ => patch::strategic(&old, &sent, resource.schema())?,
    };
    check_decodes(&object)?;
    let strategic = (media_type == STRATEGIC).then_some(&sent);
    body::patched(request, resource, &mut object, strategic, faults, context)?;
    check_identity(attributes, &object)?;
    check_uid(attributes, &object, &old)?;
    let stored = update(cluster, context, attributes, object, Update::Whole)?;
    output::one(cluster, output, attributes, 200, &stored, context)
}

/// A patch may make something of an object that is none any more.
fn check_decodes(object: &Value) -> Result<(), Halt> {
    let why = if !object.is_object() {
        format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", patch::kind(object))
    } else if !object["metadata"].is_object() && !object["metadata"].is_null() {
        let kind = patch::kind(&object["metadata"]);
        format!("json: cannot unmarshal {kind} into Go struct field .metadata of type v1.ObjectMeta")
    } else {
        return Ok(());
    };
    let message = format!("Invalid value: {:?}: {why}", object.to_string());
    let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".to_owned() };
    Err(Status::invalid("", "", "", &[cause]).into())
}

/// Refuses an object that a patch made another one.
fn check_identity(attributes: &Attributes, object: &Value) -> Result<(), Halt> {
    if !attributes.subresource.is_empty() && attributes.subresource != "status" {
        return Ok(());
    }
    body::check_kind(object, &attributes.resource)?;
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    if !text("namespace").is_empty() && text("namespace") != attributes.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message).into());
    }
    let (name, wanted) = (text("name"), &attributes.name);
    let message = if name.is_empty() {
        format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided")
    } else if name != wanted {
        format!("the name of the object ({name}) does not match the name on the URL ({wanted})")
    } else {
        return Ok(());
    };
    Err(Status::bad_request(message).into())
}

/// A patch cannot change the UID: it is no precondition here. The metadata of an update is checked twice.
fn check_uid(attributes: &Attributes, object: &Value, old: &Value) -> Result<(), Halt> {
    let uid = &object["metadata"]["uid"];
    if uid.as_str().is_none_or(str::is_empty) || *uid == old["metadata"]["uid"] {
        return Ok(());
    }
    let message = format!("Invalid value: {uid}: field is immutable");
    let cause = Cause { reason: "FieldValueInvalid", message, field: "metadata.uid".to_owned() };
    let resource = &attributes.resource;
    Err(Status::invalid(&resource.group, &resource.kind, &attributes.name, &[cause.clone(), cause]).into())
}

/// Whether an apply takes what others own.
pub(super) fn force(request: &Request) -> bool {
    request.parameter("force").is_some_and(|force| matches!(force, "true" | "1" | "t" | "T" | "TRUE" | "True"))
}

fn apply_patch(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
    output: Output,
    old: Option<&Value>,
) -> Result<Response, Halt> {
    let resource = &attributes.resource;
    let (applied, faults) = body::applied(request)?;
    let force = force(request);
    let subresource = &attributes.subresource;
    let applier = apply::Applier { manager: &context.manager, force, subresource, now: context.now };
    let mut merged = apply::apply(resource, old, &applied, &applier)?;
    body::applied_faults(request, &faults, context)?;
    let uid = merged["metadata"]["uid"].as_str().unwrap_or_default();
    if old.is_none() && !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Status::conflict(&resource.group, &resource.plural, &attributes.name, &why).into());
    }
    check_identity(attributes, &merged)?;
    if let Some(old) = old {
        check_uid(attributes, &merged, old)?;
    }
    resource.schema().prune(&mut merged);
    let (status, stored) = match old {
        Some(_) => (200, update(cluster, context, attributes, merged, Update::Applied)?),
        None if attributes.subresource.is_empty() => {
            let attributes = Attributes { verb: "create", ..attributes.clone() };
            access::authorize(cluster, &context.user, &attributes, request)?;
            (201, create_as(cluster, context, &attributes, merged, Update::Applied)?)
        }
        None => return Err(attributes.not_found().into()),
    };
    output::one(cluster, output, attributes, status, &stored, context)
}
