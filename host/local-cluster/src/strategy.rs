//! What is special about a kind when it is written: defaults that its schema does not say, what a client may not set, what
//! must hold. Input: objects before they are stored. Output: the same objects, completed, or causes. It must not know HTTP.

mod bootstrap;
mod default;
mod diff;
mod field;
mod fill;
mod format;
mod kind;
mod metadata;
mod normal;
mod pod;
mod pod_default;
mod prepare;
mod rule;
mod service;
mod validate;

use serde_json::{Value, json};

use crate::attributes::Attributes;
use crate::context::Context;
use crate::deletion::Propagation;
use crate::halt::{Cause, Halt, Status};
use crate::resource::{Resource, Storage};
use crate::store::Object;
use crate::{Cluster, definition};

use self::default::Extent;
use self::field::{Causes, text};

pub(crate) use self::bootstrap::bootstrap;
pub(crate) use self::format::{label_value, qualified};
pub(crate) use self::kind::deprecation;

/// Fills in all defaults, in the form in which the API server writes them. `stored` is the object that an update changes, in
/// the version in which it is stored: its spec has its defaults, and a spec that is the same is not looked through.
pub(crate) fn complete(resource: &Resource, object: &mut Value, stored: Option<&Value>) {
    let same = stored.is_some_and(|stored| object["spec"].is_object() && object["spec"] == stored["spec"]);
    if !same || resource.custom.is_some() || is_definition(resource) {
        resource.schema().default(object);
        return default(resource, object);
    }
    let spec = object.as_object_mut().and_then(|fields| fields.remove("spec"));
    resource.schema().default(object);
    normal::tidy(object, resource.schema().root());
    if let (Some(fields), Some(spec)) = (object.as_object_mut(), spec) {
        fields.insert("spec".to_owned(), spec);
    }
    default::default(resource, object, Extent::BesidesSpec);
}

/// Fills in the defaults of built-in kinds that the published schema lacks.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if resource.custom.is_none() {
        normal::tidy(object, resource.schema().root());
        default::default(resource, object, Extent::Whole);
    }
    if is_definition(resource) {
        definition::default(object);
    }
}

fn is_definition(resource: &Resource) -> bool {
    &*resource.kind == "CustomResourceDefinition" && &*resource.group == "apiextensions.k8s.io"
}

