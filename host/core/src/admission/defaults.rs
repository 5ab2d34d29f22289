//! From an object and the same with its defaults to the JSON patch between them. What is not a plugin's to change is
//! refused: the API server would take most of it, and find the object's name, owner or status changed by a stranger.

use serde_json::{Map, Value};

/// Parts of an object that a plugin completes: all others are the API server's, the host's or other controllers'.
const NOT_TO_CHANGE: [&str; 3] = ["apiVersion", "kind", "status"];
/// Parts of the metadata that a plugin completes.
const OPEN_METADATA: [&str; 2] = ["labels", "annotations"];
/// Labels and annotations that begin so are the host's.
const OWN_PREFIX: &str = "mortise.dev/";

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
    check_metadata(&object["metadata"], &completed["metadata"])?;
    Ok(Some(json_patch::diff(object, &completed)))
}

fn check_metadata(before: &Value, after: &Value) -> Result<(), String> {
    let none = Map::new();
    let (before, after) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
    for part in before.keys().chain(after.keys()) {
        let (was, is) = (before.get(part), after.get(part));
        if was == is {
            continue;
        }
        if !OPEN_METADATA.contains(&&**part) {
            return Err(format!("filling in defaults changed metadata.{part}, which is not a plugin's to change"));
        }
        let was = was.and_then(Value::as_object).unwrap_or(&none);
        let is = is.and_then(Value::as_object).unwrap_or(&none);
        let ours = was.keys().chain(is.keys()).find(|key| key.starts_with(OWN_PREFIX) && was.get(*key) != is.get(*key));
        if let Some(key) = ours {
            return Err(format!("filling in defaults changed metadata.{part}[{key:?}], which is the host's"));
        }
    }
    Ok(())
}
