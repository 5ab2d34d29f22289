//! Objects that name an owner and that it does not want, and that are not deleted: those that its plugin was not shown, and
//! those in places where its plugin may not delete them. Users who may write there make such objects, so a denied delete of
//! one is no failure of the owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::heap::{HeapBytes, tree};
use crate::left_out::LeftOut;
use crate::object::{Kind, Object, ObjectRef};

/// How long no delete is tried in a place, as of any right that is missing: a person grants it and then checks whether it works.
pub(crate) const RETRY_MS: u64 = 15_000;
/// How long a place is remembered after that, so that it is reported once.
const FORGOTTEN_MS: u64 = 600_000;
/// Places that are remembered. An owner of which more have such objects forgets them all, and finds them again.
const MAX_PLACES: usize = 100;

/// What a plan does not delete for being unwanted.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spared<'a> {
    /// What the call of the outcome was not shown.
    pub left_out: &'a [LeftOut],
    /// Where deletes are denied, and the time.
    pub undeletable: Option<(&'a Undeletable, u64)>,
}

impl Spared<'_> {
    /// Whether an object is spared.
    pub(crate) fn has(&self, live: &Object) -> bool {
        self.left_out.iter().any(|left_out| left_out.has(live))
            || self.undeletable.is_some_and(|(undeletable, now_ms)| undeletable.has(&live.reference(), now_ms))
    }
}

/// Kinds with namespaces, each until when nothing of the owner's is deleted there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Undeletable(BTreeMap<(Kind, Arc<str>), u64>);

impl Undeletable {
    /// The API server has denied a delete. Whether that is news.
    pub fn deny(&mut self, target: &ObjectRef, now_ms: u64) -> bool {
        if self.0.len() >= MAX_PLACES {
            self.0.clear();
        }
        let place = (target.kind.clone(), Arc::clone(&target.name.namespace));
        self.0.insert(place, now_ms + RETRY_MS).is_none()
    }

    /// Forgets the places where none was denied for long.
    pub fn end(&mut self, now_ms: u64) {
        self.0.retain(|_, until_ms| *until_ms + FORGOTTEN_MS > now_ms);
    }

    /// When the next delete is tried.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.0.values().copied().filter(|until_ms| *until_ms > now_ms).min()
    }

    /// Whether there is no such place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is in a place where none is tried now.
    fn has(&self, target: &ObjectRef, now_ms: u64) -> bool {
        let until_ms = self.0.get(&(target.kind.clone(), Arc::clone(&target.name.namespace)));
        until_ms.is_some_and(|until_ms| *until_ms > now_ms)
    }
}

impl HeapBytes for Undeletable {
    /// Kinds are shared with the manifest.
    fn heap_bytes(&self) -> usize {
        let namespaces = self.0.keys().map(|(_, namespace)| namespace.heap_bytes());
        tree(self.0.len(), size_of::<((Kind, Arc<str>), u64)>()) + namespaces.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Name;

    #[test]
    fn a_place_is_spared_for_a_while_and_reported_once_and_a_hundred_are_remembered() {
        let at = |namespace: &str| ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new(namespace, "x") };
        let mut places = Undeletable::default();
        assert!(places.deny(&at("a"), 0) && !places.deny(&at("a"), 1));
        assert!(places.has(&at("a"), RETRY_MS) && !places.has(&at("b"), RETRY_MS));
        assert!(!places.has(&at("a"), RETRY_MS + 1));
        assert_eq!([RETRY_MS, RETRY_MS + 1].map(|now_ms| places.next_ms(now_ms)), [Some(RETRY_MS + 1), None]);
        places.end(RETRY_MS + FORGOTTEN_MS);
        assert!(!places.deny(&at("a"), RETRY_MS + 1), "it was reported");
        places.end(2 * RETRY_MS + 1 + FORGOTTEN_MS);
        assert!(places.is_empty());
        for number in 0..=MAX_PLACES {
            places.deny(&at(&format!("n{number}")), 2);
            assert!(places.0.len() <= MAX_PLACES);
        }
    }
}
