//! Posting lists of the cache's indexes: the slots of the objects with a hash, in their order.

use imbl::OrdSet;

/// Slots by a hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Postings(OrdSet<(u64, u32)>);

impl Postings {
    pub(super) fn insert(&mut self, hash: u64, slot: u32) {
        self.0.insert((hash, slot));
    }

    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        self.0.remove(&(hash, slot));
    }

    pub(super) fn contains(&self, hash: u64, slot: u32) -> bool {
        self.0.contains(&(hash, slot))
    }

    /// The lowest slot of a hash from `from` on. Unlike a walk it allocates nothing.
    pub(super) fn first(&self, hash: u64, from: u32) -> Option<u32> {
        self.0.get_next(&(hash, from)).filter(|(found, _)| *found == hash).map(|(_, slot)| *slot)
    }

    pub(super) fn walk(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        self.0.range((hash, 0)..=(hash, u32::MAX)).map(|(_, slot)| *slot)
    }
}
