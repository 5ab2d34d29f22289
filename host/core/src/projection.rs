//! Field projections: the fields of an object that a plugin requests, as JSON.
//!
//! A path names members separated by dots: `status.phase`. A member whose name has a dot is written in brackets and
//! double quotes: `metadata.annotations["mortise.dev/child"]`; inside the quotes, `\"` and `\\` mean `"` and `\`. A
//! path continues in every element of an array: `status.conditions.type` keeps the type of every condition. Members
//! that an object lacks are left out.
//!
//! A projection keeps only what a path names, so a guest neither parses nor wakes for the rest.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use crate::heap::{HeapBytes, allocation, shared};

pub use self::path::InvalidPath;
pub(crate) use self::path::parse as parse_path;

mod cut;
pub(crate) mod path;
#[cfg(test)]
mod tests;

/// Projections that one object remembers. A controller usually has one projection of a kind, and few kinds have more
/// than four readers; further ones are computed again.
const MEMO_ENTRIES: usize = 4;

/// Paths of one projection. A reader of more fields can read the whole object.
const MAX_PATHS: usize = 256;
/// Bytes of all paths of one projection: 64 for each of [`MAX_PATHS`]. Parsed paths of one-letter members take some
/// hundred times their text, so this bounds a projection to some megabytes, see [`Projection::bytes`].
const MAX_PATHS_BYTES: usize = 16 << 10;

/// A parsed list of field paths. Cheap to clone; the order of the paths does not matter for equality.
#[derive(Clone)]
pub struct Projection(Arc<Paths>);

struct Paths {
    /// Sorted, each once. Empty: whole objects.
    paths: Vec<Vec<String>>,
    tree: cut::Tree,
    id: u64,
    bytes: usize,
}

impl Projection {
    /// Parses field paths. An empty list is the projection that keeps everything.
    pub fn parse(fields: &[String]) -> Result<Self, InvalidPath> {
        if fields.len() > MAX_PATHS {
            return Err(path::invalid(&fields[MAX_PATHS], 0, "more than 256 paths: read whole objects instead"));
        }
        if fields.iter().map(String::len).sum::<usize>() > MAX_PATHS_BYTES {
            let path = fields.iter().max_by_key(|field| field.len()).map_or("", |longest| longest);
            return Err(path::invalid(path, 0, "the paths have more than 16384 bytes together: read whole objects"));
        }
        if fields.is_empty() {
            return Ok(Self::whole());
        }
        let mut paths = fields.iter().map(|field| path::parse(field)).collect::<Result<Vec<_>, _>>()?;
        paths.sort();
        paths.dedup();
        Ok(Self::new(paths))
    }

    /// The projection that keeps everything, which all share.
    pub fn whole() -> Self {
        static WHOLE: LazyLock<Projection> = LazyLock::new(|| Projection::new(Vec::new()));
        WHOLE.clone()
    }

    /// Whether both are one in memory.
    pub(crate) fn is_shared(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn new(mut paths: Vec<Vec<String>>) -> Self {
        let mut tree = cut::Tree::default();
        for path in &paths {
            tree.keep(path);
        }
        let mut hasher = DefaultHasher::new();
        paths.hash(&mut hasher);
        paths.shrink_to_fit();
        let bytes = shared(size_of::<Paths>()) + paths.heap_bytes() + tree.heap_bytes();
        Self(Arc::new(Paths { paths, tree, id: hasher.finish(), bytes }))
    }

    /// Bytes in memory, which clones share; none for the one that keeps everything.
    pub fn bytes(&self) -> usize {
        if self.is_whole() { 0 } else { self.0.bytes }
    }

    /// Whether it keeps everything.
    pub fn is_whole(&self) -> bool {
        self.0.paths.is_empty()
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

/// The remembered projections of one object. The lock is needed because threads share objects; it is held for a scan of
/// [`MEMO_ENTRIES`].
#[derive(Default)]
pub(crate) struct Memo(Mutex<Vec<Projected>>);

struct Projected {
    /// Weak, because thousands of objects would otherwise keep unused projections alive.
    projection: Weak<Paths>,
    hash: u64,
    /// None where there is no room for it.
    text: Option<Arc<str>>,
}

impl Projected {
    fn is_of(&self, projection: &Projection) -> bool {
        // The weak reference keeps the allocation, so no other projection can have this address.
        self.projection.as_ptr() == Arc::as_ptr(&projection.0)
            || self.projection.upgrade().is_some_and(|known| Projection(known) == *projection)
    }
}

impl Memo {
    /// The remembered hash of a projection.
    pub(crate) fn hash_of(&self, projection: &Projection) -> Option<u64> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().find(|entry| entry.is_of(projection)).map(|entry| entry.hash)
    }

    /// The text of a projection and its hash, cut out of the object's text if they are not remembered. The hash is never 0.
    pub(crate) fn get_or_cut(&self, projection: &Projection, json: &Arc<str>) -> (Arc<str>, u64) {
        if let Some(known) = self.get(projection) {
            return known;
        }
        let text = cut::cut(json, &projection.0.tree);
        let mut hasher = DefaultHasher::new();
        hasher.write(text.as_bytes());
        let hash = hasher.finish().max(1);
        self.put(projection, hash, &text, json.len());
        (text, hash)
    }

    fn get(&self, projection: &Projection) -> Option<(Arc<str>, u64)> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.iter().find(|entry| entry.is_of(projection))?;
        Some((known.text.clone()?, known.hash))
    }

    /// Remembers a projection. Its text takes the place of older ones, so that all have no more than `most` bytes, those of the
    /// object: reads of it in however many ways make the cache twice as large at most.
    fn put(&self, projection: &Projection, hash: u64, text: &Arc<str>, most: usize) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.projection.strong_count() > 0 && !entry.is_of(projection));
        if entries.len() == MEMO_ENTRIES {
            entries.remove(0);
        }
        let mut others: usize = entries.iter().flat_map(|entry| &entry.text).map(|text| text.len()).sum();
        for entry in entries.iter_mut() {
            if others + text.len() <= most {
                break;
            }
            others -= entry.text.take().map_or(0, |older| older.len());
        }
        // Most objects have one projection or none; the default growth would reserve four entries.
        entries.reserve_exact(1);
        let text = (text.len() <= most).then(|| Arc::clone(text));
        entries.push(Projected { projection: Arc::downgrade(&projection.0), hash, text });
    }

    /// With what is left of a projection that only this remembers.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let texts: usize = entries.iter().map(|entry| entry.text.heap_bytes()).sum();
        allocation(entries.capacity() * size_of::<Projected>()) + texts + entries.len() * shared(size_of::<Paths>())
    }
}
