//! The keys that any change under an index key affects: those that have read a kind whole, and those of shares with more
//! dependencies under the index key than are compared. It does not know what they have read.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::map::Map;
use crate::workqueue::Key;

/// Keys by the hash of an index key and their share, each with the number of reasons.
#[derive(Debug, Default)]
pub(super) struct Whole(Map<u64, BTreeMap<Arc<str>, BTreeMap<Key, u32>>>);

impl Whole {
    pub(super) fn add(&mut self, index_key: u64, share: &Arc<str>, key: &Key) {
        let of_share = self.0.entry(index_key).or_default().entry(Arc::clone(share)).or_default();
        *of_share.entry(key.clone()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, index_key: u64, share: &Arc<str>, key: &Key) {
        let Some(shares) = self.0.get_mut(&index_key) else { return };
        let Some(keys) = shares.get_mut(share) else { return };
        let Some(reasons) = keys.get_mut(key) else { return };
        *reasons -= 1;
        if *reasons == 0 {
            keys.remove(key);
        }
        if keys.is_empty() {
            shares.remove(share);
        }
        if shares.is_empty() {
            self.0.remove(&index_key);
        }
    }

    /// The shares with keys under an index key.
    pub(super) fn shares(&self, index_key: u64) -> impl Iterator<Item = &Arc<str>> {
        let shares = if self.0.is_empty() { None } else { self.0.get(&index_key) };
        shares.into_iter().flat_map(BTreeMap::keys)
    }

    /// The keys of a share, from one on.
    pub(super) fn from(
        &self,
        index_key: u64,
        share: &str,
        first: (Bound<Key>, Bound<Key>),
    ) -> impl Iterator<Item = &Key> {
        let keys = self.0.get(&index_key).and_then(|shares| shares.get(share));
        keys.into_iter().flat_map(move |keys| keys.range(first.clone())).map(|(key, _)| key)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
