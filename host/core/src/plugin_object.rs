//! The Plugin object (plugins.mortise.dev), which shows a plugin's state in the cluster. Its CRD is in
//! `plugin_crd.json`; `engine/lifecycle/conditions.rs` decides its status.

use std::sync::Arc;

use serde::Deserialize;

use crate::object::{Kind, Name, Object, ObjectRef};
use crate::well_known::API_VERSION;

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

/// The part of a Plugin object's status that the host reads back.
#[derive(Deserialize, Default, Debug)]
#[serde(default, rename_all = "camelCase")]
pub struct Shown {
    /// When the object was created, as the API server writes it.
    #[serde(skip)]
    pub created: String,
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

/// Reads the status; the default if it has another shape.
pub fn shown(object: &Object) -> Shown {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Parts {
        metadata: Metadata,
        status: Shown,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: String,
    }
    let Parts { metadata, status } = serde_json::from_str(object.json()).unwrap_or_default();
    Shown { created: metadata.creation_timestamp, ..status }
}
