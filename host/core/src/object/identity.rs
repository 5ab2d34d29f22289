//! The identity of Kubernetes objects: kind, namespace and name, version, owner. Plain values.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::heap::HeapBytes;

/// An apiVersion and a kind, as in an object's JSON.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// "v1", "apps/v1".
    pub api_version: Arc<str>,
    /// "Pod".
    pub kind: Arc<str>,
}

impl Kind {
    /// `Kind::new("apps/v1", "Deployment")`.
    pub fn new(api_version: &str, kind: &str) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether both are versions of one resource, which has the same objects in each.
    pub fn is_same_resource(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind
    }

    /// Whether it is Kubernetes' Secret, whose values not everybody may see.
    pub fn is_secret(&self) -> bool {
        (&*self.api_version, &*self.kind) == ("v1", "Secret")
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

/// Namespace and name: unique among objects of one kind.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// Empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// metadata.name.
    pub name: Arc<str>,
}

impl Name {
    /// `Name::new("default", "web-0")`; the namespace is "" for cluster-scoped kinds.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Ord for Name {
    /// By namespace, then by name. The names of one namespace mostly share its text.
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.namespace, &other.namespace) {
            return self.name.cmp(&other.name);
        }
        (&self.namespace, &self.name).cmp(&(&other.namespace, &other.name))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
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

/// Whether it is an RFC 1123 subdomain, which the API server requires of the names of nearly all kinds.
pub fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Whether an object of some kind may have this name: the API server requires it of all kinds, and no more of Roles, say.
pub(crate) fn is_path_segment(name: &str) -> bool {
    (1..=253).contains(&name.len()) && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Kind, namespace and name of one object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectRef {
    /// apiVersion and kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: Name,
}

impl HeapBytes for Name {
    fn heap_bytes(&self) -> usize {
        self.namespace.heap_bytes() + self.name.heap_bytes()
    }
}

impl HeapBytes for ObjectRef {
    /// Without the kind, whose text is a manifest's or the interner's.
    fn heap_bytes(&self) -> usize {
        self.name.heap_bytes()
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.name)
    }
}

/// A resourceVersion. Comparable within one kind (guaranteed since Kubernetes 1.35), never across kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ResourceVersion(pub u64);

/// An object's owner: the owner reference with `controller: true`, or what marks a tracked child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerReference {
    /// The owner's kind.
    pub kind: Kind,
    /// The owner's metadata.namespace. An owner reference does not say it: then it is the object's own, and the owner
    /// may be cluster-scoped all the same.
    pub namespace: Arc<str>,
    /// The owner's metadata.name.
    pub name: Arc<str>,
    /// The owner's metadata.uid.
    pub uid: Arc<str>,
}
