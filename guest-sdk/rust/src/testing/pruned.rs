//! What the API server would drop from a status without a word: fields that the schema of the kind lacks. Type and schema
//! come from one type, but a hand-written `Serialize` or an attribute of one of both derives can make them differ.

use serde_json::Value;

use crate::definition::Definition;
use crate::schema;
use crate::text::Text;

/// The path of the first field of a status that its kind's schema lacks.
pub(super) fn first_unknown(definition: &Definition, status: &Value) -> Option<String> {
    let mut text = Text::default();
    match definition.status {
        Some(schema) => schema::write_status(schema, &mut text),
        None => schema::write_bare_status(&mut text),
    }
    let schema: Value = serde_json::from_str(&text.finish()).expect("the SDK writes schemas as JSON");
    within("status", status, &schema)
}

fn within(path: &str, value: &Value, schema: &Value) -> Option<String> {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return None;
    }
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
            match known {
                Some(schema) => within(&path, value, schema),
                None => Some(path),
            }
        }),
        Value::Array(items) => {
            let each = |(at, item): (usize, &Value)| within(&format!("{path}[{at}]"), item, &schema["items"]);
            items.iter().enumerate().find_map(each)
        }
        _ => None,
    }
}
