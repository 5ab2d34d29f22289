//! The dependencies of one call: what it read of its snapshot, clock and configuration, with a hash of each result.
//!
//! A key wakes when a dependency of its last call changes (W1): `dependency_index.rs` finds the keys. A call whose
//! results all hash as before is not repeated (W2): [`Dependencies::holds`] computes the hashes without building JSON.
//!
//! Both run on the event loop, and guests decide how much there is to compute. So a hash is computed again only when
//! its kind has changed, and once for all keys that share the dependency. A set that takes more looks at objects than a
//! bound counts as changed: then the guest is called, on a worker and at its plugin's expense.
//!
//! `view.rs` records; nothing here knows a guest or a queue.

use std::sync::Arc;

use crate::budget::Budget;
use crate::dynamic_kind::{KindState, KindStates};
use crate::heap::{HeapBytes, allocation};
use crate::http::Replied;
use crate::left_out::LeftOut;
use crate::object::{Kind, Object};
use crate::rejection::Rejection;
use crate::store::{Change, Snapshot, Store};

use self::dependency::UNFINISHED;
pub use self::dependency::{Dependency, SharedDependency};

pub(crate) mod dependency;
pub(crate) mod recorder;
#[cfg(test)]
mod tests;

/// Entries of one set. A set with more keeps the kinds that were read instead, and any change of these counts: a
/// thousand reads of single objects cover most of a kind.
pub const MAX_DEPENDENCIES: usize = 1_000;
/// Bytes of the entries of one set, with the same consequence. A set is kept for each reconciled object, and the guest
/// decides its content: a thousand `get`s take some 450 KiB, the few entries of most plugins less than two.
pub const MAX_DEPENDENCY_BYTES: usize = 512 << 10;
/// Looks at objects to compute all hashes of a set again: those of a plugin that reads every Pod of 200 full nodes. A
/// set that took more counts as changed when one of its kinds has changed.
pub const MAX_LOOKS: u64 = 20_000;

/// What the list of entries takes beside them.
const LIST_BYTES: usize = 32;
/// What the dependency index keeps for one key that a kind as a whole affects, in a tree of half-full nodes.
const WHOLE_KIND_BYTES: usize = 128;

/// The inputs of a call.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The frozen view.
    pub snapshot: &'a Snapshot,
    /// The reconciled object.
    pub primary: &'a Object,
    /// The time.
    pub now_unix_ms: u64,
    /// The plugin's configuration as JSON text.
    pub config: &'a str,
    /// What was rejected of the object's outcomes.
    pub rejected: &'a [Rejection],
    /// The replies to the object's HTTP requests.
    pub replies: &'a [Replied],
    /// The plugin's dynamic kinds.
    pub kinds: &'a KindStates,
}

impl Inputs<'_> {
    /// The hash of a result that is not about objects.
    fn hash_of(&self, dependency: &Dependency) -> Option<u64> {
        match dependency {
            Dependency::Now => Some(dependency::hash_of_number(self.now_unix_ms)),
            Dependency::Config => Some(dependency::hash_of(self.config)),
            Dependency::Rejected => Some(dependency::hash_of(self.rejected)),
            Dependency::Replies => Some(dependency::hash_of(self.replies)),
            Dependency::Kind(kind) => Some(hash_of_kind(kind, self.kinds)),
            Dependency::Get { .. } | Dependency::Owned { .. } => None,
            Dependency::List(_) | Dependency::Keys(_) | Dependency::Count(_) => None,
        }
    }
}

fn hash_of_kind(kind: &Kind, kinds: &KindStates) -> u64 {
    kinds.get(kind).map_or_else(|| KindState::default().hash(), KindState::hash)
}

/// Every dependency of one call, each once.
#[derive(Clone, Debug, Default)]
pub struct Dependencies {
    /// [`Object::content_hash`] of the reconciled object, which every call gets.
    primary_hash: u64,
    entries: Vec<(Arc<SharedDependency>, u64)>,
    /// The kinds that were read, each with [`Snapshot::changes`] as it was then.
    kinds: Vec<(Kind, u64)>,
    /// Whether the kinds count as read whole, without entries about objects; see [`MAX_DEPENDENCIES`].
    whole: bool,
    /// [`Self::bytes`], which the worker counts and not the event loop.
    bytes: u32,
    /// Looks at objects that the reads took.
    looks: u64,
    /// Few calls have any, so a pointer.
    rare: Option<Box<Rare>>,
}

