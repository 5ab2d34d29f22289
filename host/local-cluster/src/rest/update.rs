//! update: an object becomes another one. Input: how the new object follows from the stored one. Output: the object as it
//! is stored. It must not know who made the new one: a client, a patch or a controller.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{delete, output};
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::managed_fields::{self, Operation};
use crate::request::{Request, Response};
use crate::store::Object;
use crate::{Cluster, admission, body, definition, strategy};

/// How an update is made and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The manager owns what it changed.
    Whole,
    /// Server-side apply has set the managed fields already.
    Applied,
}

pub(super) fn from_request(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let object = body::known_object(request, &attributes.resource, context)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name != attributes.name {
        let message =
            format!("the name of the object ({name}) does not match the name on the URL ({})", attributes.name);
        return Err(Status::bad_request(message).into());
    }
    let stored = update(cluster, context, attributes, object, Update::Whole)?;
    output::one(cluster, output, attributes, 200, &stored, context)
}

/// Stores a new state of an object that is there. A resource version in it is a precondition.
pub(crate) fn update(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    mut object: Value,
    how: Update,
) -> Result<Arc<Object>, Halt> {
    let resource = &attributes.resource;
    let stored = cluster.store.get(&resource.storage, &attributes.namespace, &attributes.name).cloned();
    let stored = stored.ok_or_else(|| attributes.not_found())?;
    let old = definition::at_version(cluster, resource, &stored.value, context.answers)?;
    preconditions(attributes, &object, &old)?;
    keep_system_fields(&mut object, &old);
    managed_fields::keep_clearing(&mut object);
    strategy::complete(resource, &mut object, matches!(old, Cow::Borrowed(_)).then_some(&*old));
    // What admission changes, nobody owns.
    if how == Update::Whole {
        managed_fields::update(
            resource,
            Some(&old),
            &mut object,
            &context.manager,
            Operation::Update,
            &attributes.subresource,
            context.now,
        );
    }
    if admission::mutate(cluster, context, attributes, &mut object, Some(&old))? {
        keep_system_fields(&mut object, &old);
        strategy::default(resource, &mut object);
    }
    strategy::prepare_update(cluster, context, attributes, &mut object, &old)?;
    let mut causes = strategy::validate_metadata(resource, &object);
    causes.extend(resource.schema().validate(&object, Some(&old)));
    causes.extend(strategy::validate_update(cluster, attributes, &object, &old));
    if !causes.is_empty() {
        return Err(Status::invalid(&resource.group, &resource.kind, &attributes.name, &causes).into());
    }
    admission::validate(cluster, context, attributes, Some(&object), Some(&old))?;
    let object = definition::for_storage(cluster, resource, object, context.answers)?;
    if delete::is_finished(&object) {
        let gone = delete::remove(cluster, context, resource, object.clone());
        return Ok(Arc::new(Object::new(object, gone.revision)));
    }
    if managed_fields::same_but_times(&object, &stored.value) {
        return Ok(stored);
    }
    if context.dry_run {
        // Nothing is stored, so the version is the one of before.
        return Ok(Arc::new(Object::new(object, stored.revision)));
    }
    let stored = cluster.store.put(&resource.storage, object);
    definition::written(cluster, context, resource, &stored)?;
    Ok(stored)
}

fn preconditions(attributes: &Attributes, object: &Value, old: &Value) -> Result<(), Halt> {
    let resource = &attributes.resource;
    let (new, old) = (&object["metadata"], &old["metadata"]);
    let uid = new["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && new["uid"] != old["uid"] {
        let found = old["uid"].as_str().unwrap_or_default();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {found}",
            key(attributes)
        );
        return Err(Status::conflict(&resource.group, &resource.plural, &attributes.name, &why).into());
    }
    let version = new["resourceVersion"].as_str().unwrap_or_default();
    if version.is_empty() {
        if resource.custom.is_some() || strategy::needs_version(resource) {
            let cause = Cause {
                reason: "FieldValueInvalid",
                message: "Invalid value: 0: must be specified for an update".to_owned(),
                field: "metadata.resourceVersion".to_owned(),
            };
            return Err(Status::invalid(&resource.group, &resource.plural, &attributes.name, &[cause]).into());
        }
    } else if new["resourceVersion"] != old["resourceVersion"] {
        return Err(Status::modified(&resource.group, &resource.plural, &attributes.name).into());
    }
    Ok(())
}

/// Under which key the API server stores an object, which some of its messages show.
fn key(attributes: &Attributes) -> String {
    let resource = &attributes.resource;
    let folder = match (&*resource.group, &*resource.plural) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => format!("{group}/{plural}"),
        (group, plural) if resource.custom.is_some() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    let parts = [folder.as_str(), attributes.namespace.as_str(), attributes.name.as_str()];
    format!("/registry/{}", parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/"))
}

/// What no update changes.
fn keep_system_fields(object: &mut Value, old: &Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = serde_json::json!({});
    }
    let old = &old["metadata"];
    let Some(fields) = object["metadata"].as_object_mut() else { return };
    fields.remove("selfLink");
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "namespace",
        "resourceVersion",
    ] {
        match old.get(key) {
            Some(value) => drop(fields.insert(key.to_owned(), value.clone())),
            None => drop(fields.remove(key)),
        }
    }
    // generateName is set once; a client that leaves it out keeps it.
    if let (Some(value), false) = (old.get("generateName"), fields.contains_key("generateName")) {
        fields.insert("generateName".to_owned(), value.clone());
    }
}
