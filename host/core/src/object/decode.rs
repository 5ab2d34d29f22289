//! JSON text to [`Object`] in one pass: the header is read borrowed from the text, everything else is skipped.
//!
//! Decoding is most of what a watch event costs, so allocations are few: strings that repeat are interned, and the text
//! without managedFields is put together in a buffer that is reused. Nothing here knows where a text came from.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

use super::{
    CHILD_KEY_ANNOTATION, Controller, DESIRED_ANNOTATION, Kind, MANAGER_PREFIX, Name, Object, OwnFields,
    ResourceVersion,
};
use crate::projection::Memo;

/// Below this many strings a sweep would free less than it costs.
const FIRST_SWEEP_AT: usize = 4_096;

/// One copy of every string that repeats among objects: kinds, namespaces, labels, owners.
///
/// Strings that no object uses any longer are dropped in sweeps whose cost is spread over the insertions before them,
/// so label values that never come back do not pile up.
#[derive(Debug)]
pub struct Interner {
    strings: HashSet<Arc<str>, BuildHasherDefault<DefaultHasher>>,
    sweep_at: usize,
    /// Where a text is put together before it gets its exact size.
    scratch: String,
}

impl Default for Interner {
    fn default() -> Self {
        Self { strings: HashSet::default(), sweep_at: FIRST_SWEEP_AT, scratch: String::new() }
    }
}

impl Interner {
    /// The one copy of this string.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        if self.strings.len() >= self.sweep_at {
            self.strings.retain(|string| Arc::strong_count(string) > 1);
            self.sweep_at = (self.strings.len() * 2).max(FIRST_SWEEP_AT);
        }
        let new: Arc<str> = text.into();
        self.strings.insert(new.clone());
        new
    }

    /// How many different strings are held.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether nothing was interned yet.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    fn kind(&mut self, api_version: &str, kind: &str) -> Kind {
        Kind { api_version: self.intern(api_version), kind: self.intern(kind) }
    }
}

/// Why a text is not an object that the host can keep.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The API server sends UTF-8 only, so what sent this is not one.
    #[error("cannot decode an object: its text is not UTF-8")]
    NotUtf8 {
        /// Where it goes wrong.
        #[source]
        source: std::str::Utf8Error,
    },
    /// The text is not JSON.
    #[error("cannot decode {object}: its text is not valid JSON")]
    NotJson {
        /// As much as could be read of which object it is.
        object: String,
        /// Where it goes wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A field of the header is missing or malformed.
    #[error("cannot decode {object}: {field} {problem}")]
    Field {
        /// As much as could be read of which object it is.
        object: String,
        /// The field's path.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Object {
    /// Decodes an object that carries its apiVersion and kind, as watch events do.
    pub fn decode(text: &[u8], interner: &mut Interner) -> Result<Self, DecodeError> {
        Source::read(text)?.decode(None, interner)
    }

    /// Decodes an object of a known kind: items of a list of a built-in kind carry neither apiVersion nor kind, so both
    /// are put into the text where they are missing.
    pub fn decode_as(kind: &Kind, text: &[u8], interner: &mut Interner) -> Result<Self, DecodeError> {
        Source::read(text)?.decode(Some(kind), interner)
    }
}

/// A text and what was read of it.
struct Source<'a> {
    text: &'a str,
    header: Header<'a>,
}

