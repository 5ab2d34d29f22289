//! The objects of a kind by the value of one field. It is built piece by piece beside the events of the kind, so that a field
//! that is selected by for the first time does not hold up the event loop.

use std::sync::Arc;

use imbl::OrdMap;

use super::table::Postings;
use crate::field_selector::{FieldPath, FieldRequirement};
use crate::object::Object;

/// Slots by the hash of a value. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct FieldIndex {
    pub(super) path: FieldPath,
    /// Somebody depends on a query by this field. Without, it stays until another field needs its place: whether somebody
    /// does may change with each call.
    pub(super) is_selected: bool,
    postings: Postings,
    /// The slots that are looked at next; None once all are in.
    next: Option<u32>,
}

impl FieldIndex {
    pub(super) fn new(path: FieldPath) -> Self {
        Self { path, is_selected: true, postings: Postings::default(), next: Some(0) }
    }

    /// The slots whose objects may meet a requirement; None when that cannot be told yet, or never by this index.
    pub(super) fn walk(&self, requirement: &FieldRequirement) -> Option<impl Iterator<Item = u32> + '_> {
        let can_tell = self.next.is_none() && self.path == requirement.path;
        can_tell.then(|| self.postings.walk(requirement.hash()))
    }

    /// Another state of a slot. Whether it was looked at yet does not matter: to add it twice changes nothing.
    pub(super) fn replace(&mut self, slot: u32, before: Option<&Object>, after: Option<&Object>) {
        let hash_of = |object: &Object| self.path.value_in(object).map(|value| self.path.hash_of(&value));
        let is = after.and_then(hash_of);
        if is.is_some_and(|hash| self.postings.contains(hash, slot)) {
            return;
        }
        let was = before.and_then(hash_of);
        was.map(|hash| self.postings.remove(hash, slot));
        is.map(|hash| self.postings.insert(hash, slot));
    }

    /// Looks at as many objects as have so many bytes. Returns what is left of these once all objects are in.
    pub(super) fn build(&mut self, objects: &OrdMap<u32, Arc<Object>>, mut bytes: usize) -> Option<usize> {
        while let Some(next) = self.next {
            let Some((slot, object)) = objects.range(next..).next() else {
                self.next = None;
                break;
            };
            self.replace(*slot, None, Some(object));
            self.next = slot.checked_add(1);
            match bytes.checked_sub(object.json().len()) {
                Some(left) => bytes = left,
                None => return None,
            }
        }
        Some(bytes)
    }
}
