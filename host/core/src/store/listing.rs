//! What the writer remembers between events: the objects that a list has shown, tombstones, and recent changes.

use std::collections::VecDeque;

use super::change::Change;
use crate::map::Map;
use crate::object::{Name, ResourceVersion};

/// Tombstones of each kind. A list from a lagging API server may be some seconds older than the watch; few clusters
/// delete more objects of one kind in that time.
const MAX_TOMBSTONES: usize = 4_096;

/// Remembered changes of each kind. They cover the milliseconds of a guest call; each keeps an outdated object in
/// memory.
const MAX_RECENT: usize = 64;
/// Bytes of the text of these outdated objects: some hundred of usual size, or two of the largest. A kind whose changes are
/// not remembered is compared by hashes.
const MAX_RECENT_BYTES: usize = 4 << 20;

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

    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut((slot / u64::BITS) as usize) {
            *word &= !(1 << (slot % u64::BITS));
        }
    }

    pub(super) fn has(&self, slot: u32) -> bool {
        let word = self.0.get((slot / u64::BITS) as usize);
        word.is_some_and(|word| word & (1 << (slot % u64::BITS)) != 0)
    }

    /// The slots from the first one to below a bound that it has not shown. Skips 64 shown slots at a time.
    pub(super) fn unseen(&self, first: u32, bound: u32) -> impl Iterator<Item = u32> + '_ {
        let bits_of = |word: u32| {
            let mut unseen = !self.0.get(word as usize).copied().unwrap_or_default();
            std::iter::from_fn(move || {
                let bit = unseen.trailing_zeros();
                unseen &= unseen.wrapping_sub(1);
                (bit < u64::BITS).then_some(word * u64::BITS + bit)
            })
        };
        let words = first / u64::BITS..bound.div_ceil(u64::BITS);
        words.flat_map(bits_of).skip_while(move |slot| *slot < first).take_while(move |slot| *slot < bound)
    }
}

/// The last deletions, by name, with their versions.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    deleted_at: Map<Name, ResourceVersion>,
    order: VecDeque<Name>,
}

impl Tombstones {
    pub(super) fn add(&mut self, name: &Name, version: ResourceVersion) {
        if let Some(known) = self.deleted_at.get_mut(name) {
            *known = version.max(*known);
            return;
        }
        if self.order.len() == MAX_TOMBSTONES
            && let Some(oldest) = self.order.pop_front()
        {
            self.deleted_at.remove(&oldest);
        }
        self.order.push_back(name.clone());
        self.deleted_at.insert(name.clone(), version);
    }

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
pub(super) struct Recent {
    changes: VecDeque<Change>,
    bytes: usize,
}

impl Recent {
    pub(super) fn add(&mut self, change: &Change) {
        self.changes.push_back(change.clone());
        self.bytes += outdated_bytes(change);
        while self.changes.len() > MAX_RECENT || self.bytes > MAX_RECENT_BYTES {
            let oldest = self.changes.pop_front();
            self.bytes -= oldest.as_ref().map_or(0, outdated_bytes);
        }
    }

    /// The last `count` changes; None if fewer are remembered.
    pub(super) fn last(&self, count: u64) -> Option<impl Iterator<Item = &Change>> {
        let first = self.changes.len().checked_sub(usize::try_from(count).ok()?)?;
        Some(self.changes.range(first..))
    }
}

/// Bytes of the object that nothing else may keep.
fn outdated_bytes(change: &Change) -> usize {
    change.before.as_ref().map_or(0, |before| before.json().len())
}
