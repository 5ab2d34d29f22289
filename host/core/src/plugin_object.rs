//! The Plugin object (plugins.mortise.dev), which shows a plugin's state in the cluster. Its CRD is in
//! `plugin_crd.json`; `engine/lifecycle/conditions.rs` decides its status.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::digest::Digest;
use crate::grants::Grants;
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::rights::Namespaces;
use crate::tenant;
use crate::well_known::{API_VERSION, HOST_NAMESPACE_LABEL};

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

/// What is wanted of a plugin. People and their tools write it; the host writes the status alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The source, by the name of its ConfigMap; that of the object unless it says another. That of a tenant's plugin follows from
    /// its name.
    pub source: Arc<str>,
    /// Whether a person made the object, or it names its source: no other plugin has that.
    pub names_source: bool,
    /// Whether somebody has written into the spec, which outlives the source.
    pub is_written: bool,
    /// The component that may serve; any, if there is none.
    pub digest: Option<Digest>,
    /// The configuration as a JSON object, instead of the source's.
    pub config: Option<Arc<str>>,
    /// The name of the ServiceAccount of the host's namespace that it acts as; the host, if there is none.
    pub service_account: Option<Arc<str>>,
    /// Where it sees and acts; everywhere, if there are none.
    pub namespaces: Option<Namespaces>,
    /// What an administrator grants it.
    pub grants: Arc<Grants>,
    /// Nothing is reconciled.
    pub suspend: bool,
}

/// Reads the spec; the default if it has another shape, which the API server does not let in.
pub fn spec(object: &Object) -> Spec {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Parts {
        spec: Fields,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Fields {
        source: Source,
        digest: Option<String>,
        config: Option<Value>,
        service_account_name: Option<Arc<str>>,
        namespaces: BTreeSet<Arc<str>>,
        grants: Grants,
        suspend: bool,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Source {
        config_map: Option<Arc<str>>,
    }
    let Parts { spec } = serde_json::from_str(object.json()).unwrap_or_default();
    // That of a tenant's plugin is where its name says.
    let tenants = tenant::of_plugin(&object.name.name).map(|_| tenant::source_of(&object.name.name));
    let is_by_person = object.label(HOST_NAMESPACE_LABEL).is_none();
    Spec {
        names_source: is_by_person || spec.source.config_map.is_some(),
        is_written: is_written(object),
        source: tenants.or(spec.source.config_map).unwrap_or_else(|| Arc::clone(&object.name.name)),
        digest: spec.digest.map(|digest| Digest(digest.into())),
        config: spec.config.map(|config| config.to_string().into()),
        service_account: spec.service_account_name,
        namespaces: (!spec.namespaces.is_empty()).then(|| spec.namespaces.into()),
        grants: Arc::new(spec.grants),
        suspend: spec.suspend,
    }
}

/// Whether somebody has written into the spec.
fn is_written(object: &Object) -> bool {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Parts {
        spec: serde_json::Map<String, Value>,
    }
    let Parts { spec } = serde_json::from_str(object.json()).unwrap_or_default();
    !spec.is_empty()
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
