//! Whether a server-side apply would change anything (X5): compares the wanted object with the live one and with the
//! field set that the API server recorded for our manager.
//!
//! In doubt an apply counts as needed; the API server makes no change then.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::compare::Comparison;
use crate::json::level::{Level, Member, member};
use crate::well_known::GENERATED_ANNOTATION;

/// Whether applying `wanted` again would change neither a value nor the set of fields that we own.
///
/// `fields` is the fieldsV1 object of our own apply entry. Field sets do not include apiVersion, kind, name and
/// namespace, so these are not compared. The values at the keys `generated` are those of the live object; what is compared is
/// whether they and no others are recorded as ours.
pub fn is_applied(wanted: &str, live: &str, fields: &str, generated: &BTreeSet<&str>) -> bool {
    let raw = |text| serde_json::from_str::<&RawValue>(text).ok();
    let (Some(wanted), Some(live), Some(fields)) = (raw(wanted), raw(live), raw(fields)) else { return false };
    let bytes = [wanted, live, fields].map(|text| text.get().len()).iter().sum();
    let mut applied = Applied { comparison: Comparison::new(bytes), generated };
    let levels = [wanted, live, fields].map(|text| applied.comparison.level(text).into_members());
    let [Some(wanted), Some(live), Some(fields)] = levels else { return false };
    applied.is_object(wanted, &live, &fields, Place::Object)
}

/// Where an object is of which some members are not compared as they are.
#[derive(Clone, Copy)]
enum Place {
    Object,
    Metadata,
    Annotations,
    Data,
    Other,
}

impl Place {
    fn within(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Object, "data") => Self::Data,
            (Self::Metadata, "annotations") => Self::Annotations,
            _ => Self::Other,
        }
    }
}

struct Applied<'a> {
    comparison: Comparison,
    generated: &'a BTreeSet<&'a str>,
}

