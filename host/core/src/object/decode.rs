//! Decodes JSON text into an [`Object`] in one pass: the header borrows from the text, everything else is skipped.
//!
//! Decoding is most of what a watch event costs, so it allocates little: repeated strings are interned, and the text
//! without managedFields is assembled in a buffer that is reused.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use thiserror::Error;

use super::header::{Header, Text, own_fields};
use super::interner::Interner;
use super::owner::read_mark;
use super::{Kind, Name, Object, OwnerReference, ResourceVersion};
use crate::generated::{self, Record};
use crate::projection::Memo;
use crate::time;
use crate::well_known::{MANAGER_PREFIX, OWNER_UID_LABEL};

/// Why a text cannot be decoded as an object.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// An API server sends UTF-8 only.
    #[error("cannot decode an object: its text is not UTF-8")]
    NotUtf8 {
        /// The position.
        #[source]
        source: std::str::Utf8Error,
    },
    /// The text is not JSON.
    #[error("cannot decode {object}: its text is not valid JSON")]
    NotJson {
        /// "Pod default/web-0", or as much of that as can be read.
        object: String,
        /// The position.
        #[source]
        source: serde_json::Error,
    },
    /// A field of the header is missing or malformed.
    #[error("cannot decode {object}: {field} {problem}")]
    Field {
        /// "Pod default/web-0", or as much of that as can be read.
        object: String,
        /// The field's path.
        field: &'static str,
        /// "is missing", "is not a string".
        problem: String,
    },
}

impl Object {
    /// Decodes an object that carries its apiVersion and kind, as watch events do.
    pub fn decode(text: &[u8], interner: &mut Interner) -> Result<Self, DecodeError> {
        Self::decode_any(None, text, interner)
    }

    /// Decodes an object of a known kind. List items of built-in kinds have neither apiVersion nor kind; both are
    /// inserted where they are missing.
    pub fn decode_as(kind: &Kind, text: &[u8], interner: &mut Interner) -> Result<Self, DecodeError> {
        Self::decode_any(Some(kind), text, interner)
    }

    /// A Secret with generated values is decoded from a text without them, so that nothing that reads the cache can show
    /// one.
    fn decode_any(expected: Option<&Kind>, text: &[u8], interner: &mut Interner) -> Result<Self, DecodeError> {
        let source = Source::read(text)?;
        if !source.header.metadata.annotations.is_generated || !source.is_secret(expected) {
            return source.decode(expected, None, interner);
        }
        let not_json = |error| DecodeError::NotJson { object: describe(source.text), source: error };
        let (text, record) = generated::hide(source.text).map_err(not_json)?;
        Source::read(text.as_bytes())?.decode(expected, Some(Box::new(record)), interner)
    }
}

struct Source<'a> {
    text: &'a str,
    header: Header<'a>,
}

