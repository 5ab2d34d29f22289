//! JSON as the API server reads it. Input: bytes. Output: a value with the fields that are there twice, or the words of Go's
//! decoder. It must not know requests.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

/// How many fields that are there twice are named, as in the API server.
const MAX_DUPLICATES: usize = 100;
/// Up to here a float with no fraction is an integer without loss.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A document, and the paths of fields that it has twice, such as `spec.containers[0].image`.
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) duplicates: Vec<String>,
}

/// Reads a document; of fields that are there twice, the last counts.
pub(super) fn read(bytes: &[u8]) -> Result<Document, String> {
    let duplicates = RefCell::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { trail: &Trail::Root, duplicates: &duplicates };
    let value = seed.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    let value = value.map_err(|error| words(bytes, &error))?;
    Ok(Document { value, duplicates: duplicates.into_inner() })
}

/// An error in the words of Go's decoder.
fn words(bytes: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    let after = [
        ("expected `:`", "after object key"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("trailing characters", "after top-level value"),
        ("key must be a string", "looking for beginning of object key string"),
        ("trailing comma", "looking for beginning of object key string"),
    ];
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_owned();
    }
    if text.contains("recursion limit") {
        return "exceeded max depth".to_owned();
    }
    let lines = bytes.split(|byte| *byte == b'\n');
    let line = lines.into_iter().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let at = error.column().saturating_sub(1).min(line.len().saturating_sub(1));
    if text.starts_with("expected ident") {
        return literal(line, at);
    }
    let found = line.get(at).map_or(' ', |byte| char::from(*byte));
    let place = after.iter().find(|(serde, _)| text.starts_with(serde));
    let place = place.map_or("looking for beginning of value", |(_, go)| go);
    format!("invalid character {found:?} {place}")
}

/// An error in `null`, `true` or `false`, or in what is none of them.
fn literal(line: &[u8], at: usize) -> String {
    let letters = line.get(..at).unwrap_or_default().iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let start = at.saturating_sub(letters);
    let found = line.get(at).map_or(' ', |byte| char::from(*byte));
    let literals = ["null", "true", "false"];
    let wanted = literals.iter().find(|literal| literal.as_bytes().first() == line.get(start));
    match wanted.and_then(|literal| Some((literal, literal.chars().nth(letters)?))) {
        Some((literal, expected)) if letters > 0 => {
            format!("invalid character {found:?} in literal {literal} (expecting {expected:?})")
        }
        _ => format!("invalid character {found:?} looking for beginning of value"),
    }
}

/// The way to a value: its text is made only for a field that is there twice.
enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, usize),
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => formatter.write_str(name),
            Self::Field(above, name) => write!(formatter, "{above}.{name}"),
            Self::Item(above, index) => write!(formatter, "{above}[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    trail: &'a Trail<'a>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// Go writes a float without a fraction as an integer.
    #[expect(clippy::cast_possible_truncation, reason = "the bound makes it exact")]
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        let whole = value.fract() == 0.0 && value.abs() < MAX_SAFE_INTEGER;
        Ok(if whole { (value as i64).into() } else { value.into() })
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let trail = Trail::Item(self.trail, items.len());
            match access.next_element_seed(Seed { trail: &trail, ..self })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let trail = Trail::Field(self.trail, &name);
            let value = access.next_value_seed(Seed { trail: &trail, ..self })?;
            let mut duplicates = self.duplicates.borrow_mut();
            if fields.contains_key(&name) && duplicates.len() < MAX_DUPLICATES {
                duplicates.push(trail.to_string());
            }
            drop(duplicates);
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_there_twice_are_named_and_the_last_counts() {
        let document = read(br#"{"a":1,"b":[{"c":1,"c":{"d":1,"d":2}}],"a":2.0}"#).unwrap();
        assert_eq!(document.value, serde_json::json!({"a": 2, "b": [{"c": {"d": 2}}]}));
        assert_eq!(document.duplicates, ["b[0].c.d", "b[0].c", "a"]);
    }

    #[test]
    fn what_is_no_json_is_refused_in_the_words_of_go() {
        for (text, words) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ] {
            assert_eq!(read(text.as_bytes()).err().as_deref(), Some(words), "{text}");
        }
    }
}
