//! What the writer remembers between events: which objects a list has shown, and which names were deleted lately.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};

use crate::object::{Name, ResourceVersion};

/// Deletions that are remembered for each kind. They guard against a list that is older than the watch, which a server
/// of a highly available control plane may give for some seconds; few clusters delete more of one kind in that time.
const GRAVES: usize = 4_096;

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
pub(super) struct Graves {
    deleted_at: HashMap<Name, ResourceVersion, BuildHasherDefault<DefaultHasher>>,
    order: VecDeque<Name>,
}

impl Graves {
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
