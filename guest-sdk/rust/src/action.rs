//! Writes to objects that are not children, as data. The host sends those that would change something, and only what
//! the manifest declares under `writes`.

use crate::json::Json;
use crate::object::ObjectKey;

/// A write to an object that is not a child, for [`crate::Outcome::action`]. Its kind and verb have to be declared:
/// `#[reconciler(writes("apps/v1/Deployment", "patch"))]`.
///
/// An outcome may contain the same actions each time. If the kind is declared under `reads` too, the host compares an
/// action with its view and does not send what would change nothing. If not, it sends an action once for as long as
/// outcomes contain it unchanged, and once more after a restart of the host.
///
/// The host writes actions after children and before the status: applies and patches first, then deletes and evictions.
/// The first action that the API server refuses ends the plan, so that no status describes a write that failed. An
/// eviction that a PodDisruptionBudget does not allow is no such refusal: the host continues, names the budget in the
/// condition `Evicting`, and tries the eviction again.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Create or change, field by field.
    Apply(Apply),
    /// Change an existing object.
    Patch(Patch),
    /// Delete an object that the view shows.
    Delete(Delete),
    /// Evict a Pod that the view shows, as `kubectl drain` does.
    Evict(ObjectKey),
}

impl Action {
    /// The eviction of a Pod, which respects PodDisruptionBudgets.
    pub fn evict(pod: ObjectKey) -> Self {
        Self::Evict(pod)
    }

    /// The object that it writes; None for an apply, whose object names itself. For tests.
    pub fn target(&self) -> Option<&ObjectKey> {
        match self {
            Self::Apply(_) => None,
            Self::Patch(Patch { target, .. }) | Self::Delete(Delete { target, .. }) | Self::Evict(target) => {
                Some(target)
            }
        }
    }
}

/// Server-side apply of a partial object under the plugin's own field manager. Two reconciled objects that apply to the
/// same third object share the manager, so each removes the fields that the other applied.
#[derive(Clone, PartialEq, Debug)]
pub struct Apply {
    /// The object: apiVersion, kind, metadata.name, metadata.namespace for namespaced kinds, and the fields to own. At
    /// most 512 KiB.
    pub object: Json,
    /// Take over fields that other managers own, instead of failing with a conflict.
    pub force: bool,
}

impl Apply {
    /// An apply that fails with a conflict when another manager owns one of the fields.
    pub fn new(object: impl Into<Json>) -> Self {
        Self { object: object.into(), force: false }
    }

    /// Takes over fields that other managers own.
    #[must_use]
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }
}

/// A patch of an existing object. While the object does not exist, the condition `Stalled` of the reconciled object
/// says so.
#[derive(Clone, PartialEq, Debug)]
pub struct Patch {
    /// The object to patch.
    pub target: ObjectKey,
    /// The format of the body.
    pub kind: PatchKind,
    /// The patch, of at most 512 KiB. Of metadata it may change labels and annotations.
    pub body: Json,
    /// "status", "scale"; None patches the object itself.
    pub subresource: Option<String>,
}

/// The format of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatchKind {
    /// RFC 7396: an object whose members replace those of the same name, and whose nulls remove them.
    Merge,
    /// RFC 6902: a list of operations.
    Json,
    /// Kubernetes' strategic merge patch, for built-in kinds alone: lists are merged by their keys.
    Strategic,
}

impl Patch {
    /// A JSON merge patch.
    pub fn merge(target: ObjectKey, body: impl Into<Json>) -> Self {
        Self { target, kind: PatchKind::Merge, body: body.into(), subresource: None }
    }

    /// A JSON patch. Begin with a `test` operation when a later one depends on the object's state.
    pub fn json(target: ObjectKey, operations: impl Into<Json>) -> Self {
        Self { target, kind: PatchKind::Json, body: operations.into(), subresource: None }
    }

    /// A strategic merge patch, of a built-in kind. The host always sends one that contains lists: only the API server
    /// can tell whether it changes anything.
    pub fn strategic(target: ObjectKey, body: impl Into<Json>) -> Self {
        Self { target, kind: PatchKind::Strategic, body: body.into(), subresource: None }
    }

    /// Patches a subresource, "status" or "scale", which the manifest has to declare: `writes("apps/v1/Deployment",
    /// "patch", subresource = "scale")`.
    #[must_use]
    pub fn subresource(mut self, name: impl Into<String>) -> Self {
        self.subresource = Some(name.into());
        self
    }
}

/// A delete of an object that the view shows, with its UID as a precondition. The host sends nothing for an object that
/// does not exist or is being deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delete {
    /// The object to delete.
    pub target: ObjectKey,
    /// What happens to its dependents.
    pub propagation: Propagation,
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// Deleted after it.
    Background,
    /// Deleted before it.
    Foreground,
    /// Not deleted.
    Orphan,
}

impl Delete {
    /// A delete with background propagation.
    pub fn new(target: ObjectKey) -> Self {
        Self { target, propagation: Propagation::Background }
    }

    /// Sets what happens to the dependents.
    #[must_use]
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }
}

impl From<Apply> for Action {
    fn from(apply: Apply) -> Self {
        Self::Apply(apply)
    }
}

impl From<Patch> for Action {
    fn from(patch: Patch) -> Self {
        Self::Patch(patch)
    }
}

impl From<Delete> for Action {
    fn from(delete: Delete) -> Self {
        Self::Delete(delete)
    }
}
