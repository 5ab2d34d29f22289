//! patch: JSON, merge, strategic merge, and server-side apply. Input: a patch. Output: an update, or of apply a create. It
//! must not know how patches are merged.

use serde_json::Value;

use super::{Attributes, Context, Update, create, one, output, update};
use crate::halt::{Halt, Status};
use crate::request::{Request, Response};
use crate::{Cluster, apply, body, definition, patch, strategy};

pub(super) fn from_request(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let media_type = request.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let resource = &attributes.resource;
    let old = match cluster.store.get(&resource.storage, &attributes.namespace, &attributes.name) {
        Some(stored) => Some(definition::at_version(cluster, resource, &stored.value, context.answers)?.into_owned()),
        None => None,
    };
    let applies = matches!(media_type, "application/apply-patch+yaml" | "application/apply-patch+cbor");
    if applies {
        return apply_patch(cluster, request, attributes, context, output, old.as_ref());
    }
    let old = old.ok_or_else(|| attributes.not_found())?;
    if request.parameter("force").is_some_and(|force| !force.is_empty()) {
        let message =
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
        let mut status = Status::bad_request(message);
        (status.code, status.reason) = (422, "Invalid");
        return Err(status.into());
    }
    let shown = strategy::as_subresource(attributes, &old);
    let mut object = match media_type {
        "application/json-patch+json" => patch::json(&shown, &request.body)?,
        "application/merge-patch+json" => patch::merge(&shown, &body::patch(request)?)?,
        "application/strategic-merge-patch+json" if resource.custom.is_none() => {
            patch::strategic(&shown, &body::patch(request)?, resource.schema())?
        }
        other => {
            let mut known = vec!["application/json-patch+json", "application/merge-patch+json"];
            if resource.custom.is_none() {
                known.push("application/strategic-merge-patch+json");
            }
            known.push("application/apply-patch+yaml");
            let why = if other == "application/strategic-merge-patch+json" {
                format!(
                    "the body of the request was in an unknown format - accepted media types include: {}",
                    known.join(", ")
                )
            } else {
                format!(
                    "the body of the request was in an unknown format - accepted media types include: {}",
                    known.join(", ")
                )
            };
            return Err(Status::unsupported_media_type(why).into());
        }
    };
    body::unknown_fields(request, resource, &mut object, context)?;
    check_identity(attributes, &object)?;
    let stored = update(cluster, context, attributes, object, Update::Whole)?;
    let value = definition::at_version(cluster, resource, &stored.value, context.answers)?;
    Ok(one(cluster, &output, attributes, 200, &value))
}

fn check_identity(attributes: &Attributes, object: &Value) -> Result<(), Halt> {
    if !attributes.subresource.is_empty() && attributes.subresource != "status" {
        return Ok(());
    }
    body::check_kind(object, &attributes.resource)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name != attributes.name {
        let message =
            format!("the name of the object ({name}) does not match the name on the URL ({})", attributes.name);
        return Err(Status::bad_request(message).into());
    }
    Ok(())
}

fn apply_patch(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
    output: output::Output,
    old: Option<&Value>,
) -> Result<Response, Halt> {
    let resource = &attributes.resource;
    if request.parameter("fieldManager").is_none_or(str::is_empty) {
        let mut status = Status::bad_request(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        );
        (status.code, status.reason) = (422, "Invalid");
        return Err(status.into());
    }
    let mut applied = body::yaml(request)?;
    body::check_kind(&applied, resource)?;
    body::unknown_fields(request, resource, &mut applied, context)?;
    let force = request.parameter("force") == Some("true");
    let merged = apply::apply(
        resource,
        old,
        &applied,
        &apply::Applier { manager: &context.manager, force, subresource: &attributes.subresource, now: context.now },
    )?;
    let status = if old.is_some() { 200 } else { 201 };
    let stored = match old {
        Some(_) => update(cluster, context, attributes, merged, Update::Applied)?,
        None if attributes.subresource.is_empty() => {
            let attributes = Attributes { verb: "create", ..attributes.clone() };
            create(cluster, context, &attributes, merged)?
        }
        None => return Err(attributes.not_found().into()),
    };
    let value = definition::at_version(cluster, resource, &stored.value, context.answers)?;
    Ok(one(cluster, &output, attributes, status, &value))
}
