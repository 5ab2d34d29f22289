//! Which keys wake by which change: by what their last calls read, and by the names that hold them up.

use std::collections::{BTreeMap, BTreeSet};

use crate::dependencies::{Dependencies, IndexKey};
use crate::object::ObjectRef;
use crate::store::Change;
use crate::workqueue::Key;

/// The index.
#[derive(Debug, Default)]
pub(super) struct WakeIndex {
    by_dependency: BTreeMap<IndexKey, BTreeSet<Key>>,
    by_conflict: BTreeMap<ObjectRef, BTreeSet<Key>>,
}

impl WakeIndex {
    pub fn add(&mut self, key: &Key, reads: &Dependencies) {
        for index_key in reads.index_keys() {
            self.by_dependency.entry(index_key).or_default().insert(key.clone());
        }
    }

    pub fn remove(&mut self, key: &Key, reads: &Dependencies) {
        for index_key in reads.index_keys() {
            if let Some(keys) = self.by_dependency.get_mut(&index_key) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_dependency.remove(&index_key);
                }
            }
        }
    }

    /// Puts `after` in the place of `before` as the objects that hold a key up.
    pub fn replace_conflicts(&mut self, key: &Key, before: &[ObjectRef], after: &[ObjectRef]) {
        for target in before {
            if let Some(keys) = self.by_conflict.get_mut(target) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_conflict.remove(target);
                }
            }
        }
        for target in after {
            self.by_conflict.entry(target.clone()).or_default().insert(key.clone());
        }
    }

    /// The keys that this object holds up.
    pub fn held_up_by(&self, object: &ObjectRef) -> BTreeSet<Key> {
        self.by_conflict.get(object).cloned().unwrap_or_default()
    }

    /// The keys that may have read what has changed.
    pub fn may_depend_on(&self, change: &Change) -> BTreeSet<Key> {
        change.index_keys().iter().filter_map(|key| self.by_dependency.get(key)).flatten().cloned().collect()
    }
}
