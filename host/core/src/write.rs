//! Writes to the API server: the request, its precondition, and the response or the class of its error. Every write is
//! safe to repeat.

use std::sync::Arc;

use crate::contract::{PatchKind, Propagation};
use crate::digest::Digest;
use crate::generated::Draws;
use crate::heap::HeapBytes;
use crate::object::{ObjectRef, ResourceVersion};
use crate::permission::Permission;
use crate::service_account::ServiceAccount;
use crate::well_known::{HOST, field_manager};

pub mod request;

/// Identifies one write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// The response to a write that the API server accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The object's UID; empty for a delete that found nothing.
    pub uid: Arc<str>,
    /// The version that the write made, or the current one when it changed nothing.
    pub resource_version: ResourceVersion,
}

/// The error of a write or a live read, from the API server or the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteError {
    /// The class, by which callers decide.
    pub class: WriteErrorClass,
    /// The message of the API server or the connection.
    pub message: String,
}

impl WriteError {
    /// The result of a request that was sent before etcd was restored, whatever its response.
    pub(crate) fn undone() -> Self {
        Self { class: WriteErrorClass::Unknown, message: "etcd was restored before the response came".to_owned() }
    }
}

/// The classes of write errors that lead to different decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteErrorClass {
    /// 409 on a create, by POST or by an apply with [`Precondition::Absent`].
    AlreadyExists,
    /// 409: the object has another UID or version than the precondition.
    Conflict,
    /// 409 on an apply: another manager owns a field, and the message names both.
    FieldConflict,
    /// 404: the object or its namespace does not exist.
    NotFound,
    /// 422 or 400: the API server rejects the object.
    Invalid,
    /// 403 by RBAC or admission.
    Denied,
    /// 429.
    TooManyRequests {
        /// Retry-After in milliseconds, 0 if absent.
        retry_after_ms: u64,
    },
    /// 429 of an eviction: a PodDisruptionBudget, which the message names, does not allow it now.
    Blocked,
    /// 504, a lost connection, a timeout: the write may have succeeded.
    Unknown,
    /// Other 5xx: the write failed and may succeed later.
    Unavailable,
}

/// One write, which is safe to repeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    /// Returned with the result.
    pub id: WriteId,
    /// The plugin, or None for the host; the field manager is `mortise/<plugin>` or `mortise`.
    pub plugin: Option<Arc<str>>,
    /// The reconcile that it belongs to; None for the host's own writes, such as Events.
    pub cause: Option<Cause>,
    /// Whose request it is; the host's, if there is none.
    pub service_account: Option<Arc<ServiceAccount>>,
    /// The request.
    pub op: WriteOp,
    /// The last moment of the monotonic clock at which it may be sent (X7); a later request could end when another host
    /// leads. None: no limit.
    pub not_after_ms: Option<u64>,
}

/// The reconcile that a write or a fact belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// "podset/PodSet".
    pub controller: Arc<str>,
    /// The reconciled object.
    pub object: ObjectRef,
    /// The component of the object's last call, which a newer one may have replaced; before its first, the serving one.
    pub digest: Digest,
}

impl Write {
    /// The field manager of this write.
    pub fn manager(&self) -> String {
        self.plugin.as_deref().map_or_else(|| HOST.to_owned(), field_manager)
    }
}

