//! The metadata that admission and conversion may change: labels and annotations, except those of the host.

use serde_json::{Map, Value};

use crate::well_known::PREFIX;

const OPEN: [&str; 2] = ["labels", "annotations"];

/// The first field that differs and that a plugin may not change: "metadata.name, which is not a plugin's to change".
pub(crate) fn not_to_change(before: &Value, after: &Value) -> Option<String> {
    let none = Map::new();
    let (before, after) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
    for part in before.keys().chain(after.keys()) {
        let (was, is) = (before.get(part), after.get(part));
        if was == is {
            continue;
        }
        if !OPEN.contains(&&**part) {
            return Some(format!("metadata.{part}, which is not a plugin's to change"));
        }
        let was = was.and_then(Value::as_object).unwrap_or(&none);
        let is = is.and_then(Value::as_object).unwrap_or(&none);
        let ours = was.keys().chain(is.keys()).find(|key| key.starts_with(PREFIX) && was.get(*key) != is.get(*key));
        if let Some(key) = ours {
            return Some(format!("metadata.{part}[{key:?}], which is the host's"));
        }
    }
    None
}
