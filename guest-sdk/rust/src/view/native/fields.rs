//! Field projections and field selectors with paths such as "status.phase" and `metadata.annotations["a.b/c"]`, as the
//! host has them. This file must not know kinds.

use serde_json::{Map, Value};

use crate::query::FieldValue;

/// The objects as a JSON array, with these fields alone; whole objects without fields.
pub(super) fn project(objects: &[&Value], fields: &[&str]) -> Result<String, String> {
    let paths = fields.iter().map(|field| parse(field)).collect::<Result<Vec<_>, _>>()?;
    let cut: Vec<Value> = objects
        .iter()
        .map(|object| {
            if paths.is_empty() {
                return (*object).clone();
            }
            let mut kept = Value::Object(Map::new());
            for path in &paths {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                copy(object, &path, &mut kept);
            }
            kept
        })
        .collect();
    Ok(Value::Array(cut).to_string())
}

/// Whether an object has this value at this path.
pub(super) fn has(object: &Value, path: &[String], value: &FieldValue) -> bool {
    let found = path.iter().try_fold(object, |object, name| object.as_object()?.get(name));
    found.is_some_and(|found| match value {
        FieldValue::Text(text) => found.as_str() == Some(text),
        FieldValue::Integer(number) => found.as_i64() == Some(*number),
        FieldValue::Boolean(value) => found.as_bool() == Some(*value),
    })
}

fn copy(from: &Value, path: &[&str], to: &mut Value) {
    let Some(value) = path.iter().try_fold(from, |value, name| value.get(name)) else { return };
    let Some((last, parents)) = path.split_last() else { return };
    let mut place = to;
    for name in parents {
        place = &mut place[*name];
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
    }
    place[*last] = value.clone();
}

/// The segments of a field path.
pub(crate) fn parse(path: &str) -> Result<Vec<String>, String> {
    let malformed = || format!("{path:?} is no field path");
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (name, after) = quoted.split_once("\"]").ok_or_else(malformed)?;
            segments.push(name.to_owned());
            rest = after;
        } else {
            let name = rest.split(['.', '[']).next().unwrap_or_default();
            if name.is_empty() {
                return Err(malformed());
            }
            segments.push(name.to_owned());
            rest = &rest[name.len()..];
        }
        match rest.strip_prefix('.') {
            Some("") => return Err(malformed()),
            Some(after) => rest = after,
            None if rest.is_empty() || rest.starts_with("[\"") => {}
            None => return Err(malformed()),
        }
    }
    if segments.is_empty() { Err(malformed()) } else { Ok(segments) }
}