impl<'a> Source<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(bytes).map_err(|source| DecodeError::NotUtf8 { source })?;
        let header = serde_json::from_str(text).map_err(|source| diagnose(text, source))?;
        Ok(Self { text, header })
    }

    fn decode(self, expected: Option<&Kind>, interner: &mut Interner) -> Result<Object, DecodeError> {
        let kind = self.kind(expected, interner)?;
        let metadata = &self.header.metadata;
        let version = metadata.resource_version.ok_or_else(|| self.missing("metadata.resourceVersion"))?;
        let resource_version = parse_version(version)
            .ok_or_else(|| self.field("metadata.resourceVersion", format!("is {version:?}, not a decimal number")))?;
        let uid = metadata.uid.as_ref().ok_or_else(|| self.missing("metadata.uid"))?;
        let name = metadata.name.as_ref().ok_or_else(|| self.missing("metadata.name"))?;
        let name = Name {
            namespace: interner.intern(metadata.namespace.as_ref().map_or("", |namespace| &namespace.0)),
            name: (&*name.0).into(),
        };
        let controller = metadata.owners.0.as_ref().map(|owner| Controller {
            kind: interner.kind(&owner.api_version.0, &owner.kind.0),
            name: interner.intern(&owner.name.0),
            uid: interner.intern(&owner.uid.0),
        });
        let own_fields = match metadata.managed_fields {
            Some(raw) if raw.get().contains(MANAGER_PREFIX) => own_fields(raw)
                .map_err(|error| self.field("metadata.managedFields", format!("is malformed: {error}")))?,
            _ => Box::default(),
        };
        let (json, version_at) = self.assemble(expected, version, interner);
        Ok(Object {
            labels: metadata.labels.intern(interner),
            child_key: metadata.annotations.child_key.as_deref().map(Into::into),
            desired: metadata.annotations.desired.as_deref().map(Into::into),
            uid: (&*uid.0).into(),
            generation: metadata.generation.unwrap_or(0),
            deleting: metadata.deletion_timestamp.is_some(),
            content_hash: AtomicU64::new(0),
            projections: Memo::default(),
            kind,
            name,
            resource_version,
            controller,
            own_fields,
            json,
            version_at,
        })
    }

    fn kind(&self, expected: Option<&Kind>, interner: &mut Interner) -> Result<Kind, DecodeError> {
        let take = |written: &Option<Text<'a>>, expected: Option<&Arc<str>>, field, interner: &mut Interner| match (
            written, expected,
        ) {
            (Some(written), Some(expected)) if *written.0 != **expected => {
                Err(self.field(field, format!("is {:?}, but {expected:?} was asked for", written.0)))
            }
            (Some(Text(text)), _) => Ok(interner.intern(text)),
            (None, Some(expected)) => Ok(interner.intern(expected)),
            (None, None) => Err(self.missing(field)),
        };
        let api_version =
            take(&self.header.api_version, expected.map(|kind| &kind.api_version), "apiVersion", interner)?;
        let kind = take(&self.header.kind, expected.map(|kind| &kind.kind), "kind", interner)?;
        Ok(Kind { api_version, kind })
    }

    /// The text without managedFields and with apiVersion and kind, and where in it the resourceVersion begins.
    fn assemble(&self, expected: Option<&Kind>, version: &str, interner: &mut Interner) -> (Arc<str>, usize) {
        let text = self.text;
        let inserted = expected.map_or(String::new(), |kind| self.missing_type_members(kind));
        let cut = match self.header.metadata.managed_fields {
            Some(raw) => member_span(text, span_of(text, raw.get())),
            None => text.len()..text.len(),
        };
        let version_at = offset_in(text, version);
        let moved = version_at + inserted.len() - if version_at > cut.start { cut.len() } else { 0 };
        if inserted.is_empty() && cut.is_empty() {
            return (text.into(), moved);
        }
        let body = text.len() - text.trim_start().len() + 1;
        let scratch = &mut interner.scratch;
        scratch.clear();
        scratch.reserve(text.len() + inserted.len() - cut.len());
        scratch.push_str(&text[..body]);
        scratch.push_str(&inserted);
        scratch.push_str(&text[body..cut.start]);
        scratch.push_str(&text[cut.end..]);
        (scratch.as_str().into(), moved)
    }

    /// `"apiVersion":"v1","kind":"Pod",` as far as the text does not have it.
    fn missing_type_members(&self, kind: &Kind) -> String {
        let mut members = String::new();
        let mut add = |name: &str, value: &str| {
            let value = serde_json::to_string(value).expect("a string has a JSON form");
            members.push_str(&format!("\"{name}\":{value},"));
        };
        if self.header.api_version.is_none() {
            add("apiVersion", &kind.api_version);
        }
        if self.header.kind.is_none() {
            add("kind", &kind.kind);
        }
        members
    }

    fn missing(&self, field: &'static str) -> DecodeError {
        self.field(field, "is missing".into())
    }

    fn field(&self, field: &'static str, problem: String) -> DecodeError {
        DecodeError::Field { object: describe(self.text), field, problem }
    }
}

