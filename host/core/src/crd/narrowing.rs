//! What a new revision of a CRD would no longer accept, or would drop, of what the old one allowed. Two definitions as
//! JSON come in; one sentence per narrowing, with its version and JSON path, goes out.
//!
//! Where it cannot be told whether a change narrows (another pattern, another `anyOf`), it counts as narrowing: a
//! refusal can be mended by a person, data that was pruned cannot.

use serde_json::Value;

use super::conversion;

/// The names of the versions that a CRD serves.
pub(super) fn served_versions(crd: &Value) -> Vec<&str> {
    versions(crd).iter().filter(|version| is_served(version)).map(name).collect()
}

/// Every narrowing from `old` to `new`.
pub(super) fn narrowings(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let stored = old.pointer("/status/storedVersions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for version in stored.iter().filter_map(Value::as_str) {
        if !versions(new).iter().any(|new| name(new) == version) {
            found.push(format!("{version}: the version is removed while objects may be stored in it"));
        }
    }
    if conversion::is_by_webhook(old) && !conversion::is_by_webhook(new) && versions(new).len() > 1 {
        found.push(
            "spec.conversion: objects are no longer converted, so what only another version knows is left out".into(),
        );
    }
    for old_version in versions(old).iter().filter(|version| is_served(version)) {
        let version = name(old_version);
        match versions(new).iter().find(|new| name(new) == version) {
            Some(new_version) if is_served(new_version) => {
                let schema = "/schema/openAPIV3Schema";
                let (old, new) = (old_version.pointer(schema), new_version.pointer(schema));
                let mut walk = Walk { version, path: String::new(), found: &mut found };
                walk.schema(old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
            }
            _ => found.push(format!("{version}: the version is no longer served")),
        }
    }
    found
}

fn versions(crd: &Value) -> &[Value] {
    crd.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
}

fn name(version: &Value) -> &str {
    version["name"].as_str().unwrap_or_default()
}

fn is_served(version: &Value) -> bool {
    version["served"].as_bool().unwrap_or(false)
}

/// What one bound says about a change of it.
#[derive(Clone, Copy)]
enum Bound {
    Lower,
    Upper,
}

/// Bounds of numbers and sizes: one that is new or stricter narrows.
const BOUNDS: [(&str, Bound); 8] = [
    ("minimum", Bound::Lower),
    ("maximum", Bound::Upper),
    ("minLength", Bound::Lower),
    ("maxLength", Bound::Upper),
    ("minItems", Bound::Lower),
    ("maxItems", Bound::Upper),
    ("minProperties", Bound::Lower),
    ("maxProperties", Bound::Upper),
];
/// Keywords that narrow when they become true.
const SWITCHES_ON: [&str; 4] =
    ["exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "x-kubernetes-embedded-resource"];
/// Keywords that narrow when they stop being true.
const SWITCHES_OFF: [&str; 3] = ["nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"];
/// Keywords whose two values cannot be compared: any value that is new or other counts.
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

/// A walk through two schemas at once. Its depth is bounded by the JSON parser's.
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
            (Value::Null, _) => self.report_within("[]", "its items are described where anything was accepted"),
            (old, new) => self.within("[]", old, new),
        }
    }

    fn types(&mut self, old: &Value, new: &Value) {
        let of = |schema: &Value| schema["type"].as_str().unwrap_or_default().to_owned();
        let (old_type, new_type) = (of(old), of(new));
        let int_or_string = is_true(new, "x-kubernetes-int-or-string") && matches!(&*old_type, "integer" | "string");
        let widened = new_type.is_empty() || (old_type == "integer" && new_type == "number") || int_or_string;
        if old_type == new_type || widened {
            return;
        }
        if old_type.is_empty() {
            self.report(&format!("has to be of type {new_type} where any type was accepted"));
        } else {
            self.report(&format!("its type changes from {old_type} to {new_type}"));
        }
    }

    fn keywords(&mut self, old: &Value, new: &Value) {
        for (keyword, bound) in BOUNDS {
            let Some(new) = new[keyword].as_f64() else { continue };
            let strict = match (old[keyword].as_f64(), bound) {
                (None, _) => Some(format!("{keyword} {new} is new")),
                (Some(old), Bound::Lower) if new > old => Some(format!("{keyword} is raised from {old} to {new}")),
                (Some(old), Bound::Upper) if new < old => Some(format!("{keyword} is lowered from {old} to {new}")),
                _ => None,
            };
            if let Some(strict) = strict {
                self.report(&strict);
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
        let format = |schema: &Value| schema["format"].as_str().unwrap_or_default().to_owned();
        let (old_format, new_format) = (format(old), format(new));
        let widened = new_format.is_empty() || (old_format == "int32" && new_format == "int64");
        if old_format != new_format && !widened {
            self.report(&format!("format {new_format} is new"));
        }
    }

    /// Enumerations and CEL rules.
    fn values(&mut self, old: &Value, new: &Value) {
        match (old["enum"].as_array(), new["enum"].as_array()) {
            (None, Some(_)) => self.report("enum is new"),
            (Some(old), Some(new)) => {
                for value in old.iter().filter(|value| !new.contains(value)) {
                    self.report(&format!("enum no longer has {value}"));
                }
            }
            _ => {}
        }
        let rules = |schema: &Value| -> Vec<String> {
            let rules = schema["x-kubernetes-validations"].as_array().map_or(&[][..], Vec::as_slice);
            rules.iter().filter_map(|rule| rule["rule"].as_str().map(str::to_owned)).collect()
        };
        let old_rules = rules(old);
        for rule in rules(new).iter().filter(|rule| !old_rules.contains(rule)) {
            self.report(&format!("the validation rule {rule:?} is new"));
        }
    }

    fn properties(&mut self, old: &Value, new: &Value) {
        let nothing = serde_json::Map::new();
        let of = |schema: &'_ Value| schema["properties"].as_object().cloned().unwrap_or_default();
        let (old_properties, new_properties) = (of(old), of(new));
        for (key, old_property) in &old_properties {
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
            self.report_within(&format!(".{key}"), "the property is described where anything was accepted");
        }
        let required = |schema: &Value| -> Vec<String> {
            let keys = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
            keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect()
        };
        let old_required = required(old);
        for key in required(new).iter().filter(|key| !old_required.contains(key)) {
            // A default is filled in when a stored object is read, so requiring the property takes nothing away.
            let has_default = new["properties"].as_object().unwrap_or(&nothing).get(key);
            if has_default.is_none_or(|property| property["default"].is_null()) {
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
                self.report_within(".*", "additionalProperties are described where anything was accepted");
            }
            (Value::Bool(true) | Value::Object(_), Value::Null | Value::Bool(false)) if !open => {
                self.report_within(".*", "additionalProperties are removed, their values would be dropped");
            }
            _ => {}
        }
    }
}

fn is_true(schema: &Value, keyword: &str) -> bool {
    schema[keyword].as_bool().unwrap_or(false)
}

fn accepts_any(schema: &Value) -> bool {
    schema["additionalProperties"].as_bool().unwrap_or(false)
}
