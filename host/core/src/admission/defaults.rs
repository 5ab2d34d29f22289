//! The JSON patch from an object to the same object with defaults. Changes of fields that are not the plugin's are
//! refused here, because the API server accepts most of them, also of names, owners and status.

use serde_json::{Map, Value};

use crate::metadata;

/// Fields that are not the plugin's, beside those of the metadata.
const NOT_TO_CHANGE: [&str; 3] = ["apiVersion", "kind", "status"];

/// The patch, or None when there are no defaults to fill in. An error names a change that the plugin may not make.
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