/// Digits only: `u64::from_str` would take a sign as well.
fn parse_version(text: &str) -> Option<ResourceVersion> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().map(ResourceVersion)
}

/// Where a part that was borrowed from `text` begins in it.
fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

fn span_of(text: &str, part: &str) -> Range<usize> {
    let start = offset_in(text, part);
    start..start + part.len()
}

/// The span of the object member whose value is at `value`, with the one comma that must go with it.
///
/// The text was parsed before, so what stands around the value is known: a key, a colon, white space, and a comma or a
/// brace on either side. The key may be written with escapes, but holds no quote: its letters are those of
/// "managedFields".
fn member_span(text: &str, value: Range<usize>) -> Range<usize> {
    let before = text[..value.start].trim_end();
    let before = before.strip_suffix(':').unwrap_or(before).trim_end();
    let key = before.strip_suffix('"').unwrap_or(before);
    let key_start = key.rfind('"').unwrap_or(key.len());
    let ahead = text[..key_start].trim_end();
    if let Some(rest) = ahead.strip_suffix(',') {
        return rest.len()..value.end;
    }
    let after = text[value.end..].trim_start();
    match after.strip_prefix(',') {
        Some(rest) => key_start..text.len() - rest.len(),
        None => key_start..value.end,
    }
}

fn own_fields(raw: &RawValue) -> Result<Box<[OwnFields]>, serde_json::Error> {
    let entries: Vec<ManagedFields<'_>> = serde_json::from_str(raw.get())?;
    Ok(entries.iter().filter_map(ManagedFields::kept).collect())
}

#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    /// Borrowed, never unescaped: its place in the text is needed, and digits are not escaped.
    resource_version: Option<&'a str>,
    generation: Option<i64>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow, default)]
    labels: Labels<'a>,
    #[serde(borrow, default)]
    annotations: Annotations<'a>,
    #[serde(borrow, default, rename = "ownerReferences")]
    owners: ControllerReference<'a>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

/// A string that is borrowed when it has no escapes; a plain `Option<Cow>` would always be copied.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Default)]
struct Labels<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl Labels<'_> {
    fn intern(&self, interner: &mut Interner) -> Box<[(Arc<str>, Arc<str>)]> {
        let mut labels: Box<[_]> =
            self.0.iter().map(|(key, value)| (interner.intern(key), interner.intern(value))).collect();
        // The API server sends maps sorted, so this is a check and not a sort.
        labels.sort_by(|(left, _), (right, _)| left.cmp(right));
        labels
    }
}

#[derive(Default)]
struct Annotations<'a> {
    child_key: Option<Cow<'a, str>>,
    desired: Option<Cow<'a, str>>,
}

/// The one owner reference that says `controller: true`; the API server admits no second.
#[derive(Default)]
struct ControllerReference<'a>(Option<Owner<'a>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields<'a> {
    #[serde(borrow)]
    manager: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    #[serde(borrow)]
    subresource: Option<Text<'a>>,
    #[serde(borrow, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
}

impl ManagedFields<'_> {
    fn kept(&self) -> Option<OwnFields> {
        let text = |field: &Option<Text<'_>>| -> Box<str> { field.as_ref().map_or("", |text| &text.0).into() };
        let manager = self.manager.as_ref()?;
        let applied = self.operation.as_ref().is_some_and(|operation| operation.0 == "Apply");
        let status = self.subresource.as_ref().is_some_and(|subresource| subresource.0 == "status");
        (manager.0.starts_with(MANAGER_PREFIX) && (applied || status)).then(|| OwnFields {
            manager: text(&self.manager),
            applied,
            subresource: text(&self.subresource),
            fields: self.fields.map_or("{}", RawValue::get).into(),
        })
    }
}

