//! What a deletion is to do, and what it waits for. It must not know how a client says it.

use serde_json::{Value, json};

/// What a claim has until no Pod uses it.
pub(crate) const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
/// What a volume has until no claim is bound to it.
pub(crate) const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

/// Lets the deletion of an object wait for one thing more.
pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let list = metadata.entry("finalizers").or_insert(Value::Null);
    match list.as_array_mut() {
        Some(list) if list.iter().any(|one| one == finalizer) => {}
        Some(list) => list.push(finalizer.into()),
        None => *list = json!([finalizer]),
    }
}

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
}
