//! Resources inside resources: they say what they are. Input: an object. Output: causes. It must not know the object's own
//! metadata, which is checked where it is written.

use serde_json::{Map, Value};

use super::cause;
use super::node::{Place, Schema};
use super::path::Path;
use crate::halt::Cause;

impl Schema {
    /// What is wrong with the apiVersion and kind of resources inside the object.
    pub(super) fn embedded(&self, object: &Value, causes: &mut Vec<Cause>) {
        walk(self.root(), object, &Path::Root, causes);
    }
}

fn walk(place: Place<'_>, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            if place.node.embedded_resource && !path.is_root() {
                check(fields, path, causes);
            }
            for (name, value) in fields.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(below) = place.field(name).filter(|below| below.node.go_type.is_none()) {
                    let is_property = place.node.properties.contains_key(name.as_str());
                    let path = if is_property { path.field(name) } else { path.key(name) };
                    walk(below, value, &path, causes);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = place.items() else { return };
            for (at, item) in items.iter().enumerate() {
                walk(below, item, &path.index(at), causes);
            }
        }
        _ => {}
    }
}

fn check(fields: &Map<String, Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for name in ["apiVersion", "kind"] {
        let path = path.field(name);
        let detail = match fields.get(name) {
            None => {
                causes.push(cause::required(path, ""));
                continue;
            }
            Some(Value::String(text)) if text.is_empty() => "must not be empty".to_owned(),
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                format!("unexpected GroupVersion string: {text}")
            }
            Some(Value::String(text)) if name == "kind" => {
                let wrong = dns_1035_label(&text.to_lowercase());
                if wrong.is_empty() {
                    continue;
                }
                format!("may have mixed case, but should otherwise match: {}", wrong.join(","))
            }
            Some(Value::String(_)) => continue,
            Some(_) => "must be a string".to_owned(),
        };
        causes.push(cause::invalid(path, &fields[name], &detail));
    }
}

/// What keeps text from being a DNS label as RFC 1035 has it.
pub(crate) fn dns_1035_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push("must be no more than 63 characters".to_owned());
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts || text.ends_with('-') || !text.bytes().all(inner) {
        wrong.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end \
             with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    wrong
}
