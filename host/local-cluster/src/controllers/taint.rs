//! Taints of nodes and tolerations of Pods. Input: both as objects have them. Output: whether one allows the other. It must
//! not know who taints.

use serde_json::{Value, json};

/// A taint without a value.
pub(super) fn new(key: &str, effect: &str) -> Value {
    json!({"key": key, "effect": effect})
}

/// The first toleration of a taint.
pub(super) fn toleration<'a>(taint: &Value, tolerations: &'a Value) -> Option<&'a Value> {
    let text = |value: &'a Value, field: &str| value[field].as_str().unwrap_or_default();
    tolerations.as_array()?.iter().find(|toleration| {
        let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
        let operator = text(toleration, "operator");
        (effect.is_empty() || taint["effect"] == effect)
            && (key.is_empty() && operator == "Exists" || !key.is_empty() && taint["key"] == key)
            && (operator == "Exists" || taint["value"].as_str().unwrap_or_default() == text(toleration, "value"))
    })
}

/// Whether a taint is tolerated, for a time at least.
pub(super) fn is_tolerated(taint: &Value, tolerations: &Value) -> bool {
    toleration(taint, tolerations).is_some()
}
