//! The Plugin object (plugins.mortise.dev): how the host tells of a plugin in the cluster. Its CRD is data, kept beside
//! this file; `driver/report.rs` decides what stands in its status.

use crate::object::Kind;
use crate::well_known::API_VERSION;

/// The CRD's metadata.name.
pub const CRD_NAME: &str = "plugins.mortise.dev";
/// The CRD, as JSON text.
pub const CRD: &str = include_str!("plugin_crd.json");

/// The kind that the host keeps one object of for each plugin.
pub fn kind() -> Kind {
    Kind::new(API_VERSION, "Plugin")
}
