//! The messages between the engine's machines. `Engine::step` delivers them in order until none is left. No machine
//! calls another, so each can be tested alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::component::Version;
use crate::dependency_index::FieldChange;
use crate::dynamic_kind::KindState;
use crate::event::Sending;
use crate::kube_event::EventRecord;
use crate::manifest::Manifest;
use crate::memory::Pressure;
use crate::object::{Kind, Object};
use crate::permission::Permission;
use crate::rights::Namespaces;
use crate::scope::Slice;
use crate::service_account::ServiceAccount;
use crate::workqueue::Key;
use crate::write::{Cause, WriteError, WriteOp, Written};

/// One message, by its receiver.
#[derive(Debug)]
pub(super) enum Message {
    ToLifecycle(ToLifecycle),
    ToReconciler(ToReconciler),
    ToOutbox(ToOutbox),
    /// To the store: the kind has no informer any more.
    Forget(Kind),
    /// To the store: a watch of a kind has ended; others show what is still read.
    Drop(Slice),
    /// To the store: the first query selects by this field, or the last one no longer does.
    Field(FieldChange),
    /// To all: a watch noticed that the API server's versions went backwards. `lists`: it relists by
    /// itself.
    Restored {
        slice: Slice,
        lists: bool,
        message: String,
    },
}

/// Messages to the Lifecycle.
#[derive(Debug)]
pub(super) enum ToLifecycle {
    /// The API server denied a permission that a key of the plugin needs.
    Denied { plugin: Arc<str>, permission: Permission, message: String },
    /// A write with that permission succeeded since, or no key needs it any more.
    Permitted { plugin: Arc<str>, permission: Permission },
    /// Why HTTP requests of the plugin are not sent: nobody has granted their origins what they carry. None: all are sent.
    NotGranted { plugin: Arc<str>, message: Option<Arc<str>> },
    /// The first key of the plugin whose call ended in a fault.
    Faulted { plugin: Arc<str>, message: String },
    /// No key of the plugin has a fault any more.
    Recovered { plugin: Arc<str> },
    /// The plugin is over its budget of writes or HTTP requests.
    Throttled { plugin: Arc<str>, message: String },
    /// The plugin takes more than any other, so many bytes, while memory is scarce.
    Costliest { plugin: Arc<str>, bytes: usize },
    /// The result of a write of a Plugin object.
    Wrote { write: PluginWrite, op: WriteOp, result: Result<Written, WriteError> },
    /// This host may write, for the first time or again.
    MayWrite,
    /// Kinds have lost their owner: plugins that wait for one are tried again.
    KindsReleased,
    /// The first key of the plugin names this dynamic kind.
    Named { plugin: Arc<str>, kind: Kind },
    /// No key of the plugin names it any more.
    Released { plugin: Arc<str>, kind: Kind },
}

/// Messages to the Reconciler.
#[derive(Debug)]
pub(super) enum ToReconciler {
    /// A version of a plugin takes over.
    Serve { plugin: Arc<str>, version: Version, manifest: Arc<Manifest> },
    /// The plugin was removed.
    Withdraw { plugin: Arc<str> },
    /// Whether the informers of this controller are current, so that it may be called.
    SetReady { plugin: Arc<str>, primary: Kind, ready: bool },
    /// The state of a dynamic kind that keys of the plugin name.
    SetKind { plugin: Arc<str>, kind: Kind, state: KindState },
    /// Whether no call of the plugin begins. What is under way ends.
    Suspend { plugin: Arc<str>, suspended: bool },
    /// Whether the plugin has one call at a time.
    Confine { plugin: Arc<str>, confined: bool },
    /// A share is over its write budget: its keys wait until then.
    Throttle { share: Arc<str>, until_ms: u64 },
    /// How short memory is, and bytes of the objects that were made for shares.
    Press { pressure: Pressure, objects: BTreeMap<Arc<str>, usize> },
    /// This host has come to lead: enqueue every object.
    Resync,
    /// The result of a write of a key's plan.
    Wrote { key: Key, op: WriteOp, result: Result<Written, WriteError> },
}

/// Messages to the Outbox. The sender has checked that the host may write.
#[derive(Debug)]
pub(super) enum ToOutbox {
    /// One write.
    Send(Box<Outgoing>),
    /// One HTTP request.
    Request(Box<Sending>),
    /// An Event about an object, subject to the rate limit of Events (X10).
    Record { by: Sender, about: Arc<Object>, record: EventRecord },
    /// A CustomResourceDefinition.
    Register { plugin: Arc<str>, crd: Arc<str>, body: Arc<str> },
}

/// Who sends a write; the host, by default.
#[derive(Clone, Default, Debug)]
pub(super) struct Sender {
    /// The plugin whose field manager and budget it uses.
    pub plugin: Option<Arc<str>>,
    /// Whose request it is.
    pub service_account: Option<Arc<ServiceAccount>>,
    /// Where it may act, of what has a namespace; everywhere, if there are none.
    pub namespaces: Option<Namespaces>,
    /// A budget of the plugin's own, instead of the host's.
    pub writes_per_minute: Option<u32>,
}

/// A write to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub by: Sender,
    pub cause: Option<Cause>,
    pub op: WriteOp,
    pub owner: Owner,
}

/// The receiver of a write's result.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    Key(Key),
    Lifecycle(PluginWrite),
    /// An Event has no receiver; the next one of its flow follows.
    Event(EventFlow),
}

/// Events that are sent in turn: those of a share's guests, or those that the host says about the share's plugins.
#[derive(Clone, Debug)]
pub(super) struct EventFlow {
    pub share: Arc<str>,
    pub is_hosts: bool,
}

/// A write of a Plugin object, by the plugin's name.
#[derive(Clone, Debug)]
pub(super) enum PluginWrite {
    /// A create, or a patch of its status.
    Object(Arc<str>),
    /// The delete of an orphan.
    Orphan(Arc<str>),
}
