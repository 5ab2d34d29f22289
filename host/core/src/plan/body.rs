//! The body of a child's write: the guest's object with the metadata that the host sets (X6).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::prepared::PreparedChild;
use crate::object::{Object, owner};
use crate::well_known::{
    CHILD_KEY_ANNOTATION, DESIRED_ANNOTATION, HOST, MANAGED_BY_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL,
};
use crate::write::WriteOp;

/// The whole child. A child that is not changed in place carries the hash of what was wanted.
pub(super) fn of(child: &PreparedChild, primary: &Object, hash: Option<&str>) -> Arc<str> {
    let mut object: Value = serde_json::from_str(&child.object).expect("prepare has parsed this text");
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    if child.target.kind.is_secret() {
        encode(&mut object);
    }
    let metadata = &mut object["metadata"];
    own(metadata, child, primary, hash);
    if metadata["labels"][MANAGED_BY_LABEL].is_null() {
        metadata["labels"][MANAGED_BY_LABEL] = json!(HOST);
    }
    object.to_string().into()
}

/// Moves `stringData` of a Secret to `data`, as the API server does: a Secret in the cluster has `data` alone, with which
/// the child is compared (X5). Values that are no text stay, for the API server's message.
fn encode(secret: &mut Value) {
    let Some(texts) = secret.get_mut("stringData").and_then(Value::as_object_mut) else { return };
    let encoded: Vec<(String, String)> =
        texts.iter().filter_map(|(key, text)| Some((key.clone(), STANDARD.encode(text.as_str()?)))).collect();
    encoded.iter().for_each(|(key, _)| drop(texts.remove(key)));
    let is_empty = texts.is_empty();
    if secret["data"].is_null() {
        secret["data"] = json!({});
    }
    if let Some(data) = secret["data"].as_object_mut() {
        data.extend(encoded.into_iter().map(|(key, value)| (key, value.into())));
    }
    if let Some(secret) = secret.as_object_mut().filter(|_| is_empty) {
        secret.remove("stringData");
    }
}

/// What makes an existing object a child, and nothing else.
pub(super) fn claim(child: &PreparedChild, primary: &Object, hash: Option<&str>) -> Arc<str> {
    let kind = &child.target.kind;
    let mut object = json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind, "metadata": {}});
    own(&mut object["metadata"], child, primary, hash);
    object.to_string().into()
}

/// Name, owner and key.
fn own(metadata: &mut Value, child: &PreparedChild, primary: &Object, hash: Option<&str>) {
    let PreparedChild { target, key, tracked, .. } = child;
    metadata["name"] = json!(&*target.name.name);
    if !target.name.namespace.is_empty() {
        metadata["namespace"] = json!(&*target.name.namespace);
    } else if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("namespace");
    }
    for map in ["annotations", "labels"] {
        if !metadata[map].is_object() {
            metadata[map] = json!({});
        }
    }
    if *tracked {
        metadata["labels"][OWNER_UID_LABEL] = json!(&*primary.uid);
        metadata["annotations"][OWNER_ANNOTATION] = json!(owner::mark(primary, target));
    } else {
        metadata["ownerReferences"] = json!([{
            "apiVersion": &*primary.kind.api_version,
            "kind": &*primary.kind.kind,
            "name": &*primary.name.name,
            "uid": &*primary.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
    }
    metadata["annotations"][CHILD_KEY_ANNOTATION] = json!(&**key);
    if let Some(hash) = hash {
        metadata["annotations"][DESIRED_ANNOTATION] = json!(hash);
    }
}

/// The key of the child that a write creates or applies.
pub fn child_key(op: &WriteOp) -> Option<Arc<str>> {
    let (WriteOp::Create { body, .. } | WriteOp::Apply { body, .. }) = op else { return None };
    let body: Value = serde_json::from_str(body).ok()?;
    Some(body["metadata"]["annotations"][CHILD_KEY_ANNOTATION].as_str()?.into())
}
