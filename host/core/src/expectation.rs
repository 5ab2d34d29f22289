//! Own writes that a view has to show before their key is looked at again (R2).
//!
//! A create, apply or status write is shown by its version, a delete by the UID being gone or going. Versions are only
//! compared within the kind that was written.

use std::sync::Arc;

use crate::object::{ObjectRef, ResourceVersion};
use crate::store::Snapshot;

/// One write of ours that was answered with success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// What was written.
    pub target: ObjectRef,
    /// The object's UID, before a delete or after everything else.
    pub uid: Arc<str>,
    /// The version that the write made; None for a delete.
    pub version: Option<ResourceVersion>,
}

impl Expectation {
    /// True when the snapshot shows the write, or something newer.
    pub fn is_met_by(&self, snapshot: &Snapshot) -> bool {
        let live = snapshot.get(&self.target.kind, &self.target.name);
        match (live, self.version) {
            (None, None) => true,
            (Some(live), None) => live.uid != self.uid || live.deleting,
            (Some(live), Some(version)) => live.resource_version >= version,
            // It came and went before the view saw it; the kind as a whole has moved past the write.
            (None, Some(version)) => snapshot.progress(&self.target.kind) >= version,
        }
    }
}
