//! Field sets (fieldsV1) as far as mortise reads them: who applied what, what an apply removes, and conflicts. Lists
//! are atomic, except for owner references (by UID) and conditions (by type).

use serde_json::{Map, Value, json};

const LIST_KEYS: [(&str, &str); 2] = [("ownerReferences", "uid"), ("conditions", "type")];

/// Records that `manager` owns exactly the fields of `wanted`.
pub fn record_apply(object: &mut Value, manager: &str, wanted: &Value) {
    set_entry(object, manager, "Apply", "", applied_set(wanted));
}

/// The live object after an apply: sets values, and removes fields that the manager applied before and no longer does.
pub fn applied(live: &Value, manager: &str, wanted: &Value) -> Value {
    let mut after = live.clone();
    let new = applied_set(wanted);
    if let Some(old) = entry(live, manager, "Apply") {
        prune(&mut after, &old, &new);
    }
    overlay(&mut after, wanted);
    for other in entries(&mut after) {
        if other["manager"] != manager {
            let kept = without(&other["fieldsV1"], &new);
            other["fieldsV1"] = kept;
        }
    }
    record_apply(&mut after, manager, wanted);
    after
}

/// A field that another manager owns with another value.
pub fn conflict(live: &Value, manager: &str, wanted: &Value) -> Option<String> {
    let others = live["metadata"]["managedFields"].as_array()?;
    others.iter().filter(|entry| entry["manager"] != manager && entry["subresource"] == "").find_map(|entry| {
        let path = differing(&entry["fieldsV1"], wanted, live, "")?;
        Some(format!("Apply failed with 1 conflict: conflict with {}: {path}", entry["manager"]))
    })
}

/// Records that a user changed these fields.
pub fn record_edit(object: &mut Value, manager: &str, patch: &Value) {
    let taken = applied_set(patch);
    for entry in entries(object) {
        let kept = without(&entry["fieldsV1"], &taken);
        entry["fieldsV1"] = kept;
    }
    let before = entry(object, manager, "Update").unwrap_or_else(|| json!({}));
    set_entry(object, manager, "Update", "", union(&before, &taken));
}

/// Records that `manager` patched these fields of the status.
pub fn record_status(object: &mut Value, manager: &str, patch: &Value) {
    let found = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut of_status = found.filter(|entry| entry["manager"] == manager && entry["subresource"] == "status");
    let before = of_status.next().map_or_else(|| json!({}), |entry| entry["fieldsV1"]["f:status"].clone());
    let mut fields = union(&before, &set_of(patch));
    if let (Value::Object(fields), Value::Object(patch)) = (&mut fields, patch) {
        for (name, _) in patch.iter().filter(|(_, value)| value.is_null()) {
            fields.remove(&format!("f:{name}"));
        }
        // A merge patch replaces a list as a whole, so the manager owns all of it.
        if patch.contains_key("conditions") {
            fields.insert("f:conditions".to_owned(), list_set("conditions", &patch["conditions"]));
        }
    }
    set_entry(object, manager, "Update", "status", json!({"f:status": fields}));
}

fn entries(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let list = object["metadata"].get_mut("managedFields").and_then(Value::as_array_mut);
    list.into_iter().flatten().filter(|entry| entry["subresource"] == "")
}

fn entry(object: &Value, manager: &str, operation: &str) -> Option<Value> {
    let list = object["metadata"]["managedFields"].as_array()?;
    let is_it =
        |entry: &&Value| entry["manager"] == manager && entry["operation"] == operation && entry["subresource"] == "";
    list.iter().find(is_it).map(|entry| entry["fieldsV1"].clone())
}

fn set_entry(object: &mut Value, manager: &str, operation: &str, subresource: &str, fields: Value) {
    let metadata = &mut object["metadata"];
    if !metadata["managedFields"].is_array() {
        metadata["managedFields"] = json!([]);
    }
    let Some(list) = metadata["managedFields"].as_array_mut() else { return };
    list.retain(|entry| {
        entry["manager"] != manager || entry["operation"] != operation || entry["subresource"] != subresource
    });
    list.push(json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields}));
}

fn applied_set(wanted: &Value) -> Value {
    let mut wanted = wanted.clone();
    if let Some(object) = wanted.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("name");
            metadata.remove("namespace");
            metadata.remove("managedFields");
        }
    }
    set_of(&wanted)
}

fn set_of(value: &Value) -> Value {
    let Value::Object(members) = value else { return json!({}) };
    let field = |(name, value): (&String, &Value)| {
        let is_list = LIST_KEYS.iter().any(|(list, _)| list == name) && value.is_array();
        (format!("f:{name}"), if is_list { list_set(name, value) } else { set_of(value) })
    };
    Value::Object(members.iter().map(field).collect())
}

fn list_set(list: &str, value: &Value) -> Value {
    let key = LIST_KEYS.iter().find(|(name, _)| *name == list).map_or("name", |(_, key)| *key);
    let elements = value.as_array().into_iter().flatten();
    Value::Object(elements.map(|element| (format!("k:{}", json!({key: element[key]})), json!({}))).collect())
}

fn union(left: &Value, right: &Value) -> Value {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return right.clone() };
    let mut both = left.clone();
    for (name, fields) in right {
        let merged = both.get(name).map_or_else(|| fields.clone(), |before| union(before, fields));
        both.insert(name.clone(), merged);
    }
    Value::Object(both)
}

/// `set` without the leaves of `taken`.
fn without(set: &Value, taken: &Value) -> Value {
    let (Value::Object(set), Value::Object(taken)) = (set, taken) else { return set.clone() };
    let mut kept = Map::new();
    for (name, fields) in set {
        match taken.get(name) {
            None => {
                kept.insert(name.clone(), fields.clone());
            }
            Some(taken) => {
                let rest = without(fields, taken);
                if rest.as_object().is_some_and(|rest| !rest.is_empty()) {
                    kept.insert(name.clone(), rest);
                }
            }
        }
    }
    Value::Object(kept)
}

/// Removes the fields of `old` that `new` lacks.
fn prune(object: &mut Value, old: &Value, new: &Value) {
    let (Value::Object(object), Value::Object(old)) = (object, old) else { return };
    for (field, fields) in old {
        let Some(name) = field.strip_prefix("f:") else { continue };
        match new.get(field) {
            None => {
                object.remove(name);
            }
            Some(new) => {
                if let Some(inner) = object.get_mut(name) {
                    prune(inner, fields, new);
                }
            }
        }
    }
}

fn overlay(object: &mut Value, wanted: &Value) {
    let (Value::Object(object), Value::Object(wanted)) = (object, wanted) else { return };
    for (name, value) in wanted {
        match (object.get_mut(name), value) {
            (Some(before @ Value::Object(_)), Value::Object(_)) => overlay(before, value),
            _ => {
                object.insert(name.clone(), value.clone());
            }
        }
    }
}

fn differing(set: &Value, wanted: &Value, live: &Value, path: &str) -> Option<String> {
    let Value::Object(members) = wanted else {
        return (wanted != live).then(|| path.to_owned());
    };
    members.iter().find_map(|(name, value)| {
        let fields = set.get(format!("f:{name}"))?;
        differing(fields, value, live.get(name).unwrap_or(&Value::Null), &format!("{path}.{name}"))
    })
}
