//! Objects of a test as JSON trees: identity and ownership.

use serde_json::Value;

use crate::object::ObjectKey;

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The label with the UID of the owner of a child that may be in any namespace.
pub(crate) const OWNER_UID_LABEL: &str = "mortise.dev/owner-uid";

/// Whether an object's controller, or the owner that a label names, has this UID.
pub(crate) fn is_controlled_by(object: &Value, uid: &str) -> bool {
    let metadata = &object["metadata"];
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.find(|owner| owner["controller"] == true).map(|owner| &owner["uid"]);
    controller.or_else(|| metadata["labels"].get(OWNER_UID_LABEL)).is_some_and(|controller| controller == uid)
}

pub(crate) fn identity(object: &Value) -> (String, String, String, String) {
    let part = |pointer| text(object, pointer).to_owned();
    (part("/apiVersion"), part("/kind"), part("/metadata/namespace"), part("/metadata/name"))
}

/// The namespace of a child: its own, of which "" is none, or its owner's.
pub(crate) fn namespace_of(child: &Value, owner: &Value) -> Option<String> {
    let own = |object: &Value| object["metadata"]["namespace"].as_str().map(str::to_owned);
    own(child).or_else(|| own(owner)).filter(|namespace| !namespace.is_empty())
}

pub(crate) fn key_of(object: &Value) -> ObjectKey {
    let (api_version, kind, namespace, name) = identity(object);
    ObjectKey { api_version, kind, namespace: Some(namespace).filter(|text| !text.is_empty()), name }
}
