//! The metadata that a guest may set (X6), in a whole object, as of a child or an apply, and in a patch.

use serde_json::Value;

use super::fault::shown;
use crate::well_known::PREFIX;

/// Metadata that the host or the API server writes.
const HOST_FIELDS: [&str; 9] = [
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generation",
    "generateName",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
];
/// Members of a pointer in a JSON patch: no object is nested deeper, since parsers of JSON stop there.
const MAX_POINTER_MEMBERS: usize = 128;
/// Metadata that a patch may change.
const PATCHABLE: [&str; 2] = ["labels", "annotations"];

/// Checks the metadata of a whole object.
pub(super) fn check(metadata: &Value) -> Result<(), String> {
    if !metadata.is_object() && !metadata.is_null() {
        return Err("metadata is not an object".to_owned());
    }
    if let Some(field) = HOST_FIELDS.iter().find(|field| !metadata[**field].is_null()) {
        return Err(format!("metadata.{field} is set: it belongs to the host or to the API server"));
    }
    for field in ["name", "namespace"] {
        if !metadata[field].is_null() && !metadata[field].is_string() {
            return Err(format!("metadata.{field} is {}, not a string", shown(&metadata[field].to_string())));
        }
    }
    for map in PATCHABLE {
        if !metadata[map].is_null() && !metadata[map].is_object() {
            return Err(format!("metadata.{map} is {}, not an object", shown(&metadata[map].to_string())));
        }
        check_own_keys(map, &metadata[map])?;
    }
    Ok(())
}

/// Checks a merge patch or a strategic one, in which null removes a member and `$` begins a directive.
pub(super) fn check_patch(patch: &Value) -> Result<(), String> {
    if let Some(directive) = patch.as_object().and_then(|patch| patch.keys().find(|key| key.starts_with('$'))) {
        return Err(format!("{directive}: a patch is not of the object as a whole; delete or apply it"));
    }
    let metadata = match &patch["metadata"] {
        Value::Null if patch.get("metadata").is_none() => return Ok(()),
        Value::Object(metadata) => metadata,
        other => return Err(format!("metadata is {}, not an object", shown(&other.to_string()))),
    };
    for (field, value) in metadata {
        if !PATCHABLE.contains(&field.as_str()) {
            return Err(not_patchable(field));
        }
        if !value.is_object() {
            return Err(format!("metadata.{field} is {}, not an object", shown(&value.to_string())));
        }
        check_no_directive(field, value)?;
        check_own_keys(field, value)?;
    }
    Ok(())
}

/// A directive would remove the host's own keys without naming them.
fn check_no_directive(map: &str, keys: &Value) -> Result<(), String> {
    let directive = keys.as_object().and_then(|keys| keys.keys().find(|key| key.starts_with('$')));
    let why = "a patch names each label and annotation that it changes; null removes one";
    directive.map_or(Ok(()), |directive| Err(format!("metadata.{map}[{directive:?}]: {why}")))
}

/// Checks the operations of a JSON patch. A `test` may read any path, but of a Secret, where it would say whether a guess is
/// right. A `copy` there would show under another key what no plugin sees.
pub(super) fn check_operations(patch: &Value, is_secret: bool) -> Result<(), String> {
    let Some(operations) = patch.as_array() else {
        return Err("the body of a json-patch is a list of operations".to_owned());
    };
    for (at, operation) in operations.iter().enumerate() {
        let (Some(op), Some(path)) = (operation["op"].as_str(), operation["path"].as_str()) else {
            return Err(format!("operation {at}: op and path are missing"));
        };
        if is_secret && matches!(op, "copy" | "move" | "test") {
            let why = "values of a Secret are not copied, moved or tested, some are for no plugin";
            return Err(format!("operation {at}: {why}"));
        }
        let all = [Some(path), operation["from"].as_str()];
        if all.into_iter().flatten().any(|pointer| pointer.matches('/').count() > MAX_POINTER_MEMBERS) {
            return Err(format!("operation {at}: a pointer has at most {MAX_POINTER_MEMBERS} members"));
        }
        let from = operation["from"].as_str().filter(|_| op == "move");
        for path in [Some(path), from].into_iter().flatten().filter(|_| op != "test") {
            check_pointer(path).map_err(|why| format!("operation {at}: {why}"))?;
        }
    }
    Ok(())
}

fn check_pointer(path: &str) -> Result<(), String> {
    let parts: Vec<String> = path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [] => Err("a patch is not of the object as a whole; delete or apply it".to_owned()),
        ["metadata"] => Err("metadata cannot be replaced as a whole".to_owned()),
        // It would remove or set the host's own keys.
        ["metadata", map] if PATCHABLE.contains(map) => {
            Err(format!("metadata.{map} cannot be replaced as a whole: name the key, or take a merge patch"))
        }
        ["metadata", map, key, ..] if PATCHABLE.contains(map) && key.starts_with(PREFIX) => Err(own_key(map, key)),
        ["metadata", field, ..] if !PATCHABLE.contains(field) => Err(not_patchable(field)),
        _ => Ok(()),
    }
}

fn check_own_keys(map: &str, keys: &Value) -> Result<(), String> {
    let own = keys.as_object().and_then(|keys| keys.keys().find(|key| key.starts_with(PREFIX)));
    own.map_or(Ok(()), |key| Err(own_key(map, key)))
}

fn own_key(map: &str, key: &str) -> String {
    format!("metadata.{map}[{key:?}] is set: everything under {PREFIX} is the host's")
}

fn not_patchable(field: &str) -> String {
    format!(
        "metadata.{field}: a patch may change labels and annotations; the rest belongs to the host or to the API server"
    )
}
