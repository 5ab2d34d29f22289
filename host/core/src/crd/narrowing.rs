//! Values that an old definition allows and a new one would refuse or drop. Two definitions come in as JSON; one
//! sentence per narrowing, with its version and JSON path, comes out.
//!
//! A change that cannot be compared (another pattern, another `anyOf`) counts as narrowing: a person can correct a
//! refusal, and nobody can restore pruned data.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::conversion;

pub(super) fn served_versions(crd: &Value) -> Vec<&str> {
    versions(crd).iter().filter(|version| is_served(version)).map(name).collect()
}

pub(super) fn narrowings(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in list(&old["status"]["storedVersions"]).iter().filter_map(Value::as_str) {
        if !versions(new).iter().any(|new| name(new) == version) {
            found.push(format!("{version}: the version is removed while objects may be stored in it"));
        }
    }
    if conversion::is_by_webhook(old) && !conversion::is_by_webhook(new) && versions(new).len() > 1 {
        found.push(
            "spec.conversion: objects are no longer converted, so fields of one version only would be dropped".into(),
        );
    }
    for old_version in versions(old).iter().filter(|version| is_served(version)) {
        let version = name(old_version);
        match versions(new).iter().find(|new| name(new) == version) {
            Some(new_version) if is_served(new_version) => {
                let [old, new] = [old_version, new_version].map(|version| &version["schema"]["openAPIV3Schema"]);
                Walk { version, path: String::new(), found: &mut found }.schema(old, new);
            }
            _ => found.push(format!("{version}: the version is no longer served")),
        }
    }
    found
}

fn versions(crd: &Value) -> &[Value] {
    list(&crd["spec"]["versions"])
}

fn name(version: &Value) -> &str {
    text(version, "name")
}

fn is_served(version: &Value) -> bool {
    is_true(version, "served")
}

/// Bounds of numbers and sizes, which narrow when they are new or stricter.
const LOWER_BOUNDS: [&str; 4] = ["minimum", "minLength", "minItems", "minProperties"];
const UPPER_BOUNDS: [&str; 4] = ["maximum", "maxLength", "maxItems", "maxProperties"];
/// Keywords that narrow when they become true.
const SWITCHES_ON: [&str; 4] =
    ["exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "x-kubernetes-embedded-resource"];
/// Keywords that narrow when they stop being true.
const SWITCHES_OFF: [&str; 3] = ["nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"];
/// Keywords whose values cannot be compared: any new or changed value narrows.
const OPAQUE: [&str; 9] = [
    "pattern",
    "multipleOf",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];

/// A walk through two schemas at once. The JSON parser bounds its depth.
struct Walk<'a> {
    version: &'a str,
    path: String,
    found: &'a mut Vec<String>,
}

