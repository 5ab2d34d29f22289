//! From an object and the same with its defaults to the JSON patch between them. What is not a plugin's to change is
//! refused: the API server would take most of it, and find the object's name, owner or status changed by a stranger.

use serde_json::{Map, Value};

use crate::metadata;

/// Parts of an object that a plugin completes: all others are the API server's, the host's or other controllers'.
const NOT_TO_CHANGE: [&str; 3] = ["apiVersion", "kind", "status"];

/// The patch, or None when nothing was to be filled in; or what the plugin changed that is not its to change.
pub(super) fn patch(object: &Value, completed: &str) -> Result<Option<json_patch::Patch>, String> {
    let completed: Value = serde_json::from_str(completed)
        .map_err(|error| format!("the object with its defaults is not JSON: {error}"))?;
    if *object == completed {
        return Ok(None);
    }
    let none = Map::new();
    let (before, Value::Object(after)) = (object.as_object().unwrap_or(&none), &completed) else {
        return Err("the object with its defaults is no JSON object".to_owned());
    };
    if let Some(part) = NOT_TO_CHANGE.into_iter().find(|part| before.get(*part) != after.get(*part)) {
        return Err(format!("filling in defaults changed {part}, which is not a plugin's to change"));
    }
    if let Some(place) = metadata::not_to_change(&object["metadata"], &completed["metadata"]) {
        return Err(format!("filling in defaults changed {place}"));
    }
    Ok(Some(json_patch::diff(object, &completed)))
}
