//! Who is asked a second time: webhooks and policies that want to see what was changed after them. Input: who was asked, and
//! whether the object changed. Output: who is asked again. It must not know what they change.

use std::collections::BTreeSet;

use serde_json::Value;

/// What tells one that may change objects from all others.
pub(super) type Id = (String, usize);

/// The rounds of one request.
#[derive(Default)]
pub(super) struct Rounds {
    /// Those that were asked, want to be asked again, and have not seen the last change.
    before: BTreeSet<Id>,
    again: BTreeSet<Id>,
    changed: bool,
    second: bool,
    /// The object after the first round.
    left: Option<Value>,
}

impl Rounds {
    /// Whether a second round is due.
    pub(super) fn again(&self) -> bool {
        self.changed
    }

    /// Begins the second round, on an object that others may have changed.
    pub(super) fn second(&mut self, object: &Value) {
        self.second = true;
        if self.left.as_ref() != Some(object) {
            self.again.append(&mut self.before);
        }
    }

    pub(super) fn asks(&self, id: &Id) -> bool {
        !self.second || self.again.contains(id)
    }

    /// One changed the object: those before it may want to see that.
    pub(super) fn changes(&mut self) {
        self.changed = true;
        self.again.append(&mut self.before);
    }

    /// One was asked; whether it wants to be asked again.
    pub(super) fn asked(&mut self, id: Id, wants_again: bool) {
        if wants_again {
            self.before.insert(id);
        }
    }

    /// All were asked.
    pub(super) fn end(&mut self, object: &Value) {
        // With nobody who wants to be asked again it does not matter what was left.
        self.left = (!self.before.is_empty()).then(|| object.clone());
    }
}
