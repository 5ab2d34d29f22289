//! Expectations: own writes that the cache must show before their key is reconciled again (R2).
//!
//! The cache shows a create, apply or status write by its version, and a delete when the UID is absent or being
//! deleted. Versions are only compared within one kind.

use std::sync::Arc;

use crate::heap::HeapBytes;
use crate::object::{ObjectRef, ResourceVersion};
use crate::store::Snapshot;

/// One successful write of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// The object.
    pub target: ObjectRef,
    /// Its UID before a delete, or after any other write.
    pub uid: Arc<str>,
    /// Its version after the write; None for a delete.
    pub version: Option<ResourceVersion>,
}

impl Expectation {
    /// Whether the snapshot shows the write, or a newer state.
    pub fn is_met_by(&self, snapshot: &Snapshot) -> bool {
        let live = snapshot.get(&self.target.kind, &self.target.name);
        match (live, self.version) {
            (None, None) => true,
            (Some(live), None) => live.uid != self.uid || live.deleting,
            (Some(live), Some(version)) if live.resource_version >= version => true,
            // The cache has passed the write: the object was deleted meanwhile, or etcd was restored.
            // No watch shows its namespace any more: nothing will.
            (_, Some(version)) => {
                let progress = snapshot.progress(&self.target.kind, &self.target.name.namespace);
                progress.is_none_or(|progress| progress >= version)
            }
        }
    }
}

impl HeapBytes for Expectation {
    fn heap_bytes(&self) -> usize {
        self.target.heap_bytes() + self.uid.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::Sample;
    use crate::object::{Kind, Name};
    use crate::store::Store;

    #[test]
    fn r2_a_write_is_shown_by_its_object_or_by_the_progress_of_its_kind() {
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
        assert!(is_met(&store), "undone, since the kind has reached version 10");
        let mut store = Store::new();
        store.apply(Sample::pod("a", "x").version(11).build());
        assert!(is_met(&store));
        store.remove(&kind, &name, ResourceVersion(12));
        assert!(is_met(&store), "created and deleted");
    }
}
