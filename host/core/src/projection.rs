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
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thiserror::Error;

use crate::budget::Budget;
use crate::object::Object;

mod cut;
mod path;
#[cfg(test)]
mod tests;

/// Projections that one object remembers the results of. Each controller that reads a kind usually has one projection of
/// it, and few kinds are read by more than four; one more would only compute its result again.
const MEMO_ENTRIES: usize = 4;

/// Looks at an object, as budgets count them, that cutting fields out of a KiB of it is worth: a look finds a result that
/// is remembered, a cut reads the text.
const CUT_UNITS_PER_KIB: u64 = 16;

/// Longest path in bytes. The deepest paths of the built-in kinds have some 150.
const MAX_PATH_BYTES: usize = 1_024;
/// Paths of one projection; who needs more wants the whole object.
const MAX_PATHS: usize = 256;
/// Bytes of all paths of one projection: 64 for each of the most paths. A path of one-letter members takes some hundred
/// times its text when it is parsed, so this bounds what one question costs to some megabytes, see [`Projection::bytes`].
const MAX_PATHS_BYTES: usize = 16 << 10;

/// A parsed list of field paths. Cheap to clone; two equal lists are equal whatever the order of their paths.
#[derive(Clone)]
pub struct Projection(Arc<Paths>);

struct Paths {
    /// Sorted and without repetitions. Empty: whole objects.
    paths: Vec<Vec<String>>,
    tree: cut::Tree,
    id: u64,
    /// What all of it takes in memory.
    bytes: usize,
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
            return Err(path::invalid(&fields[MAX_PATHS], 0, "more than 256 paths: ask for whole objects instead"));
        }
        if fields.iter().map(String::len).sum::<usize>() > MAX_PATHS_BYTES {
            let path = fields.iter().max_by_key(|field| field.len()).map_or("", |longest| longest);
            return Err(path::invalid(path, 0, "the paths have more than 16384 bytes together: ask for whole objects"));
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
        let members = |path: &Vec<String>| size_of_val(&**path) + path.iter().map(String::capacity).sum::<usize>();
        let bytes = size_of::<Paths>() + size_of_val(&*paths) + paths.iter().map(members).sum::<usize>() + tree.bytes();
        Self(Arc::new(Paths { paths, tree, id: hasher.finish(), bytes }))
    }

    /// What the parsed paths take in memory. Clones share them.
    pub fn bytes(&self) -> usize {
        self.0.bytes
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

    /// As [`Self::projected_hash`]. A result that is not remembered takes units of the budget; None when there are not
    /// enough. That of a whole object takes none: it is computed once for each change of the object.
    pub(crate) fn projected_hash_within(&self, object: &Object, budget: &Budget) -> Option<u64> {
        if self.is_whole() {
            return Some(object.content_hash());
        }
        if let Some((_, hash)) = object.projections().get(self) {
            return Some(hash);
        }
        let units = (object.json().len() as u64 / 1_024 + 1) * CUT_UNITS_PER_KIB;
        budget.spend(units).then(|| self.memoized(object).1)
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
        object.projections().put(self, hash, text.clone());
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
    /// Not kept alive: thousands of objects would else hold projections that nobody asks for any more, each another one.
    projection: Weak<Paths>,
    hash: u64,
    text: Arc<str>,
}

impl Projected {
    fn is_of(&self, projection: &Projection) -> bool {
        // An allocation is not given to another one as long as somebody points to it.
        self.projection.as_ptr() == Arc::as_ptr(&projection.0)
            || self.projection.upgrade().is_some_and(|known| Projection(known) == *projection)
    }
}

impl Memo {
    fn get(&self, projection: &Projection) -> Option<(Arc<str>, u64)> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.iter().find(|entry| entry.is_of(projection))?;
        Some((known.text.clone(), known.hash))
    }

    fn put(&self, projection: &Projection, hash: u64, text: Arc<str>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|entry| entry.is_of(projection)) {
            return;
        }
        entries.retain(|entry| entry.projection.strong_count() > 0);
        if entries.len() == MEMO_ENTRIES {
            entries.remove(0);
        }
        // Most objects are projected once or not at all; the default growth would reserve four places.
        entries.reserve_exact(1);
        entries.push(Projected { projection: Arc::downgrade(&projection.0), hash, text });
    }

    pub(crate) fn bytes(&self) -> usize {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.capacity() * size_of::<Projected>() + entries.iter().map(|entry| entry.text.len()).sum::<usize>()
    }
}
