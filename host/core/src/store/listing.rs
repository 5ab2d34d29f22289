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
pub(crate) struct Seen(Vec<u64>);

impl Seen {
    pub(super) fn see(&mut self, slot: u32) {
        let word = (slot / u64::BITS) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (slot % u64::BITS);
    }

    /// The slots below a bound that it has not shown. Costs what they are, and a look at 64 slots at once.
    pub(super) fn unseen(&self, bound: u32) -> impl Iterator<Item = u32> + '_ {
        let bits_of = |word: u32| {
            let mut unseen = !self.0.get(word as usize).copied().unwrap_or_default();
            std::iter::from_fn(move || {
                let bit = unseen.trailing_zeros();
                unseen &= unseen.wrapping_sub(1);
                (bit < u64::BITS).then_some(word * u64::BITS + bit)
            })
        };
        (0..bound.div_ceil(u64::BITS)).flat_map(bits_of).take_while(move |slot| *slot < bound)
    }
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

    /// When a name was deleted, if that is remembered.
    pub(super) fn deleted_at(&self, name: &Name) -> Option<ResourceVersion> {
        self.deleted_at.get(name).copied()
    }

    /// Whether a state of this name is from before its deletion.
    pub(super) fn covers(&self, name: &Name, version: ResourceVersion) -> bool {
        self.deleted_at(name).is_some_and(|deleted_at| version <= deleted_at)
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
