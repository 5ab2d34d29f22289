//! Cuts the kept members out of an object's JSON text in one pass, without a tree of the object.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::heap::{HeapBytes, allocation};

/// The members to keep, as a tree of names.
#[derive(Default)]
pub(super) struct Tree {
    /// Keep this value whole; `members` is ignored.
    whole: bool,
    members: Vec<(String, Tree)>,
}

impl Tree {
    pub(super) fn keep(&mut self, path: &[impl AsRef<str>]) {
        let Some((first, rest)) = path.split_first() else {
            self.whole = true;
            return;
        };
        let first = first.as_ref();
        let at = self.members.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
            self.members.push((first.to_owned(), Self::default()));
            self.members.len() - 1
        });
        self.members[at].1.keep(rest);
    }

    fn member(&self, name: &str) -> Option<&Self> {
        self.members.iter().find(|(other, _)| other == name).map(|(_, tree)| tree)
    }
}

impl HeapBytes for Tree {
    fn heap_bytes(&self) -> usize {
        let below: usize = self.members.iter().map(|(name, tree)| name.heap_bytes() + tree.heap_bytes()).sum();
        allocation(self.members.capacity() * size_of::<(String, Self)>()) + below
    }
}

/// Most projections keep some hundred bytes; one or two reallocations cost little.
const FIRST_CAPACITY: usize = 256;

/// The kept members of a JSON object.
///
/// The decoder has skipped most of the text unchecked, so the parser may still refuse a part that a path visits: arrays
/// nested 128 deep, half a surrogate pair as a name, a number beyond a double. Such an object is returned whole.
pub(super) fn cut(json: &Arc<str>, tree: &Tree) -> Arc<str> {
    let mut out = String::with_capacity(FIRST_CAPACITY);
    let mut text = serde_json::Deserializer::from_str(json);
    match (Cut { tree, out: &mut out }).deserialize(&mut text) {
        Ok(_) => out.into(),
        Err(_) => json.clone(),
    }
}

/// Writes the kept part of one value to `out`. The result is false, and nothing is written, for a scalar in which a
/// path would continue.
struct Cut<'t> {
    tree: &'t Tree,
    out: &'t mut String,
}

impl<'de> DeserializeSeed<'de> for Cut<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        if self.tree.whole {
            self.out.push_str(<&RawValue>::deserialize(deserializer)?.get());
            return Ok(true);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Cut<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        self.out.push('{');
        let mut first = true;
        while let Some(Name(name)) = map.next_key()? {
            let Some(tree) = self.tree.member(&name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let start = self.out.len();
            if !first {
                self.out.push(',');
            }
            push_name(self.out, &name)?;
            if map.next_value_seed(Cut { tree, out: self.out })? {
                first = false;
            } else {
                self.out.truncate(start);
            }
        }
        self.out.push('}');
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<bool, A::Error> {
        self.out.push('[');
        let mut first = true;
        loop {
            let start = self.out.len();
            if !first {
                self.out.push(',');
            }
            match elements.next_element_seed(Cut { tree: self.tree, out: self.out })? {
                Some(true) => first = false,
                Some(false) => self.out.truncate(start),
                None => {
                    self.out.truncate(start);
                    break;
                }
            }
        }
        self.out.push(']');
        Ok(true)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }
}

/// `"name":`, escaped if necessary.
fn push_name<E: Error>(out: &mut String, name: &str) -> Result<(), E> {
    if name.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.push_str(&serde_json::to_string(name).map_err(E::custom)?);
    } else {
        out.push('"');
        out.push_str(name);
        out.push('"');
    }
    out.push(':');
    Ok(())
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
