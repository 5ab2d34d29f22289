//! Whether a server-side apply would change anything (X5): compares the wanted object with the live one and with the
//! field set that the API server recorded for our manager.
//!
//! In doubt an apply counts as needed; the API server makes no change then.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::json::is_same;

/// Whether applying `wanted` again would change neither a value nor the set of fields that we own.
///
/// `fields` is the fieldsV1 object of our own apply entry. Field sets do not include apiVersion, kind, name and
/// namespace, so these are not compared.
pub fn is_applied(wanted: &Value, live: &Value, fields: &Value) -> bool {
    let (Value::Object(wanted), Value::Object(live), Value::Object(fields)) = (wanted, live, fields) else {
        return false;
    };
    let mut wanted = wanted.clone();
    wanted.remove("apiVersion");
    wanted.remove("kind");
    if let Some(Value::Object(metadata)) = wanted.get_mut("metadata") {
        metadata.remove("name");
        metadata.remove("namespace");
        if metadata.is_empty() {
            wanted.remove("metadata");
        }
    }
    object_is_applied(&wanted, live, fields)
}

fn object_is_applied(wanted: &Map<String, Value>, live: &Map<String, Value>, fields: &Map<String, Value>) -> bool {
    let is_complete = wanted.iter().all(|(name, value)| match (live.get(name), fields.get(&format!("f:{name}"))) {
        (Some(live), Some(fields)) => value_is_applied(value, live, fields),
        _ => false,
    });
    let none_is_dropped = fields.keys().all(|key| match key.strip_prefix("f:") {
        Some(name) => wanted.contains_key(name),
        None => key == ".",
    });
    is_complete && none_is_dropped
}

fn value_is_applied(wanted: &Value, live: &Value, fields: &Value) -> bool {
    let Value::Object(fields) = fields else { return false };
    let is_leaf = fields.keys().all(|key| key == ".");
    match (wanted, live) {
        // A leaf of the field set is owned as a whole; the server may have set defaults within it.
        _ if is_leaf => contains(wanted, live),
        (Value::Object(wanted), Value::Object(live)) => object_is_applied(wanted, live, fields),
        (Value::Array(wanted), Value::Array(live)) => list_is_applied(wanted, live, fields),
        _ => false,
    }
}

fn list_is_applied(wanted: &[Value], live: &[Value], fields: &Map<String, Value>) -> bool {
    let elements: Vec<(&String, &Value)> = fields.iter().filter(|(key, _)| *key != ".").collect();
    if elements.len() != wanted.len() {
        return false;
    }
    if elements.iter().all(|(key, _)| key.starts_with("v:")) {
        let texts = |values: &[Value]| values.iter().map(Value::to_string).collect::<BTreeSet<_>>();
        let (wanted, live) = (texts(wanted), texts(live));
        return elements.iter().all(|(key, _)| {
            let text = serde_json::from_str::<Value>(&key["v:".len()..]).map(|value| value.to_string());
            text.is_ok_and(|text| wanted.contains(&text) && live.contains(&text))
        });
    }
    let (mut wanted, mut live) = (Elements::new(wanted), Elements::new(live));
    elements.iter().all(|(key, fields)| {
        let keys = key.strip_prefix("k:").and_then(|text| serde_json::from_str::<Value>(text).ok());
        let Some(Value::Object(keys)) = keys else { return false };
        match (wanted.find(&keys), live.find(&keys)) {
            (Some(Value::Object(wanted)), Some(live)) => {
                // We own a key with a default only if the guest wrote it, or once did: then its element would have
                // another key if its value had changed.
                let mut complete = wanted.clone();
                for (name, value) in keys {
                    if !fields[format!("f:{name}")].is_null() {
                        complete.entry(name).or_insert(value);
                    }
                }
                value_is_applied(&Value::Object(complete), live, fields)
            }
            _ => false,
        }
    })
}

/// Sets of keys that the elements of one list have: those with all of them, and those that leave defaults out. With more,
/// which no schema has, nothing is found.
const MAX_KEY_SETS: usize = 8;

/// The elements of a list, found by their keys: a look at each of ten thousand for each of ten thousand takes seconds.
struct Elements<'a> {
    list: &'a [Value],
    /// The names of the keys by which `places` has them.
    names: Vec<String>,
    /// By which of the names an element has, the first place of each with these values.
    places: BTreeMap<Vec<bool>, BTreeMap<Vec<String>, usize>>,
}

impl<'a> Elements<'a> {
    fn new(list: &'a [Value]) -> Self {
        Self { list, names: Vec::new(), places: BTreeMap::new() }
    }

