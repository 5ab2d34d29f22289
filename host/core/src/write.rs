//! One write to the API server: the request, its preconditions, and the response or the error by class. Every write is
//! safe to repeat.

use std::sync::Arc;

use crate::contract::{PatchKind, Propagation};
use crate::object::{ObjectRef, ResourceVersion};
use crate::permission::Permission;
use crate::well_known::{HOST, field_manager};

/// Identifies one write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// What the API server said of a write that it accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The object's UID; empty for a delete that found nothing.
    pub uid: Arc<str>,
    /// The version that the write made, or found when it changed nothing.
    pub resource_version: ResourceVersion,
}

/// What the API server, or the way to it, said against a write or read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteError {
    /// What it means for the caller.
    pub class: WriteErrorClass,
    /// The API server's own words.
    pub message: String,
}

impl WriteError {
    /// The result of what was sent before etcd was restored, whatever the API server said of it.
    pub(crate) fn undone() -> Self {
        Self { class: WriteErrorClass::Unknown, message: "etcd was restored before the answer came".to_owned() }
    }
}

/// The classes of write errors that lead to different decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteErrorClass {
    /// 409 on a create, by POST or by an apply of what is to be absent.
    AlreadyExists,
    /// 409: a precondition does not hold: another UID or version is there.
    Conflict,
    /// 409 on an apply: another manager owns a field, and the message names both.
    FieldConflict,
    /// 404: the object, or its namespace, is not there.
    NotFound,
    /// 422 or 400: the API server finds the object wrong.
    Invalid,
    /// 403 by RBAC or admission.
    Denied,
    /// 429, with the delay asked for.
    TooManyRequests {
        /// Retry-After in milliseconds, 0 when not given.
        retry_after_ms: u64,
    },
    /// 429 of an eviction: a PodDisruptionBudget does not allow it now, and the message names it.
    Blocked,
    /// The outcome is unknown: 504, a lost connection, a timeout. The write may have happened.
    Unknown,
    /// 5xx and the like: it did not happen and may succeed later.
    Unavailable,
}

/// One write. Every one is safe to repeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    /// Comes back in the answer.
    pub id: WriteId,
    /// The plugin that wants it, or None for the host itself; the field manager is `mortise/<plugin>` or `mortise`.
    pub plugin: Option<Arc<str>>,
    /// The reconcile that it belongs to; None for what the host does of its own accord, such as Events.
    pub cause: Option<Cause>,
    /// What to do.
    pub op: WriteOp,
    /// The last moment of the monotonic clock at which it may be sent (X7): later it could end when another host leads. None:
    /// any moment will do.
    pub not_after_ms: Option<u64>,
}

/// The reconcile that something is part of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// "podset/PodSet".
    pub controller: Arc<str>,
    /// The reconciled object.
    pub object: ObjectRef,
}

impl Write {
    /// The field manager under which the API server records this write.
    pub fn manager(&self) -> String {
        self.plugin.as_deref().map_or_else(|| HOST.to_owned(), field_manager)
    }
}

/// What a write does.
#[derive(Clone, PartialEq, Debug)]
pub enum WriteOp {
    /// POST of a complete object; the name stands in the body too.
    Create {
        /// What is created.
        target: ObjectRef,
        /// The object as JSON text.
        body: Arc<str>,
    },
    /// Server-side apply.
    Apply {
        /// What is applied to.
        target: ObjectRef,
        /// The object as JSON text.
        body: Arc<str>,
        /// Take fields over from other managers.
        force: bool,
        /// Server-side apply knows no difference between creating and changing; the writer does.
        only_if: Precondition,
    },
    /// DELETE with a UID precondition.
    Delete {
        /// What is deleted.
        target: ObjectRef,
        /// The UID that the snapshot showed.
        uid: Arc<str>,
        /// What happens to its dependents.
        propagation: Propagation,
    },
    /// PATCH of an object that is no child, or of one of its subresources.
    Patch {
        /// What is patched.
        target: ObjectRef,
        /// How the body is read.
        patch_kind: PatchKind,
        /// The patch as JSON text.
        body: Arc<str>,
        /// "status", "scale"; None is the object itself.
        subresource: Option<Arc<str>>,
        /// What has to be there; an absent object is never patched.
        only_if: Precondition,
    },
    /// POST to the eviction subresource of a Pod, with a UID precondition.
    Evict {
        /// The Pod.
        target: ObjectRef,
        /// The UID that the snapshot showed.
        uid: Arc<str>,
    },
    /// JSON merge patch of the status subresource.
    PatchStatus {
        /// What is patched.
        target: ObjectRef,
        /// The patch: carries metadata.uid, so that another object of the same name is a conflict.
        body: Arc<str>,
    },
}

/// What has to be there for an apply or a patch to happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Precondition {
    /// Nothing of that name; an object that is there is answered by [`WriteErrorClass::AlreadyExists`].
    Absent,
    /// The object of this UID; another one, or none, is a [`WriteErrorClass::Conflict`].
    Is(Arc<str>),
    /// It does not matter.
    None,
}

impl WriteOp {
    /// The object that is written.
    pub fn target(&self) -> &ObjectRef {
        match self {
            Self::Create { target, .. }
            | Self::Apply { target, .. }
            | Self::Delete { target, .. }
            | Self::Patch { target, .. }
            | Self::Evict { target, .. }
            | Self::PatchStatus { target, .. } => target,
        }
    }

    /// Whether it makes an object that was not there.
    pub fn creates(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Apply { only_if: Precondition::Absent, .. })
    }

    /// The API verb, as audit logs and RBAC write it; an eviction, which they call a create, has its own.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Apply { .. } | Self::Patch { .. } | Self::PatchStatus { .. } => "patch",
            Self::Delete { .. } => "delete",
            Self::Evict { .. } => "evict",
        }
    }

    /// The right that it takes.
    pub fn permission(&self) -> Permission {
        let (verb, subresource): (_, Option<Arc<str>>) = match self {
            Self::Create { .. } => ("create", None),
            Self::Apply { .. } => ("patch", None),
            Self::Patch { subresource, .. } => ("patch", subresource.clone()),
            Self::PatchStatus { .. } => ("patch", Some("status".into())),
            Self::Delete { .. } => ("delete", None),
            Self::Evict { .. } => ("create", Some("eviction".into())),
        };
        Permission { kind: self.target().kind.clone(), verb, subresource }
    }
}
