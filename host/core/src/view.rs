//! What one guest call sees: a frozen snapshot behind its plugin's permissions, a fixed time and a configuration.
//!
//! Every read goes through a [`View`], which records the dependency and a hash of its answer (W1, W2). The snapshot does
//! not change while the call runs (R1), only declared kinds are shown (G4), and a kind that the host has not listed
//! completely is an error, never an empty list (R5). A view must not know who asks: the crate that runs guests calls it,
//! and so do native tests.

use std::sync::Arc;

use thiserror::Error;

use crate::budget::Budget;
use crate::dependencies::dependency::{self, AnswerHash, UNFINISHED};
use crate::dependencies::recorder::{MemoryQuota, Recorder};
use crate::dependencies::{Dependencies, Dependency};
use crate::object::{Kind, Object, ObjectRef};
use crate::projection::Projection;
use crate::query::{Query, QueryCache};
use crate::store::Snapshot;

#[cfg(test)]
mod tests;

/// What a plugin may read, shared by all calls of one controller.
#[derive(Debug)]
pub struct Access {
    /// The kinds its manifest declares: primary, owned and read.
    pub readable: Vec<Kind>,
    /// Bytes that one read may return.
    pub read_bytes: u64,
    /// Its queries, parsed once for all calls.
    compiled: QueryCache,
    /// What the read sets of its calls take.
    holdings: MemoryQuota,
}

impl Access {
    /// Access to these kinds, with at most `read_bytes` bytes per read.
    pub fn new(readable: Vec<Kind>, read_bytes: u64) -> Self {
        Self { readable, read_bytes, compiled: QueryCache::default(), holdings: MemoryQuota::default() }
    }

    /// What the parsed queries take in memory.
    pub fn bytes(&self) -> usize {
        self.compiled.bytes()
    }

    /// What the large read sets of its calls take in memory, as long as somebody keeps them.
    pub fn held_bytes(&self) -> usize {
        self.holdings.bytes()
    }
}

/// Why a read was refused. The guest gets it as an answer; it is not a fault of the guest.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AccessError {
    /// The manifest does not declare this kind.
    #[error("{0}")]
    Undeclared(String),
    /// The host does not have a complete view of this kind.
    #[error("{0}")]
    Denied(String),
    /// The result is over this many bytes: narrow the query or project fields.
    #[error("the result is larger than {0} bytes: narrow the query or ask for fewer fields")]
    TooLarge(u64),
    /// A malformed selector or field path.
    #[error("{0}")]
    Invalid(String),
}

/// What one guest call sees.
#[derive(Clone, Debug)]
pub struct View {
    snapshot: Snapshot,
    primary: Arc<Object>,
    access: Arc<Access>,
    now_unix_ms: u64,
    config: Arc<str>,
    reads: Recorder,
}

impl View {
    /// A view for one call about `primary`.
    pub fn new(
        snapshot: Snapshot,
        primary: Arc<Object>,
        access: Arc<Access>,
        now_unix_ms: u64,
        config: Arc<str>,
    ) -> Self {
        let reads = Recorder::new(&primary);
        Self { snapshot, primary, access, now_unix_ms, config, reads }
    }

    /// The reconciled object, as the call was given it.
    pub fn primary(&self) -> &Arc<Object> {
        &self.primary
    }

    /// One object as JSON text; None when it does not exist. The reconciled object itself is an input of every call
    /// anyway, so asking for it adds no dependency.
    pub fn get(&mut self, target: &ObjectRef) -> Result<Option<Arc<str>>, AccessError> {
        if target.name == self.primary.name && target.kind == self.primary.kind {
            return Ok(Some(self.primary.json().clone()));
        }
        let kind = self.readable(&target.kind)?;
        let object = self.snapshot.get(&kind, &target.name);
        let too_large = object.is_some_and(|object| object.json().len() as u64 > self.access.read_bytes);
        let hash = if too_large { UNFINISHED } else { dependency::hash_of_one(object.map(|object| &**object)) };
        let dependency = Dependency::Get(ObjectRef { kind, name: target.name.clone() });
        self.reads.record(dependency, hash, &self.snapshot, 1);
        if too_large {
            return Err(AccessError::TooLarge(self.access.read_bytes));
        }
        Ok(object.map(|object| object.json().clone()))
    }

