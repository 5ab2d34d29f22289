//! CustomResourceDefinitions: what they serve, whether they are right, and their conditions. Input: the definition's object.
//! Output: resources and causes. It must not know the store of their instances.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::halt::Halt;
use crate::resource::Resource;
use crate::schema::Schema;
use crate::store::Object;
use crate::{Cluster, builtin_versions};

/// One served version of a definition.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: Arc<str>,
    pub(crate) schema: Arc<Schema>,
    /// `additionalPrinterColumns`, as the definition has them.
    pub(crate) columns: Vec<Value>,
    /// `subresources.scale`, as the definition has it.
    pub(crate) scale: Option<Value>,
    /// `selectableFields`: the JSON paths without their leading dot.
    pub(crate) selectable: Vec<Arc<str>>,
    /// The warning of a deprecated version.
    pub(crate) deprecated: Option<String>,
    /// The whole definition, for what is asked rarely: conversion, the published schema.
    pub(crate) definition: Arc<Value>,
}
/// A stored object in the version of a resource. Conversion may have to ask a webhook.
pub(crate) fn at_version<'a>(
    _cluster: &Cluster,
    resource: &Resource,
    stored: &'a Value,
) -> Result<Cow<'a, Value>, Halt> {
    Ok(builtin_versions::at_version(resource, stored))
}

/// Stored objects in the version of a resource; a webhook converts them in one call.
pub(crate) fn all_at_version<'a>(
    cluster: &Cluster,
    resource: &Resource,
    stored: &[&'a Value],
) -> Result<Vec<Cow<'a, Value>>, Halt> {
    stored.iter().map(|object| at_version(cluster, resource, object)).collect()
}

/// An object in the version that its kind is stored in.
pub(crate) fn for_storage(_cluster: &Cluster, resource: &Resource, object: Value) -> Result<Value, Halt> {
    Ok(builtin_versions::for_storage(resource, object))
}

/// Serves what a created or changed definition says; other objects change nothing.
pub(crate) fn changed(_cluster: &mut Cluster, _resource: &Resource, _object: &Arc<Object>) {}

/// Stops to serve what a removed definition said; other objects change nothing.
pub(crate) fn removed(_cluster: &mut Cluster, _resource: &Resource, _object: &Object) {}
