//! How Go writes JSON values in messages, and the refusal that says nothing. Input: values. Output: words. It must not know
//! patches.

use serde_json::{Value, json};

use crate::halt::Status;

/// What Go's decoder names the kinds of JSON.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as Go's `%v` prints it, which some of the API server's messages do.
pub(crate) fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(go).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: std::collections::BTreeMap<_, _> = fields.iter().collect();
            let fields = fields.into_iter().map(|(name, value)| format!("{name}:{}", go(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
    }
}

/// A patch that does not apply; the API server keeps the reason to itself.
pub(super) fn unprocessable() -> Status {
    let message = "the server rejected our request due to an error in our request".to_owned();
    Status { code: 422, reason: "Invalid", message, details: Some(json!({})) }
}
