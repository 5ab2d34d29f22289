//! Strings that repeat among objects are kept once.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::identity::Kind;

/// With fewer strings a sweep would free less than it costs.
const FIRST_SWEEP_AT: usize = 4_096;

/// One copy of every kind, namespace, label and owner.
///
/// Each time the strings have doubled, a sweep drops those that no object uses, so old label values do not accumulate.
/// The hasher has no random key, which keeps runs reproducible.
#[derive(Debug)]
pub struct Interner {
    pub(super) strings: HashSet<Arc<str>, BuildHasherDefault<DefaultHasher>>,
    sweep_at: usize,
    /// The decoder's buffer, in which a text is assembled before it gets its exact size.
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

    pub(super) fn kind(&mut self, api_version: &str, kind: &str) -> Kind {
        Kind { api_version: self.intern(api_version), kind: self.intern(kind) }
    }
}
