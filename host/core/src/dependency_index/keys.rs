//! The keys of one dependency, or those that one object blocks.

use std::collections::BTreeSet;

use crate::workqueue::Key;

/// Some keys. Most dependencies have a single one, which needs no allocation.
#[derive(Debug)]
pub(super) enum Keys {
    One(Key),
    Many(BTreeSet<Key>),
}

impl Keys {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Key> {
        let (one, many) = match self {
            Self::One(key) => (Some(key), None),
            Self::Many(keys) => (None, Some(keys)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(keys) => keys.len(),
        }
    }

    /// Whether the key is new.
    pub(super) fn insert(&mut self, key: &Key) -> bool {
        match self {
            Self::One(known) if known == key => false,
            Self::One(known) => {
                *self = Self::Many([known.clone(), key.clone()].into());
                true
            }
            Self::Many(keys) => keys.insert(key.clone()),
        }
    }

    /// Whether it had the key, and whether no other is left.
    pub(super) fn remove(&mut self, key: &Key) -> (bool, bool) {
        match self {
            Self::One(known) => (known == key, known == key),
            Self::Many(keys) => (keys.remove(key), keys.is_empty()),
        }
    }

    pub(super) fn add_to(&self, all: &mut Vec<Key>) {
        all.extend(self.iter().cloned());
    }
}
