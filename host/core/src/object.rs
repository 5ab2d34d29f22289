//! Kubernetes objects as the host keeps them: raw JSON text beside a header that is parsed once.
//!
//! Nothing here knows what a kind means. `managedFields` is cut out of the text when an object is decoded; only the
//! field sets of mortise's own managers are kept, because they decide whether an apply would change anything. The
//! decoder is `object/decode.rs`.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::decode::DecodeError;
pub use self::interner::Interner;
use crate::projection::Memo;

mod decode;
mod difference;
mod header;
mod interner;
#[cfg(test)]
pub(crate) mod tests;

/// The annotation that carries a child's key, as the guest named it ("0", a node's name, "config").
pub const CHILD_KEY_ANNOTATION: &str = "mortise.dev/child";
/// The annotation that carries the hash of what was wanted when a child was created.
pub const DESIRED_ANNOTATION: &str = "mortise.dev/desired";
/// Field managers of mortise are `mortise/<plugin>`.
pub const MANAGER_PREFIX: &str = "mortise/";

/// An apiVersion and a kind, as they stand in an object's JSON.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// "v1", "apps/v1".
    pub api_version: Arc<str>,
    /// "Pod".
    pub kind: Arc<str>,
}

impl Kind {
    /// A kind from its two names.
    pub fn new(api_version: &str, kind: &str) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether both are versions of one resource: the objects behind them are the same ones.
    pub fn is_same_resource(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind
    }

    /// The version without its group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&*self.api_version, |(_, version)| version)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version, self.kind)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Namespace and name: what tells objects of one kind apart. The namespace is empty for cluster-scoped kinds.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// metadata.name.
    pub name: Arc<str>,
}

impl Name {
    /// A name within a namespace; pass "" for cluster-scoped kinds.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A label's key and value.
pub type Label = (Arc<str>, Arc<str>);

/// One object of one kind.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectRef {
    /// What it is.
    pub kind: Kind,
    /// Which one.
    pub name: Name,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.name)
    }
}

/// A resourceVersion. Comparable within one kind (Kubernetes promises that since 1.35), never across kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ResourceVersion(pub u64);

/// The controller among an object's owner references.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerReference {
    /// The owner's kind.
    pub kind: Kind,
    /// The owner's metadata.name.
    pub name: Arc<str>,
    /// The owner's metadata.uid.
    pub uid: Arc<str>,
}

/// One of mortise's own entries of an object's managedFields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnFields {
    /// "mortise/podset".
    pub manager: Box<str>,
    /// True for server-side apply, false for Update.
    pub applied: bool,
    /// "status", or empty for the object itself.
    pub subresource: Box<str>,
    /// The fieldsV1 JSON text.
    pub fields: Box<str>,
}

/// One cached object: its JSON text without managedFields, and the facts that the host needs without parsing it again.
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Which one.
    pub name: Name,
    /// metadata.uid.
    pub uid: Arc<str>,
    /// metadata.resourceVersion.
    pub resource_version: ResourceVersion,
    /// metadata.generation; 0 for kinds that have none.
    pub generation: i64,
    /// Whether metadata.deletionTimestamp is set.
    pub deleting: bool,
    /// metadata.labels, sorted by key, each key once.
    pub labels: Box<[Label]>,
    /// The owner reference that says `controller: true`.
    pub controller: Option<OwnerReference>,
    /// The annotation [`CHILD_KEY_ANNOTATION`].
    pub child_key: Option<Box<str>>,
    /// The annotation [`DESIRED_ANNOTATION`].
    pub desired: Option<Box<str>>,
    /// Mortise's own server-side applies and status writes among the managedFields. The Update entry of a child that
    /// was created by POST is not kept: such a child is compared by its [`DESIRED_ANNOTATION`].
    pub own_fields: Box<[OwnFields]>,
    json: Arc<str>,
    /// Where the digits of metadata.resourceVersion begin in `json`.
    version_at: usize,
    /// 0 until it is first asked for.
    content_hash: AtomicU64,
    projections: Memo,
}

impl Object {
    /// The JSON text, without managedFields.
    pub fn json(&self) -> &Arc<str> {
        &self.json
    }

    /// Kind, namespace and name.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef { kind: self.kind.clone(), name: self.name.clone() }
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        label(&self.labels, key)
    }

    /// A hash of the JSON without metadata.resourceVersion: equal for two versions that differ in nothing that a guest
    /// could act on. Computed when it is first asked for; never 0.
    pub fn content_hash(&self) -> u64 {
        // Racing threads compute the same value, so nothing needs to be ordered with it.
        match self.content_hash.load(Ordering::Relaxed) {
            0 => {
                let (before, after) = self.json.as_bytes().split_at(self.version_at);
                let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let mut hasher = DefaultHasher::new();
                hasher.write(before);
                hasher.write(&after[digits..]);
                let hash = hasher.finish().max(1);
                self.content_hash.store(hash, Ordering::Relaxed);
                hash
            }
            hash => hash,
        }
    }

    /// Bytes that this object holds by itself: its struct, its text and its facts. Interned strings are shared and not
    /// counted; projections that were made of it are.
    pub fn bytes(&self) -> usize {
        let own_fields: usize = self
            .own_fields
            .iter()
            .map(|own| size_of::<OwnFields>() + own.manager.len() + own.subresource.len() + own.fields.len())
            .sum();
        size_of::<Self>()
            + self.json.len()
            + self.name.name.len()
            + self.uid.len()
            + size_of_val(&*self.labels)
            + self.child_key.as_ref().map_or(0, |key| key.len())
            + self.desired.as_ref().map_or(0, |hash| hash.len())
            + own_fields
            + self.projections.bytes()
    }

    pub(crate) fn projections(&self) -> &Memo {
        &self.projections
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{}", self.kind, self.name, self.resource_version.0)
    }
}

/// The value of a key among labels that are sorted by key.
pub(crate) fn label<'a>(labels: &'a [Label], key: &str) -> Option<&'a str> {
    labels.binary_search_by(|(other, _)| (**other).cmp(key)).ok().map(|at| &*labels[at].1)
}
