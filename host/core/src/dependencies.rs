//! The dependencies of one call: all that it read of its snapshot, its clock and its configuration, with a hash of each answer.
//!
//! What a call read is what wakes its key (W1): `dependency_index.rs` finds the keys that a change concerns. And a call whose
//! answers all hash as before need not be repeated (W2): [`Dependencies::holds`] computes every hash again without putting
//! any JSON together.
//!
//! Both happen on the one event loop, and guests decide how much there is to compute. So no hash is computed again for a kind
//! that has not changed, nor twice for keys that share a dependency; and what would take more looks at objects than a bound
//! counts as changed: then the guest is called, on a thread of its own and at its plugin's expense.
//!
//! `view.rs` records; nothing here knows a guest or a queue.

use std::sync::Arc;

use crate::budget::Budget;
use crate::object::{Kind, Object};
use crate::store::{Change, Snapshot, Store};

use self::dependency::UNFINISHED;
pub use self::dependency::{Dependency, SharedDependency};
use self::recorder::Reservation;

pub(crate) mod dependency;
pub(crate) mod recorder;
#[cfg(test)]
mod tests;

/// Dependencies that one read set remembers one by one. With more, it remembers the kinds that were read, and any change of
/// those counts: who asks a thousand things about a kind, one by one, has read most of what there is of it.
pub const MAX_DEPENDENCIES: usize = 1_000;
/// Bytes of the entries that one read set remembers one by one, with the same end. Read sets are kept for each
/// reconciled object, and what stands in them is the guest's choice: a thousand `get`s take some 150 KiB, the few
/// entries of most plugins less than one.
pub const MAX_DEPENDENCY_BYTES: usize = 256 << 10;
/// Looks at objects that asking all entries of a set again may take: what a plugin asks that reads every Pod of two
/// hundred full nodes. A set that took more to answer counts as changed when one of its kinds has.
pub const MAX_LOOKS: u64 = 20_000;

/// What a call was or would be given.
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
}

impl Inputs<'_> {
    /// The hash of an answer that is not about objects.
    fn hash_of(&self, dependency: &Dependency) -> Option<u64> {
        match dependency {
            Dependency::Now => Some(dependency::hash_of_time(self.now_unix_ms)),
            Dependency::Config => Some(dependency::hash_of_text(self.config)),
            Dependency::Get(_) | Dependency::Owned { .. } | Dependency::List(_) | Dependency::Keys(_) => None,
        }
    }
}

/// Every dependency of one call, each once.
#[derive(Clone, Debug, Default)]
pub struct Dependencies {
    /// The reconciled object's content: every call is given it, whether it reads it or not.
    primary_hash: u64,
    entries: Vec<(Arc<SharedDependency>, u64)>,
    /// The kinds that were read, each with [`Snapshot::changes`] as it was then.
    kinds: Vec<(Kind, u64)>,
    /// The kinds count as read whole, and no dependency about objects is remembered; see [`MAX_DEPENDENCIES`] and
    /// [`MAX_DEPENDENCY_BYTES`].
    whole: bool,
    /// Looks at objects that the answers took.
    looks: u64,
    /// Its part of [`recorder::MemoryQuota`], when it is large. Clones share it.
    held: Option<Arc<Reservation>>,
}

