//! The keys of one dependency.

use std::collections::BTreeSet;

use crate::workqueue::Key;

/// The keys of one dependency. Most dependencies have a single key, which needs no allocation.
#[derive(Debug)]
pub(super) enum Keys {
    One(Key),
    Many(BTreeSet<Key>),
}

impl Keys {
    pub(super) fn first(&self) -> Option<&Key> {
        match self {
            Self::One(key) => Some(key),
            Self::Many(keys) => keys.first(),
        }
    }

    pub(super) fn insert(&mut self, key: &Key) {
        match self {
            Self::One(known) if known == key => {}
            Self::One(known) => *self = Self::Many([known.clone(), key.clone()].into()),
            Self::Many(keys) => _ = keys.insert(key.clone()),
        }
    }

    /// Whether no key is left.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        match self {
            Self::One(known) => known == key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }

    pub(super) fn add_to(&self, all: &mut Vec<Key>) {
        match self {
            Self::One(key) => all.push(key.clone()),
            Self::Many(keys) => all.extend(keys.iter().cloned()),
        }
    }
}
