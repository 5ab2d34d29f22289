//! The objects of a kind by the value of one field. The index is built in pieces, between events, so that it does not
//! block the event loop.

use std::sync::Arc;

use imbl::OrdMap;

use super::postings::Postings;
use crate::field_selector::{FieldPath, FieldRequirement};
use crate::object::Object;

/// Slots by the hash of a value. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct FieldIndex {
    pub(super) path: FieldPath,
    /// Some dependency is a query by this field. An unused index is kept until another field needs its place, because
    /// the next call may use it again.
    pub(super) is_selected: bool,
    postings: Postings,
    /// The next slot to add; None once the index is complete.
    next: Option<u32>,
}

impl FieldIndex {
    pub(super) fn new(path: FieldPath) -> Self {
        Self { path, is_selected: true, postings: Postings::default(), next: Some(0) }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.next.is_none()
    }

    /// The slots whose objects may meet a requirement; None if the index is incomplete or of another field.
    pub(super) fn walk(&self, requirement: &FieldRequirement) -> Option<impl Iterator<Item = u32> + '_> {
        let is_usable = self.is_complete() && self.path == requirement.path;
        is_usable.then(|| self.postings.walk(requirement.hash()))
    }

    /// Whether a slot has this value.
    pub(super) fn has(&self, slot: u32, hash: Option<u64>) -> bool {
        hash.is_some_and(|hash| self.postings.contains(hash, slot))
    }

    /// Replaces the value of a slot, which may be added twice.
    pub(super) fn replace(&mut self, slot: u32, was: Option<u64>, is: Option<u64>) {
        if !self.has(slot, is) {
            was.iter().for_each(|hash| self.postings.remove(*hash, slot));
            is.iter().for_each(|hash| self.postings.insert(*hash, slot));
        }
    }

    /// Adds objects of about `bytes` bytes. Returns the bytes that are left once the index is complete.
    pub(super) fn build(&mut self, objects: &OrdMap<u32, Arc<Object>>, mut bytes: usize) -> Option<usize> {
        while let Some(next) = self.next {
            let Some((slot, object)) = objects.range(next..).next() else {
                self.next = None;
                break;
            };
            let hash = self.path.value_in(object).map(|value| self.path.hash_of(&value));
            self.replace(*slot, None, hash);
            self.next = slot.checked_add(1);
            match bytes.checked_sub(object.json().len()) {
                Some(left) => bytes = left,
                None => return None,
            }
        }
        Some(bytes)
    }
}
