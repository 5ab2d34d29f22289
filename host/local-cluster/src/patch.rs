//! Patches: JSON, merge and strategic merge. Input: an object and a patch. Output: the patched object. It must not know
//! what happens to it.

mod pointer;
mod strategic;
mod words;

use serde_json::{Map, Value};

use self::pointer::Pointer;
pub(crate) use self::strategic::strategic;
use self::words::unprocessable;
pub(crate) use self::words::{go, kind};
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

fn operate(document: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let pointer = |key: &str| Pointer::read(operation[key].as_str()?);
    let path = pointer("path")?;
    let value = || operation.get("value").cloned();
    match operation["op"].as_str()? {
        "add" => path.add(document, value()?),
        "remove" => path.remove(document).map(drop),
        "replace" => path.replace(document, value()?),
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

#[cfg(test)]
mod tests;
