//! Collects a read set while a call runs, and bounds what all read sets of one controller take: beyond a bound, a set
//! remembers kinds instead of entries. What a dependency means is for `dependencies.rs` to know.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Dependencies, Dependency, MAX_DEPENDENCIES, MAX_DEPENDENCY_BYTES, SharedDependency};
use crate::object::{Kind, Object};
use crate::store::Snapshot;

/// Bytes of the entries of all large read sets of one controller: 256 of the largest. A large set that does not fit any
/// more remembers kinds.
pub(super) const MAX_CONTROLLER_BYTES: usize = 64 << 20;
/// Sets up to here do not count there: the object that each belongs to takes about as much.
const SMALL_SET_BYTES: usize = 4 << 10;
/// Dependencies that are compared one by one. Most calls ask one or two, and need no table to tell them apart.
pub(super) const FEW_DEPENDENCIES: usize = 8;

/// What all large read sets of one controller take together.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryQuota(Arc<AtomicUsize>);

/// A part of the holdings, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    all: MemoryQuota,
    bytes: usize,
}

impl MemoryQuota {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes so many bytes, unless that is more than there may be.
    fn take(&self, bytes: usize) -> Option<Arc<Reservation>> {
        // Nothing else is ordered by the count: calls that end at once may be refused a place that one of them gave up.
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let held = Arc::new(Reservation { all: self.clone(), bytes });
        (before + bytes <= MAX_CONTROLLER_BYTES).then_some(held)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Collects a read set while a call runs.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    reads: Dependencies,
    /// What the entries take, see [`MAX_DEPENDENCY_BYTES`].
    bytes: usize,
    /// Where a dependency with this hash stands, once there are more than [`FEW_DEPENDENCIES`].
    places: HashMap<u64, usize, BuildHasherDefault<DefaultHasher>>,
}

impl Recorder {
    pub(crate) fn new(primary: &Object) -> Self {
        let reads = Dependencies { primary_hash: primary.content_hash(), ..Dependencies::default() };
        Self { reads, bytes: 0, places: HashMap::default() }
    }

    /// Adds a dependency that is new; within a frozen snapshot a repeated one has the same answer. `looks` says at how many
    /// objects its answer has looked.
    pub(crate) fn record(&mut self, dependency: Dependency, answer_hash: u64, snapshot: &Snapshot, looks: u64) {
        if let Some(kind) = dependency.kind() {
            self.add_kind(kind, snapshot);
            if self.reads.whole {
                return;
            }
        }
        if self.knows(&dependency) {
            return;
        }
        let bytes = self.bytes + dependency.bytes();
        let is_about_objects = dependency.kind().is_some();
        if is_about_objects && (self.reads.entries.len() >= MAX_DEPENDENCIES || bytes > MAX_DEPENDENCY_BYTES) {
            self.collapse();
            return;
        }
        self.bytes = bytes;
        self.reads.looks = self.reads.looks.saturating_add(looks.max(1));
        self.reads.entries.push((Arc::new(SharedDependency::new(dependency)), answer_hash));
        match self.reads.entries.len() {
            0..=FEW_DEPENDENCIES => {}
            len if self.places.is_empty() => {
                let entries = &self.reads.entries[..len];
                self.places
                    .extend(entries.iter().enumerate().map(|(place, (each, _))| (hash_of(each.dependency()), place)));
            }
            len => _ = self.places.insert(hash_of(self.reads.entries[len - 1].0.dependency()), len - 1),
        }
    }

    /// Whether a dependency was asked before.
    fn knows(&self, dependency: &Dependency) -> bool {
        let entries = &self.reads.entries;
        if entries.len() <= FEW_DEPENDENCIES {
            return entries.iter().any(|(known, _)| known.dependency() == dependency);
        }
        self.places.get(&hash_of(dependency)).is_some_and(|place| entries[*place].0.dependency() == dependency)
    }

    /// Gives up remembering entries about objects one by one.
    fn collapse(&mut self) {
        self.reads.entries.retain(|(shared, _)| shared.dependency().kind().is_none());
        self.reads.whole = true;
        self.places.clear();
    }

    fn add_kind(&mut self, kind: &Kind, snapshot: &Snapshot) {
        if self.reads.kinds.iter().all(|(known, _)| known != kind) {
            self.reads.kinds.push((kind.clone(), snapshot.changes(kind)));
        }
    }

    /// The finished set, which is held for a controller with these others.
    pub(crate) fn finish(mut self, all: &MemoryQuota) -> Dependencies {
        if self.bytes > SMALL_SET_BYTES && !self.reads.whole {
            self.reads.held = all.take(self.bytes);
            if self.reads.held.is_none() {
                self.collapse();
            }
        }
        // Sets are kept for every object, so they hold no room to grow.
        self.reads.entries.shrink_to_fit();
        self.reads.kinds.shrink_to_fit();
        self.reads
    }
}

fn hash_of(dependency: &Dependency) -> u64 {
    let mut hasher = DefaultHasher::new();
    dependency.hash(&mut hasher);
    hasher.finish()
}
