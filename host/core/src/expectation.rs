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
            (Some(live), Some(version)) if live.resource_version >= version => true,
            // The kind as a whole has moved past the write: the object came and went before the view saw it, or etcd was
            // restored and the write undone.
            (_, Some(version)) => snapshot.progress(&self.target.kind) >= version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::Sample;
    use crate::object::{Kind, Name};
    use crate::store::Store;

    #[test]
    fn r2_a_write_is_shown_by_its_object_or_by_a_kind_that_has_moved_past_it() {
        let (kind, name) = (Kind::new("v1", "Pod"), Name::new("a", "x"));
        let write = Expectation {
            target: ObjectRef { kind: kind.clone(), name: name.clone() },
            uid: "u".into(),
            version: Some(ResourceVersion(10)),
        };
        let is_met = |store: &Store| write.is_met_by(&store.snapshot());
        let mut store = Store::new();
        store.apply(Sample::pod("a", "x").version(9).build());
        assert!(!is_met(&store), "an older state");
        store.apply(Sample::pod("a", "y").version(10).build());
        assert!(is_met(&store), "undone, since all of version 10 is there");
        let mut store = Store::new();
        store.apply(Sample::pod("a", "x").version(11).build());
        assert!(is_met(&store));
        store.remove(&kind, &name, ResourceVersion(12));
        assert!(is_met(&store), "it came and went");
    }
}
