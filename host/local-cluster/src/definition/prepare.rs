//! Completes definitions that are written: their defaults, and what only the server sets. Input: a definition. Output: the
//! same definition. It must not know whether it is right.

use serde_json::{Value, json};

use super::field::{array, storage_version};

/// Fills in the defaults of a definition.
pub(crate) fn default(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let none = || json!({"strategy": "None"});
    spec.entry("conversion").or_insert_with(none);
    let service =
        spec.get_mut("conversion").and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"));
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.entry("port").or_insert(443.into());
    }
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        for (key, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
            let absent = names.get(key).and_then(Value::as_str).is_none_or(str::is_empty);
            if absent && !kind.is_empty() {
                names.insert(key.to_owned(), value.into());
            }
        }
    }
}

/// Gives a definition that is created or changed its status: what clients cannot set.
pub(crate) fn prepare(definition: &mut Value, old: Option<&Value>) {
    let mut status = old.map(|old| old["status"].clone()).filter(Value::is_object).unwrap_or_else(
        || json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []}),
    );
    let stored: Vec<Value> = {
        let mut stored = array(&status, "storedVersions").to_vec();
        if let Some(version) = storage_version(definition).map(Value::from).filter(|version| !stored.contains(version))
        {
            stored.push(version);
        }
        stored
    };
    status["storedVersions"] = stored.into();
    definition["status"] = status;
    let generation = match old {
        None => 1,
        Some(old) => {
            let before = old["metadata"]["generation"].as_i64().unwrap_or(1);
            before + i64::from(old["spec"] != definition["spec"])
        }
    };
    if let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".to_owned(), generation.into());
    }
}
