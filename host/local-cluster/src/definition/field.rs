//! What the parts of this folder read of definitions. Input: a definition's object. Output: its fields. It must not know what
//! they are read for.

use serde_json::Value;

use crate::resource::{Resource, Storage};

/// Whether a resource is that of definitions.
pub(super) fn is_definition(resource: &Resource) -> bool {
    &*resource.group == "apiextensions.k8s.io" && &*resource.plural == "customresourcedefinitions"
}

pub(super) fn storage() -> Storage {
    Storage::new("apiextensions.k8s.io", "customresourcedefinitions")
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn truth(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// The name of the version that instances are stored in.
pub(super) fn storage_version(definition: &Value) -> Option<&str> {
    let versions = array(&definition["spec"], "versions").iter();
    versions.filter(|version| truth(version, "storage")).find_map(|version| version["name"].as_str())
}

/// Whether a condition is true.
pub(super) fn holds(definition: &Value, kind: &str) -> bool {
    let conditions = array(&definition["status"], "conditions").iter();
    conditions.clone().any(|condition| condition["type"] == kind && condition["status"] == "True")
}
