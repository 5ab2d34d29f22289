//! delete and deletecollection: at once, or marked until the finalizers are gone. Input: delete options. Output: the object
//! or a Status. It must not know what finalizers wait for.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{output, read};
use crate::attributes::Attributes;
use crate::context::Context;
use crate::deletion::{DeleteOptions, Propagation};
use crate::halt::{Cause, Halt, Status};
use crate::request::{Request, Response};
use crate::resource::Resource;
use crate::store::Object;
use crate::{Cluster, admission, body, definition, strategy, time};

fn options(request: &Request, context: &mut Context<'_>) -> Result<DeleteOptions, Halt> {
    let sent = body::delete_options(request)?;
    let dry_runs = match sent["dryRun"].as_array() {
        Some(values) => values.iter().filter_map(Value::as_str).collect(),
        None => body::dry_runs(request),
    };
    if let Some(cause) = body::wrong_dry_run(&dry_runs) {
        return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &[cause]).into());
    }
    context.dry_run |= !dry_runs.is_empty();
    let text = |name: &str| {
        let found = sent[name].as_str().map(str::to_owned);
        found.or_else(|| request.parameter(name).filter(|value| !value.is_empty()).map(str::to_owned))
    };
    let truth = |name: &str| sent[name].as_bool().or_else(|| request.parameter(name).map(|value| value == "true"));
    if let (Some(policy), Some(_)) = (text("propagationPolicy"), truth("orphanDependents")) {
        let message = format!("Invalid value: {policy:?}: orphanDependents and deletionPropagation cannot be both set");
        return Err(wrong_propagation("FieldValueInvalid", message));
    }
    let propagation = match text("propagationPolicy").as_deref() {
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Orphan") => Some(Propagation::Orphan),
        Some(other) => {
            let known = r#""Foreground", "Background", "Orphan", "nil""#;
            let message = format!("Unsupported value: {other:?}: supported values: {known}");
            return Err(wrong_propagation("FieldValueNotSupported", message));
        }
        None => match truth("orphanDependents") {
            Some(true) => Some(Propagation::Orphan),
            Some(false) => Some(Propagation::Background),
            None => None,
        },
    };
    let seconds = sent["gracePeriodSeconds"].as_i64();
    Ok(DeleteOptions {
        grace_seconds: seconds.or_else(|| request.parameter("gracePeriodSeconds").and_then(|text| text.parse().ok())),
        propagation,
        uid: sent["preconditions"]["uid"].as_str().map(str::to_owned),
        revision: sent["preconditions"]["resourceVersion"].as_str().map(str::to_owned),
    })
}

fn wrong_propagation(reason: &'static str, message: String) -> Halt {
    let cause = Cause { reason, message, field: "propagationPolicy".to_owned() };
    Status::invalid("meta.k8s.io", "DeleteOptions", "", &[cause]).into()
}

pub(super) fn from_request(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &mut Context<'_>,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let options = options(request, context)?;
    let (object, gone) = delete(cluster, context, attributes, &options)?;
    let resource = &attributes.resource;
    if gone && !strategy::returns_deleted(resource) {
        let details = json!({
            "name": attributes.name, "group": &*resource.group, "kind": &*resource.plural, "uid": object.uid(),
        });
        let mut details = details;
        if resource.group.is_empty() {
            details.as_object_mut().map(|fields| fields.remove("group"));
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        });
        return Ok(Response::json(200, status));
    }
    output::one(cluster, output, attributes, 200, &object, context)
}