/// The request of a write.
#[derive(Clone, PartialEq, Debug)]
pub enum WriteOp {
    /// POST of a complete object; the body has the name too.
    Create {
        /// The object.
        target: ObjectRef,
        /// The object as JSON text.
        body: Arc<str>,
    },
    /// Server-side apply.
    Apply {
        /// The object.
        target: ObjectRef,
        /// The object as JSON text.
        body: Arc<str>,
        /// Take fields over from other managers.
        force: bool,
        /// Whether it may create or change; server-side apply alone does either.
        only_if: Precondition,
        /// Values that are not in the body. They are read of the live object or made when the write is sent, and the
        /// version that was read is a further precondition, so that a late or repeated request replaces no value.
        draws: Option<Draws>,
    },
    /// DELETE with a UID precondition.
    Delete {
        /// The object.
        target: ObjectRef,
        /// The UID in the snapshot.
        uid: Arc<str>,
        /// The propagation policy.
        propagation: Propagation,
    },
    /// PATCH of an object or of one of its subresources. Of a child, it removes members of exact maps.
    Patch {
        /// The object.
        target: ObjectRef,
        /// How the body is read.
        patch_kind: PatchKind,
        /// The patch as JSON text.
        body: Arc<str>,
        /// "status", "scale"; None is the object itself.
        subresource: Option<Arc<str>>,
        /// The object to expect; an absent object is never patched.
        only_if: Precondition,
    },
    /// POST to the eviction subresource of a Pod, with a UID precondition.
    Evict {
        /// The Pod.
        target: ObjectRef,
        /// The UID in the snapshot.
        uid: Arc<str>,
    },
    /// JSON merge patch of the status subresource.
    PatchStatus {
        /// The object.
        target: ObjectRef,
        /// The patch, with metadata.uid, so that another object of the same name is a conflict.
        body: Arc<str>,
    },
}

/// The precondition of an apply or a patch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Precondition {
    /// No object of this name; an existing one is [`WriteErrorClass::AlreadyExists`].
    Absent,
    /// The object with this UID; another one, or none, is a [`WriteErrorClass::Conflict`].
    Is(Arc<str>),
    /// The object with this UID in this version; another one, or none, is a [`WriteErrorClass::Conflict`].
    Unchanged {
        /// The UID in the snapshot.
        uid: Arc<str>,
        /// The version in the snapshot.
        version: ResourceVersion,
    },
    /// None.
    None,
}

impl WriteOp {
    /// The object.
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

    /// The UID that its object has to have; None: any, or it is in the body.
    pub fn uid(&self) -> Option<&str> {
        let only_if = match self {
            Self::Delete { uid, .. } | Self::Evict { uid, .. } => return Some(uid),
            Self::Apply { only_if, .. } | Self::Patch { only_if, .. } => only_if,
            Self::Create { .. } | Self::PatchStatus { .. } => return None,
        };
        match only_if {
            Precondition::Is(uid) | Precondition::Unchanged { uid, .. } => Some(uid),
            Precondition::Absent | Precondition::None => None,
        }
    }

    /// Whether it creates an object. An apply without precondition does if the cache does not show its target; the
    /// objects of a kind without informer are never shown, so there each such apply counts.
    pub fn creates(&self, is_shown: impl FnOnce(&ObjectRef) -> bool) -> bool {
        match self {
            Self::Create { .. } | Self::Apply { only_if: Precondition::Absent, .. } => true,
            Self::Apply { target, only_if: Precondition::None, .. } => !is_shown(target),
            _ => false,
        }
    }

    /// Bytes in memory; those of its text may be shared.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.target().heap_bytes() + self.body().map_or(0, HeapBytes::heap_bytes)
    }

    /// The bytes of the text that is sent.
    pub fn text_bytes(&self) -> usize {
        self.body().map_or(0, |body| body.len())
    }

    fn body(&self) -> Option<&Arc<str>> {
        match self {
            Self::Create { body, .. }
            | Self::Apply { body, .. }
            | Self::Patch { body, .. }
            | Self::PatchStatus { body, .. } => Some(body),
            Self::Delete { .. } | Self::Evict { .. } => None,
        }
    }

    /// The API verb as in audit logs and RBAC, except "evict", which is a create there.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Apply { .. } | Self::Patch { .. } | Self::PatchStatus { .. } => "patch",
            Self::Delete { .. } => "delete",
            Self::Evict { .. } => "evict",
        }
    }

    /// The permission that it needs, in every namespace.
    pub fn permission(&self) -> Permission {
        let (verb, subresource): (_, Option<Arc<str>>) = match self {
            Self::Create { .. } => ("create", None),
            Self::Apply { .. } => ("patch", None),
            Self::Patch { subresource, .. } => ("patch", subresource.clone()),
            Self::PatchStatus { .. } => ("patch", Some("status".into())),
            Self::Delete { .. } => ("delete", None),
            Self::Evict { .. } => ("create", Some("eviction".into())),
        };
        Permission { kind: self.target().kind.clone(), verb, subresource, namespace: None }
    }
}
