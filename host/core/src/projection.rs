//! Field projections: the few fields of an object that a plugin asks for, as JSON.
//!
//! A path names members separated by dots: `status.phase`. A member whose name holds a dot stands in brackets and
//! double quotes: `metadata.annotations["mortise.dev/child"]`; inside the quotes, `\"` and `\\` stand for `"` and `\`.
//! A path that meets an array goes on in each of its elements: `status.conditions.type` keeps every condition with its
//! type alone. A member that an object lacks is left out.
//!
//! Nothing is kept that no path asks for: what a guest does not use it need not receive and parse, and a change of it need
//! not wake the guest.
//!
//! Nothing here knows who asks, or what a kind's fields mean.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::object::Object;

mod cut;
mod path;
#[cfg(test)]
mod tests;

/// Projections that one object remembers the results of. Each controller that reads a kind usually has one projection of
/// it, and few kinds are read by more than four; one more would only compute its result again.
const MEMO_ENTRIES: usize = 4;

/// Longest path in bytes. The deepest paths of the built-in kinds have some 150.
const MAX_PATH_BYTES: usize = 1_024;
/// Paths of one projection; who needs more wants the whole object.
const MAX_PATHS: usize = 256;

/// A parsed list of field paths. Cheap to clone; two equal lists are equal whatever the order of their paths.
#[derive(Clone)]
pub struct Projection(Arc<Paths>);

struct Paths {
    /// Sorted and without repetitions. Empty: whole objects.
    paths: Vec<Vec<String>>,
    tree: cut::Tree,
    id: u64,
}

/// Why a field path cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the field path {path:?} is invalid at byte {at}: {problem}")]
pub struct InvalidPath {
    /// The path as it was given.
    pub path: String,
    /// Where in it.
    pub at: usize,
    /// What is wrong there.
    pub problem: &'static str,
}

impl Projection {
    /// Parses field paths. An empty list is the projection that keeps everything.
    pub fn parse(fields: &[String]) -> Result<Self, InvalidPath> {
        if fields.len() > MAX_PATHS {
            let path = fields[MAX_PATHS].clone();
            return Err(InvalidPath { path, at: 0, problem: "more than 256 paths: ask for whole objects instead" });
        }
        let mut paths = fields.iter().map(|field| path::parse(field)).collect::<Result<Vec<_>, _>>()?;
        paths.sort();
        paths.dedup();
        Ok(Self::new(paths))
    }

    /// The projection that keeps everything.
    pub fn whole() -> Self {
        Self::new(Vec::new())
    }

    fn new(paths: Vec<Vec<String>>) -> Self {
        let mut tree = cut::Tree::default();
        for path in &paths {
            tree.keep(path);
        }
        let mut hasher = DefaultHasher::new();
        paths.hash(&mut hasher);
        Self(Arc::new(Paths { paths, tree, id: hasher.finish() }))
    }

    /// Whether it keeps everything.
    pub fn is_whole(&self) -> bool {
        self.0.paths.is_empty()
    }

    /// The kept fields as one JSON object, members in the order of the object's own text. The object remembers the
    /// result, so asking again costs a pointer.
    pub fn project(&self, object: &Object) -> Arc<str> {
        self.answer(object).0
    }

    /// A hash of what [`Self::project`] returns; for whole objects, [`Object::content_hash`]. Never 0.
    pub fn projected_hash(&self, object: &Object) -> u64 {
        if self.is_whole() { object.content_hash() } else { self.memoized(object).1 }
    }

    /// Text and hash in one lookup.
    pub(crate) fn answer(&self, object: &Object) -> (Arc<str>, u64) {
        if self.is_whole() {
            return (object.json().clone(), object.content_hash());
        }
        self.memoized(object)
    }

    fn memoized(&self, object: &Object) -> (Arc<str>, u64) {
        if let Some(known) = object.projections().get(self) {
            return known;
        }
        let text = cut::cut(object.json(), &self.0.tree);
        let mut hasher = DefaultHasher::new();
        hasher.write(text.as_bytes());
        let hash = hasher.finish().max(1);
        object.projections().put(Projected { projection: self.clone(), hash, text: text.clone() });
        (text, hash)
    }
}

impl Default for Projection {
    fn default() -> Self {
        Self::whole()
    }
}

impl PartialEq for Projection {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.id == other.0.id && self.0.paths == other.0.paths)
    }
}

impl Eq for Projection {}

impl Hash for Projection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.id);
    }
}

impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.paths.iter().map(|path| path.join("."))).finish()
    }
}

/// The projections that were made of one object. Objects are shared between threads, hence the lock; it is held for a
/// look at a handful of entries.
#[derive(Default)]
pub(crate) struct Memo(Mutex<Vec<Projected>>);

struct Projected {
    projection: Projection,
    hash: u64,
    text: Arc<str>,
}

impl Memo {
    fn get(&self, projection: &Projection) -> Option<(Arc<str>, u64)> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.iter().find(|entry| entry.projection == *projection)?;
        Some((known.text.clone(), known.hash))
    }

    fn put(&self, new: Projected) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|entry| entry.projection == new.projection) {
            return;
        }
        if entries.len() == MEMO_ENTRIES {
            entries.remove(0);
        }
        // Most objects are projected once or not at all; the default growth would reserve four places.
        entries.reserve_exact(1);
        entries.push(new);
    }

    pub(crate) fn bytes(&self) -> usize {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.capacity() * size_of::<Projected>() + entries.iter().map(|entry| entry.text.len()).sum::<usize>()
    }
}
