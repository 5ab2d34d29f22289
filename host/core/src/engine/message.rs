//! What the machines of the engine send each other. `Engine::step` delivers messages in their order until none is left, so no
//! machine calls another, and each can be driven alone.

use std::sync::Arc;

use crate::component::Version;
use crate::dependency_index::FieldChange;
use crate::kube_event::EventRecord;
use crate::manifest::Manifest;
use crate::object::{Kind, Object};
use crate::permission::Permission;
use crate::workqueue::Key;
use crate::write::{Cause, WriteError, WriteOp, Written};

/// One message, by the machine that it is for.
#[derive(Debug)]
pub(super) enum Message {
    ToLifecycle(ToLifecycle),
    ToReconciler(ToReconciler),
    ToOutbox(ToOutbox),
    /// To the store: nobody watches this kind any more.
    Forget(Kind),
    /// To the store: queries began or ceased to select by a field.
    Field(FieldChange),
    /// To all: the API server's versions went backwards, by what the informer of this kind has seen. Whether that lists anew
    /// by itself.
    Restored {
        kind: Kind,
        lists: bool,
        message: String,
    },
}

/// What the Lifecycle learns from the others.
#[derive(Debug)]
pub(super) enum ToLifecycle {
    /// The API server refused a right that some key of the plugin needs.
    Denied { plugin: Arc<str>, permission: Permission, message: String },
    /// That right was used since, or no key needs it any more.
    Permitted { plugin: Arc<str>, permission: Permission },
    /// Calls of the plugin end in a fault; the sentence is about one of them.
    Faulted { plugin: Arc<str>, message: String },
    /// None does any more.
    Recovered { plugin: Arc<str> },
    /// The plugin is over its budget of writes.
    Throttled { plugin: Arc<str>, message: String },
    /// The write of a Plugin object.
    Wrote { write: PluginWrite, op: WriteOp, result: Result<Written, WriteError> },
    /// This host may write again, or for the first time.
    MayWrite,
    /// Kinds have lost their owner: whoever waits for one may have it now.
    KindsReleased,
}

/// What the Reconciler learns from the others.
#[derive(Debug)]
pub(super) enum ToReconciler {
    /// A version of a plugin takes over.
    Serve { plugin: Arc<str>, version: Version, manifest: Arc<Manifest> },
    /// A plugin is gone.
    Withdraw { plugin: Arc<str> },
    /// Whether the controller of this plugin for this kind may be called, as far as its informers go.
    SetReady { plugin: Arc<str>, primary: Kind, ready: bool },
    /// The plugin is over its budget of writes: its keys wait until then.
    Throttle { plugin: Arc<str>, until_ms: u64 },
    /// Look at every object: this host has come to lead.
    Resync,
    /// The write of a key's plan.
    Wrote { key: Key, op: WriteOp, result: Result<Written, WriteError> },
}

/// What the Outbox is asked to send. Whoever asks has checked that the host may write.
#[derive(Debug)]
pub(super) enum ToOutbox {
    /// One write.
    Send(Box<Outgoing>),
    /// An Event about an object, unless it was recorded often enough.
    Record { plugin: Option<Arc<str>>, about: Arc<Object>, record: EventRecord },
    /// A CustomResourceDefinition.
    Register { plugin: Arc<str>, crd: Arc<str>, body: Arc<str> },
}

/// A write on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Whose field manager it has; None is the host's own.
    pub plugin: Option<Arc<str>>,
    pub cause: Option<Cause>,
    pub op: WriteOp,
    pub owner: Owner,
}

/// Who is sent the result of a write.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    Key(Key),
    Lifecycle(PluginWrite),
    /// An Event: nobody waits for it.
    Nobody,
}

/// Which write of a Plugin object, by the plugin's name.
#[derive(Clone, Debug)]
pub(super) enum PluginWrite {
    /// It is created, or its status is patched.
    Object(Arc<str>),
    /// It is deleted, since its plugin is gone.
    Orphan(Arc<str>),
}