/// Takes away what a create may not set, and sets what it starts with: generation, status, what the cluster gives.
pub(crate) fn prepare_create(
    cluster: &mut Cluster,
    context: &Context<'_>,
    resource: &Resource,
    object: &mut Value,
) -> Result<(), Halt> {
    if resource.custom.is_some() {
        return definition::prepare_create(cluster, context, resource, object);
    }
    prepare::create(resource, object, context);
    if is_service(resource) {
        service::create(cluster, object, context.now)?;
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
    let (resource, subresource) = (&attributes.resource, attributes.subresource.as_str());
    if resource.custom.is_some() {
        return definition::prepare_update(cluster, context, attributes, new, old);
    }
    prepare::update(resource, subresource, new, old, context.now);
    if is_service(resource) && subresource.is_empty() {
        service::update(cluster, new, old, context.now)?;
    } else if is_definition(resource) && subresource.is_empty() {
        definition::prepare(new, Some(old));
    }
    Ok(())
}

fn is_service(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.kind == "Service"
}

/// What is wrong with the metadata: names, labels, annotations, owner references, finalizers.
pub(crate) fn validate_metadata(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Causes::default();
    metadata::check(resource, object, &mut causes);
    causes.0
}

pub(crate) fn validate_create(_cluster: &Cluster, resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Causes::default();
    if resource.custom.is_none() {
        validate::create(resource, object, &mut causes);
    }
    if is_definition(resource) {
        causes.0.extend(definition::causes(object, None));
    }
    causes.0
}

pub(crate) fn validate_update(_cluster: &Cluster, attributes: &Attributes, new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Causes::default();
    metadata::check_update(new, old, &mut causes);
    if attributes.resource.custom.is_none() {
        validate::update(&attributes.resource, &attributes.subresource, new, old, &mut causes);
    }
    if is_definition(&attributes.resource) {
        causes.0.extend(definition::causes(new, Some(old)));
    }
    causes.0
}

/// Takes back what the cluster gave an object that is gone.
pub(crate) fn removed(cluster: &mut Cluster, resource: &Resource, object: &Object) {
    if is_service(resource) {
        service::release(cluster, &object.value);
    }
}

/// Changes what a deletion that has to wait changes besides the metadata, such as a Namespace's phase.
pub(crate) fn prepare_delete(resource: &Resource, object: &mut Value) {
    if resource.group.is_empty() && &*resource.kind == "Namespace" {
        fill::set(object, "status.phase", Some("Terminating".into()));
        fill::set(object, "metadata.deletionGracePeriodSeconds", None);
    }
}

/// How many seconds a deletion waits: of Pods their grace period, of others none.
pub(crate) fn grace(_cluster: &Cluster, resource: &Resource, object: &Value, wanted: Option<i64>) -> i64 {
    if is_graceful(resource) { pod::grace(object, wanted) } else { 0 }
}

/// Whether objects of the kind end after a grace period.
pub(crate) fn is_graceful(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.kind == "Pod"
}

/// What a deletion without a policy does with dependents. Old clients of these two kinds deleted the Pods themselves.
pub(crate) fn default_propagation(resource: &Resource) -> Option<Propagation> {
    let orphans = matches!((&*resource.group, &*resource.kind), ("batch", "Job") | ("", "ReplicationController"));
    orphans.then_some(Propagation::Orphan)
}

/// Whether a deletion answers with the object that is gone instead of a Status.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    resource.custom.is_none() && kind::returns_deleted(&resource.group, &resource.kind)
}

/// Whether an object that is marked, without finalizers and without grace, vanishes at once: a Namespace waits for
/// `spec.finalizers`.
pub(crate) fn may_vanish(object: &Value) -> bool {
    object["kind"] != "Namespace"
        || object["apiVersion"] != "v1"
        || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// Whether an update must say which version it was made from.
pub(crate) fn needs_version(resource: &Resource) -> bool {
    resource.custom.is_some() || kind::needs_version(&resource.group, &resource.kind)
}

/// Where the values are that objects are selected by with this field, in the form that [`crate::selector::Fields`] reads;
/// or why they cannot be.
pub(crate) fn selectable(resource: &Resource, path: &str) -> Result<String, String> {
    let Some(version) = &resource.custom else {
        return kind::selectable(&resource.group, &resource.kind, path);
    };
    let known = version.selectable.iter().any(|known| **known == *path);
    if known || matches!(path, "metadata.name" | "metadata.namespace") {
        return Ok(path.to_owned());
    }
    Err(format!("field label not supported: {path}"))
}

/// Refuses to create in a namespace that is not there or is being deleted. `object` is what is created.
pub(crate) fn namespace_is_open(
    cluster: &Cluster,
    resource: &Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), Halt> {
    let Some(found) = cluster.store.get(&Storage::new("", "namespaces"), "", namespace) else {
        return Err(Status::not_found("", "namespaces", namespace).into());
    };
    if found.value["status"]["phase"] != "Terminating" {
        return Ok(());
    }
    let name = match text(&object["metadata"]["name"]) {
        "" => text(&object["metadata"]["generateName"]),
        name => name,
    };
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&resource.group, &resource.plural, name, &why);
    if let Some(details) = status.details.as_mut().and_then(Value::as_object_mut) {
        let message = format!("namespace {namespace} is being terminated");
        let cause = json!({"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"});
        details.insert("causes".to_owned(), json!([cause]));
    }
    Err(status.into())
}

#[cfg(test)]
mod tests;
