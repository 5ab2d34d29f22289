//! The sets of keys that changes have affected and that are too large to wake at once. Each controller's part of them is walked
//! in pieces, in turn with the others: in the order of the keys, so that a key of several sets wakes once, and each set once
//! however many changes affect it meanwhile. It knows no sets, only their names and how far they were walked.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::object::{Name, ObjectRef};
use crate::workqueue::ControllerId;

/// Keys of one controller in a row.
pub(super) const PIECE: usize = 64;
/// Sets of one controller that are walked together, each of which costs every key a comparison. With more, all its keys
/// wake.
const MAX_SETS: usize = 16;

/// The name of a set of keys. When it is walked it may have other keys, or none: those that have left it were called since.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum KeySet {
    /// Those of a share that any change under an index key affects.
    Whole(u64, Arc<str>),
    /// Those of one dependency, by its position.
    Dependency(u32),
    /// Those that an object blocks.
    Blocked(ObjectRef),
}

/// The walk through the sets of one controller.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) sets: BTreeSet<KeySet>,
    /// The last key that woke.
    pub(super) after: Option<Name>,
    /// The time of the first change.
    pub(super) since_ms: u64,
    /// What changes have affected since it began, and since when.
    again: (BTreeSet<KeySet>, u64),
}

#[derive(Debug, Default)]
pub(super) struct Due {
    walks: BTreeMap<ControllerId, Walk>,
    turns: VecDeque<ControllerId>,
}

impl Due {
    /// A change affects a controller's keys of a set. False if all its keys are to wake, since there are too many sets.
    pub(super) fn add(&mut self, now_ms: u64, controller: ControllerId, set: &KeySet) -> bool {
        let walk = match self.walks.entry(controller) {
            Entry::Occupied(walk) => walk.into_mut(),
            Entry::Vacant(none) => {
                self.turns.push_back(controller);
                none.insert(Walk::default())
            }
        };
        let (sets, since_ms) = match walk.after {
            None => (&mut walk.sets, &mut walk.since_ms),
            Some(_) => (&mut walk.again.0, &mut walk.again.1),
        };
        if sets.is_empty() {
            *since_ms = now_ms;
        }
        sets.insert(set.clone());
        let fits = sets.len() <= MAX_SETS;
        if !fits {
            self.walks.remove(&controller);
            self.turns.retain(|other| *other != controller);
        }
        fits
    }

    /// The walk whose turn it is, until [`Self::walked`].
    pub(super) fn next(&mut self) -> Option<(ControllerId, Walk)> {
        let controller = self.turns.pop_front()?;
        Some((controller, self.walks.remove(&controller)?))
    }

    /// A piece was walked up to a key; None: to the end.
    pub(super) fn walked(&mut self, controller: ControllerId, mut walk: Walk, last: Option<Name>) {
        if last.is_none() {
            (walk.sets, walk.since_ms) = std::mem::take(&mut walk.again);
        }
        if !walk.sets.is_empty() {
            walk.after = last;
            self.walks.insert(controller, walk);
            self.turns.push_back(controller);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}
