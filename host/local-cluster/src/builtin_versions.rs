//! Built-in kinds that two versions serve from one storage: Events (`v1` is stored, `events.k8s.io/v1` is served too) and
//! HorizontalPodAutoscalers (`autoscaling/v2` is stored, `autoscaling/v1` is served too). Input: an object in one version.
//! Output: the same in the other. It must not know definitions.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::resource::Resource;

/// What differs between the versions of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    Event,
    Autoscaler,
}

/// The mapping of a resource whose version is not the stored one.
fn mapping(resource: &Resource) -> Option<Mapping> {
    match (&*resource.group, &*resource.version, &*resource.kind) {
        _ if resource.custom.is_some() => None,
        ("events.k8s.io", "v1", "Event") => Some(Mapping::Event),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => Some(Mapping::Autoscaler),
        _ => None,
    }
}

/// A stored object in the version of a resource.
pub(crate) fn at_version<'a>(resource: &Resource, stored: &'a Value) -> Cow<'a, Value> {
    match mapping(resource) {
        None => Cow::Borrowed(stored),
        Some(Mapping::Event) => Cow::Owned(renamed(stored, "events.k8s.io/v1", EVENT)),
        Some(Mapping::Autoscaler) => Cow::Owned(autoscaler_v1(stored)),
    }
}

/// An object of a resource in the version that is stored.
pub(crate) fn for_storage(resource: &Resource, object: Value) -> Value {
    match mapping(resource) {
        None => object,
        Some(Mapping::Event) => renamed(&object, "v1", EVENT.map(|(old, new)| (new, old))),
        Some(Mapping::Autoscaler) => autoscaler_v2(object),
    }
}

/// The same, of an object that stays as it is.
pub(crate) fn stored<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    match mapping(resource) {
        None => Cow::Borrowed(object),
        Some(_) => Cow::Owned(for_storage(resource, object.clone())),
    }
}

/// The fields of an Event in `v1` and in `events.k8s.io/v1`.
const EVENT: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn renamed(object: &Value, api_version: &str, names: [(&str, &str); EVENT.len()]) -> Value {
    let new = |key: &String| names.iter().find(|(old, _)| *old == key).map_or(key.as_str(), |(_, new)| new).to_owned();
    let fields = object.as_object().into_iter().flatten();
    let mut fields: Map<String, Value> = fields.map(|(key, value)| (new(key), value.clone())).collect();
    fields.insert("apiVersion".to_owned(), api_version.into());
    Value::Object(fields)
}

/// The annotations in which `autoscaling/v1` has what it has no fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Fields of a metric: the sources that have them, the name in `autoscaling/v1`, and the path in `autoscaling/v2`.
const FIELDS: [(&str, &str, [&str; 2]); 14] = [
    ("resource containerResource", "name", ["name", ""]),
    ("containerResource", "container", ["container", ""]),
    ("object", "target", ["describedObject", ""]),
    ("pods object external", "metricName", ["metric", "name"]),
    ("pods object", "selector", ["metric", "selector"]),
    ("external", "metricSelector", ["metric", "selector"]),
    ("resource containerResource", "targetAverageUtilization", ["target", "averageUtilization"]),
    ("resource containerResource pods external", "targetAverageValue", ["target", "averageValue"]),
    ("object", "averageValue", ["target", "averageValue"]),
    ("object external", "targetValue", ["target", "value"]),
    ("resource containerResource", "currentAverageUtilization", ["current", "averageUtilization"]),
    ("resource containerResource pods external", "currentAverageValue", ["current", "averageValue"]),
    ("object", "averageValue", ["current", "averageValue"]),
    ("object external", "currentValue", ["current", "value"]),
];

/// The fields of one source.
fn fields(source: &str) -> impl Iterator<Item = (&'static str, [&'static str; 2])> {
    let of = FIELDS.iter().filter(move |(sources, ..)| sources.split(' ').any(|one| one == source));
    of.map(|(_, old, path)| (*old, *path))
}

/// The field in a metric that has its source.
fn source(metric: &Value) -> &'static str {
    let known = ["resource", "containerResource", "pods", "object", "external"];
    let kind = metric["type"].as_str().unwrap_or_default();
    known.into_iter().find(|field| field.eq_ignore_ascii_case(kind)).unwrap_or("resource")
}

