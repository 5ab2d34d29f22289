//! Writes to objects that are no children, as data. Nothing here does anything: the host sends what would change something,
//! and only where the manifest declares it under `writes`.

use crate::json::Json;
use crate::object::ObjectKey;

/// A write to an object that is no child, for [`crate::Outcome::action`]. Its kind and what is done have to be declared:
/// `#[reconciler(writes("apps/v1/Deployment", "patch"))]`.
///
/// The host compares an action with its view before it sends it, so that the same outcome may want the same actions each
/// time: what stands already is not written again. For that the kind has to be declared under `reads` too. A kind that is
/// only written is sent what is wanted of it once for as long as it is wanted in the same words, and once more after a start
/// of the host.
///
/// Actions come after children and before the status: applies and patches first, then deletes and evictions. The first one
/// that the API server refuses ends the plan, so that a status never tells of what did not happen. An eviction that a
/// PodDisruptionBudget does not allow is no such refusal: the rest goes on, the condition `Evicting` names the budget, and the
/// Pod's turn comes again.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Create or change, field by field.
    Apply(Apply),
    /// Change what is there.
    Patch(Patch),
    /// Delete what the view shows.
    Delete(Delete),
    /// Evict the Pod that the view shows, as `kubectl drain` does.
    Evict(ObjectKey),
}

impl Action {
    /// The eviction of a Pod, which respects PodDisruptionBudgets.
    pub fn evict(pod: ObjectKey) -> Self {
        Self::Evict(pod)
    }

    /// What is written, unless it is an apply, whose object says so itself. For tests.
    pub fn target(&self) -> Option<&ObjectKey> {
        match self {
            Self::Apply(_) => None,
            Self::Patch(Patch { target, .. }) | Self::Delete(Delete { target, .. }) | Self::Evict(target) => {
                Some(target)
            }
        }
    }
}

/// Server-side apply of a partial object under the plugin's own field manager. Two objects that apply to the same third one
/// are one manager, so each takes away what the other has added.
#[derive(Clone, PartialEq, Debug)]
pub struct Apply {
    /// The object: apiVersion, kind, metadata.name, metadata.namespace for namespaced kinds, and the fields to own. At most
    /// 512 KiB.
    pub object: Json,
    /// Take fields over that other managers own, instead of failing with a conflict.
    pub force: bool,
}

impl Apply {
    /// An apply that leaves the fields of other managers to them.
    pub fn new(object: impl Into<Json>) -> Self {
        Self { object: object.into(), force: false }
    }

    /// Takes fields over that other managers own.
    #[must_use]
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }
}

/// A patch of an object that is there; one that is not is told in the condition `Stalled` until it comes.
#[derive(Clone, PartialEq, Debug)]
pub struct Patch {
    /// What is patched.
    pub target: ObjectKey,
    /// How the body is read.
    pub kind: PatchKind,
    /// The patch, of at most 512 KiB. Of metadata it may change labels and annotations.
    pub body: Json,
    /// "status", "scale"; None patches the object itself.
    pub subresource: Option<String>,
}

/// How the body of a patch is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatchKind {
    /// RFC 7396: an object whose members replace, and whose nulls remove.
    Merge,
    /// RFC 6902: a list of operations.
    Json,
    /// Kubernetes' own, for its own kinds alone: lists are merged by their keys.
    Strategic,
}

impl Patch {
    /// A JSON merge patch: an object whose members replace those of the same name, and whose nulls remove them.
    pub fn merge(target: ObjectKey, body: impl Into<Json>) -> Self {
        Self { target, kind: PatchKind::Merge, body: body.into(), subresource: None }
    }

    /// A JSON patch: a list of operations. Begin with a `test` where an operation depends on what is there.
    pub fn json(target: ObjectKey, operations: impl Into<Json>) -> Self {
        Self { target, kind: PatchKind::Json, body: operations.into(), subresource: None }
    }

    /// A strategic merge patch, which only Kubernetes' own kinds take. One with lists is compared by the API server alone.
    pub fn strategic(target: ObjectKey, body: impl Into<Json>) -> Self {
        Self { target, kind: PatchKind::Strategic, body: body.into(), subresource: None }
    }

    /// Patches a subresource, "status" or "scale", which the manifest has to declare: `writes("apps/v1/Deployment", "patch",
    /// subresource = "scale")`.
    #[must_use]
    pub fn subresource(mut self, name: impl Into<String>) -> Self {
        self.subresource = Some(name.into());
        self
    }
}

/// A delete of the object that the view shows; one that is not there, or is being deleted, needs none. The host adds the UID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delete {
    /// What is deleted.
    pub target: ObjectKey,
    /// What happens to its dependents.
    pub propagation: Propagation,
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// Collected afterwards.
    Background,
    /// Collected first.
    Foreground,
    /// Left.
    Orphan,
}

impl Delete {
    /// A delete whose dependents are collected afterwards.
    pub fn new(target: ObjectKey) -> Self {
        Self { target, propagation: Propagation::Background }
    }

    /// Says what happens to the dependents.
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
