//! Kubernetes objects in the cache: raw JSON text beside a header that is parsed once.
//!
//! Nothing here knows what a kind means. The decoder (`object/decode.rs`) cuts `managedFields` out of the text and
//! keeps only the field sets of mortise's own managers, which show whether an apply would change anything. It also cuts
//! out generated values, which no plugin sees.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use self::header::OwnFields;
pub(crate) use self::header::Text;
pub(crate) use self::identity::is_path_segment;
pub use self::identity::{Kind, Name, ObjectRef, OwnerReference, ResourceVersion, is_object_name};
pub use self::interner::Interner;
pub use self::labels::{Label, Labels};
pub(crate) use self::verdicts::Verdict;
use self::verdicts::Verdicts;
use crate::generated::Record;
use crate::heap::{HeapBytes, allocation, shared};
use crate::projection::Memo;

pub mod decode;
mod difference;
mod header;
mod identity;
mod interner;
mod labels;
pub mod owner;
mod projected;
#[cfg(test)]
pub(crate) mod tests;
mod verdicts;

/// One cached object: its JSON text without managedFields, and the fields that the host reads often.
pub struct Object {
    /// apiVersion and kind.
    pub kind: Kind,
    /// metadata.namespace and metadata.name.
    pub name: Name,
    /// metadata.uid.
    pub uid: Arc<str>,
    /// metadata.resourceVersion.
    pub resource_version: ResourceVersion,
    /// metadata.generation; 0 for kinds that have none.
    pub generation: i64,
    /// metadata.creationTimestamp in Unix seconds, which the API server alone says; the end of time for an object without one.
    pub created_unix_s: u32,
    /// Whether metadata.deletionTimestamp is set.
    pub deleting: bool,
    /// metadata.labels.
    pub labels: Labels,
    /// The owner reference that says `controller: true`; without one, the owner that the marks of a tracked child name.
    pub controller: Option<OwnerReference>,
    /// The annotation [`CHILD_KEY_ANNOTATION`](crate::well_known::CHILD_KEY_ANNOTATION).
    pub child_key: Option<Box<str>>,
    /// The annotation [`DESIRED_ANNOTATION`](crate::well_known::DESIRED_ANNOTATION).
    pub desired: Option<Box<str>>,
    /// The record of the values that the host made. The text has an empty string for each of them.
    pub generated: Option<Box<Record>>,
    /// The managedFields entries of mortise's server-side applies and status writes. The Update entry of a child that
    /// was created by POST is not kept: such a child is compared by the hash in `desired`.
    pub own_fields: Box<[OwnFields]>,
    /// A plugin's field manager has written some field, as far as managedFields say: anybody may write under its name.
    pub is_written: bool,
    json: Arc<str>,
    /// Where the digits of metadata.resourceVersion begin in `json`.
    version_at: usize,
    /// Where the status is in `json`; empty without one.
    status_at: Range<usize>,
    /// 0 until it is first computed.
    content_hash: AtomicU64,
    /// Whether it is available, as [`crate::availability`] finds it.
    availability: OnceLock<bool>,
    /// What long comparisons with it have found: few objects have any.
    verdicts: OnceLock<Box<Verdicts>>,
    projections: Memo,
}

impl Object {
    /// The JSON text without managedFields.
    pub fn json(&self) -> &Arc<str> {
        &self.json
    }

    /// The JSON text of the status; None if it is null.
    pub fn status(&self) -> Option<&str> {
        Some(&self.json[self.status_at.clone()]).filter(|status| !status.is_empty())
    }

    /// Kind, namespace and name.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef { kind: self.kind.clone(), name: self.name.clone() }
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// A hash of the JSON without metadata.resourceVersion. Computed once; never 0.
    pub fn content_hash(&self) -> u64 {
        // Racing threads compute the same value, so Relaxed is enough.
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

    /// What the object's generation and spec are known by: the generation, or a hash of the content where the kind has no
    /// generations, such as a ConfigMap.
    pub fn edition(&self) -> u64 {
        match self.generation {
            0 => self.content_hash(),
            generation => generation.unsigned_abs(),
        }
    }

    /// Whether it is available, computed by the first who asks. The bytes that were parsed for it are added.
    pub(crate) fn availability(&self, compute: impl FnOnce(&Self) -> bool, parsed_bytes: &mut usize) -> bool {
        *self.availability.get_or_init(|| {
            *parsed_bytes += self.json.len();
            compute(self)
        })
    }

    /// What a comparison with what has this fingerprint found.
    pub(crate) fn verdict(&self, fingerprint: u128) -> Option<Verdict> {
        self.verdicts.get()?.get(fingerprint)
    }

    /// Remembers what a comparison found, for others who compare the same.
    pub(crate) fn remember_verdict(&self, fingerprint: u128, verdict: Verdict) {
        self.verdicts.get_or_init(Box::default).keep(fingerprint, verdict);
    }

    /// Bytes in memory, with the projections that it remembers, without interned strings, which are shared.
    pub fn bytes(&self) -> usize {
        shared(size_of::<Self>())
            + self.json.heap_bytes()
            + self.name.name.heap_bytes()
            + self.uid.heap_bytes()
            + self.labels.heap_bytes()
            + self.child_key.heap_bytes()
            + self.desired.heap_bytes()
            + self.generated.as_ref().map_or(0, |record| allocation(size_of::<Record>()) + record.heap_bytes())
            + self.own_fields.heap_bytes()
            + self.projections.bytes()
            + self.verdicts.get().map_or(0, |verdicts| verdicts.bytes())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{}", self.kind, self.name, self.resource_version.0)
    }
}