impl Walk<'_> {
    fn report(&mut self, what: &str) {
        let path = if self.path.is_empty() { "." } else { &self.path };
        self.found.push(format!("{} {path}: {what}", self.version));
    }

    fn within(&mut self, step: &str, old: &Value, new: &Value) {
        let length = self.path.len();
        self.path.push_str(step);
        self.schema(old, new);
        self.path.truncate(length);
    }

    fn report_within(&mut self, step: &str, what: &str) {
        let length = self.path.len();
        self.path.push_str(step);
        self.report(what);
        self.path.truncate(length);
    }

    fn schema(&mut self, old: &Value, new: &Value) {
        self.types(old, new);
        self.keywords(old, new);
        self.values(old, new);
        self.properties(old, new);
        self.additional_properties(old, new);
        match (&old["items"], &new["items"]) {
            (_, Value::Null) => {}
            (Value::Null, _) => self.report_within("[]", "its items get a schema where anything was accepted"),
            (old, new) => self.within("[]", old, new),
        }
    }

    fn types(&mut self, old: &Value, new: &Value) {
        let (old_type, new_type) = (text(old, "type"), text(new, "type"));
        let int_or_string = is_true(new, "x-kubernetes-int-or-string") && matches!(old_type, "integer" | "string");
        let widened = new_type.is_empty() || (old_type == "integer" && new_type == "number") || int_or_string;
        if old_type == new_type || widened {
            return;
        }
        if old_type.is_empty() {
            self.report(&format!("must be of type {new_type} where any type was accepted"));
        } else {
            self.report(&format!("its type changes from {old_type} to {new_type}"));
        }
    }

    fn keywords(&mut self, old: &Value, new: &Value) {
        for keyword in LOWER_BOUNDS.into_iter().chain(UPPER_BOUNDS) {
            let Some(new) = new[keyword].as_f64() else { continue };
            match old[keyword].as_f64() {
                None => self.report(&format!("{keyword} {new} is new")),
                Some(old) if new > old && LOWER_BOUNDS.contains(&keyword) => {
                    self.report(&format!("{keyword} is raised from {old} to {new}"));
                }
                Some(old) if new < old && UPPER_BOUNDS.contains(&keyword) => {
                    self.report(&format!("{keyword} is lowered from {old} to {new}"));
                }
                Some(_) => {}
            }
        }
        for keyword in SWITCHES_ON {
            if is_true(new, keyword) && !is_true(old, keyword) {
                self.report(&format!("{keyword} is new"));
            }
        }
        for keyword in SWITCHES_OFF {
            if is_true(old, keyword) && !is_true(new, keyword) {
                self.report(&format!("{keyword} is removed"));
            }
        }
        for keyword in OPAQUE {
            if !new[keyword].is_null() && new[keyword] != old[keyword] {
                let how = if old[keyword].is_null() { "is new" } else { "is changed" };
                self.report(&format!("{keyword} {how}"));
            }
        }
        let (old_format, new_format) = (text(old, "format"), text(new, "format"));
        let widened = new_format.is_empty() || (old_format == "int32" && new_format == "int64");
        if old_format != new_format && !widened {
            self.report(&format!("format {new_format} is new"));
        }
    }

    fn values(&mut self, old: &Value, new: &Value) {
        match (old["enum"].as_array(), new["enum"].as_array()) {
            (None, Some(_)) => self.report("enum is new"),
            (Some(old), Some(new)) => {
                let new: BTreeSet<Text<String>> = new.iter().map(|value| Text(value.to_string())).collect();
                for Text(value) in old.iter().map(|value| Text(value.to_string())).filter(|value| !new.contains(value))
                {
                    self.report(&format!("enum no longer has {value}"));
                }
            }
            _ => {}
        }
        let [old, new] = [old, new].map(|schema| list(&schema["x-kubernetes-validations"]));
        let rule = |rule| Text(text(rule, "rule"));
        let old_rules: BTreeSet<Text<&str>> = old.iter().map(rule).collect();
        for Text(rule) in new.iter().map(rule).filter(|rule| !old_rules.contains(rule)) {
            self.report(&format!("the validation rule {rule:?} is new"));
        }
    }

    fn properties(&mut self, old: &Value, new: &Value) {
        let none = Map::new();
        let [old_properties, new_properties] =
            [old, new].map(|schema| schema["properties"].as_object().unwrap_or(&none));
        for (key, old_property) in old_properties {
            let step = format!(".{key}");
            match new_properties.get(key) {
                Some(new_property) => self.within(&step, old_property, new_property),
                None if is_true(new, "x-kubernetes-preserve-unknown-fields") || accepts_any(new) => {}
                None if new["additionalProperties"].is_object() => {
                    self.within(&step, old_property, &new["additionalProperties"]);
                }
                None => self.report_within(&step, "the property is removed, its values would be dropped"),
            }
        }
        let was_open = is_true(old, "x-kubernetes-preserve-unknown-fields") || accepts_any(old);
        for key in new_properties.keys().filter(|key| was_open && !old_properties.contains_key(*key)) {
            self.report_within(&format!(".{key}"), "the property gets a schema where anything was accepted");
        }
        let [was_required, required] =
            [old, new].map(|schema| list(&schema["required"]).iter().filter_map(Value::as_str).map(Text));
        let was_required: BTreeSet<Text<&str>> = was_required.collect();
        for Text(key) in required.filter(|key| !was_required.contains(key)) {
            // The API server fills in the default when it reads a stored object.
            if new["properties"][key]["default"].is_null() {
                self.report_within(&format!(".{key}"), "the property becomes required");
            }
        }
    }

    fn additional_properties(&mut self, old: &Value, new: &Value) {
        let open = is_true(new, "x-kubernetes-preserve-unknown-fields");
        match (&old["additionalProperties"], &new["additionalProperties"]) {
            (Value::Object(_), Value::Object(_)) => {
                self.within(".*", &old["additionalProperties"], &new["additionalProperties"]);
            }
            (Value::Bool(true), Value::Object(_)) => {
                self.report_within(".*", "additionalProperties get a schema where anything was accepted");
            }
            (Value::Bool(true) | Value::Object(_), Value::Null | Value::Bool(false)) if !open => {
                self.report_within(".*", "additionalProperties are removed, their values would be dropped");
            }
            _ => {}
        }
    }
}

/// A member of a list that is looked up in another one. Tests count how often two of them are compared.
#[derive(Debug)]
struct Text<T>(T);

#[cfg(test)]
thread_local! {
    pub(super) static COMPARISONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<T: Ord> Ord for Text<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0.cmp(&other.0)
    }
}

impl<T: Ord> PartialOrd for Text<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> PartialEq for Text<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Ord> Eq for Text<T> {}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_true(schema: &Value, keyword: &str) -> bool {
    schema[keyword].as_bool().unwrap_or(false)
}

fn accepts_any(schema: &Value) -> bool {
    schema["additionalProperties"].as_bool().unwrap_or(false)
}
