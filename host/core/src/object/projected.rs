//! The projections of one object: text and hash of the fields that a projection keeps. The object remembers them; a
//! reader of the fields sees a change when the hash differs.

use std::sync::Arc;

use super::Object;
use crate::budget::Budget;
use crate::projection::Projection;

/// Budget units for projecting a KiB of text. One unit is a look at an object, such as finding a remembered projection.
const CUT_UNITS_PER_KIB: u64 = 16;

impl Object {
    /// Budget units for a pass over the object's text.
    pub(crate) fn text_units(&self) -> u64 {
        (self.json.len() as u64 / 1_024 + 1) * CUT_UNITS_PER_KIB
    }
}

impl Projection {
    /// The kept fields as one JSON object, members in the order of the object's own text. The object remembers the
    /// result.
    pub fn project(&self, object: &Object) -> Arc<str> {
        self.answer(object).0
    }

    /// A hash of what [`Self::project`] returns; for whole objects, [`Object::content_hash`]. Never 0.
    pub fn projected_hash(&self, object: &Object) -> u64 {
        if self.is_whole() {
            return object.content_hash();
        }
        object.projections.hash_of(self).unwrap_or_else(|| self.memoized(object).1)
    }

    /// [`Self::projected_hash`] within a budget; None when the budget is used up. A remembered result costs nothing,
    /// nor does the hash of a whole object, which is computed once for each change of it.
    pub(crate) fn projected_hash_within(&self, object: &Object, budget: &Budget) -> Option<u64> {
        if self.is_whole() {
            return Some(object.content_hash());
        }
        if let Some(hash) = object.projections.hash_of(self) {
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
