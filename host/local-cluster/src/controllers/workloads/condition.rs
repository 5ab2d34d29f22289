//! Conditions as the controllers of workloads write them: one with a new reason is moved to the end. It must not know what
//! they mean.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::field::{list, text};
use crate::time;

pub(super) use crate::condition::{get, is_true};

pub(super) fn reason<'a>(status: &'a Value, of: &str) -> &'a str {
    get(status, of).map_or("", |condition| text(&condition["reason"]))
}

/// When the condition last changed its status.
pub(super) fn since(status: &Value, of: &str) -> Option<Timestamp> {
    get(status, of).and_then(|condition| time::read(&condition["lastTransitionTime"]))
}

/// A condition that begins now.
pub(super) fn new(of: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"type": of, "status": status, "reason": reason, "message": message, "lastTransitionTime": time::seconds(now)})
}

/// Takes the condition of a type away.
pub(super) fn remove(conditions: &mut Vec<Value>, of: &str) {
    conditions.retain(|condition| condition["type"] != of);
}

/// Puts a condition in place of the one of its type, unless that has the same status and reason.
pub(super) fn set(conditions: &mut Vec<Value>, mut condition: Value) {
    let known = conditions.iter().find(|known| known["type"] == condition["type"]);
    if let Some(known) = known.filter(|known| known["status"] == condition["status"]) {
        if known["reason"] == condition["reason"] {
            return;
        }
        condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
    }
    let of = text(&condition["type"]).to_owned();
    remove(conditions, &of);
    conditions.push(condition);
}

/// The conditions of a status, to be changed.
pub(super) fn of(status: &Value) -> Vec<Value> {
    list(&status["conditions"]).to_vec()
}

/// Puts conditions in a status; none are left out.
pub(super) fn put(status: &mut Value, conditions: Vec<Value>) {
    if !conditions.is_empty() && status.is_object() {
        status["conditions"] = conditions.into();
    }
}