impl<'a> Source<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(bytes).map_err(|source| DecodeError::NotUtf8 { source })?.trim_ascii();
        let header = Header::read(text).map_err(|source| diagnose(text, source))?;
        Ok(Self { text, header })
    }

    fn is_secret(&self, expected: Option<&Kind>) -> bool {
        let found = |text: &Option<Text<'a>>| text.as_ref().map(|text| text.0.to_string());
        let api_version = found(&self.header.api_version).or_else(|| expected.map(|kind| kind.api_version.to_string()));
        let kind = found(&self.header.kind).or_else(|| expected.map(|kind| kind.kind.to_string()));
        (api_version.as_deref(), kind.as_deref()) == (Some("v1"), Some("Secret"))
    }

    fn decode(
        self,
        expected: Option<&Kind>,
        generated: Option<Box<Record>>,
        interner: &mut Interner,
    ) -> Result<Object, DecodeError> {
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
        let (own_fields, is_written) = match metadata.managed_fields {
            Some(raw) if raw.get().contains(MANAGER_PREFIX) => own_fields(raw)
                .map_err(|error| self.field("metadata.managedFields", format!("is malformed: {error}")))?,
            _ => (Box::default(), false),
        };
        let controller = self.controller(&kind, &name, is_written, interner);
        let (json, version_at, status_at) = self.assemble(expected, version, interner);
        Ok(Object {
            labels: metadata.labels.kept(interner),
            child_key: metadata.annotations.child_key.as_deref().map(Into::into),
            desired: metadata.annotations.desired.as_deref().map(Into::into),
            generated,
            uid: (&*uid.0).into(),
            generation: metadata.generation.unwrap_or(0),
            created_unix_s: metadata.creation_timestamp.as_ref().map_or(u32::MAX, created),
            deleting: metadata.deletion_timestamp.is_some(),
            content_hash: AtomicU64::new(0),
            availability: OnceLock::new(),
            verdicts: OnceLock::new(),
            projections: Memo::default(),
            kind,
            name,
            resource_version,
            controller,
            own_fields,
            is_written,
            json,
            version_at,
            status_at,
        })
    }

    /// The owner reference, or the owner that the marks of a tracked child name. A plugin has written every tracked child, and
    /// nobody else who makes one has reason to say so.
    fn controller(
        &self,
        kind: &Kind,
        name: &Name,
        is_written: bool,
        interner: &mut Interner,
    ) -> Option<OwnerReference> {
        let metadata = &self.header.metadata;
        if let Some(owner) = &metadata.owners.0 {
            return Some(OwnerReference {
                kind: interner.kind(&owner.api_version.0, &owner.kind.0),
                namespace: Arc::clone(&name.namespace),
                name: interner.intern(&owner.name.0),
                uid: interner.intern(&owner.uid.0),
            });
        }
        let mark = metadata.annotations.owner.as_deref().filter(|_| is_written)?;
        let ((api_version, owner_kind), namespace, owner_name) = read_mark(mark, kind, name)?;
        Some(OwnerReference {
            kind: interner.kind(api_version, owner_kind),
            namespace: interner.intern(namespace),
            name: interner.intern(owner_name),
            uid: interner.intern(metadata.labels.get(OWNER_UID_LABEL)?),
        })
    }

    fn kind(&self, expected: Option<&Kind>, interner: &mut Interner) -> Result<Kind, DecodeError> {
        let mut take = |found: &Option<Text<'a>>, expected: Option<&Arc<str>>, field| match (found, expected) {
            (Some(found), Some(expected)) if *found.0 != **expected => {
                Err(self.field(field, format!("is {:?}, expected {expected:?}", found.0)))
            }
            (Some(Text(text)), _) => Ok(interner.intern(text)),
            (None, Some(expected)) => Ok(interner.intern(expected)),
            (None, None) => Err(self.missing(field)),
        };
        let api_version = take(&self.header.api_version, expected.map(|kind| &kind.api_version), "apiVersion")?;
        let kind = take(&self.header.kind, expected.map(|kind| &kind.kind), "kind")?;
        Ok(Kind { api_version, kind })
    }

    /// The text without managedFields and with apiVersion and kind, and the positions of the resourceVersion and the
    /// status in it.
    fn assemble(
        &self,
        expected: Option<&Kind>,
        version: &str,
        interner: &mut Interner,
    ) -> (Arc<str>, usize, Range<usize>) {
        let text = self.text;
        let inserted = expected.map_or(String::new(), |kind| self.missing_type_members(kind));
        let cut = match self.header.metadata.managed_fields {
            Some(raw) => {
                let start = offset_in(text, raw.get());
                member_span(text, start..start + raw.get().len())
            }
            None => text.len()..text.len(),
        };
        let position = |part| {
            let at = offset_in(text, part);
            at + inserted.len() - if at > cut.start { cut.len() } else { 0 }
        };
        let version_at = position(version);
        let status_at = self.header.status.map_or(0..0, |status| {
            let at = position(status.get());
            at..at + status.get().len()
        });
        if inserted.is_empty() && cut.is_empty() {
            return (text.into(), version_at, status_at);
        }
        let scratch = &mut interner.scratch;
        scratch.clear();
        scratch.reserve(text.len() + inserted.len() - cut.len());
        scratch.push('{');
        scratch.push_str(&inserted);
        scratch.push_str(&text[1..cut.start]);
        scratch.push_str(&text[cut.end..]);
        (scratch.as_str().into(), version_at, status_at)
    }

    /// `"apiVersion":"v1","kind":"Pod",` without the members that the text has.
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

/// In Unix seconds.
fn created(Text(text): &Text<'_>) -> u32 {
    time::parse(text).and_then(|unix_ms| u32::try_from(unix_ms / 1_000).ok()).unwrap_or(u32::MAX)
}

/// Accepts digits only; `u64::from_str` would accept a sign too.
fn parse_version(text: &str) -> Option<ResourceVersion> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().map(ResourceVersion)
}

/// The position of a part that was borrowed from `text`.
fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// The span of the object member whose value is at `value`, with one adjacent comma.
///
/// The text was parsed before, so the value is surrounded by a key, a colon, white space, and a comma or a brace on
/// either side. The key may have escapes but no quote: its letters are those of "managedFields".
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

/// Finds the field that made the header unreadable. Parses the whole text again, which only errors pay for.
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
