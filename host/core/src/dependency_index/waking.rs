//! What a change wakes: some keys at once, and the others in sets that are walked. So many keys or sets that neither is
//! quick are those of their shares, all of whose keys wake in pieces.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::due::KeySet;
use super::keys::Keys;
use crate::object::ObjectRef;
use crate::workqueue::Key;

/// Keys that a change returns of dependencies with several, some hundred microseconds of waking. The rest is walked.
const MAX_AT_ONCE: usize = 256;
/// Keys that it returns of dependencies with one, a millisecond of waking. To walk a set for each would take longer.
pub(super) const MAX_ONES_AT_ONCE: usize = 1_024;
/// Sets that one change begins to walk, some hundred microseconds.
pub(super) const MAX_SETS_AT_ONCE: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Waking {
    keys: Vec<Key>,
    /// How many dependencies and conflicts the keys are of.
    sources: usize,
    sets: Vec<KeySet>,
    /// Shares of which all keys wake.
    pub(super) shares: BTreeSet<Arc<str>>,
}

impl Waking {
    /// The keys of a dependency of a share wake.
    pub(super) fn add(&mut self, keys: &Keys, set: impl FnOnce() -> KeySet, share: &Arc<str>) {
        let most = if keys.len() > 1 { MAX_AT_ONCE } else { MAX_ONES_AT_ONCE };
        if self.keys.len() + keys.len() > most {
            return self.add_set(set, share);
        }
        self.sources += 1;
        keys.add_to(&mut self.keys);
    }

    /// A set of a share's keys wakes.
    pub(super) fn add_set(&mut self, set: impl FnOnce() -> KeySet, share: &Arc<str>) {
        if self.sets.len() < MAX_SETS_AT_ONCE {
            self.sets.push(set());
        } else if !self.shares.contains(share) {
            self.shares.insert(Arc::clone(share));
        }
    }

    /// The keys wake that an object blocks.
    pub(super) fn add_blocked(&mut self, keys: &Keys, by: ObjectRef) {
        if self.keys.len() + keys.len() > MAX_AT_ONCE {
            self.sets.push(KeySet::Blocked(by));
        } else {
            self.sources += 1;
            keys.add_to(&mut self.keys);
        }
    }

    /// The keys, sorted and unique, the sets and the shares.
    pub(super) fn into_parts(mut self) -> (Vec<Key>, Vec<KeySet>, BTreeSet<Arc<str>>) {
        if self.sources > 1 {
            self.keys.sort();
            self.keys.dedup();
        }
        (self.keys, self.sets, self.shares)
    }
}
