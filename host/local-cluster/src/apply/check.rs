//! Whether an applied object is of its kind's type: a patch of server-side apply names only fields that the schema declares.
//! Input: the applied object. Output: the API server's refusal. It must not know the live object.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::halt::{Halt, Status};
use crate::managed_fields::fields::shown;
use crate::managed_fields::typed::item_step;
use crate::resource::Resource;
use crate::schema::{ListType, Place, Type};

/// How many faults are named: more do not help, and a message has to end somewhere.
const MAX_FAULTS: usize = 100;

/// Refuses fields that are not declared, values of another type, and items that are there twice.
pub(super) fn check(resource: &Resource, applied: &Value) -> Result<(), Halt> {
    let Some(words) = faults(resource, applied) else { return Ok(()) };
    let text = |key: &str| applied["metadata"][key].as_str().unwrap_or_default();
    let message = format!(
        "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {words}",
        text("namespace"),
        text("name"),
        resource.group,
        resource.version,
        resource.kind
    );
    Err(Status { code: 500, reason: "", message, details: None }.into())
}

/// What of an applied object is not of its kind's type.
pub(super) fn faults(resource: &Resource, applied: &Value) -> Option<String> {
    let mut faults = Vec::new();
    walk(applied, resource.schema().root(), "", &mut faults);
    match faults.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn fault(faults: &mut Vec<String>, path: &str, what: &str) {
    if faults.len() < MAX_FAULTS {
        faults.push(if path.is_empty() { what.to_owned() } else { format!("{path}: {what}") });
    }
}

fn walk(value: &Value, place: Place<'_>, path: &str, faults: &mut Vec<String>) {
    let node = place.node;
    let is_scalar = !value.is_object() && !value.is_array();
    match (node.kind, value) {
        (_, Value::Null) => {}
        (_, Value::Object(_) | Value::Array(_)) if node.int_or_string => {
            fault(faults, path, &format!("expected any scalar, got {}", shown_value(value)));
        }
        (Type::Object | Type::Any, Value::Object(fields)) => {
            let free = node.preserve_unknown_fields || node.properties.is_empty();
            for (name, value) in fields {
                // Every object has these, whether its definition says so or not.
                if node.embedded_resource && matches!(name.as_str(), "apiVersion" | "kind") {
                    continue;
                }
                let below = format!("{path}.{name}");
                match place.field(name) {
                    Some(place) => walk(value, place, &below, faults),
                    None if free && node.additional.is_none() => {}
                    None => fault(faults, &below, "field not declared in schema"),
                }
            }
        }
        (Type::Array | Type::Any, Value::Array(items)) => list(items, place, path, faults),
        (Type::Object, _) => fault(faults, path, &format!("expected map, got {}", shown_value(value))),
        (Type::Array, _) => fault(faults, path, &format!("expected list, got {}", shown_value(value))),
        (Type::Integer | Type::Number, _) if !value.is_number() && !node.int_or_string => {
            let kind = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            fault(faults, path, &format!("expected numeric (int or float), got {kind}"));
        }
        (Type::String, _) if !(value.is_string() || node.int_or_string && is_scalar) => {
            fault(faults, path, &format!("expected string, got {}", typed_value(value)));
        }
        (Type::Boolean, _) if !value.is_boolean() => {
            fault(faults, path, &format!("expected boolean, got {}", shown_value(value)));
        }
        _ => {}
    }
}

fn list(items: &[Value], place: Place<'_>, path: &str, faults: &mut Vec<String>) {
    let list = &place.node.list_type;
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let step = match list {
            ListType::Atomic => format!("i:{index}"),
            _ => match item_step(list, place.items(), item) {
                Ok(step) => step,
                Err(why) => return fault(faults, path, &format!("element {index}: {why}")),
            },
        };
        if seen.contains(&step) {
            fault(faults, path, &format!("duplicate entries for key {}", shown(&step)));
        }
        if let Some(place) = place.items() {
            walk(item, place, &format!("{path}{}", shown(&step)), faults);
        }
        seen.insert(step);
    }
}

/// A value as Go's `%#v` prints it behind a pointer.
fn typed_value(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", typed(value))
}

fn typed(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(typed).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{}", typed(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        plain => plain.to_string(),
    }
}

/// A value as Go's `%v` prints it behind a pointer.
fn shown_value(value: &Value) -> String {
    format!("&{{{}}}", crate::patch::go(value))
}
