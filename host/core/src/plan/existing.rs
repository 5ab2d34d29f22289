//! The children of one owner that a snapshot shows, by kind and name, and which of them were found for a child of the
//! outcome. Most plans find every object that exists, and then nothing else has to be looked up. It does not know what
//! is wanted.

use std::cell::Cell;
use std::sync::Arc;

use crate::manifest::{ControllerSpec, OwnedKind};
use crate::object::owner::Owner;
use crate::object::{Kind, Object, ObjectRef};
use crate::store::Snapshot;

pub(super) struct Existing<'a> {
    kinds: Vec<(&'a Kind, Vec<Child<'a>>)>,
}

struct Child<'a> {
    live: &'a Arc<Object>,
    is_found: Cell<bool>,
}

/// Whether an object of an owner is a child that the host created. A built-in primary also has children that Kubernetes
/// created, such as a Deployment's ReplicaSets: they have no child key, and the host never writes them.
pub(super) fn is_ours(spec: &ControllerSpec, owned: Option<&OwnedKind>, live: &Object) -> bool {
    (!spec.builtin || live.child_key.is_some()) && owned.is_none_or(|owned| owned.scope.contains(live))
}

impl<'a> Existing<'a> {
    pub(super) fn of(spec: &'a ControllerSpec, primary: &Object, snapshot: &'a Snapshot) -> Self {
        let of_kind = |owned: &'a OwnedKind| {
            let live = snapshot.owned(&owned.kind, &Owner::of(primary, owned.tracked));
            let ours = live.filter(|live| is_ours(spec, Some(owned), live));
            (&owned.kind, ours.map(|live| Child { live, is_found: Cell::new(false) }).collect())
        };
        Self { kinds: spec.owns.iter().map(of_kind).collect() }
    }

    /// The child of a name, which then counts as found. They are in the order of [`Snapshot::owned`].
    pub(super) fn find(&self, target: &ObjectRef) -> Option<&'a Arc<Object>> {
        let (_, children) = self.kinds.iter().find(|(kind, _)| **kind == target.kind)?;
        let name = (&target.name.name, &target.name.namespace);
        let at =
            children.binary_search_by(|child| (&child.live.name.name, &child.live.name.namespace).cmp(&name)).ok()?;
        children[at].is_found.set(true);
        Some(children[at].live)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'a Arc<Object>> {
        self.kinds.iter().flat_map(|(_, children)| children).map(|child| child.live)
    }

    /// Those that nobody has found by name.
    pub(super) fn not_found(&self) -> impl Iterator<Item = &'a Arc<Object>> {
        self.kinds
            .iter()
            .flat_map(|(_, children)| children)
            .filter(|child| !child.is_found.get())
            .map(|child| child.live)
    }
}
