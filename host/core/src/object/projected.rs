//! The projections of one object: text and hash of the fields that a projection keeps, remembered by the object. What
//! makes another version of it different for a reader is the hash; who reads is not known here.

use std::sync::Arc;

use super::Object;
use crate::budget::Budget;
use crate::projection::Projection;

/// Looks at an object, as budgets count them, that cutting fields out of a KiB of it is worth: a look finds a result that
/// is remembered, a cut reads the text.
const CUT_UNITS_PER_KIB: u64 = 16;

impl Object {
    /// What reading through the object's text takes of a budget.
    pub(crate) fn text_units(&self) -> u64 {
        (self.json.len() as u64 / 1_024 + 1) * CUT_UNITS_PER_KIB
    }
}

impl Projection {
    /// The kept fields as one JSON object, members in the order of the object's own text. The object remembers the
    /// result, so asking again costs a pointer.
    pub fn project(&self, object: &Object) -> Arc<str> {
        self.answer(object).0
    }

    /// A hash of what [`Self::project`] returns; for whole objects, [`Object::content_hash`]. Never 0.
    pub fn projected_hash(&self, object: &Object) -> u64 {
        if self.is_whole() { object.content_hash() } else { self.memoized(object).1 }
    }

    /// As [`Self::projected_hash`]. A result that is not remembered takes units of the budget; None when there are not
    /// enough. That of a whole object takes none: it is computed once for each change of the object.
    pub(crate) fn projected_hash_within(&self, object: &Object, budget: &Budget) -> Option<u64> {
        if self.is_whole() {
            return Some(object.content_hash());
        }
        if let Some((_, hash)) = object.projections.get(self) {
            return Some(hash);
        }
        budget.spend(object.text_units()).then(|| self.memoized(object).1)
    }

    /// Text and hash in one lookup.
    pub(crate) fn answer(&self, object: &Object) -> (Arc<str>, u64) {
        if self.is_whole() {
            return (Arc::clone(&object.json), object.content_hash());
        }
        self.memoized(object)
    }

    fn memoized(&self, object: &Object) -> (Arc<str>, u64) {
        object.projections.get_or_cut(self, &object.json)
    }
}