impl Dependencies {
    /// The entries, in the order in which the call first read them, with the hashes of their answers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Dependency, u64)> {
        self.entries.iter().map(|(shared, hash)| (shared.dependency(), *hash))
    }

    /// The entries about objects, which an index makes shared ones.
    pub(crate) fn of_objects_mut(&mut self) -> impl Iterator<Item = &mut Arc<SharedDependency>> {
        let entries = self.entries.iter_mut().map(|(shared, _)| shared);
        entries.filter(|shared| shared.dependency().kind().is_some())
    }

    /// As [`Self::of_objects_mut`], to look at.
    pub(crate) fn of_objects(&self) -> impl Iterator<Item = &Arc<SharedDependency>> {
        self.entries.iter().map(|(shared, _)| shared).filter(|shared| shared.dependency().kind().is_some())
    }

    /// The kinds of which any change counts.
    pub fn whole_kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|_| self.whole).map(|(kind, _)| kind)
    }

    /// [`Object::content_hash`] of the reconciled object that the call was given.
    pub fn primary_hash(&self) -> u64 {
        self.primary_hash
    }

    /// What the entries take in memory, where what several share counts for each.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(dependency, _)| dependency.bytes()).sum()
    }

    /// Whether a call with these inputs would read what this one has read: the reconciled object is the same but for its
    /// resourceVersion, and every answer hashes as before. A set with the time in it stops holding when time moves.
    pub fn holds(&self, inputs: &Inputs<'_>) -> bool {
        self.primary_hash == inputs.primary.content_hash() && self.answers_hold(inputs)
    }

    /// As [`Self::holds`], without comparing the reconciled object.
    pub fn answers_hold(&self, inputs: &Inputs<'_>) -> bool {
        let changed = self.changed_kinds(inputs.snapshot);
        if !changed.is_empty() && (self.whole || self.looks > MAX_LOOKS) {
            return false;
        }
        let budget = Budget::new(MAX_LOOKS);
        self.entries.iter().all(|(shared, hash)| match shared.dependency().kind() {
            _ if *hash == UNFINISHED => false,
            Some(kind) => !changed.contains(&kind) || shared.hash_of_objects(inputs.snapshot, &budget) == Some(*hash),
            None => inputs.hash_of(shared.dependency()) == Some(*hash),
        })
    }

    /// Whether the store now gives another answer to some dependency about objects. To be asked when a call returns: what
    /// changed while it ran had no set yet that it could touch, so it woke nobody. Time and configuration do not count, nor
    /// answers that were too large: those would differ each time.
    ///
    /// The store's last changes tell that nothing was touched, whatever computing the answers would take: a plugin that reads
    /// very much must not be called again and again because something else of the kind changes all the time.
    pub fn is_outdated(&self, store: &Store) -> bool {
        let snapshot = store.snapshot();
        let changed = self.changed_kinds(&snapshot);
        if changed.is_empty() {
            return false;
        }
        if self.whole {
            return true;
        }
        if self.is_untouched_since(store) {
            return false;
        }
        let budget = Budget::new(MAX_LOOKS);
        let mut asked = self.finished_of(&changed);
        self.looks > MAX_LOOKS || asked.any(|(shared, hash)| shared.hash_of_objects(&snapshot, &budget) != Some(hash))
    }

    /// Whether some answer about one of these kinds is another one now. An answer that is too large to be compared does not
    /// count, nor any of a set that remembers no entries.
    pub fn has_changed_of(&self, is_of: impl Fn(&Kind) -> bool, snapshot: &Snapshot) -> bool {
        if self.whole || self.looks > MAX_LOOKS {
            return false;
        }
        let mut changed = self.changed_kinds(snapshot);
        changed.retain(|kind| is_of(kind));
        let budget = Budget::new(MAX_LOOKS);
        let mut asked = self.finished_of(&changed);
        asked.any(|(shared, hash)| shared.hash_of_objects(snapshot, &budget).is_some_and(|now| now != hash))
    }

    /// Whether the store remembers all that has changed of the kinds that were read, and nothing of it is in an answer.
    fn is_untouched_since(&self, store: &Store) -> bool {
        let budget = Budget::new(MAX_LOOKS);
        let is_touched = |change: &Change| {
            let mut finished = self.entries.iter().filter(|(_, hash)| *hash != UNFINISHED);
            finished.any(|(shared, _)| !budget.spend(1) || shared.dependency().is_touched(change, &budget))
        };
        self.kinds.iter().all(|(kind, changes)| {
            store.changes_since(kind, *changes).is_some_and(|mut changes| !changes.any(is_touched))
        })
    }

    /// The kinds that were read and have changed since.
    fn changed_kinds(&self, snapshot: &Snapshot) -> Vec<&Kind> {
        let changed = self.kinds.iter().filter(|(kind, changes)| snapshot.changes(kind) != *changes);
        changed.map(|(kind, _)| kind).collect()
    }

    /// The entries about these kinds whose answers were not too large.
    fn finished_of<'a>(&'a self, kinds: &'a [&Kind]) -> impl Iterator<Item = (&'a SharedDependency, u64)> {
        let is_asked = |shared: &SharedDependency| shared.dependency().kind().is_some_and(|kind| kinds.contains(&kind));
        let finished = self.entries.iter().filter(|(_, hash)| *hash != UNFINISHED);
        finished.map(|(shared, hash)| (&**shared, *hash)).filter(move |(shared, _)| is_asked(shared))
    }
}
