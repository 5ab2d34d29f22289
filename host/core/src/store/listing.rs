//! What the writer remembers between events: which objects a list has shown, which names were deleted lately, and what
//! has changed last.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::Change;
use crate::object::{Name, ResourceVersion};

/// Deletions that are remembered for each kind. They guard against a list that is older than the watch, which a server
/// of a highly available control plane may give for some seconds; few clusters delete more of one kind in that time.
const GRAVES: usize = 4_096;

/// Changes that are remembered for each kind. They tell what happened while a guest call ran, which takes milliseconds;
/// each keeps one outdated object in memory.
const RECENT: usize = 64;

/// The slots of a table that a list has shown, one bit each.
#[derive(Debug, Default)]
pub(super) struct Listing {
    seen: Vec<u64>,
}

impl Listing {
    pub(super) fn see(&mut self, slot: u32) {
        let (word, bit) = place(slot);
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        self.seen[word] |= bit;
    }

    pub(super) fn has_seen(&self, slot: u32) -> bool {
        let (word, bit) = place(slot);
        self.seen.get(word).is_some_and(|seen| seen & bit != 0)
    }
}

fn place(slot: u32) -> (usize, u64) {
    ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS))
}

/// Names that were deleted lately, and when.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    deleted_at: HashMap<Name, ResourceVersion, BuildHasherDefault<DefaultHasher>>,
    order: VecDeque<Name>,
}

impl Tombstones {
    pub(super) fn dig(&mut self, name: &Name, version: ResourceVersion) {
        if let Some(known) = self.deleted_at.get_mut(name) {
            *known = version.max(*known);
            return;
        }
        if self.order.len() == GRAVES
            && let Some(oldest) = self.order.pop_front()
        {
            self.deleted_at.remove(&oldest);
        }
        self.order.push_back(name.clone());
        self.deleted_at.insert(name.clone(), version);
    }

    /// Whether a state of this name is from before its deletion.
    pub(super) fn covers(&self, name: &Name, version: ResourceVersion) -> bool {
        self.deleted_at.get(name).is_some_and(|deleted_at| version <= *deleted_at)
    }
}

/// The last changes of a kind, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<Change>);

impl Recent {
    pub(super) fn add(&mut self, change: &Change) {
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back(change.clone());
    }

    /// The last so many; None when not as many are remembered.
    pub(super) fn last(&self, count: u64) -> Option<impl Iterator<Item = &Change>> {
        let first = self.0.len().checked_sub(usize::try_from(count).ok()?)?;
        Some(self.0.range(first..))
    }
}
