//! Values that Go could not decode into the type of their field. Input: an object. Output: the decoder's sentence about the
//! first one. It must not know what is answered then.

use serde_json::Value;

use super::node::{Place, Schema, Type};
use crate::quantity::{self, Quantity};
use crate::time;

/// Where the decoder is: the fields from the root, and the type that has the last of them.
struct Decoder<'a> {
    fields: Vec<&'a str>,
    structure: &'a str,
}

impl Schema {
    /// What a decoder says of a value of the wrong type: of a built-in kind anywhere, of others in their metadata.
    pub(crate) fn misfit(&self, object: &Value) -> Option<String> {
        let mut decoder = Decoder { fields: Vec::new(), structure: "" };
        if self.published {
            return decoder.walk(self.root(), object);
        }
        let metadata = object.get("metadata")?;
        decoder.walk(self.root().field("metadata")?, metadata)
    }
}

impl<'a> Decoder<'a> {
    fn walk(&mut self, place: Place<'a>, value: &'a Value) -> Option<String> {
        let node = place.node;
        let outer = self.structure;
        if let Some(name) = node.go_type.as_deref() {
            if let Some(known) = self.special(name, value) {
                return known;
            }
            if !node.properties.is_empty() {
                self.structure = name.rsplit('.').next().unwrap_or(name);
            }
        }
        let fits = match (node.kind, value) {
            (_, Value::Null) => return None,
            (Type::Any, _) => true,
            (Type::Object, value) => value.is_object(),
            (Type::Array, value) => value.is_array(),
            (Type::String, value) => value.is_string(),
            (Type::Boolean, value) => value.is_boolean(),
            (Type::Number, value) => value.is_number(),
            (Type::Integer, value) if &*node.format == "int64" => value.is_i64(),
            (Type::Integer, value) => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        };
        if !fits {
            self.structure = outer;
            return Some(self.sentence(value, &go_type(place)));
        }
        let found = match value {
            Value::Object(fields) => fields.iter().find_map(|(name, value)| {
                let below = place.field(name)?;
                let is_field = node.properties.contains_key(name.as_str());
                if is_field {
                    self.fields.push(name);
                }
                let found = self.walk(below, value);
                if is_field {
                    self.fields.pop();
                }
                found
            }),
            Value::Array(items) => {
                let below = place.items()?;
                items.iter().find_map(|item| self.walk(below, item))
            }
            Value::String(text) if &*node.format == "byte" => wrong_base64(text),
            _ => None,
        };
        self.structure = outer;
        found
    }

    /// The types that decode themselves: the inner option is what they say.
    fn special(&self, name: &str, value: &Value) -> Option<Option<String>> {
        let decodes = match name {
            "resource.Quantity" => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                return Some(
                    (!value.is_null() && Quantity::parse(&text).is_err()).then(|| quantity::NO_QUANTITY.to_owned()),
                );
            }
            "intstr.IntOrString" => value.is_string() || value.is_null() || value.as_i64().is_some(),
            "v1.Time" | "v1.MicroTime" => {
                let layout =
                    if name == "v1.Time" { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
                if let Some(text) = value.as_str() {
                    let wrong = time::read(value).is_none();
                    return Some(
                        wrong
                            .then(|| format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")),
                    );
                }
                value.is_null()
            }
            _ => return None,
        };
        let of = if name == "intstr.IntOrString" { "int32" } else { "string" };
        Some((!decodes).then(|| self.sentence(value, of)))
    }

    fn sentence(&self, value: &Value, go_type: &str) -> String {
        let is = match value {
            Value::Number(number) => format!("number {number}"),
            Value::Bool(_) => "bool".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            _ => "object".to_owned(),
        };
        // Only a number that does not fit into an integer is reported.
        let is = if is.starts_with("number") && !go_type.starts_with("int") { "number" } else { &is };
        if self.structure.is_empty() {
            return format!("json: cannot unmarshal {is} into Go value of type {go_type}");
        }
        let path = self.fields.join(".");
        format!("json: cannot unmarshal {is} into Go struct field {}.{path} of type {go_type}", self.structure)
    }
}

/// How Go names the type of a field.
fn go_type(place: Place<'_>) -> String {
    if let Some(name) = &place.node.go_type {
        return name.to_string();
    }
    match place.node.kind {
        Type::Any => "interface {}".to_owned(),
        Type::String if &*place.node.format == "byte" => "[]uint8".to_owned(),
        Type::String => "string".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Integer if place.node.format.is_empty() => "int".to_owned(),
        Type::Integer => place.node.format.to_string(),
        Type::Array => format!("[]{}", place.items().map(go_type).unwrap_or_default()),
        Type::Object => {
            let of = place.node.additional.map(|id| go_type(place.at(id)));
            format!("map[string]{}", of.unwrap_or_else(|| "interface {}".to_owned()))
        }
    }
}

fn wrong_base64(text: &str) -> Option<String> {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let bytes: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let digits = bytes.iter().take_while(|byte| is_digit(**byte)).count();
    let padding = bytes.len() - digits;
    let padded = bytes.iter().skip(digits).all(|byte| *byte == b'=');
    let right = bytes.len().is_multiple_of(4) && padded && padding <= 2;
    (!right).then(|| format!("illegal base64 data at input byte {}", digits.min(text.len())))
}