fn metric_v1(metric: &Value) -> Value {
    let name = source(metric);
    let mut old = Map::new();
    for (key, [outer, inner]) in fields(name) {
        let found = &metric[name][outer];
        let found = if inner.is_empty() { found } else { &found[inner] };
        if !found.is_null() {
            old.insert(key.to_owned(), found.clone());
        }
    }
    json!({"type": metric["type"], name: old})
}

fn metric_v2(metric: &Value) -> Value {
    let name = source(metric);
    let old = &metric[name];
    let is_status = old.as_object().is_some_and(|old| old.keys().any(|key| key.starts_with("current")));
    let other = if is_status { "target" } else { "current" };
    let mut new = Map::new();
    for (key, [outer, inner]) in fields(name).filter(|(_, [outer, _])| *outer != other) {
        match &old[key] {
            Value::Null => {}
            value if inner.is_empty() => drop(new.insert(outer.to_owned(), value.clone())),
            value => new.entry(outer).or_insert_with(|| json!({}))[inner] = value.clone(),
        }
    }
    if let Some(target) = new.get_mut("target").and_then(Value::as_object_mut) {
        let kinds = [("averageUtilization", "Utilization"), ("averageValue", "AverageValue"), ("value", "Value")];
        let kind = kinds.into_iter().find(|(field, _)| target.contains_key(*field)).map_or("Value", |(_, kind)| kind);
        target.insert("type".to_owned(), kind.into());
    }
    json!({"type": metric["type"], name: new})
}

/// Whether a metric is the one that `autoscaling/v1` has a field for.
fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn autoscaler_v1(stored: &Value) -> Value {
    let (spec, status) = (&stored["spec"], &stored["status"]);
    let mut object = stored.clone();
    let mut annotations = Vec::new();
    let utilization = |metric: &&Value| is_cpu(metric) && metric["resource"]["target"]["averageUtilization"].is_i64();
    let others: Vec<Value> =
        list(spec, "metrics").iter().filter(|metric| !utilization(metric)).map(metric_v1).collect();
    let current: Vec<Value> = list(status, "currentMetrics").iter().map(metric_v1).collect();
    let conditions = list(status, "conditions");
    for (key, value) in [(METRICS, &others[..]), (CURRENT_METRICS, &current), (CONDITIONS, conditions)] {
        if !value.is_empty() {
            annotations.push((key, json!(value).to_string()));
        }
    }
    if spec["behavior"].is_object() {
        // The real one writes the names of its own structs here.
        annotations.push((BEHAVIOR, cased(&spec["behavior"], |first| first.to_ascii_uppercase()).to_string()));
    }
    let metric = list(spec, "metrics").iter().find(utilization);
    let target = metric.map(|metric| metric["resource"]["target"]["averageUtilization"].clone());
    let now = list(status, "currentMetrics").iter().find(|metric| is_cpu(metric));
    let now = now.map(|metric| metric["resource"]["current"]["averageUtilization"].clone());
    object["apiVersion"] = "autoscaling/v1".into();
    replace(&mut object, "spec", &["metrics", "behavior"], "targetCPUUtilizationPercentage", target);
    replace(&mut object, "status", &["currentMetrics", "conditions"], "currentCPUUtilizationPercentage", now);
    if let (Some(metadata), false) = (object["metadata"].as_object_mut(), annotations.is_empty()) {
        let all = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.extend(annotations.into_iter().map(|(key, text)| (key.to_owned(), text.into())));
        }
    }
    object
}

/// Takes fields out of a part of an object, and puts one in.
fn replace(object: &mut Value, part: &str, without: &[&str], key: &str, value: Option<Value>) {
    let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut) else { return };
    for gone in without {
        fields.remove(*gone);
    }
    if let Some(value) = value.filter(|value| !value.is_null()) {
        fields.insert(key.to_owned(), value);
    }
}

