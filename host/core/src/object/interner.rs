//! One copy of every string that repeats among objects. Decoding puts strings in; nothing here knows what they mean.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::identity::Kind;

/// Below this many strings a sweep would free less than it costs.
const FIRST_SWEEP_AT: usize = 4_096;

/// One copy of every string that repeats among objects: kinds, namespaces, labels, owners.
///
/// Strings that no object uses any longer are dropped in sweeps whose cost is spread over the insertions before them,
/// so label values that never come back do not pile up. The hasher has no random key: a run is the same each time.
#[derive(Debug)]
pub struct Interner {
    strings: HashSet<Arc<str>, BuildHasherDefault<DefaultHasher>>,
    sweep_at: usize,
    /// Where a text is put together before it gets its exact size.
    pub(super) scratch: String,
}

impl Default for Interner {
    fn default() -> Self {
        Self { strings: HashSet::default(), sweep_at: FIRST_SWEEP_AT, scratch: String::new() }
    }
}

impl Interner {
    /// The one copy of this string.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        if self.strings.len() >= self.sweep_at {
            self.strings.retain(|string| Arc::strong_count(string) > 1);
            self.sweep_at = (self.strings.len() * 2).max(FIRST_SWEEP_AT);
        }
        let new: Arc<str> = text.into();
        self.strings.insert(new.clone());
        new
    }

    /// How many different strings are held.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether nothing was interned yet.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    pub(super) fn kind(&mut self, api_version: &str, kind: &str) -> Kind {
        Kind { api_version: self.intern(api_version), kind: self.intern(kind) }
    }
}
