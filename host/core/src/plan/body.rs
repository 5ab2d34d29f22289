//! The body of a child's write: the guest's object with the metadata that the host sets (X6).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::{Object, ObjectRef};
use crate::well_known::{CHILD_KEY_ANNOTATION, DESIRED_ANNOTATION, HOST, MANAGED_BY_LABEL};

pub(super) fn of(target: &ObjectRef, key: &str, object: &str, primary: &Object, hash: Option<&str>) -> Arc<str> {
    let mut object: Value = serde_json::from_str(object).expect("prepare has parsed this text");
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(&*target.name.name);
    if !target.name.namespace.is_empty() {
        metadata["namespace"] = json!(&*target.name.namespace);
    }
    metadata["ownerReferences"] = json!([{
        "apiVersion": &*primary.kind.api_version,
        "kind": &*primary.kind.kind,
        "name": &*primary.name.name,
        "uid": &*primary.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][CHILD_KEY_ANNOTATION] = json!(key);
    if let Some(hash) = hash {
        metadata["annotations"][DESIRED_ANNOTATION] = json!(hash);
    }
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    if metadata["labels"][MANAGED_BY_LABEL].is_null() {
        metadata["labels"][MANAGED_BY_LABEL] = json!(HOST);
    }
    object.to_string().into()
}
