//! The body of a child's write: the guest's object with the metadata that the host sets (X6).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::prepared::PreparedChild;
use crate::json::level::Level;
use crate::object::{Object, owner};
use crate::well_known::{
    CHILD_KEY_ANNOTATION, DESIRED_ANNOTATION, HOST, MANAGED_BY_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL,
};
use crate::write::WriteOp;

/// A member of a child: as the guest wrote it, or changed.
#[derive(Serialize)]
#[serde(untagged)]
enum Member<'a> {
    Text(&'a RawValue),
    Tree(Value),
}

/// The whole child. A child that is not changed in place carries the hash of what was wanted. Of its text only the members
/// that the host changes are parsed: a tree of a hundred thousand members takes tens of milliseconds.
pub(super) fn of(child: &PreparedChild, primary: &Object, hash: Option<&str>) -> Arc<str> {
    let text: &RawValue = serde_json::from_str(&child.object).expect("prepare has parsed this text");
    let Level::Object(members) = Level::of(text, usize::MAX) else { unreachable!("prepare takes objects alone") };
    let mut object: BTreeMap<Cow<'_, str>, Member<'_>> =
        members.into_iter().map(|(name, value)| (name, Member::Text(value))).collect();
    if child.target.kind.is_secret() {
        encode(&mut object);
    }
    let mut metadata = tree(object.remove("metadata"));
    if metadata.is_null() {
        metadata = json!({});
    }
    own(&mut metadata, child, primary, hash);
    if metadata["labels"][MANAGED_BY_LABEL].is_null() {
        metadata["labels"][MANAGED_BY_LABEL] = json!(HOST);
    }
    object.insert("metadata".into(), Member::Tree(metadata));
    serde_json::to_string(&object).expect("texts and trees of JSON are JSON").into()
}

fn tree(member: Option<Member<'_>>) -> Value {
    match member {
        None => Value::Null,
        Some(Member::Tree(tree)) => tree,
        Some(Member::Text(text)) => serde_json::from_str(text.get()).expect("prepare has parsed this text"),
    }
}

/// Moves `stringData` of a Secret to `data`, as the API server does: a Secret in the cluster has `data` alone, with which
/// the child is compared (X5). Values that are no text stay, for the API server's message.
fn encode(secret: &mut BTreeMap<Cow<'_, str>, Member<'_>>) {
    let Some(text) = secret.remove("stringData") else { return };
    let mut texts = tree(Some(text));
    let Some(members) = texts.as_object_mut() else {
        secret.insert("stringData".into(), Member::Tree(texts));
        return;
    };
    let encoded: Vec<(String, String)> =
        members.iter().filter_map(|(key, text)| Some((key.clone(), STANDARD.encode(text.as_str()?)))).collect();
    encoded.iter().for_each(|(key, _)| drop(members.remove(key)));
    let is_empty = members.is_empty();
    let mut data = tree(secret.remove("data"));
    if data.is_null() {
        data = json!({});
    }
    if let Some(data) = data.as_object_mut() {
        data.extend(encoded.into_iter().map(|(key, value)| (key, value.into())));
    }
    secret.insert("data".into(), Member::Tree(data));
    if !is_empty {
        secret.insert("stringData".into(), Member::Tree(texts));
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
