//! The Plugin object (plugins.mortise.dev), which shows a plugin's state in the cluster. Its CRD is in
//! `plugin_crd.json`; `engine/lifecycle/conditions.rs` decides its status.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::object::{Kind, Name, Object, ObjectRef};
use crate::well_known::{API_VERSION, HOST_NAMESPACE_LABEL};

mod spec;

pub use spec::{Spec, spec};

/// The CRD's metadata.name.
pub const CRD_NAME: &str = "plugins.mortise.dev";
/// The CRD, as JSON text.
pub const CRD: &str = include_str!("plugin_crd.json");

/// The kind of Plugin objects.
pub fn kind() -> Kind {
    Kind::new(API_VERSION, "Plugin")
}

/// The Plugin object of the plugin of this name.
pub fn of(name: &Arc<str>) -> ObjectRef {
    ObjectRef { kind: kind(), name: Name { namespace: Arc::from(""), name: Arc::clone(name) } }
}

/// Whose plugin an object is.
#[derive(Debug)]
pub struct Claim {
    /// The namespace of the host that made the object, or that writes the status of what a person made.
    pub host: Arc<str>,
    /// A host that has the source may take the plugin.
    pub lacks_source: bool,
}

/// Reads whose plugin an object is; nobody's, if a person made it and no host has seen it.
pub fn claim(object: &Object) -> Option<Claim> {
    if let Some(namespace) = object.label(HOST_NAMESPACE_LABEL) {
        return Some(Claim { host: namespace.into(), lacks_source: false });
    }
    let Shown { host, conditions, .. } = shown(object);
    let lacks_source = conditions.iter().any(|it| it.name == "Resolved" && it.reason == SOURCE_NOT_FOUND);
    Some(Claim { host: host?, lacks_source })
}

/// The reason of a plugin whose Plugin object names a source that is not there.
pub const SOURCE_NOT_FOUND: &str = "SourceNotFound";

/// The part of a Plugin object's status that the host reads back.
#[derive(Deserialize, Default, Debug)]
#[serde(default, rename_all = "camelCase")]
pub struct Shown {
    /// When the object was created, as the API server writes it.
    #[serde(skip)]
    pub created: String,
    /// The namespace of the host that writes it.
    pub host: Option<Arc<str>>,
    /// The digest of the serving version.
    pub digest: Option<String>,
    /// The kinds that the plugin owns.
    pub owned_kinds: Vec<String>,
    /// Its conditions.
    pub conditions: Vec<ShownCondition>,
}

/// One condition.
#[derive(Deserialize, Debug)]
pub struct ShownCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub name: String,
    /// "True", "False" or "Unknown".
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    #[serde(default)]
    pub message: String,
}

/// Reads the status. What of it has another shape is left out, and the rest counts: whose plugin it is does not depend on its
/// conditions.
pub fn shown(object: &Object) -> Shown {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Parts {
        metadata: Metadata,
        status: Value,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: String,
    }
    let Parts { metadata, status } = serde_json::from_str(object.json()).unwrap_or_default();
    let none = Map::new();
    let fields = spec::fields_of(status.as_object().unwrap_or(&none), "status", &mut Vec::new());
    Shown { created: metadata.creation_timestamp, ..fields }
}
