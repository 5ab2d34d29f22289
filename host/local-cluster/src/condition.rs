//! Conditions in a status. Input: the wanted condition. Output: the status with it, and with the time of its last transition.
//! It must not know kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::time;

/// A condition without times; an empty reason or message is left out.
pub(crate) fn new(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let mut condition = json!({"type": kind, "status": status});
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = text.into();
        }
    }
    condition
}

/// The condition of a type.
pub(crate) fn get<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Whether the condition of a type is True.
pub(crate) fn is_true(status: &Value, kind: &str) -> bool {
    get(status, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition in place of the one of its type. The time of its transition changes with its status alone.
pub(crate) fn set(status: &mut Value, mut condition: Value, now: Timestamp) {
    let before = get(status, condition["type"].as_str().unwrap_or_default());
    let since = before.filter(|before| before["status"] == condition["status"]);
    let since = since.map(|before| before["lastTransitionTime"].clone()).filter(|since| !since.is_null());
    condition["lastTransitionTime"] = since.unwrap_or_else(|| time::seconds(now).into());
    if !status.is_object() {
        *status = json!({});
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    match list.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}
