//! The record of the values that the host made for a Secret, in an annotation: how and when, and nothing derived from a
//! value. It also says which values no plugin sees: those are cut from the text of the object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wanted::{AUTHORITY, CERTIFICATE, Recipe, Wanted};
use crate::certificates::BACKDATED_MS;
use crate::heap::HeapBytes;
use crate::time;
use crate::tree_bytes::tree_bytes;
use crate::well_known::GENERATED_ANNOTATION;

/// kubectl keeps what was applied in it, perhaps with the values of an object that somebody has exported.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

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
    /// That of an object with its values. One that cannot be read is empty.
    pub fn of(object: &Value) -> Self {
        let mut record = Self(parse(object).unwrap_or_default());
        let has = |key: &str| object["data"][key].as_str().is_some_and(|value| !value.is_empty());
        for (key, entry) in &mut record.0 {
            entry.is_there = has(key) && (entry.renew_at.is_none() || [CERTIFICATE, AUTHORITY].into_iter().all(has));
        }
        record
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

/// None when there is no record, or it cannot be read.
fn parse(object: &Value) -> Option<BTreeMap<Box<str>, Entry>> {
    serde_json::from_str(object["metadata"]["annotations"][GENERATED_ANNOTATION].as_str()?).ok()
}

/// The keys whose values no plugin sees; all, when the record cannot be read.
fn hidden_keys(object: &Value) -> BTreeSet<String> {
    let has_record = !object["metadata"]["annotations"][GENERATED_ANNOTATION].is_null();
    match parse(object) {
        Some(entries) => entries.keys().map(|key| key.to_string()).collect(),
        None if has_record => object["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect(),
        None => BTreeSet::new(),
    }
}

/// Whether the host made the value at this key, as far as the Secret's record says; all values, when it cannot be read.
pub fn is_made(secret: &Value, key: &str) -> bool {
    hidden_keys(secret).contains(key)
}

fn cut(object: &mut Value, keys: &BTreeSet<String>) {
    for map in ["data", "stringData"] {
        let members = object.get_mut(map).and_then(Value::as_object_mut).into_iter().flatten();
        members.filter(|(key, _)| keys.contains(*key)).for_each(|(_, value)| *value = "".into());
    }
    let metadata = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    metadata.and_then(Value::as_object_mut).map(|annotations| annotations.remove(LAST_APPLIED));
}

/// The text of a Secret with a record, without the values that no plugin sees, and the record.
///
/// # Errors
/// It is not JSON.
pub fn hide(text: &str) -> Result<(String, Record), serde_json::Error> {
    let mut object: Value = serde_json::from_str(text)?;
    let record = Record::of(&object);
    let keys = hidden_keys(&object);
    cut(&mut object, &keys);
    Ok((object.to_string(), record))
}

/// What the trees of objects in review may take together: ten times what the largest Secrets do. Anybody may send an object that
/// has a record, and a tree can take a hundred times its text.
const MAX_TREE_BYTES: usize = 32 << 20;

/// The same of a Secret in review and its stored form: a value is hidden in both if one of them records it. None when
/// one of them is not JSON, or their trees would take too much.
pub fn hide_reviewed(object: Arc<str>, old: Option<Arc<str>>) -> Option<(Arc<str>, Option<Arc<str>>)> {
    let mut texts: Vec<Arc<str>> = [object].into_iter().chain(old).collect();
    if texts.iter().any(|text| text.contains(GENERATED_ANNOTATION)) {
        let bytes: usize = texts.iter().map(|text| tree_bytes(text.as_bytes())).sum();
        if bytes > MAX_TREE_BYTES {
            return None;
        }
        let mut trees: Vec<Value> = texts.iter().map(|text| serde_json::from_str(text).ok()).collect::<Option<_>>()?;
        let keys: BTreeSet<String> = trees.iter().flat_map(hidden_keys).collect();
        trees.iter_mut().for_each(|tree| cut(tree, &keys));
        texts = trees.iter().map(|tree| tree.to_string().into()).collect();
    }
    let mut texts = texts.into_iter();
    Some((texts.next()?, texts.next()))
}