fn autoscaler_v2(mut object: Value) -> Value {
    let mut take = |key: &str| {
        let annotations = object["metadata"]["annotations"].as_object_mut()?;
        serde_json::from_str::<Value>(annotations.remove(key)?.as_str()?).ok()
    };
    let [metrics, current, conditions, behavior] = [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR].map(&mut take);
    let cpu = |field: &str, kind: Option<&str>, value: &Value| {
        let mut target = json!({"averageUtilization": value});
        if let Some(kind) = kind {
            target["type"] = kind.into();
        }
        value.is_i64().then(|| json!({"type": "Resource", "resource": {"name": "cpu", field: target}}))
    };
    let all = |found: Option<Value>| -> Vec<Value> {
        found.iter().filter_map(Value::as_array).flatten().map(metric_v2).collect()
    };
    let mut metrics = all(metrics);
    metrics.extend(cpu("target", Some("Utilization"), &object["spec"]["targetCPUUtilizationPercentage"]));
    let mut current = all(current);
    if current.is_empty() {
        current.extend(cpu("current", None, &object["status"]["currentCPUUtilizationPercentage"]));
    }
    if object["metadata"]["annotations"].as_object().is_some_and(Map::is_empty) {
        let metadata = object["metadata"].as_object_mut();
        metadata.map(|metadata| metadata.remove("annotations"));
    }
    let some = |list: Vec<Value>| Some(list).filter(|list| !list.is_empty()).map(Value::Array);
    let behavior = behavior.map(|behavior| cased(&behavior, |first| first.to_ascii_lowercase()));
    object["apiVersion"] = "autoscaling/v2".into();
    replace(&mut object, "spec", &["targetCPUUtilizationPercentage"], "metrics", some(metrics));
    replace(&mut object, "spec", &[], "behavior", behavior.filter(Value::is_object));
    replace(&mut object, "status", &["currentCPUUtilizationPercentage"], "currentMetrics", some(current));
    replace(&mut object, "status", &[], "conditions", conditions.filter(Value::is_array));
    object
}

/// The same value with another case of the first letter of each field's name.
fn cased(value: &Value, first: fn(&char) -> char) -> Value {
    match value {
        Value::Object(fields) => {
            let name = |key: &str| {
                let mut characters = key.chars();
                characters.next().map(|letter| first(&letter)).into_iter().chain(characters).collect::<String>()
            };
            Value::Object(fields.iter().map(|(key, value)| (name(key), cased(value, first))).collect())
        }
        Value::Array(items) => items.iter().map(|item| cased(item, first)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method::{Get, Post};
    use crate::testing::{ask, quiet};

    #[test]
    fn an_event_is_the_same_in_both_groups() {
        let mut cluster = quiet();
        let event = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
            "note": "made", "reason": "Made", "type": "Normal", "action": "Making", "reportingController": "c",
            "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z"});
        let (status, made) = ask(&mut cluster, Post, "/apis/events.k8s.io/v1/namespaces/default/events", &event);
        assert_eq!(
            (status, &made["note"], &made["apiVersion"]),
            (201, &json!("made"), &json!("events.k8s.io/v1")),
            "{made}"
        );
        let (_, core) = ask(&mut cluster, Get, "/api/v1/namespaces/default/events/e", &json!(null));
        assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("made"), &json!("p")));
        assert_eq!((&core["apiVersion"], &core["reportingComponent"]), (&json!("v1"), &json!("c")));
        let (_, list) = ask(&mut cluster, Get, "/apis/events.k8s.io/v1/namespaces/default/events", &json!(null));
        assert_eq!((&list["items"][0]["note"], &list["apiVersion"]), (&json!("made"), &json!("events.k8s.io/v1")));
    }

    #[test]
    fn an_autoscaler_keeps_in_annotations_what_its_old_version_lacks() {
        let metrics = json!([
            {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "rate"},
                "target": {"type": "AverageValue", "averageValue": "10"}}},
            {"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}},
                "target": {"type": "Value", "value": "3"}}},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
        ]);
        let new = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "metrics": metrics, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}},
            "status": {"currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 4}}}]}});
        let old = autoscaler_v1(&new);
        assert_eq!(old["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}));
        assert_eq!(old["status"], json!({"currentCPUUtilizationPercentage": 4}));
        let annotation: Value =
            serde_json::from_str(old["metadata"]["annotations"][METRICS].as_str().unwrap()).unwrap();
        assert_eq!(
            annotation[0]["object"],
            json!({"target": {"kind": "Service", "name": "s"}, "metricName": "rate", "averageValue": "10"})
        );
        assert_eq!(annotation[1]["external"]["metricSelector"]["matchLabels"]["a"], "b");
        assert_eq!(old["metadata"]["annotations"][BEHAVIOR], "{\"ScaleDown\":{\"StabilizationWindowSeconds\":5}}");
        assert_eq!(autoscaler_v2(old), new);
    }
}
