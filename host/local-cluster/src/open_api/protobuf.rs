//! An OpenAPI v2 document in the protobuf form that kubectl asks for: gnostic's `openapi.v2.Document`. Input: the document
//! as JSON values. Output: bytes. It must not know what a document says.

use serde_json::Value;

/// How a JSON value is written.
enum Shape {
    Text,
    Flag,
    Integer,
    Double,
    /// gnostic's `Any`: the value as YAML, of which JSON is a part.
    Any,
    Message(&'static Message),
    /// A repeated field, of a list or of one value.
    Each(&'static Shape),
    /// A message with a single field of this number.
    In(u32, &'static Shape),
    /// Messages of a name and a value, of an object's members.
    Named(&'static Shape),
    /// A schema, or whether any is allowed.
    Additional,
    /// A parameter, whose message depends on where it is sent.
    Parameter,
}

/// A message: its fields by JSON name and number, and the number of its vendor extensions.
struct Message {
    fields: &'static [(&'static str, u32, Shape)],
    extensions: u32,
}

use Shape::{Any, Double, Each, Flag, In, Integer, Named, Text};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Flag),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Flag),
        ("maxLength", 11, Integer),
        ("minLength", 12, Integer),
        ("pattern", 13, Text),
        ("maxItems", 14, Integer),
        ("minItems", 15, Integer),
        ("uniqueItems", 16, Flag),
        ("maxProperties", 17, Integer),
        ("minProperties", 18, Integer),
        ("required", 19, Each(&Text)),
        ("enum", 20, Each(&Any)),
        ("additionalProperties", 21, Shape::Additional),
        ("type", 22, In(1, &Each(&Text))),
        ("items", 23, In(1, &Shape::Message(&SCHEMA))),
        ("properties", 25, In(1, &Named(&Shape::Message(&SCHEMA)))),
    ],
    extensions: 31,
};

static BODY: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Flag),
        ("schema", 5, Shape::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("format", 7, Text),
        ("uniqueItems", 20, Flag),
    ],
    extensions: 23,
};

/// A parameter in the path or in a header.
static PLACED: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
        ("uniqueItems", 19, Flag),
    ],
    extensions: 22,
};

static RESPONSE: Message =
    Message { fields: &[("description", 1, Text), ("schema", 2, In(1, &Shape::Message(&SCHEMA)))], extensions: 5 };

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Each(&Text)),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Each(&Text)),
        ("consumes", 7, Each(&Text)),
        ("parameters", 8, Each(&Shape::Parameter)),
        ("responses", 9, In(1, &Named(&In(1, &Shape::Message(&RESPONSE))))),
        ("schemes", 10, Each(&Text)),
        ("deprecated", 11, Flag),
    ],
    extensions: 13,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Shape::Message(&OPERATION)),
        ("put", 3, Shape::Message(&OPERATION)),
        ("post", 4, Shape::Message(&OPERATION)),
        ("delete", 5, Shape::Message(&OPERATION)),
        ("options", 6, Shape::Message(&OPERATION)),
        ("head", 7, Shape::Message(&OPERATION)),
        ("patch", 8, Shape::Message(&OPERATION)),
        ("parameters", 9, Each(&Shape::Parameter)),
    ],
    extensions: 10,
};

static INFO: Message = Message { fields: &[("title", 1, Text), ("version", 2, Text)], extensions: 7 };

static API_KEY: Message = Message {
    fields: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
    extensions: 5,
};

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, Shape::Message(&INFO)),
        ("paths", 8, In(2, &Named(&Shape::Message(&PATH_ITEM)))),
        ("definitions", 9, In(1, &Named(&Shape::Message(&SCHEMA)))),
        ("security", 12, Each(&In(1, &Named(&In(1, &Each(&Text)))))),
        ("securityDefinitions", 13, In(1, &Named(&In(2, &Shape::Message(&API_KEY))))),
    ],
    extensions: 16,
};

