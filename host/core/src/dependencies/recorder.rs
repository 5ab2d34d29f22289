//! Records the dependencies of a running call.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{Dependencies, Dependency, MAX_DEPENDENCIES, MAX_DEPENDENCY_BYTES, SharedDependency};
use crate::left_out::LeftOut;
use crate::map::Map;
use crate::object::{Kind, Object};
use crate::store::Snapshot;

/// Dependencies that are compared one by one. Most calls have one or two and need no hash table.
pub(super) const FEW_DEPENDENCIES: usize = 8;

/// Records the dependencies of a running call.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    reads: Dependencies,
    /// Bytes of the entries, see [`MAX_DEPENDENCY_BYTES`].
    bytes: usize,
    /// Indexes of the entries by hash, once there are more than [`FEW_DEPENDENCIES`].
    places: Map<u64, usize>,
}

impl Recorder {
    pub(crate) fn new(primary: &Object) -> Self {
        let reads = Dependencies { primary_hash: primary.content_hash(), ..Dependencies::default() };
        Self { reads, bytes: 0, places: Map::default() }
    }

    /// Adds a dependency, unless it is known. `looks` counts the objects that the read looked at.
    pub(crate) fn record(&mut self, dependency: Dependency, result_hash: u64, snapshot: &Snapshot, looks: u64) {
        if let Some(kind) = dependency.kind() {
            self.add_kind(kind, snapshot);
            if self.reads.whole {
                return;
            }
        }
        if self.knows(&dependency) {
            return;
        }
        let before = self.reads.entries.last().map(|(shared, _)| shared.dependency());
        let bytes = self.bytes + dependency.bytes_after(before);
        let is_about_objects = dependency.kind().is_some();
        if is_about_objects && (self.reads.entries.len() >= MAX_DEPENDENCIES || bytes > MAX_DEPENDENCY_BYTES) {
            self.reads.collapse();
            self.places.clear();
            return;
        }
        self.bytes = bytes;
        self.reads.looks = self.reads.looks.saturating_add(looks.max(1));
        self.reads.entries.push((Arc::new(SharedDependency::new(dependency)), result_hash));
        if self.reads.entries.len() > FEW_DEPENDENCIES {
            let new = self.reads.entries.iter().enumerate().skip(self.places.len());
            self.places.extend(new.map(|(place, (shared, _))| (hash_of(shared.dependency()), place)));
        }
    }

    fn knows(&self, dependency: &Dependency) -> bool {
        let entries = &self.reads.entries;
        if entries.len() <= FEW_DEPENDENCIES {
            return entries.iter().any(|(known, _)| known.dependency() == dependency);
        }
        self.places.get(&hash_of(dependency)).is_some_and(|place| entries[*place].0.dependency() == dependency)
    }

    fn add_kind(&mut self, kind: &Kind, snapshot: &Snapshot) {
        if self.reads.kinds.iter().all(|(known, _)| known != kind) {
            self.reads.kinds.push((kind.clone(), snapshot.changes(kind)));
        }
    }

    /// Notes the content of a request whose reply is read.
    pub(crate) fn record_reply(&mut self, fingerprint: u128) {
        if !self.reads.has_reply(fingerprint) {
            self.reads.rare.get_or_insert_default().replies.push(fingerprint);
        }
    }

    /// Notes what a read did not show; of several reads of a kind, what the last one did not.
    pub(crate) fn record_left_out(&mut self, left_out: LeftOut) {
        let all = &mut self.reads.rare.get_or_insert_default().left_out;
        all.retain(|known| known.kind() != left_out.kind());
        all.push(left_out);
    }

    /// The finished set.
    pub(crate) fn finish(mut self) -> Dependencies {
        self.reads.shrink();
        self.reads
    }
}

fn hash_of(dependency: &Dependency) -> u64 {
    let mut hasher = DefaultHasher::new();
    dependency.hash(&mut hasher);
    hasher.finish()
}
