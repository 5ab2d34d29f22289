//! What makes a live status equal to a wanted one, as the text of a JSON merge patch. The live one, which who may write it may have
//! filled with anything, is read once from its beginning to its end, and no tree of it is made. It must not know conditions.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::json::is_same_number;
use crate::json::level::Key;
use crate::json::object_text::ObjectText;

/// What makes `live` equal to `wanted`; None when it is. As in a merge patch, null means absent. What no [`Value`] could be made of
/// is replaced.
pub(super) fn difference(live: Option<&RawValue>, wanted: &Value) -> Option<String> {
    let Some(live) = live else { return (!wanted.is_null()).then(|| wanted.to_string()) };
    let found = Difference(wanted).deserialize(&mut serde_json::Deserializer::from_str(live.get()));
    found.unwrap_or_else(|_| Some(wanted.to_string()))
}

struct Difference<'w>(&'w Value);

impl Difference<'_> {
    /// Of a value that is no object.
    fn unless(&self, is_same: bool) -> Option<String> {
        (!is_same).then(|| self.0.to_string())
    }
}

/// The parts of both visitors that are the same: scalars.
macro_rules! visit_scalars {
    (|$self:ident, $is_same:ident| $result:expr) => {
        fn visit_bool<E: Error>(self, live: bool) -> Result<Self::Value, E> {
            let ($self, $is_same) = (&self, *self.0 == Value::Bool(live));
            Ok($result)
        }

        fn visit_i64<E: Error>(self, live: i64) -> Result<Self::Value, E> {
            let ($self, $is_same) = (&self, is_number(self.0, &live.into()));
            Ok($result)
        }

        fn visit_u64<E: Error>(self, live: u64) -> Result<Self::Value, E> {
            let ($self, $is_same) = (&self, is_number(self.0, &live.into()));
            Ok($result)
        }

        fn visit_f64<E: Error>(self, live: f64) -> Result<Self::Value, E> {
            let is_same = Number::from_f64(live).is_some_and(|live| is_number(self.0, &live));
            let ($self, $is_same) = (&self, is_same);
            Ok($result)
        }

        fn visit_str<E: Error>(self, live: &str) -> Result<Self::Value, E> {
            let ($self, $is_same) = (&self, self.0.as_str() == Some(live));
            Ok($result)
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            let ($self, $is_same) = (&self, self.0.is_null());
            Ok($result)
        }
    };
}

fn is_number(wanted: &Value, live: &Number) -> bool {
    matches!(wanted, Value::Number(wanted) if is_same_number(wanted, live))
}

impl<'de> DeserializeSeed<'de> for Difference<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Difference<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    visit_scalars!(|this, is_same| this.unless(is_same));

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Same(self.0).visit_seq(list).map(|is_same| self.unless(is_same))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut live: A) -> Result<Self::Value, A::Error> {
        let Value::Object(wanted) = self.0 else {
            while live.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Some(self.0.to_string()));
        };
        let mut changes = ObjectText::default();
        let mut missing: BTreeSet<&str> = wanted.keys().map(String::as_str).collect();
        while let Some(Key(name)) = live.next_key()? {
            missing.remove(&*name);
            match wanted.get(&*name) {
                Some(value) => {
                    if let Some(change) = live.next_value_seed(Difference(value))? {
                        changes.push(&name, &change);
                    }
                }
                None => {
                    live.next_value::<IgnoredAny>()?;
                    changes.push(&name, "null");
                }
            }
        }
        for (name, value) in missing.into_iter().map(|name| (name, &wanted[name])).filter(|(_, value)| !value.is_null())
        {
            changes.push(name, &value.to_string());
        }
        Ok(changes.finish())
    }
}

/// Whether a live value is a wanted one.
struct Same<'w>(&'w Value);

impl<'de> DeserializeSeed<'de> for Same<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Same<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    visit_scalars!(|_this, is_same| is_same);

    fn visit_seq<A: SeqAccess<'de>>(self, mut live: A) -> Result<bool, A::Error> {
        let Value::Array(wanted) = self.0 else {
            while live.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(false);
        };
        let mut is_same = true;
        for value in wanted {
            match live.next_element_seed(Same(value))? {
                Some(found) => is_same &= found,
                None => return Ok(false),
            }
        }
        while live.next_element::<IgnoredAny>()?.is_some() {
            is_same = false;
        }
        Ok(is_same)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut live: A) -> Result<bool, A::Error> {
        let Value::Object(wanted) = self.0 else {
            while live.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(false);
        };
        let (mut count, mut is_same) = (0, true);
        while let Some(Key(name)) = live.next_key()? {
            count += 1;
            match wanted.get(&*name) {
                Some(value) => is_same &= live.next_value_seed(Same(value))?,
                None => {
                    live.next_value::<IgnoredAny>()?;
                    is_same = false;
                }
            }
        }
        Ok(is_same && count == wanted.len())
    }
}