/// What few calls have.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// The contents of the HTTP requests whose replies were read; no more than an object has requests.
    replies: Vec<u128>,
    /// What reads of the object's children did not show; one for each kind.
    left_out: Vec<LeftOut>,
}

impl Dependencies {
    /// The entries in the order of the first reads, with the hashes of their results.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Dependency, u64)> {
        self.entries.iter().map(|(shared, hash)| (shared.dependency(), *hash))
    }

    /// How many entries and kinds it has.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.kinds.len()
    }

    /// The entries about objects; the index replaces equal ones by one that they share.
    pub(crate) fn of_objects_mut(&mut self) -> impl Iterator<Item = &mut Arc<SharedDependency>> {
        let entries = self.entries.iter_mut().map(|(shared, _)| shared);
        entries.filter(|shared| shared.dependency().kind().is_some())
    }

    pub(crate) fn of_objects(&self) -> impl Iterator<Item = &Arc<SharedDependency>> {
        self.entries.iter().map(|(shared, _)| shared).filter(|shared| shared.dependency().kind().is_some())
    }

    /// The kinds of which any change counts.
    pub fn whole_kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|_| self.whole).map(|(kind, _)| kind)
    }

    /// The dynamic kinds that the call has named.
    pub fn dynamic_kinds(&self) -> impl Iterator<Item = &Kind> {
        self.iter().filter_map(|(dependency, _)| match dependency {
            Dependency::Kind(kind) => Some(kind),
            _ => None,
        })
    }

    /// Whether the state of a dynamic kind has changed since the call.
    pub(crate) fn names_outdated(&self, kinds: &KindStates) -> bool {
        self.iter().any(|(dependency, hash)| match dependency {
            Dependency::Kind(kind) => hash_of_kind(kind, kinds) != hash,
            _ => false,
        })
    }

    /// Whether the call has read what was rejected.
    pub(crate) fn has_rejected(&self) -> bool {
        self.iter().any(|(dependency, _)| *dependency == Dependency::Rejected)
    }

    /// Whether the call has read the reply to the request with this content.
    pub(crate) fn has_reply(&self, fingerprint: u128) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.replies.contains(&fingerprint))
    }

    /// What the call was not shown of objects that name the reconciled one as their owner.
    pub fn left_out(&self) -> &[LeftOut] {
        self.rare.as_ref().map_or(&[], |rare| &rare.left_out)
    }

    /// Bytes in memory, with the places in the dependency index. A shared entry counts in each set.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Whether they are kinds alone.
    pub(crate) fn is_collapsed(&self) -> bool {
        self.whole
    }

    /// Frees spare capacity, since a set is kept for every object, and counts it.
    fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.kinds.shrink_to_fit();
        let of_rare =
            |rare: &Rare| allocation(size_of::<Rare>()) + rare.replies.heap_bytes() + rare.left_out.heap_bytes();
        let rare = self.rare.as_deref().map_or(0, of_rare);
        let before = [None].into_iter().chain(self.iter().map(|(dependency, _)| Some(dependency)));
        let entries = self.iter().zip(before).map(|((dependency, _), before)| dependency.bytes_after(before));
        let of_whole = if self.whole { self.kinds.len() * WHOLE_KIND_BYTES } else { 0 };
        let kinds = allocation(size_of_val(&*self.kinds)) + of_whole;
        let bytes = kinds + LIST_BYTES + rare + entries.sum::<usize>();
        self.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Replaces the entries about objects by their kinds.
    pub(crate) fn collapse(&mut self) {
        self.entries.retain(|(shared, _)| shared.dependency().kind().is_none());
        self.whole = true;
        self.shrink();
    }

    /// Whether a call with these inputs would read the same: the reconciled object is equal but for its
    /// resourceVersion, and every result hashes as before. A set that contains the time stops holding when time moves.
    ///
    /// As the functions below, it counts in `looks` what it took.
    pub(crate) fn holds(&self, inputs: &Inputs<'_>, looks: &Budget) -> bool {
        if self.primary_hash != inputs.primary.content_hash() {
            return false;
        }
        let changed = self.changed_kinds(inputs.snapshot);
        if !changed.is_empty() && (self.whole || self.looks > MAX_LOOKS) {
            return false;
        }
        let budget = Budget::new(MAX_LOOKS);
        let holds = self.entries.iter().all(|(shared, hash)| match shared.dependency().kind() {
            _ if *hash == UNFINISHED => false,
            Some(kind) => !changed.contains(&kind) || shared.hash_of_objects(inputs.snapshot, &budget) == Some(*hash),
            None => inputs.hash_of(shared.dependency()) == Some(*hash),
        });
        looks.spend(budget.spent());
        holds
    }

    /// Whether the result of some dependency about objects has changed. Checked when a call returns: changes while it
    /// ran woke nobody, because the index did not have this set yet. Time and configuration do not count, nor results
    /// that were too large, which would always differ.
    ///
    /// The store's last changes may show that nothing is affected, at any size of the set: a plugin that reads very
    /// much must not be called forever because other objects of the kind change all the time.
    pub(crate) fn is_outdated(&self, store: &Store, looks: &Budget) -> bool {
        let snapshot = store.snapshot();
        let changed = self.changed_kinds(&snapshot);
        if changed.is_empty() || (!self.whole && self.is_unaffected(store, looks)) {
            return false;
        }
        let budget = Budget::new(MAX_LOOKS);
        let mut finished = self.finished_of(&changed);
        let is_outdated = self.whole
            || self.looks > MAX_LOOKS
            || finished.any(|(shared, hash)| shared.hash_of_objects(&snapshot, &budget) != Some(hash));
        looks.spend(budget.spent());
        is_outdated
    }

    /// Whether some result about one of these kinds has changed, as far as results are small enough to compare.
    pub(crate) fn has_changed_of(&self, is_of: impl Fn(&Kind) -> bool, snapshot: &Snapshot, looks: &Budget) -> bool {
        if self.whole || self.looks > MAX_LOOKS {
            return false;
        }
        let mut changed = self.changed_kinds(snapshot);
        changed.retain(|kind| is_of(kind));
        let budget = Budget::new(MAX_LOOKS);
        let mut finished = self.finished_of(&changed);
        let has_changed =
            finished.any(|(shared, hash)| shared.hash_of_objects(snapshot, &budget).is_some_and(|now| now != hash));
        looks.spend(budget.spent());
        has_changed
    }

    /// Whether the store remembers all changes of the kinds since they were read, and none affects a result.
    fn is_unaffected(&self, store: &Store, looks: &Budget) -> bool {
        let budget = Budget::new(MAX_LOOKS);
        let is_relevant = |change: &Change| {
            let mut finished = self.entries.iter().filter(|(_, hash)| *hash != UNFINISHED);
            finished.any(|(shared, _)| !budget.spend(1) || shared.dependency().is_affected(change, &budget))
        };
        let is_unaffected = self.kinds.iter().all(|(kind, changes)| {
            store.changes_since(kind, *changes).is_some_and(|mut changes| !changes.any(is_relevant))
        });
        looks.spend(budget.spent());
        is_unaffected
    }

    fn changed_kinds(&self, snapshot: &Snapshot) -> Vec<&Kind> {
        let changed = self.kinds.iter().filter(|(kind, changes)| snapshot.changes(kind) != *changes);
        changed.map(|(kind, _)| kind).collect()
    }

    /// The entries about these kinds whose results were not too large.
    fn finished_of<'a>(&'a self, kinds: &'a [&Kind]) -> impl Iterator<Item = (&'a SharedDependency, u64)> {
        let is_of = |shared: &SharedDependency| shared.dependency().kind().is_some_and(|kind| kinds.contains(&kind));
        let finished = self.entries.iter().filter(|(_, hash)| *hash != UNFINISHED);
        finished.map(|(shared, hash)| (&**shared, *hash)).filter(move |(shared, _)| is_of(shared))
    }
}