/// Implements Deserialize by a visitor that takes a map or a null; Go writes an absent map or list either way.
macro_rules! deserialize_with {
    ($type:ident, $expecting:literal, |$access:ident: $trait:ident| $method:ident $body:block) => {
        impl<'de: 'a, 'a> Deserialize<'de> for $type<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl<'de> Visitor<'de> for Reader {
                    type Value = $type<'de>;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_unit<E>(self) -> Result<Self::Value, E> {
                        Ok($type::default())
                    }
                    fn $method<A: $trait<'de>>(self, mut $access: A) -> Result<Self::Value, A::Error> $body
                }
                deserializer.deserialize_any(Reader)
            }
        }
    };
}

deserialize_with!(Labels, "a map of strings", |map: MapAccess| visit_map {
    let mut labels = Vec::new();
    while let Some((Text(key), Text(value))) = map.next_entry()? {
        labels.push((key, value));
    }
    Ok(Labels(labels))
});

deserialize_with!(Annotations, "a map of strings", |map: MapAccess| visit_map {
    let mut annotations = Annotations::default();
    while let Some(Text(key)) = map.next_key()? {
        match &*key {
            CHILD_KEY_ANNOTATION => annotations.child_key = Some(map.next_value::<Text<'de>>()?.0),
            DESIRED_ANNOTATION => annotations.desired = Some(map.next_value::<Text<'de>>()?.0),
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    Ok(annotations)
});

deserialize_with!(ControllerReference, "a list of owner references", |owners: SeqAccess| visit_seq {
    let mut controller = None;
    while let Some(owner) = owners.next_element::<Owner<'de>>()? {
        if owner.controller == Some(true) {
            controller = Some(owner);
        }
    }
    Ok(ControllerReference(controller))
});

/// Finds out which field made the header unreadable. Costs a whole parse, which an error may.
fn diagnose(text: &str, source: serde_json::Error) -> DecodeError {
    let object = describe(text);
    let Ok(tree) = serde_json::from_str::<serde_json::Value>(text) else {
        return DecodeError::NotJson { object, source };
    };
    type Check = fn(&serde_json::Value) -> bool;
    const CHECKS: [(&str, Check, &str); 12] = [
        ("apiVersion", serde_json::Value::is_string, "a string"),
        ("kind", serde_json::Value::is_string, "a string"),
        ("metadata", serde_json::Value::is_object, "an object"),
        ("metadata.name", serde_json::Value::is_string, "a string"),
        ("metadata.namespace", serde_json::Value::is_string, "a string"),
        ("metadata.uid", serde_json::Value::is_string, "a string"),
        ("metadata.resourceVersion", serde_json::Value::is_string, "a string"),
        ("metadata.generation", serde_json::Value::is_i64, "an integer"),
        ("metadata.labels", is_string_map, "a map of strings"),
        ("metadata.annotations", is_string_map, "a map of strings"),
        ("metadata.ownerReferences", serde_json::Value::is_array, "a list of owner references"),
        ("metadata.managedFields", serde_json::Value::is_array, "a list"),
    ];
    for (field, fits, wanted) in CHECKS {
        let value = tree.pointer(&format!("/{}", field.replace('.', "/")));
        if value.is_some_and(|value| !value.is_null() && !fits(value)) {
            return DecodeError::Field { object, field, problem: format!("is not {wanted}") };
        }
    }
    DecodeError::Field { object, field: "metadata", problem: format!("is malformed: {source}") }
}

fn is_string_map(value: &serde_json::Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(serde_json::Value::is_string))
}

/// "Pod default/web-0", or as much of that as can be read.
fn describe(text: &str) -> String {
    let tree: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let string = |path| tree.pointer(path).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
    let kind = string("/kind").unwrap_or("an object");
    match (string("/metadata/namespace"), string("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        _ => kind.to_owned(),
    }
}
