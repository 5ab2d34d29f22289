//! Objects of a test as JSON trees: identity and ownership.

use serde_json::Value;

use crate::object::ObjectKey;

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_controlled_by(object: &Value, uid: &str) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["uid"] == uid && owner["controller"] == true)
}

pub(crate) fn identity(object: &Value) -> (String, String, String, String) {
    let part = |pointer| text(object, pointer).to_owned();
    (part("/apiVersion"), part("/kind"), part("/metadata/namespace"), part("/metadata/name"))
}

pub(crate) fn key_of(object: &Value) -> ObjectKey {
    let (api_version, kind, namespace, name) = identity(object);
    ObjectKey { api_version, kind, namespace: Some(namespace).filter(|text| !text.is_empty()), name }
}
