//! What is special about writing custom resources: the status apart, the generation. Input: objects before they are stored.
//! Output: the same objects, completed. It must not know their schemas.

use serde_json::Value;

use super::field::holds;
use crate::Cluster;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Halt, Status};
use crate::resource::Resource;

/// Refuses a new object of a definition that is being deleted.
pub(crate) fn may_create(resource: &Resource, name: &str) -> Result<(), Halt> {
    match &resource.custom {
        Some(version) if holds(&version.definition, "Terminating") => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(Status::forbidden(&resource.group, &resource.plural, name, why).into())
        }
        _ => Ok(()),
    }
}

/// Takes the status away where it is a subresource, and counts the first generation.
pub(crate) fn prepare_create(
    _cluster: &mut Cluster,
    _context: &Context<'_>,
    resource: &Resource,
    object: &mut Value,
) -> Result<(), Halt> {
    if let Some(fields) = object.as_object_mut().filter(|_| resource.has_status()) {
        fields.remove("status");
    }
    set_generation(object, 1);
    Ok(())
}

/// Keeps the status, or all but the status; counts changes of anything but the metadata.
pub(crate) fn prepare_update(
    _cluster: &mut Cluster,
    _context: &Context<'_>,
    attributes: &Attributes,
    new: &mut Value,
    old: &Value,
) -> Result<(), Halt> {
    if attributes.subresource == "status" {
        let status = new.as_object_mut().and_then(|fields| fields.remove("status"));
        let managed = new.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields")).map(Value::take);
        *new = old.clone();
        put(new, "status", status);
        if let Some(metadata) = new.get_mut("metadata") {
            put(metadata, "managedFields", managed);
        }
        return Ok(());
    }
    if attributes.resource.has_status() {
        put(new, "status", old.get("status").cloned());
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
    let same = {
        let parts = |value: &Value| {
            value.as_object().map_or(0, |fields| fields.keys().filter(|key| *key != "metadata").count())
        };
        let fields = new.as_object().into_iter().flatten();
        parts(new) == parts(old)
            && fields.filter(|(key, _)| *key != "metadata").all(|(key, value)| old.get(key) == Some(value))
    };
    set_generation(new, generation + i64::from(!same));
    Ok(())
}

fn put(object: &mut Value, key: &str, value: Option<Value>) {
    let Some(fields) = object.as_object_mut() else { return };
    match value {
        Some(value) => drop(fields.insert(key.to_owned(), value)),
        None => drop(fields.remove(key)),
    }
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".to_owned(), generation.into());
    }
}
