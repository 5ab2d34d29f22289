//! Fills in defaults, and brings what Go would decode into the form that it would encode. Input: an object. Output: the
//! same object. It must not know kinds.

use serde_json::{Map, Value};

use super::node::{Place, Schema, Type};
use crate::quantity;

impl Schema {
    /// Fills in the defaults of fields that are absent, or null where null is not allowed.
    pub(crate) fn default(&self, object: &mut Value) {
        fill(self.root(), object);
    }
}

fn fill(place: Place<'_>, value: &mut Value) {
    let node = place.node;
    match value {
        Value::Object(fields) => {
            if node.go_type.is_some() {
                as_encoded(place, fields);
            }
            for (name, id) in &node.defaulted {
                let below = place.at(*id).node;
                let absent = fields.get(&**name).is_none_or(|found| found.is_null() && !below.nullable);
                if let (true, Some(default)) = (absent, &below.default) {
                    fields.insert(name.to_string(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(below) = place.field(name) {
                    fill_one(below, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = place.items() {
                items.iter_mut().for_each(|item| fill_one(below, item));
            }
        }
        _ => {}
    }
}

fn fill_one(place: Place<'_>, value: &mut Value) {
    match value {
        Value::Null if !place.node.nullable => {
            if let Some(default) = &place.node.default {
                *value = default.clone();
                fill(place, value);
            }
        }
        Value::Object(_) | Value::Array(_) => fill(place, value),
        Value::String(_) | Value::Number(_) if place.node.go_type.as_deref() == Some("resource.Quantity") => {
            if let Some(canonical) = quantity::canonical(value) {
                *value = canonical.into();
            }
        }
        _ => {}
    }
}

/// Go decodes null as absent, and leaves empty lists and maps out when it encodes, unless the field must be there.
fn as_encoded(place: Place<'_>, fields: &mut Map<String, Value>) {
    let is_left_out = |name: &str, value: &Value| {
        let below = || place.node.properties.get(name).map(|id| place.at(*id).node);
        let optional = || !place.node.required.iter().any(|field| **field == *name);
        match value {
            Value::Null => below().is_some(),
            Value::Array(items) if items.is_empty() => below().is_some_and(|it| it.kind == Type::Array) && optional(),
            Value::Object(entries) if entries.is_empty() => {
                below().is_some_and(|it| it.additional.is_some()) && optional()
            }
            _ => false,
        }
    };
    if fields.iter().any(|(name, value)| is_left_out(name, value)) {
        fields.retain(|name, value| !is_left_out(name, value));
    }
    for name in place.nulls() {
        if fields.get(name).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)) {
            fields.insert(name.to_owned(), Value::Null);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::schema::Schema;

    #[test]
    fn defaults_fill_what_is_absent_or_wrongly_null() {
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "default": {"mode": "a"}, "properties": {
                "mode": {"type": "string", "default": "b"},
                "maybe": {"type": "string", "nullable": true, "default": "c"},
                "inner": {"type": "object", "properties": {"deep": {"type": "integer", "default": 1}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer", "default": 2}}}},
                "map": {"type": "object", "additionalProperties": {
                    "type": "object", "properties": {"y": {"type": "boolean", "default": true}}}}}}}});
        let schema = Schema::custom(&schema, &Value::Null, None);
        for (given, wanted) in [
            (json!({}), json!({"spec": {"mode": "a", "maybe": "c"}})),
            (json!({"spec": {"mode": null, "maybe": null}}), json!({"spec": {"mode": "b", "maybe": null}})),
            (
                json!({"spec": {"mode": "x", "maybe": "y", "inner": {}, "list": [{}, {"x": 3}], "map": {"k": {}}}}),
                json!({"spec": {"mode": "x", "maybe": "y", "inner": {"deep": 1}, "list": [{"x": 2}, {"x": 3}], "map": {"k": {"y": true}}}}),
            ),
        ] {
            let mut object = given;
            schema.default(&mut object);
            assert_eq!(object, wanted);
        }
    }
}
