//! Rejections: what of an object's earlier outcomes could not be written. They are data; how a call reads them is the
//! context's matter.

use crate::object::ObjectKey;

/// A write of an earlier outcome that could not be carried out, from [`Context::rejected`].
///
/// [`Context::rejected`]: crate::Context::rejected
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// The child, or the target of the action.
    pub target: ObjectKey,
    /// The child's key in the outcome; None for the target of an action.
    pub child: Option<String>,
    /// Why, as in the condition `Stalled`: `ChildExists` (another owner's object has the child's name),
    /// `ReservedNamespace` (the child would be in the host's own namespace), `NotFound` (there is nothing to patch),
    /// `Invalid` and `Forbidden` (the API server refuses it), `FieldConflict` (another manager owns a field).
    pub reason: String,
    /// What happened, for a person.
    pub message: String,
}