    /// The objects of a kind whose controller is the reconciled object: one JSON array, ordered by name.
    pub fn owned(&mut self, kind: &Kind, fields: &[String]) -> Result<String, AccessError> {
        let kind = self.readable(kind)?;
        let fields =
            self.access.compiled.projection(fields).map_err(|error| AccessError::Invalid(error.to_string()))?;
        let looks = Budget::unlimited();
        let objects = self.snapshot.owned_within(&kind, &self.primary.uid, &looks).into_iter();
        let (text, hash) = array(objects, &fields, self.access.read_bytes);
        let dependency = Dependency::Owned { kind, owner_uid: self.primary.uid.clone(), fields };
        self.reads.record(dependency, hash, &self.snapshot, looks.spent());
        text
    }

    /// The objects that a query selects: one JSON array, ordered by namespace and name.
    pub fn list(&mut self, query: &Query) -> Result<String, AccessError> {
        self.readable(&query.kind)?;
        let query = self.access.compiled.query(query).map_err(|error| AccessError::Invalid(error.to_string()))?;
        let looks = Budget::unlimited();
        let objects = self.snapshot.select_within(&query, &looks);
        let (text, hash) = array(objects, &query.fields, self.access.read_bytes);
        self.reads.record(Dependency::List(query.clone()), hash, &self.snapshot, looks.spent());
        text
    }

    /// The names of the objects that a query selects, ordered by namespace and name.
    pub fn keys(&mut self, query: &Query) -> Result<Vec<ObjectRef>, AccessError> {
        let kind = self.readable(&query.kind)?;
        let query = self.access.compiled.query(query).map_err(|error| AccessError::Invalid(error.to_string()))?;
        let looks = Budget::unlimited();
        let objects = self.snapshot.select_within(&query, &looks);
        let mut answer = AnswerHash::default();
        let mut bytes = 0;
        let mut keys = Vec::new();
        for object in objects {
            bytes += kind.api_version.len() + kind.kind.len() + object.name.namespace.len() + object.name.name.len();
            if bytes as u64 > self.access.read_bytes {
                self.reads.record(Dependency::Keys(query.clone()), UNFINISHED, &self.snapshot, looks.spent());
                return Err(AccessError::TooLarge(self.access.read_bytes));
            }
            answer.add_name(&object.name);
            keys.push(ObjectRef { kind: kind.clone(), name: object.name.clone() });
        }
        self.reads.record(Dependency::Keys(query.clone()), answer.hash(), &self.snapshot, looks.spent());
        Ok(keys)
    }

    /// The time of the call in Unix milliseconds. Asking makes it an input of the call.
    pub fn now_unix_ms(&mut self) -> u64 {
        self.reads.record(Dependency::Now, dependency::hash_of_time(self.now_unix_ms), &self.snapshot, 1);
        self.now_unix_ms
    }

    /// The plugin's configuration as JSON text. Asking makes it an input of the call.
    pub fn config(&mut self) -> Arc<str> {
        self.reads.record(Dependency::Config, dependency::hash_of_text(&self.config), &self.snapshot, 1);
        self.config.clone()
    }

    /// What the call asked, and a hash of each answer.
    pub fn into_dependencies(self) -> Dependencies {
        self.reads.finish(&self.access.holdings)
    }

    /// The declared kind that equals this one: a copy of it that shares its strings with all other calls.
    fn readable(&self, kind: &Kind) -> Result<Kind, AccessError> {
        let Some(declared) = self.access.readable.iter().find(|declared| *declared == kind) else {
            return Err(AccessError::Undeclared(format!(
                "the plugin's manifest does not declare {kind}: add it to what the controller owns or reads"
            )));
        };
        if !self.snapshot.synced(declared) {
            return Err(AccessError::Denied(format!(
                "the host has no complete view of {kind}: it has not been listed yet, or may not be"
            )));
        }
        Ok(declared.clone())
    }
}

/// One JSON array of what is kept of each object, and the hash of the answer.
fn array<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    fields: &Projection,
    most_bytes: u64,
) -> (Result<String, AccessError>, u64) {
    let mut text = String::from("[");
    let mut answer = AnswerHash::default();
    let mut objects = objects.peekable();
    let expected = objects.size_hint().0;
    while let Some(object) = objects.next() {
        let (json, hash) = fields.answer(object);
        if (text.len() + json.len()) as u64 + 1 > most_bytes {
            return (Err(AccessError::TooLarge(most_bytes)), UNFINISHED);
        }
        if text.len() == 1 {
            // Objects of one kind are of a size, so the first tells about how much all of them need.
            text.reserve(((json.len() + 1) * expected).min(usize::try_from(most_bytes).unwrap_or(usize::MAX)));
        }
        text.push_str(&json);
        answer.add(hash);
        if objects.peek().is_some() {
            text.push(',');
        }
    }
    text.push(']');
    (Ok(text), answer.hash())
}