/// A document, or a part of one: written one after another, parts are one document.
pub(super) fn document(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, &DOCUMENT, value);
    out
}

fn message(out: &mut Vec<u8>, message: &Message, value: &Value) {
    for (name, number, shape) in message.fields {
        if let Some(found) = value.get(*name) {
            field(out, *number, shape, found);
        }
    }
    for (name, found) in value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
        nested(out, message.extensions, |out| pair(out, name, &Any, found));
    }
}

fn pair(out: &mut Vec<u8>, name: &str, shape: &Shape, value: &Value) {
    bytes(out, 1, name.as_bytes());
    field(out, 2, shape, value);
}

fn field(out: &mut Vec<u8>, number: u32, shape: &Shape, value: &Value) {
    match shape {
        Text => bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Flag => integer(out, number, u64::from(value == true)),
        // A negative number is written as its two's complement.
        Integer => integer(out, number, value.as_i64().unwrap_or(0).cast_unsigned()),
        Double => {
            varint(out, u64::from(number) << 3 | 1);
            out.extend(value.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        Any => nested(out, number, |out| bytes(out, 2, value.to_string().as_bytes())),
        Shape::Message(of) => nested(out, number, |out| message(out, of, value)),
        Each(shape) => match value {
            Value::Array(items) => items.iter().for_each(|item| field(out, number, shape, item)),
            one => field(out, number, shape, one),
        },
        In(inner, shape) => nested(out, number, |out| field(out, *inner, shape, value)),
        Named(shape) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                nested(out, number, |out| pair(out, name, shape, value));
            }
        }
        Shape::Additional => match value {
            Value::Bool(_) => nested(out, number, |out| field(out, 2, &Flag, value)),
            _ => nested(out, number, |out| field(out, 1, &Shape::Message(&SCHEMA), value)),
        },
        Shape::Parameter => nested(out, number, |out| nested(out, 1, |out| parameter(out, value))),
    }
}

fn parameter(out: &mut Vec<u8>, value: &Value) {
    let (number, of) = match value["in"].as_str() {
        Some("body") => return nested(out, 1, |out| message(out, &BODY, value)),
        Some("query") => (3, &QUERY),
        Some("path") => (4, &PLACED),
        _ => (1, &PLACED),
    };
    nested(out, 2, |out| nested(out, number, |out| message(out, of, value)));
}

fn nested(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(out, number, &inner);
}

fn bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn integer(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

/// Seven bits in each byte, the low ones first; the highest bit says that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_written_by_its_numbers() {
        let written = document(&json!({"swagger": "2.0", "info": {"title": "t"}}));
        assert_eq!(written, b"\x0a\x032.0\x12\x03\x0a\x01t");
        let schema =
            json!({"definitions": {"a": {"type": "object", "required": ["b"], "maxLength": 300, "x-y": true}}});
        // Document.definitions (9) has NamedSchemas (1) of a name (1) and a Schema (2).
        let fields = b"\x58\xac\x02\x9a\x01\x01b\xb2\x01\x08\x0a\x06object\xfa\x01\x0d\x0a\x03x-y\x12\x06\x12\x04true";
        let inner = [b"\x0a\x01a\x12", &[u8::try_from(fields.len()).unwrap()][..], fields].concat();
        let length = u8::try_from(inner.len()).unwrap();
        assert_eq!(document(&schema), [&[0x4a, length + 2, 0x0a, length][..], &inner].concat());
    }

    #[test]
    fn a_parameter_says_where_it_is_sent() {
        let mut written = Vec::new();
        field(&mut written, 8, &Shape::Parameter, &json!({"in": "path", "name": "n"}));
        // ParametersItem.parameter (1), Parameter.non_body_parameter (2), its path_parameter_sub_schema (4).
        assert_eq!(written, b"\x42\x0f\x0a\x0d\x12\x0b\x22\x09\x12\x04path\x22\x01n");
    }
}
