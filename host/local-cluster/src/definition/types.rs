//! The types that rules see of a schema, and the paths that there are in one. Input: a part of a definition's schema. Output:
//! the type of its values in expressions. It must not know expressions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::field::{text, truth};
use crate::cel::{Kind, as_key};

/// The type of the values of a schema; none where rules see nothing.
pub(super) fn of(schema: &Value, is_resource: bool) -> Option<Kind> {
    if truth(schema, "x-kubernetes-int-or-string") {
        return Some(Kind::Dyn);
    }
    Some(match (text(schema, "type"), text(schema, "format")) {
        ("boolean", _) => Kind::Bool,
        ("integer", _) => Kind::Int,
        ("number", _) => Kind::Double,
        ("string", "byte") => Kind::Bytes,
        ("string", "duration") => Kind::Duration,
        ("string", "date" | "date-time") => Kind::Timestamp,
        ("string", _) => Kind::String,
        ("array", _) => Kind::list(below(&schema["items"])?),
        ("object", _) if schema["additionalProperties"].is_object() => {
            Kind::map(below(&schema["additionalProperties"])?)
        }
        ("object", _) => Kind::Object(Arc::new(fields(schema, is_resource || is_embedded(schema)))),
        _ => return None,
    })
}

fn is_embedded(schema: &Value) -> bool {
    truth(schema, "x-kubernetes-embedded-resource")
}

fn below(schema: &Value) -> Option<Kind> {
    of(schema, false)
}

/// A resource says what it is, and of its metadata there are the names alone.
fn fields(schema: &Value, is_resource: bool) -> BTreeMap<String, Kind> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut fields: BTreeMap<String, Kind> =
        properties.filter_map(|(name, property)| Some((as_key(name), below(property)?))).collect();
    if is_resource {
        let names = ["name", "generateName"].map(|name| (name.to_owned(), Kind::String));
        fields.insert("metadata".to_owned(), Kind::Object(Arc::new(names.into())));
        fields.extend(["apiVersion", "kind"].map(|name| (name.to_owned(), Kind::String)));
    }
    fields
}

/// Whether a path such as `.spec.map['key'].field` leads to something in a schema.
pub(super) fn has_path(schema: &Value, path: &str) -> bool {
    let (mut rest, mut schema) = (path, schema);
    while !rest.is_empty() {
        let step = match rest.strip_prefix('.') {
            Some(tail) => Some(tail.split_at(tail.find(['.', '[']).unwrap_or(tail.len()))),
            None => rest.strip_prefix("['").and_then(|tail| tail.split_once("']")),
        };
        let Some((name, after)) = step else { return false };
        let any = schema.get("additionalProperties").filter(|more| more.is_object());
        let Some(found) = schema["properties"].get(name).or(any) else { return false };
        (rest, schema) = (after, found);
    }
    true
}
