//! The Plugin object (plugins.mortise.dev): how the host tells of a plugin in the cluster. Its CRD is data, kept beside
//! this file; `driver/report.rs` decides what stands in its status.

use crate::object::Kind;

/// The CRD's metadata.name.
pub const CRD_NAME: &str = "plugins.mortise.dev";
/// The CRD, as JSON text.
pub const CRD: &str = include_str!("plugin_crd.json");

/// The label that names the namespace of a Plugin object's host, which is where that looks for plugins. Hosts of other
/// namespaces leave the object alone.
pub const HOST_NAMESPACE_LABEL: &str = "mortise.dev/host-namespace";

/// The kind that the host keeps one object of for each plugin.
pub fn kind() -> Kind {
    Kind::new("mortise.dev/v1alpha1", "Plugin")
}
