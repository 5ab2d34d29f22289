//! The record of the values that the host made for a Secret, in an annotation: how and when, and nothing derived from a
//! value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wanted::{AUTHORITY, CERTIFICATE, Recipe, Wanted};
use crate::certificates::BACKDATED_MS;
use crate::heap::HeapBytes;
use crate::time;

/// The values that the host made, by their keys in the Secret's data.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Record(BTreeMap<Box<str>, Entry>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    recipe: Box<str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    rotation: Box<str>,
    drawn_at: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renew_at: Option<Box<str>>,
    /// The object has the value.
    #[serde(skip)]
    is_there: bool,
}

impl Entry {
    /// A time that cannot be read has come.
    fn renew_at_ms(&self) -> Option<u64> {
        self.renew_at.as_ref().map(|at| time::parse(at).unwrap_or(0))
    }

    /// Of a certificate: a clock that was ahead by years may have made it.
    fn is_valid_yet(&self, now_unix_ms: u64) -> bool {
        time::parse(&self.drawn_at).is_none_or(|drawn_ms| drawn_ms.saturating_sub(BACKDATED_MS) <= now_unix_ms)
    }
}

impl HeapBytes for Record {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

impl HeapBytes for Entry {
    fn heap_bytes(&self) -> usize {
        let Self { recipe, rotation, drawn_at, renew_at, is_there: _ } = self;
        recipe.heap_bytes() + rotation.heap_bytes() + drawn_at.heap_bytes() + renew_at.heap_bytes()
    }
}

impl Record {
    /// That of the annotation's text, without what the object has; None when it cannot be read.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).map(Self).ok()
    }

    /// The object has the values at these keys.
    pub(super) fn note_values(&mut self, has: impl Fn(&str) -> bool) {
        for (key, entry) in &mut self.0 {
            entry.is_there = has(key) && (entry.renew_at.is_none() || [CERTIFICATE, AUTHORITY].into_iter().all(&has));
        }
    }

    /// Whether the host made a value at this key.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The keys of the values that the host made.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|key| &**key)
    }

    /// Whether the object has the value as wanted, and it is not due.
    pub fn has(&self, wanted: &Wanted, now_unix_ms: u64) -> bool {
        self.0.get(&*wanted.key).is_some_and(|entry| {
            entry.is_there
                && *entry.recipe == *wanted.name()
                && *entry.rotation == *wanted.rotation
                && entry.renew_at.is_some() == matches!(wanted.recipe, Recipe::Tls { .. })
                && entry.renew_at_ms().is_none_or(|at_ms| at_ms > now_unix_ms && entry.is_valid_yet(now_unix_ms))
        })
    }

    /// When the first of its values is due, in Unix milliseconds.
    pub fn renew_at_ms(&self) -> Option<u64> {
        self.0.values().filter_map(Entry::renew_at_ms).min()
    }

    /// Whether the value was made for the same rotation.
    pub(super) fn has_rotation(&self, wanted: &Wanted) -> bool {
        self.0.get(&*wanted.key).is_some_and(|entry| *entry.rotation == *wanted.rotation)
    }

    pub(super) fn keep(&mut self, wanted: &Wanted, before: &Self) {
        self.0.extend(before.0.get_key_value(&*wanted.key).map(|(key, entry)| (key.clone(), entry.clone())));
    }

    pub(super) fn add(&mut self, wanted: &Wanted, now_unix_ms: u64) {
        let entry = Entry {
            recipe: wanted.name().into(),
            rotation: (&*wanted.rotation).into(),
            drawn_at: time::seconds(now_unix_ms).into(),
            renew_at: wanted.due_ms(now_unix_ms).map(|at_ms| time::seconds(at_ms).into()),
            is_there: true,
        };
        self.0.insert((&*wanted.key).into(), entry);
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(&self.0).expect("texts have a JSON form")
    }
}
