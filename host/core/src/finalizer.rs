//! The finalizer of a plugin, and the patches that add and remove it. The engine decides when.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::contract::PatchKind;
use crate::object::Object;
use crate::well_known::PREFIX;
use crate::write::{Precondition, WriteOp};

/// Longest name of a plugin with a finalizer: the API server's bound of the part after the slash.
pub const MAX_PLUGIN_BYTES: usize = 63;

/// The finalizer of a plugin.
pub fn name(plugin: &str) -> String {
    format!("{PREFIX}{plugin}")
}

/// The finalizers of an object. They are parsed from its text on demand, because few controllers need them.
pub fn of(object: &Object) -> Vec<String> {
    #[derive(Deserialize)]
    struct WithMetadata {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        finalizers: Option<Vec<String>>,
    }
    let read = serde_json::from_str::<WithMetadata>(object.json());
    read.ok().and_then(|object| object.metadata.finalizers).unwrap_or_default()
}

/// Whether an object has a finalizer. Only a text that has the name anywhere is parsed: of all objects of a kind, few have it.
pub fn is_on(object: &Object, finalizer: &str) -> bool {
    object.json().contains(finalizer) && of(object).iter().any(|found| found == finalizer)
}

/// The write that adds a finalizer; None when the object has it.
pub fn add(object: &Object, finalizer: &str) -> Option<WriteOp> {
    let mut all = of(object);
    if all.iter().any(|found| found == finalizer) {
        return None;
    }
    all.push(finalizer.to_owned());
    Some(patch(object, &all))
}

/// The write that removes a finalizer; None when the object does not have it.
pub fn remove(object: &Object, finalizer: &str) -> Option<WriteOp> {
    let before = of(object);
    let after: Vec<String> = before.iter().filter(|found| *found != finalizer).cloned().collect();
    (after.len() < before.len()).then(|| patch(object, &after))
}

/// A merge patch replaces the whole list, so it carries the resourceVersion of the list that was read.
fn patch(object: &Object, finalizers: &[String]) -> WriteOp {
    let body = json!({"metadata": {
        "uid": &*object.uid,
        "resourceVersion": object.resource_version.0.to_string(),
        "finalizers": finalizers,
    }});
    WriteOp::Patch {
        target: object.reference(),
        patch_kind: PatchKind::Merge,
        body: Arc::from(body.to_string()),
        subresource: None,
        only_if: Precondition::None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::object::Interner;

    fn object(finalizers: Value) -> Object {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Team",
            "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", "finalizers": finalizers},
            "spec": {"note": "mortise.dev/a is only a text here"}});
        Object::decode(object.to_string().as_bytes(), &mut Interner::default()).unwrap()
    }

    /// The finalizers and the resourceVersion in a patch.
    fn left(op: Option<WriteOp>) -> Option<(Value, Value)> {
        let Some(WriteOp::Patch { body, patch_kind: PatchKind::Merge, .. }) = op else { return None };
        let mut body: Value = serde_json::from_str(&body).unwrap();
        Some((body["metadata"]["finalizers"].take(), body["metadata"]["resourceVersion"].take()))
    }

    #[test]
    fn a_finalizer_is_added_once_and_those_of_others_stay() {
        let (ours, version) = (name("a"), json!("7"));
        assert_eq!(left(add(&object(json!(null)), &ours)), Some((json!(["mortise.dev/a"]), version.clone())));
        assert_eq!(left(add(&object(json!(["x/y"])), &ours)), Some((json!(["x/y", "mortise.dev/a"]), version)));
        assert_eq!(add(&object(json!(["mortise.dev/a"])), &ours), None);
    }

    #[test]
    fn a_finalizer_is_removed_and_those_of_others_stay() {
        let (ours, version) = (name("a"), json!("7"));
        let both = object(json!(["mortise.dev/a", "x/y"]));
        assert!(is_on(&both, &ours));
        assert_eq!(left(remove(&both, &ours)), Some((json!(["x/y"]), version.clone())));
        assert_eq!(left(remove(&object(json!(["mortise.dev/a"])), &ours)), Some((json!([]), version)));
        assert_eq!(remove(&object(json!(["mortise.dev/ab"])), &ours), None);
        assert!(!is_on(&object(json!(["mortise.dev/ab"])), &ours) && !is_on(&object(json!(null)), &ours));
    }
}
