//! The end of a definition: first its instances go. Input: a definition that is deleted. Output: instances deleted, then the
//! definition. It must not know what instances' finalizers wait for.

use std::sync::Arc;

use serde_json::Value;

use super::condition::{self, Condition, set, write};
use super::field::{array, holds, is_definition, storage, text};
use super::served;
use crate::Cluster;
use crate::context::Context;
use crate::halt::Halt;
use crate::resource::{Resource, Storage};
use crate::store::Object;
use crate::time;

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What follows on a written object: a definition serves its resources and gets its conditions, and one that is deleted
/// deletes its instances.
pub(crate) fn written(
    cluster: &mut Cluster,
    context: &Context<'_>,
    resource: &Arc<Resource>,
    object: &Arc<Object>,
) -> Result<(), Halt> {
    if is_definition(resource) {
        condition::settle(cluster, resource, object.name(), context.now);
        finalize(cluster, context, resource, object.name());
    }
    Ok(())
}

/// What follows on an object that is gone: a definition stops to serve, and the last instance lets its definition go.
pub(crate) fn removed(cluster: &mut Cluster, context: &Context<'_>, resource: &Resource, object: &Object) {
    if is_definition(resource) {
        served::withdraw(cluster, &object.value);
        condition::reconsider(cluster, text(&object.value["spec"], "group"), context.now);
    } else if let Some(version) = &resource.custom {
        let name = text(&version.definition["metadata"], "name").to_owned();
        if let Some(definitions) = cluster.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned()
        {
            finalize(cluster, context, &definitions, &name);
        }
    }
}

/// Holds a definition back that is about to be deleted, until its instances are gone.
pub(crate) fn hold(resource: &Resource, object: &mut Value, context: &Context<'_>) {
    if !is_definition(resource) || !object["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let mut finalizers = array(&object["metadata"], "finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
    let words = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon".to_owned();
    set(object, &Condition("Terminating", true, "InstanceDeletionPending", words), context.now);
}

/// Deletes the instances of a definition that is deleted, and lets it go when none is left.
fn finalize(cluster: &mut Cluster, context: &Context<'_>, resource: &Arc<Resource>, name: &str) {
    let held = |object: &Object| {
        let finalizers = array(&object.value["metadata"], "finalizers");
        object.terminates() && finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    };
    let find = |cluster: &Cluster| cluster.store.get(&storage(), "", name).filter(|object| held(object)).cloned();
    let Some(object) = find(cluster) else { return };
    let spec = &object.value["spec"];
    let instances = Storage::new(text(spec, "group"), text(&spec["names"], "plural"));
    let established = holds(&object.value, "Established");
    if established && cluster.store.count(&instances) > 0 {
        let mut definition = object.value.clone();
        let words = "CustomResource deletion is in progress".to_owned();
        set(&mut definition, &Condition("Terminating", true, "InstanceDeletionInProgress", words), context.now);
        write(cluster, resource, &object, definition, context.now);
        delete_all(cluster, context, &instances);
        if cluster.store.count(&instances) > 0 {
            return;
        }
    }
    let Some(object) = find(cluster) else { return };
    let mut definition = object.value.clone();
    let (reason, words) = if established {
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    set(&mut definition, &Condition("Terminating", false, reason, words.to_owned()), context.now);
    let rest: Vec<Value> = array(&definition["metadata"], "finalizers").to_vec();
    let rest: Vec<Value> = rest.into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
    let gone = rest.is_empty();
    if let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("finalizers".to_owned(), rest.into());
    }
    if gone {
        if let Some(gone) = cluster.store.remove(&storage(), "", name) {
            removed(cluster, context, resource, &gone);
        }
    } else {
        write(cluster, resource, &object, definition, context.now);
    }
}

/// Deletes instances at once, or marks those that have finalizers: without admission, as the API server does it.
fn delete_all(cluster: &mut Cluster, context: &Context<'_>, instances: &Storage) {
    let all: Vec<Arc<Object>> = cluster.store.list(instances, None, None).cloned().collect();
    for object in all.iter().filter(|object| !object.terminates()) {
        if array(&object.value["metadata"], "finalizers").is_empty() {
            cluster.store.remove(instances, object.namespace(), object.name());
            continue;
        }
        let mut value = object.value.clone();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
            metadata.insert("generation".to_owned(), (generation + 1).into());
            metadata.insert("deletionTimestamp".to_owned(), time::seconds(context.now).into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
        }
        cluster.store.put(instances, value);
    }
}
