//! The `Scale` of an object: its replicas as autoscalers see them. Input: an object of a kind that scales. Output: its Scale,
//! and the object with other replicas. It must not know requests.

use serde_json::{Value, json};

use crate::resource::Resource;

/// The Scale of an object.
pub(crate) fn of(resource: &Resource, object: &Value) -> Value {
    let read = |path: &str| steps(path).try_fold(object, |value, step| value.get(step));
    let paths = resource.custom.as_ref().and_then(|version| version.scale.as_ref());
    let path = |key: &str, built_in: &'static str| match paths {
        Some(paths) => paths[key].as_str().unwrap_or_default().to_owned(),
        None => built_in.to_owned(),
    };
    let spec = read(&path("specReplicasPath", ".spec.replicas")).and_then(Value::as_i64).unwrap_or(0);
    let status = read(&path("statusReplicasPath", ".status.replicas")).and_then(Value::as_i64).unwrap_or(0);
    let selector = match paths {
        Some(paths) => {
            let text = paths["labelSelectorPath"].as_str().filter(|path| !path.is_empty()).and_then(read);
            text.and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        None => selector(object),
    };
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(key) {
            metadata[key] = value.clone();
        }
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {}, "status": {"replicas": status},
    });
    if spec != 0 {
        scale["spec"]["replicas"] = spec.into();
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// Gives an object other replicas. Where its path leads through something that is no object, nothing changes.
pub(crate) fn set_replicas(resource: &Resource, object: &mut Value, replicas: i64) {
    let paths = resource.custom.as_ref().and_then(|version| version.scale.as_ref());
    let path = paths.and_then(|paths| paths["specReplicasPath"].as_str()).unwrap_or(".spec.replicas");
    let mut place = object;
    for step in steps(path) {
        if place.is_null() {
            *place = json!({});
        }
        let Some(fields) = place.as_object_mut() else { return };
        place = fields.entry(step).or_insert(Value::Null);
    }
    *place = replicas.into();
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.trim_start_matches('.').split('.')
}

/// A built-in kind's selector as text, by key.
fn selector(object: &Value) -> String {
    let selector = &object["spec"]["selector"];
    // A ReplicationController's selector is the labels themselves.
    let plain = object["kind"] == "ReplicationController";
    let labels = if plain { selector } else { &selector["matchLabels"] };
    let label =
        |(key, value): (&String, &Value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default()));
    let mut parts: Vec<(String, String)> = labels.as_object().into_iter().flatten().map(label).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut values: Vec<&str> = values.collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort();
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}
