//! The form in which Go writes an object of a built-in kind: what is unset is left out. Input: an object with its schema.
//! Output: the same object without empty texts, falses and zeros that Go's types do not tell from unset. It must not know
//! kinds, only the names of fields that mean the same wherever they stand; what is null or an empty list the schema leaves out.

use serde_json::{Map, Value};

use crate::schema::{Place, Type};

/// Fields that tell an empty text from none.
const TEXTS: &[&str] = &[
    "storageClassName",
    "volumeAttributesClassName",
    "ingressClassName",
    "runtimeClassName",
    "holderIdentity",
    "preferredHolder",
    "service",
    "type",
    "appProtocol",
    "timeZone",
    "path",
    "apiGroup",
];
/// Fields in which false and zero mean unset.
const ZEROS: &[&str] = &[
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "minReadySeconds",
    "hostPort",
    "nodePort",
    "initialDelaySeconds",
    "publishNotReadyAddresses",
    "paused",
    "unschedulable",
    "healthCheckNodePort",
    "readOnly",
    "availableReplicas",
    "readyReplicas",
    "updatedReplicas",
    "unavailableReplicas",
    "fullyLabeledReplicas",
    "currentReplicas",
    "active",
    "succeeded",
    "failed",
    "numberAvailable",
    "numberUnavailable",
    "updatedNumberScheduled",
];

/// Leaves out what is unset. Where the schema says nothing, nothing is known to be unset.
pub(super) fn tidy(value: &mut Value, place: Place<'_>) {
    match value {
        Value::Object(fields) => object(fields, place),
        Value::Array(items) => {
            if let Some(place) = place.items() {
                items.iter_mut().for_each(|item| tidy(item, place));
            }
        }
        // Go decodes bytes and encodes them again: kustomize breaks lines.
        Value::String(text) if &*place.node.format == "byte" => text.retain(|letter| !matches!(letter, '\r' | '\n')),
        _ => {}
    }
}

fn object(fields: &mut Map<String, Value>, place: Place<'_>) {
    let is_struct = !place.node.properties.is_empty();
    let is_required = |name: &str| place.node.required.iter().any(|required| **required == *name);
    fields.retain(|name, value| {
        let Some(of) = place.field(name) else { return true };
        tidy(value, of);
        !is_struct || !unset(name, value, of) || is_required(name)
    });
}

fn unset(name: &str, value: &Value, place: Place<'_>) -> bool {
    let node = place.node;
    match value {
        Value::String(text) => {
            text.is_empty() && node.kind == Type::String && !TEXTS.contains(&name) && node.default.is_none()
        }
        Value::Bool(flag) => !flag && ZEROS.contains(&name),
        Value::Number(number) => number.as_i64() == Some(0) && ZEROS.contains(&name) && node.default.is_none(),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}
