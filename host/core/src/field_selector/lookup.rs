//! Reads one value from JSON text without building a tree, and no further than the value.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::value::FieldValue;

/// The text, integer or boolean at a path, if there is one.
pub(super) fn value_at(json: &str, path: &[String]) -> Option<FieldValue> {
    let mut found = None;
    // The visitor ends the parsing with an error when it has found the value.
    _ = Seek { path, found: &mut found }.deserialize(&mut serde_json::Deserializer::from_str(json));
    found
}

struct Seek<'s> {
    path: &'s [String],
    found: &'s mut Option<FieldValue>,
}

impl Seek<'_> {
    fn found<E>(self, value: FieldValue) -> Result<(), E> {
        *self.found = self.path.is_empty().then_some(value);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, an integer or a boolean")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.path.split_first() else { return Err(A::Error::custom("it is an object")) };
        while let Some(Name(name)) = map.next_key()? {
            if name == first.as_str() {
                map.next_value_seed(Seek { path: rest, found: self.found })?;
                return Err(A::Error::custom("the value was found"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.found(FieldValue::Text(text.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.found(FieldValue::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.found(FieldValue::Integer(number)),
            Err(_) => Ok(()),
        }
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.found(FieldValue::Boolean(value))
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
