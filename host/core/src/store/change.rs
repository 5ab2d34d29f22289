//! What an event changed of one object in the cache.

use std::sync::Arc;

use crate::object::{Object, ObjectRef};

/// The effect on one object; both sides are None if nothing changed.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The old object; None if it was created.
    pub before: Option<Arc<Object>>,
    /// The new object; None if it was deleted.
    pub after: Option<Arc<Object>>,
}

impl Change {
    /// Whether nothing changed, as by a replayed event.
    pub fn is_empty(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }

    /// The new object, or the deleted one.
    pub fn object(&self) -> Option<&Arc<Object>> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// The object's kind and name.
    pub fn reference(&self) -> Option<ObjectRef> {
        self.object().map(|object| object.reference())
    }
}