impl Applied<'_> {
    fn is_value(&mut self, wanted: &RawValue, live: &RawValue, fields: &RawValue, place: Place) -> bool {
        let Level::Object(fields) = self.comparison.level(fields) else { return false };
        if is_leaf(&fields) {
            // A leaf of the field set is owned as a whole; the server may have set defaults within it.
            return self.comparison.has(live, wanted, |_| false);
        }
        match (self.comparison.level(wanted), self.comparison.level(live)) {
            (Level::Object(wanted), Level::Object(live)) => self.is_object(wanted, &live, &fields, place),
            (Level::List(wanted), Level::List(live)) => self.is_list(&wanted, &live, &fields),
            _ => false,
        }
    }

    fn is_object<'t>(
        &mut self,
        mut wanted: Vec<Member<'t>>,
        live: &[Member<'t>],
        fields: &[Member<'_>],
        place: Place,
    ) -> bool {
        self.prepare(&mut wanted, live, place);
        let none_is_dropped = fields.iter().all(|(key, _)| match key.strip_prefix("f:") {
            Some(name) => member(&wanted, name).is_some(),
            None => key == ".",
        });
        none_is_dropped
            && wanted.iter().all(|(name, value)| match (member(live, name), member(fields, &format!("f:{name}"))) {
                (Some(live), Some(fields)) => {
                    self.deeper(|applied| applied.is_value(value, live, fields, place.within(name)))
                }
                _ => false,
            })
    }

    fn deeper(&mut self, look: impl FnOnce(&mut Self) -> bool) -> bool {
        let mut found = false;
        if self.comparison.enter() {
            found = look(self);
            self.comparison.leave();
        }
        found
    }

    /// Takes out what field sets do not have, and puts in what the host has made.
    fn prepare<'t>(&self, wanted: &mut Vec<Member<'t>>, live: &[Member<'t>], place: Place) {
        match place {
            Place::Object => {
                wanted.retain(|(name, value)| match &**name {
                    "apiVersion" | "kind" => false,
                    "metadata" => has_fields(value),
                    _ => true,
                });
                if !self.generated.is_empty() && member(wanted, "data").is_none() {
                    set(wanted, "data".into(), empty());
                }
            }
            Place::Metadata => wanted.retain(|(name, _)| !is_name(name)),
            Place::Annotations if !self.generated.is_empty() => {
                if let Some(record) = member(live, GENERATED_ANNOTATION) {
                    set(wanted, GENERATED_ANNOTATION.into(), record);
                }
            }
            Place::Data => {
                for (key, value) in live.iter().filter(|(key, _)| self.generated.contains(&**key)) {
                    set(wanted, key.clone(), value);
                }
            }
            Place::Annotations | Place::Other => {}
        }
    }

    fn is_list(&mut self, wanted: &[&RawValue], live: &[&RawValue], fields: &[Member<'_>]) -> bool {
        let elements: Vec<&Member<'_>> = fields.iter().filter(|(key, _)| key != ".").collect();
        if elements.len() != wanted.len() {
            return false;
        }
        if elements.iter().all(|(key, _)| key.starts_with("v:")) {
            let text = |(key, _): &&Member<'_>| serde_json::from_str(&key["v:".len()..]).map(canonical).ok();
            let Some(owned) = elements.iter().map(text).collect::<Option<BTreeSet<String>>>() else { return false };
            // A set of the live values would have many times their text.
            let has_all = |values: &[&RawValue]| {
                let mut missing: BTreeSet<&str> = owned.iter().map(String::as_str).collect();
                values.iter().for_each(|value| _ = missing.remove(&*canonical(value)));
                missing.is_empty()
            };
            return has_all(wanted) && has_all(live);
        }
        let (mut wanted, mut live) = (Elements::new(wanted), Elements::new(live));
        elements.iter().all(|(key, fields)| {
            let keys = key.strip_prefix("k:").and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
            let Some(Level::Object(keys)) = keys.map(|keys| Level::of(keys, MAX_KEYS)) else { return false };
            let found = (wanted.find(&keys, &mut self.comparison), live.find(&keys, &mut self.comparison));
            let (Some(wanted), Some(live)) = found else { return false };
            self.deeper(|applied| applied.is_element(wanted, live, fields, &keys))
        })
    }

    /// We own a key with a default only if the guest wrote it, or once did: then its element would have another key if its
    /// value had changed.
    fn is_element(&mut self, wanted: &RawValue, live: &RawValue, fields: &RawValue, keys: &[Member<'_>]) -> bool {
        let level = |comparison: &mut Comparison, text| comparison.level(text).into_members();
        let (wanted, live) = (level(&mut self.comparison, wanted), level(&mut self.comparison, live));
        let (Some(wanted), Some(live), Some(fields)) = (wanted, live, level(&mut self.comparison, fields)) else {
            return false;
        };
        let mut complete: Vec<Member<'_>> = wanted;
        for (name, value) in keys {
            let is_owned = member(&fields, &format!("f:{name}")).is_some();
            if is_owned && member(&complete, name).is_none() {
                set(&mut complete, name.clone(), value);
            }
        }
        if is_leaf(&fields) {
            self.comparison.has_members(&live, &complete, |_| false)
        } else {
            self.is_object(complete, &live, &fields, Place::Other)
        }
    }
}

fn is_leaf(fields: &[Member<'_>]) -> bool {
    fields.iter().all(|(key, _)| key == ".")
}

fn is_name(field: &str) -> bool {
    ["name", "namespace"].contains(&field)
}

fn empty() -> &'static RawValue {
    serde_json::from_str("{}").expect("it is JSON")
}

/// Whether metadata has more than what names the object.
fn has_fields(metadata: &RawValue) -> bool {
    match Level::of(metadata, usize::MAX) {
        Level::Object(members) => members.iter().any(|(name, _)| !is_name(name)),
        Level::List(_) | Level::Scalar | Level::Wide => true,
    }
}

/// Sets a member where its name belongs.
fn set<'a>(members: &mut Vec<Member<'a>>, name: Cow<'a, str>, value: &'a RawValue) {
    match members.binary_search_by(|(of, _)| of.cmp(&name)) {
        Ok(at) => members[at].1 = value,
        Err(at) => members.insert(at, (name, value)),
    }
}

/// A text or a number in one notation; what is neither is no key and stays as it is.
fn canonical(value: &RawValue) -> String {
    let scalar =
        || serde_json::from_str::<Value>(value.get()).map_or_else(|_| value.get().to_owned(), |it| it.to_string());
    if value.get().starts_with(['{', '[']) { value.get().to_owned() } else { scalar() }
}

/// Members that identify an element, at most: those of a Service's port are two.
const MAX_KEYS: usize = 16;
/// Sets of keys that the elements of one list have: those with all of them, and those that leave defaults out. With more,
/// which no schema has, nothing is found.
const MAX_KEY_SETS: usize = 8;

/// The elements of a list, found by their keys: a look at each of ten thousand for each of ten thousand takes seconds.
struct Elements<'a> {
    list: &'a [&'a RawValue],
    /// The names of the keys by which `places` has them.
    names: Vec<String>,
    /// By which of the names an element has, the first place of each with these values.
    places: BTreeMap<Vec<bool>, BTreeMap<Vec<String>, usize>>,
}

