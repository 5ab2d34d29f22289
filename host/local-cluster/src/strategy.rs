//! What is special about a kind when it is written: defaults that its schema does not say, what a client may not set, what
//! must hold. Input: objects before they are stored. Output: the same objects, completed, or causes. It must not know HTTP.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::halt::{Cause, Halt, Status};
use crate::options::Options;
use crate::resource::Resource;
use crate::rest::{Attributes, Context, Propagation};
use crate::store::Object;
use crate::{Cluster, definition};

/// Fills in the defaults of built-in kinds that the published schema lacks.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if is_definition(resource) {
        definition::default(object);
    }
}

fn is_definition(resource: &Resource) -> bool {
    &*resource.kind == "CustomResourceDefinition" && &*resource.group == "apiextensions.k8s.io"
}

/// Takes away what a create may not set, and sets what it starts with: generation, an empty status.
pub(crate) fn prepare_create(
    cluster: &mut Cluster,
    context: &Context<'_>,
    resource: &Resource,
    object: &mut Value,
) -> Result<(), Halt> {
    if resource.custom.is_some() {
        definition::prepare_create(cluster, context, resource, object)?;
    } else if is_definition(resource) {
        definition::prepare(object, None);
    }
    Ok(())
}

/// Keeps what this update may not change: the status, or all but the status; counts the generation.
pub(crate) fn prepare_update(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    new: &mut Value,
    old: &Value,
) -> Result<(), Halt> {
    if attributes.resource.custom.is_some() {
        definition::prepare_update(cluster, context, attributes, new, old)?;
    } else if is_definition(&attributes.resource) && attributes.subresource.is_empty() {
        definition::prepare(new, Some(old));
    }
    Ok(())
}

/// What is wrong with the metadata: names, labels, annotations, owner references, finalizers.
pub(crate) fn validate_metadata(_resource: &Resource, _object: &Value) -> Vec<Cause> {
    Vec::new()
}

pub(crate) fn validate_create(_cluster: &Cluster, resource: &Resource, object: &Value) -> Vec<Cause> {
    if is_definition(resource) { definition::causes(object, None) } else { Vec::new() }
}

pub(crate) fn validate_update(_cluster: &Cluster, attributes: &Attributes, new: &Value, old: &Value) -> Vec<Cause> {
    if is_definition(&attributes.resource) { definition::causes(new, Some(old)) } else { Vec::new() }
}

/// What follows at once on a created object, such as the address of a Service.
pub(crate) fn created(
    _cluster: &mut Cluster,
    _context: &Context<'_>,
    _resource: &Arc<Resource>,
    _object: &Arc<Object>,
) -> Result<(), Halt> {
    Ok(())
}

pub(crate) fn updated(
    _cluster: &mut Cluster,
    _context: &Context<'_>,
    _resource: &Arc<Resource>,
    _object: &Arc<Object>,
) -> Result<(), Halt> {
    Ok(())
}

pub(crate) fn removed(_cluster: &mut Cluster, _context: &Context<'_>, _resource: &Resource, _object: &Object) {}

/// Changes what a deletion that has to wait changes besides the metadata, such as a Namespace's phase.
pub(crate) fn prepare_delete(resource: &Resource, object: &mut Value) {
    if resource.group.is_empty() && &*resource.kind == "Namespace" {
        object["status"]["phase"] = "Terminating".into();
    }
}

/// How many seconds a deletion waits: of Pods their grace period, of others none.
pub(crate) fn grace(_cluster: &Cluster, _resource: &Resource, _object: &Value, _wanted: Option<i64>) -> i64 {
    0
}

/// What a deletion without a policy does with dependents.
pub(crate) fn default_propagation(_resource: &Resource) -> Option<Propagation> {
    None
}

/// Whether a deletion answers with the object that is gone instead of a Status.
pub(crate) fn returns_deleted(_resource: &Resource) -> bool {
    false
}

/// Whether an object that is marked, without finalizers and without grace, goes at once: a Namespace waits for
/// `spec.finalizers`.
pub(crate) fn may_vanish(object: &Value) -> bool {
    object["kind"] != "Namespace" || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// Whether an update must say which version it was made from.
pub(crate) fn needs_version(_resource: &Resource) -> bool {
    false
}

/// The form in which a subresource shows an object, that patches of it are made on.
pub(crate) fn as_subresource(_attributes: &Attributes, object: &Value) -> Value {
    object.clone()
}

/// Whether objects can be selected by this field.
pub(crate) fn selectable(resource: &Resource, path: &str) -> bool {
    let custom =
        resource.custom.as_ref().is_some_and(|version| version.selectable.iter().any(|known| **known == *path));
    custom || matches!(path, "metadata.name" | "metadata.namespace")
}

/// Refuses to create in a namespace that is not there or is being deleted.
pub(crate) fn namespace_is_open(cluster: &Cluster, _resource: &Resource, namespace: &str) -> Result<(), Halt> {
    let storage = crate::resource::Storage::new("", "namespaces");
    match cluster.store.get(&storage, "", namespace) {
        Some(_) => Ok(()),
        None => Err(Status::not_found("", "namespaces", namespace).into()),
    }
}

/// The namespaces, services and nodes that are there from the start.
pub(crate) fn bootstrap(_options: &Options) -> Vec<Value> {
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
    namespaces.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).into()
}