    fn index(&mut self, keys: &Map<String, Value>) {
        self.names = keys.keys().cloned().collect();
        for (place, element) in self.list.iter().enumerate() {
            let values: Vec<Option<&Value>> = self.names.iter().map(|name| element.get(name)).collect();
            let of_set = self.places.entry(values.iter().map(Option::is_some).collect()).or_default();
            of_set.entry(values.iter().flatten().map(ToString::to_string).collect()).or_insert(place);
        }
    }

    /// The first element with these keys. Keys with defaults (a port's protocol) may be missing from what the guest wrote.
    fn find(&mut self, keys: &Map<String, Value>) -> Option<&'a Value> {
        if self.places.is_empty() {
            self.index(keys);
        }
        if self.places.len() > MAX_KEY_SETS || !keys.keys().eq(&self.names) {
            return None;
        }
        let of_set = |(has, places): (&Vec<bool>, &BTreeMap<Vec<String>, usize>)| {
            let own = keys.values().zip(has).filter(|(_, has)| **has).map(|(value, _)| value.to_string());
            places.get(&own.collect::<Vec<_>>()).copied()
        };
        self.places.iter().filter_map(of_set).min().map(|place| &self.list[place])
    }
}

/// Whether every value of `wanted` is in `live`, which may have more members, but not more list elements.
fn contains(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.iter().all(|(name, value)| live.get(name).is_some_and(|live| contains(value, live)))
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| contains(wanted, live))
        }
        _ => is_same(wanted, live),
    }
}

#[cfg(test)]
mod tests {
    use super::is_applied;
    use serde_json::json;

    #[track_caller]
    fn check(wanted: serde_json::Value, expected: bool) {
        let live = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "b", "uid": "1", "labels": {"app": "x", "theirs": "y"},
                "ownerReferences": [{"uid": "7", "name": "o", "controller": true}]},
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "externalIPs": ["1.1.1.1", "2.2.2.2"],
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "selector": {"app": "x"}},
        });
        let fields = json!({
            "f:metadata": {"f:labels": {"f:app": {}}, "f:ownerReferences": {"k:{\"uid\":\"7\"}": {}}},
            "f:spec": {"f:externalIPs": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
                "f:selector": {}},
        });
        assert_eq!(is_applied(&wanted, &live, &fields), expected, "{wanted}");
        let mut fields = fields;
        fields["f:spec"]["f:ports"]["k:{\"port\":80,\"protocol\":\"TCP\"}"]["f:protocol"] = json!({});
        assert_eq!(is_applied(&wanted, &live, &fields), expected, "the protocol was written once, {wanted}");
    }

    #[test]
    fn a_list_of_ten_thousand_elements_is_compared_element_by_element_and_not_each_with_each() {
        let ports = |name: &str| (0..10_000).map(|port| json!({"port": port, "name": name})).collect::<Vec<_>>();
        let names = (0..10_000).map(|number| format!("10.0.0.{number}")).collect::<Vec<_>>();
        let key = |port: usize| format!("k:{{\"port\":{port},\"protocol\":\"TCP\"}}");
        let fields = |port| (key(port), json!({".": {}, "f:port": {}, "f:name": {}}));
        let fields = json!({"f:spec": {
            "f:ports": (0..10_000).map(fields).collect::<serde_json::Map<_, _>>(),
            "f:ips": names.iter().map(|name| (format!("v:\"{name}\""), json!({}))).collect::<serde_json::Map<_, _>>(),
        }});
        let object = |name| json!({"spec": {"ports": ports(name), "ips": names}});
        // Pairs of ten thousand would take a minute.
        assert!(is_applied(&object("x"), &object("x"), &fields));
        assert!(!is_applied(&object("x"), &object("y"), &fields));
    }

    fn wanted() -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "b", "labels": {"app": "x"},
                "ownerReferences": [{"uid": "7", "name": "o", "controller": true}]},
            "spec": {"externalIPs": ["1.1.1.1", "2.2.2.2"], "ports": [{"port": 80}], "selector": {"app": "x"}},
        })
    }

    #[test]
    fn x5_an_apply_that_would_change_nothing_is_not_needed() {
        check(wanted(), true);
    }

    #[test]
    fn a_changed_value_an_added_and_a_dropped_field_each_need_an_apply() {
        let mut changed = wanted();
        changed["metadata"]["labels"]["app"] = json!("z");
        check(changed, false);
        let mut added = wanted();
        added["spec"]["type"] = json!("ClusterIP");
        check(added, false);
        let mut dropped = wanted();
        dropped["spec"].as_object_mut().unwrap().remove("selector");
        check(dropped, false);
        let mut shorter = wanted();
        shorter["spec"]["externalIPs"] = json!(["1.1.1.1"]);
        check(shorter, false);
        let mut port = wanted();
        port["spec"]["ports"] = json!([{"port": 81}]);
        check(port, false);
    }
}