impl<'a> Elements<'a> {
    fn new(list: &'a [&'a RawValue]) -> Self {
        Self { list, names: Vec::new(), places: BTreeMap::new() }
    }

    fn index(&mut self, keys: &[Member<'_>], comparison: &mut Comparison) {
        self.names = keys.iter().map(|(name, _)| name.to_string()).collect();
        for (place, element) in self.list.iter().enumerate() {
            let Level::Object(members) = comparison.level(element) else { continue };
            let values: Vec<Option<&RawValue>> = self.names.iter().map(|name| member(&members, name)).collect();
            let of_set = self.places.entry(values.iter().map(Option::is_some).collect()).or_default();
            of_set.entry(values.into_iter().flatten().map(canonical).collect()).or_insert(place);
        }
    }

    /// The first element with these keys. Keys with defaults (a port's protocol) may be missing from what the guest wrote.
    fn find(&mut self, keys: &[Member<'_>], comparison: &mut Comparison) -> Option<&'a RawValue> {
        if self.places.is_empty() {
            self.index(keys, comparison);
        }
        if self.places.len() > MAX_KEY_SETS || !keys.iter().map(|(name, _)| &**name).eq(&self.names) {
            return None;
        }
        let of_set = |(has, places): (&Vec<bool>, &BTreeMap<Vec<String>, usize>)| {
            let own = keys.iter().zip(has).filter(|(_, has)| **has).map(|((_, value), _)| canonical(value));
            places.get(&own.collect::<Vec<_>>()).copied()
        };
        self.places.iter().filter_map(of_set).min().map(|place| self.list[place])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use crate::allocations::counted;

    fn is_applied(wanted: &Value, live: &Value, fields: &Value) -> bool {
        super::is_applied(&wanted.to_string(), &live.to_string(), &fields.to_string(), &BTreeSet::new())
    }

    #[track_caller]
    fn check(wanted: Value, expected: bool) {
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

    fn wanted() -> Value {
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

    #[test]
    fn p18_a_live_object_of_the_worst_content_is_compared_in_a_few_times_its_text() {
        let smallest = format!("[{}]", vec![r#"{"":0}"#; 50_000].join(","));
        let members: Vec<String> = (0..50_000).map(|number| format!(r#""{number:x}":0"#)).collect();
        let owned: Vec<String> = (0..50_000).map(|number| format!(r#""f:{number:x}":{{"f:a":{{}}}}"#)).collect();
        let (members, owned) = (format!("{{{}}}", members.join(",")), format!("{{{}}}", owned.join(",")));
        let leaf = r#"{"f:spec":{"f:a":{}}}"#.to_owned();
        for (what, wanted, live, fields) in [
            ("of others", "1".to_owned(), format!(r#"{{"spec":{{"a":1}},"theirs":{smallest}}}"#), leaf.clone()),
            (
                "in a leaf",
                smallest.clone(),
                format!(r#"{{"spec":{{"a":{}}}}}"#, smallest.replace('0', "1")),
                leaf.clone(),
            ),
            ("in a map", members.clone(), format!(r#"{{"spec":{{"a":{}}}}}"#, members.replace('1', "2")), leaf),
            (
                "in the fields",
                members,
                format!(r#"{{"spec":{{"a":{smallest}}}}}"#),
                format!(r#"{{"f:spec":{{"f:a":{owned}}}}}"#),
            ),
        ] {
            let wanted = format!(r#"{{"spec":{{"a":{wanted}}}}}"#);
            let text = wanted.len() + live.len() + fields.len();
            let (count, found) = counted(|| super::is_applied(&wanted, &live, &fields, &BTreeSet::new()));
            assert_eq!(found, what == "of others", "{what}");
            assert!(count.peak_bytes.unsigned_abs() < 16 * text, "{what}: {} bytes for {text}", count.peak_bytes);
        }
    }

    #[test]
    fn p18_a_set_of_a_million_values_is_compared_without_a_set_of_them() {
        let live = format!(r#"{{"spec":{{"a":[{}]}}}}"#, vec!["0"; 100_000].join(","));
        let (wanted, fields) = (r#"{"spec":{"a":[0]}}"#, r#"{"f:spec":{"f:a":{"v:0":{}}}}"#);
        let text = wanted.len() + live.len() + fields.len();
        let (count, found) = counted(|| super::is_applied(wanted, &live, fields, &BTreeSet::new()));
        assert!(found);
        // References to the items, in a list that grows by doubling.
        assert!(count.peak_bytes.unsigned_abs() < 25 * text, "{} bytes for {text}", count.peak_bytes);
    }

    #[test]
    fn x5_where_nothing_is_recorded_as_ours_an_apply_is_needed() {
        for fields in [json!({}), json!({".": {}})] {
            assert!(!is_applied(&json!({"spec": {"a": 1}}), &json!({"spec": {"a": 1}}), &fields), "{fields}");
        }
        assert!(is_applied(&json!({"kind": "A"}), &json!({"kind": "A", "spec": {}}), &json!({})), "nothing is wanted");
    }

    #[test]
    fn x5_nested_levels_are_compared_as_far_as_objects_have_them_and_differ_beyond() {
        let nested = |levels: usize, value: &str| format!("{}{value}{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let fields = |levels: usize| format!("{}{{}}{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels));
        let is_applied = |levels| {
            let text = nested(levels, "1");
            super::is_applied(&text, &text, &fields(levels), &BTreeSet::new())
        };
        assert!(is_applied(20));
        assert!(!is_applied(120), "in doubt an apply is needed");
    }
}