/// Deletes an object, or marks it. The flag says whether it is gone.
pub(crate) fn delete(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    options: &DeleteOptions,
) -> Result<(Arc<Object>, bool), Halt> {
    let resource = &attributes.resource;
    let stored = cluster.store.get(&resource.storage, &attributes.namespace, &attributes.name).cloned();
    let stored = stored.ok_or_else(|| attributes.not_found())?;
    preconditions(attributes, &stored, options)?;
    admission::validate(cluster, context, attributes, None, Some(&stored.value))?;
    let mut object = stored.value.clone();
    propagate(resource, &mut object, options.propagation);
    definition::hold(resource, &mut object, context);
    let grace = strategy::grace(cluster, resource, &object, options.grace_seconds);
    let waits = !finalizers(&object).is_empty() || grace > 0 || !strategy::may_vanish(&object);
    let marked = stored.terminates();
    // A kind with a grace period is marked even when none is left.
    if !waits && !strategy::is_graceful(resource) {
        return Ok((remove(cluster, context, resource, object), true));
    }
    if !marked || shortens(&object, grace) {
        let start = object["metadata"]["deletionTimestamp"].is_null();
        if start && !object["metadata"]["generation"].is_null() {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = (generation + 1).into();
        }
        let at = context.now + jiff::SignedDuration::from_secs(grace);
        object["metadata"]["deletionTimestamp"] = time::seconds(at).into();
        object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        strategy::prepare_delete(resource, &mut object);
    }
    let mut stored = stored;
    if object != *stored.value {
        stored = cluster.store.put(&resource.storage, object);
        definition::written(cluster, context, resource, &stored)?;
    }
    if !waits {
        stored = remove(cluster, context, resource, stored.value.clone());
    }
    Ok((stored, !waits))
}

fn preconditions(attributes: &Attributes, stored: &Object, options: &DeleteOptions) -> Result<(), Halt> {
    let resource = &attributes.resource;
    let metadata = &stored.value["metadata"];
    let recreated = "The object might have been deleted and then recreated";
    let changed = "The object might have been modified";
    for (what, wanted, found, perhaps) in [
        ("UID", &options.uid, &metadata["uid"], recreated),
        ("ResourceVersion", &options.revision, &metadata["resourceVersion"], changed),
    ] {
        let found = found.as_str().unwrap_or_default();
        if let Some(wanted) = wanted.as_ref().filter(|wanted| **wanted != found) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). {perhaps}"
            );
            // Here the API server names the kind.
            return Err(Status::conflict(&resource.group, &resource.kind, &attributes.name, &why).into());
        }
    }
    Ok(())
}

/// Sets or takes the finalizers that the garbage collector works for.
fn propagate(resource: &Resource, object: &mut Value, propagation: Option<Propagation>) {
    let mut list = finalizers(object);
    let has = |list: &[String], name: &str| list.iter().any(|finalizer| finalizer == name);
    let wanted = propagation.or_else(|| {
        // Without a policy the finalizers that are there decide, then the kind.
        if has(&list, "orphan") {
            Some(Propagation::Orphan)
        } else if has(&list, "foregroundDeletion") {
            Some(Propagation::Foreground)
        } else {
            strategy::default_propagation(resource)
        }
    });
    list.retain(|finalizer| finalizer != "orphan" && finalizer != "foregroundDeletion");
    match wanted {
        Some(Propagation::Orphan) => list.push("orphan".to_owned()),
        Some(Propagation::Foreground) => list.push("foregroundDeletion".to_owned()),
        _ => {}
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if list.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), list.into());
        }
    }
}

fn shortens(object: &Value, grace: i64) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_null()
        || metadata["deletionGracePeriodSeconds"].as_i64().is_some_and(|old| grace < old)
}

fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a marked object has nothing left to wait for.
pub(super) fn is_finished(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let marked = !metadata["deletionTimestamp"].is_null();
    marked
        && finalizers(object).is_empty()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && strategy::may_vanish(object)
}

/// Takes an object out of the store.
pub(super) fn remove(
    cluster: &mut Cluster,
    context: &Context<'_>,
    resource: &Arc<Resource>,
    object: Value,
) -> Arc<Object> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let gone = cluster.store.remove(&resource.storage, &text("namespace"), &text("name"));
    let gone = gone.unwrap_or_else(|| Arc::new(Object::new(object, 0)));
    definition::removed(cluster, context, resource, &gone);
    strategy::removed(cluster, resource, &gone);
    gone
}

/// Removes an object whose grace period a kubelet has seen through.
pub(crate) fn finish(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
) -> Result<(Arc<Object>, bool), Halt> {
    delete(cluster, context, attributes, &DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() })
}

pub(super) fn collection(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &mut Context<'_>,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let options = options(request, context)?;
    // The answer has the objects as they were.
    let (objects, metadata) = read::find(cluster, request, attributes)?;
    for object in &objects {
        let one = Attributes {
            verb: "delete",
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            ..attributes.clone()
        };
        delete(cluster, context, &one, &options)?;
    }
    output::list(cluster, output, &attributes.resource, &objects, metadata, context)
}
