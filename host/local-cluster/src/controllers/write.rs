//! How controllers write: through the verbs of the API server, so that admission, validation and watches see it. Input: an
//! object as a controller read it, and what it shall be. Output: the stored object. It must not know which controller asks.
//!
//! No function writes when nothing changes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde_json::{Value, json};

use super::storages::EVENTS;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::deletion::DeleteOptions;
use crate::halt::{Halt, Status};
use crate::resource::{Resource, group_version};
use crate::rest::{self, Update};
use crate::store::Object;
use crate::{Cluster, time};

/// How often the same event is counted before it is counted once in [`QUIET_SECONDS`] only, as client-go's recorder does.
const MAX_BURST: i64 = 25;
const QUIET_SECONDS: i64 = 300;

/// Group, version and kind, such as `("apps", "v1", "ReplicaSet")`.
pub(super) type Kind<'a> = (&'a str, &'a str, &'a str);

/// Creates an object. Its name may be a `generateName`; kind and namespace are filled in.
pub(super) fn create(
    cluster: &mut Cluster,
    context: &Context<'_>,
    (group, version, kind): Kind<'_>,
    namespace: &str,
    mut object: Value,
) -> Result<Arc<Object>, Halt> {
    let resource = cluster.kind(group, version, kind).cloned().ok_or_else(Status::no_resource)?;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), resource.api_version().into());
        fields.insert("kind".to_owned(), kind.into());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    rest::create(cluster, context, &Attributes::of("create", &resource, namespace, &name), object)
}

/// Replaces an object, except its status. The resource version in `new` is a precondition.
pub(super) fn update(
    cluster: &mut Cluster,
    context: &Context<'_>,
    object: &Object,
    new: Value,
) -> Result<Arc<Object>, Halt> {
    update_subresource(cluster, context, object, "", new)
}

/// Replaces the status of an object.
pub(super) fn update_status(
    cluster: &mut Cluster,
    context: &Context<'_>,
    object: &Object,
    new_status: Value,
) -> Result<Arc<Object>, Halt> {
    if object.value["status"] == new_status {
        return stored(cluster, object);
    }
    let mut new = object.value.clone();
    set(&mut new, "status", new_status);
    update_subresource(cluster, context, object, "status", new)
}

/// Changes an object in place, except its status.
pub(super) fn change(
    cluster: &mut Cluster,
    context: &Context<'_>,
    object: &Object,
    change: impl FnOnce(&mut Value),
) -> Result<Arc<Object>, Halt> {
    let mut new = object.value.clone();
    change(&mut new);
    update(cluster, context, object, new)
}

/// Replaces an object through a subresource, such as `status` or `finalize`; an empty one is the object itself.
pub(super) fn update_subresource(
    cluster: &mut Cluster,
    context: &Context<'_>,
    object: &Object,
    subresource: &str,
    new: Value,
) -> Result<Arc<Object>, Halt> {
    if *object.value == new {
        return stored(cluster, object);
    }
    let resource = resource(cluster, object)?;
    let mut attributes = Attributes::of("update", &resource, object.namespace(), object.name());
    attributes.subresource = subresource.to_owned();
    rest::update(cluster, context, &attributes, new, Update::Whole)
}

/// Deletes an object, if it is still this one; one that is gone or that was made anew is left alone.
pub(super) fn delete(
    cluster: &mut Cluster,
    context: &Context<'_>,
    object: &Object,
    options: &DeleteOptions,
) -> Result<(), Halt> {
    let resource = resource(cluster, object)?;
    let known = cluster.store.get(&resource.storage, object.namespace(), object.name());
    if known.is_none_or(|known| known.uid() != object.uid()) {
        return Ok(());
    }
    let attributes = Attributes::of("delete", &resource, object.namespace(), object.name());
    rest::delete(cluster, context, &attributes, options).map(|_| ())
}

/// Records an event about an object; `kind` is `Normal` or `Warning`. One that was recorded already is counted. An event
/// that is refused is lost, as events are.
pub(super) fn event(
    cluster: &mut Cluster,
    context: &Context<'_>,
    regarding: &Object,
    kind: &str,
    reason: &str,
    message: &str,
) -> Result<(), Halt> {
    let (component, host) = component(context);
    let mut hash = DefaultHasher::new();
    (regarding.uid(), kind, reason, message, component).hash(&mut hash);
    let name = format!("{}.{:016x}", regarding.name(), hash.finish());
    let namespace = Some(regarding.namespace()).filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    let now = time::seconds(context.now);
    let written = if let Some(known) = cluster.store.get(&EVENTS, namespace, &name).cloned() {
        let count = known.value["count"].as_i64().unwrap_or(1);
        let last = time::read(&known.value["lastTimestamp"]).unwrap_or(context.now);
        if count >= MAX_BURST && context.now.as_second() - last.as_second() < QUIET_SECONDS {
            return Ok(());
        }
        change(cluster, context, &known, |event| {
            event["count"] = (count + 1).into();
            event["lastTimestamp"] = now.into();
        })
    } else {
        let object = json!({
            "metadata": {"name": name},
            "involvedObject": reference(regarding),
            "reason": reason, "message": message, "type": kind, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
            "source": source(component, host), "reportingComponent": component, "reportingInstance": host,
        });
        create(cluster, context, ("", "v1", "Event"), namespace, object)
    };
    match written {
        Err(Halt::Call(call)) => Err(Halt::Call(call)),
        Ok(_) | Err(Halt::Status(_)) => Ok(()),
    }
}

/// What an event's source is called: a controller by its service account, the scheduler and the kubelets by their own names.
fn component<'a>(context: &'a Context<'_>) -> (&'a str, &'a str) {
    let user = context.user.name.as_str();
    let last = user.rsplit(':').next().unwrap_or(user);
    match context.manager.as_str() {
        "kubelet" => ("kubelet", last),
        "kube-scheduler" => ("default-scheduler", ""),
        _ if last == "disruption-controller" => ("controllermanager", ""),
        _ => (last, ""),
    }
}

fn source(component: &str, host: &str) -> Value {
    if host.is_empty() { json!({"component": component}) } else { json!({"component": component, "host": host}) }
}

/// An ObjectReference to an object.
fn reference(object: &Object) -> Value {
    let (value, metadata) = (&object.value, &object.value["metadata"]);
    let mut reference = json!({
        "apiVersion": value["apiVersion"], "kind": value["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    });
    if !object.namespace().is_empty() {
        reference["namespace"] = object.namespace().into();
    }
    reference
}

/// Sets a field of an object; what is no object stays what it is.
pub(super) fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

fn resource(cluster: &Cluster, object: &Object) -> Result<Arc<Resource>, Halt> {
    let (group, version) = group_version(object.value["apiVersion"].as_str().unwrap_or_default());
    let kind = object.value["kind"].as_str().unwrap_or_default();
    Ok(cluster.kind(group, version, kind).cloned().ok_or_else(Status::no_resource)?)
}

fn stored(cluster: &Cluster, object: &Object) -> Result<Arc<Object>, Halt> {
    let resource = resource(cluster, object)?;
    let found = cluster.store.get(&resource.storage, object.namespace(), object.name()).cloned();
    Ok(found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, object.name()))?)
}
