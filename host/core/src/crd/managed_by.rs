//! Who manages a definition: the host for one of its plugins, or somebody else. Read from its label and its annotation.

use serde_json::Value;

use crate::well_known::{HOST, MANAGED_BY_LABEL, PLUGIN};

pub(super) fn is_managed_for(live: &Value, plugin: &str) -> bool {
    managed_by(live) == HOST && annotation(live, PLUGIN) == plugin
}

pub(super) fn annotation<'a>(crd: &'a Value, key: &str) -> &'a str {
    crd["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

pub(super) fn managed_by(crd: &Value) -> &str {
    crd["metadata"]["labels"][MANAGED_BY_LABEL].as_str().unwrap_or_default()
}
