//! A live Secret: its values, which of them the host made, and its text without those. It is read member by member and stays
//! text: a tree can take a hundred times its text, and anybody may send one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Error;
use serde_json::value::RawValue;

use super::record::Record;
use super::wanted::{AUTHORITY, CERTIFICATE};
use crate::json::level::Key;
use crate::well_known::GENERATED_ANNOTATION;

/// kubectl keeps what was applied in it, perhaps with the values of an object that somebody has exported.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A Secret as JSON text.
pub struct Secret<'a> {
    text: &'a str,
    metadata: Option<&'a RawValue>,
    data: Option<&'a RawValue>,
    /// The annotation with the record, whatever its type.
    record: Option<&'a RawValue>,
}

/// The keys of the values that no plugin sees.
enum Hidden {
    /// The record cannot be read.
    All,
    Keys(BTreeSet<String>),
}

impl<'a> Secret<'a> {
    /// That of a text.
    ///
    /// # Errors
    /// It is not a JSON object. Metadata, annotations or data that are no objects count as absent.
    pub fn read(text: &'a str) -> Result<Self, Error> {
        let mut secret = Self { text, metadata: None, data: None, record: None };
        let mut annotations = None;
        for_each(text, |name, value| match name {
            "metadata" => secret.metadata = object(value),
            "data" => secret.data = object(value),
            _ => {}
        })?;
        for_each_of(secret.metadata, |name, value| {
            if name == "annotations" {
                annotations = object(value);
            }
        })?;
        for_each_of(annotations, |name, value| {
            if name == GENERATED_ANNOTATION && value.get() != "null" {
                secret.record = Some(value);
            }
        })?;
        for_each_of(secret.data, |_, _| {})?;
        Ok(secret)
    }

    /// The values at the keys that are wanted, in base64. They may be empty.
    pub fn values(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        let all_read = for_each_of(self.data, |key, value| {
            if is_wanted(key)
                && let Ok(value) = serde_json::from_str(value.get())
            {
                values.insert(key.to_owned(), value);
            }
        });
        debug_assert!(all_read.is_ok(), "it was read before");
        values
    }

    /// A text of its metadata, such as its UID.
    pub fn metadata(&self, wanted: &str) -> Option<String> {
        let mut found = None;
        let read = for_each_of(self.metadata, |name, value| {
            if name == wanted {
                found = serde_json::from_str(value.get()).ok();
            }
        });
        read.ok().and(found)
    }

    /// Its record; None when there is none, or it cannot be read.
    pub fn record(&self) -> Option<Record> {
        let text: String = serde_json::from_str(self.record?.get()).ok()?;
        let mut record = Record::read(&text)?;
        let values = self.values(|key| record.has_key(key) || [CERTIFICATE, AUTHORITY].contains(&key));
        record.note_values(|key| values.get(key).is_some_and(|value| !value.is_empty()));
        Some(record)
    }

    /// Whether the host made the value at this key, as far as the record says; all values, when the record cannot be read.
    pub fn is_made(&self, key: &str) -> bool {
        self.hidden(self.record().as_ref()).has(key)
    }

    fn hidden(&self, record: Option<&Record>) -> Hidden {
        match record {
            None if self.record.is_some() => Hidden::All,
            record => Hidden::Keys(record.into_iter().flat_map(Record::keys).map(str::to_owned).collect()),
        }
    }

    /// Its text without the values of these keys.
    fn without(&self, hidden: &Hidden) -> Result<String, Error> {
        let is_last_applied = |name: &str| name == LAST_APPLIED;
        let mut text = String::with_capacity(self.text.len());
        rewrite(
            &mut text,
            self.text,
            |_| false,
            |text, name, value| match (name, object(value)) {
                ("data" | "stringData", Some(values)) => rewrite(
                    text,
                    values.get(),
                    |_| false,
                    |text, key, value| {
                        text.push_str(if hidden.has(key) { "\"\"" } else { value.get() });
                        Ok(())
                    },
                ),
                ("metadata", Some(metadata)) => rewrite(
                    text,
                    metadata.get(),
                    |_| false,
                    |text, name, value| match (name, object(value)) {
                        ("annotations", Some(annotations)) => rewrite(text, annotations.get(), is_last_applied, copy),
                        _ => copy(text, name, value),
                    },
                ),
                _ => copy(text, name, value),
            },
        )?;
        Ok(text)
    }
}

impl Hidden {
    fn has(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Keys(keys) => keys.contains(key),
        }
    }
}

/// The text of a Secret with a record, without the values that no plugin sees, and the record.
///
/// # Errors
/// It is not JSON.
pub fn hide(text: &str) -> Result<(String, Record), Error> {
    let secret = Secret::read(text)?;
    let record = secret.record();
    let text = secret.without(&secret.hidden(record.as_ref()))?;
    Ok((text, record.unwrap_or_default()))
}

/// A value that is an object.
fn object(value: &RawValue) -> Option<&RawValue> {
    Some(value).filter(|value| value.get().starts_with('{'))
}

struct Members<F>(F);

impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            (self.0)(&name.0, value);
        }
        Ok(())
    }
}

fn for_each<'a>(text: &'a str, member: impl FnMut(&str, &'a RawValue)) -> Result<(), Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(Members(member))?;
    deserializer.end()
}

fn for_each_of<'a>(object: Option<&'a RawValue>, member: impl FnMut(&str, &'a RawValue)) -> Result<(), Error> {
    object.map_or(Ok(()), |object| for_each(object.get(), member))
}

/// Writes an object again: without the members that are left out, and with what `value` writes for each other one.
fn rewrite<'a>(
    to: &mut String,
    text: &'a str,
    is_left_out: impl Fn(&str) -> bool,
    mut value: impl FnMut(&mut String, &str, &'a RawValue) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut before, mut written) = ('{', Ok(()));
    for_each(text, |name, member| {
        if written.is_ok() && !is_left_out(name) {
            to.push(std::mem::replace(&mut before, ','));
            written = serde_json::to_string(name).and_then(|quoted| {
                to.push_str(&quoted);
                to.push(':');
                value(to, name, member)
            });
        }
    })?;
    to.push_str(if before == '{' { "{}" } else { "}" });
    written
}

fn copy(to: &mut String, _: &str, value: &RawValue) -> Result<(), Error> {
    to.push_str(value.get());
    Ok(())
}
