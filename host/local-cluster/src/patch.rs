//! Patches: JSON, merge and strategic merge. Input: an object and a patch. Output: the patched object. It must not know
//! what happens to it.

mod pointer;
mod strategic;

use serde_json::{Map, Value, json};

use self::pointer::Pointer;
pub(crate) use self::strategic::strategic;
use crate::halt::{Halt, Status};

/// The API server's bound of the operations in one JSON patch.
const MAX_OPERATIONS: usize = 10_000;
/// How much a JSON patch's copies may add to a document, as in the API server: copies of copies grow without it.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// RFC 6902.
pub(crate) fn json(old: &Value, patch: &Value) -> Result<Value, Halt> {
    let Some(operations) = patch.as_array().filter(|all| all.iter().all(Value::is_object)) else {
        let message = format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            kind(patch)
        );
        return Err(Status::bad_request(message).into());
    };
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        );
        return Err(Status { code: 413, reason: "RequestEntityTooLarge", message, details: None }.into());
    }
    let mut new = old.clone();
    let mut copied = 0;
    for operation in operations {
        operate(&mut new, operation, &mut copied).ok_or_else(unprocessable)?;
    }
    Ok(new)
}

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

/// A patch that does not apply; the API server keeps the reason to itself.
fn unprocessable() -> Status {
    let message = "the server rejected our request due to an error in our request".to_owned();
    Status { code: 422, reason: "Invalid", message, details: Some(json!({})) }
}

fn operate(document: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let pointer = |key: &str| Pointer::read(operation[key].as_str()?);
    let path = pointer("path")?;
    let value = || operation.get("value").cloned();
    match operation["op"].as_str()? {
        "add" => path.add(document, value()?),
        "remove" => path.remove(document).map(drop),
        "replace" => {
            *path.get_mut(document)? = value()?;
            Some(())
        }
        "move" => {
            let moved = pointer("from")?.remove(document)?;
            path.add(document, moved)
        }
        "copy" => {
            let found = pointer("from")?.get(document)?.clone();
            *copied += found.to_string().len();
            path.add(document, found).filter(|()| *copied <= MAX_COPIED_BYTES)
        }
        "test" => {
            // What is not there equals null.
            let wanted = operation.get("value").unwrap_or(&Value::Null);
            (path.get(document).unwrap_or(&Value::Null) == wanted).then_some(())
        }
        _ => None,
    }
}

/// RFC 7386.
pub(crate) fn merge(old: &Value, patch: &Value) -> Result<Value, Halt> {
    let Some(fields) = patch.as_object() else {
        let kind = kind(patch);
        let message = format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        );
        return Err(Status::bad_request(message).into());
    };
    let mut new = old.clone();
    merge_fields(&mut new, fields);
    Ok(new)
}

fn merge_fields(value: &mut Value, patch: &Map<String, Value>) {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Some(fields) = value.as_object_mut() else { return };
    for (name, patch) in patch {
        match patch {
            Value::Null => drop(fields.remove(name)),
            Value::Object(patch) => merge_fields(fields.entry(name.clone()).or_insert(Value::Null), patch),
            other => drop(fields.insert(name.clone(), other.clone())),
        }
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

#[cfg(test)]
mod tests;
