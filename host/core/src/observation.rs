//! Facts for metrics and logs.

use std::sync::Arc;

use crate::audit::Difference;
use crate::contract::GuestFault;
use crate::digest::Digest;
use crate::kube_event::LeftOut;
use crate::manifest::Manifest;
use crate::object::{Kind, ObjectRef};
use crate::refusal::Refusal;
use crate::watch::WatchError;
use crate::write::{Cause, WriteError};

/// A fact for metrics and logs. No decision depends on it.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation {
    /// A key was added to a controller's queue.
    Enqueued {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// True for a retry after a failure.
        retry: bool,
    },
    /// A key was taken from the queue.
    Taken {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// How long it waited.
        queued_ms: u64,
    },
    /// A reconcile ended.
    Reconciled {
        /// The reconcile.
        cause: Cause,
        /// How it ended.
        result: ReconcileResult,
        /// From the take to the last write.
        elapsed_ms: u64,
        /// Writes that were sent.
        writes: u32,
        /// True when the guest was not called because its inputs hash as before (W2).
        skipped: bool,
    },
    /// A turn ended without a result, because the object or the plugin changed or was deleted meanwhile.
    TurnEnded {
        /// The reconcile.
        cause: Cause,
    },
    /// A guest trapped or exceeded a bound.
    Fault {
        /// The reconcile.
        cause: Cause,
        /// The fault.
        fault: GuestFault,
    },
    /// An Event about an object without a namespace was recorded without what the plugin says.
    Withheld {
        /// The reconcile.
        cause: Cause,
        /// The Event's reason.
        reason: String,
        /// The Event's note.
        note: String,
    },
    /// An Event is not sent.
    EventLeftOut {
        /// A plugin, or a tenant.
        share: Arc<str>,
        /// Why.
        why: LeftOut,
    },
    /// What a guest said could not be written.
    EventFailed {
        /// A plugin, or a tenant.
        share: Arc<str>,
        /// The Event.
        target: ObjectRef,
        /// The error.
        error: WriteError,
    },
    /// A plugin's new digest took over.
    Activated {
        /// The plugin.
        plugin: Arc<str>,
        /// Its digest.
        digest: Digest,
        /// Its manifest.
        manifest: Arc<Manifest>,
        /// True when another digest served before.
        reload: bool,
    },
    /// A plugin's source no longer offers it.
    Withdrawn {
        /// The plugin.
        plugin: Arc<str>,
    },
    /// A plugin was removed, and objects keep its finalizer.
    FinalizersLeft {
        /// The plugin.
        plugin: Arc<str>,
        /// The objects, and the command that releases them.
        message: String,
    },
    /// A plugin was removed, and CRDs still name its conversion webhook.
    ConversionLeft {
        /// The plugin.
        plugin: Arc<str>,
        /// The CRDs, the consequence and what to do.
        message: String,
    },
    /// A plugin has used up its budget of writes, so its keys wait, or of HTTP requests, so these do.
    Throttled {
        /// The plugin.
        plugin: Arc<str>,
        /// Which budget, and how to raise it.
        message: String,
    },
    /// A plugin, or a new version of it, was refused.
    Refused {
        /// The plugin.
        plugin: Arc<str>,
        /// Why.
        refusal: Refusal,
    },
    /// A key waited too long for its expectations (R2).
    CacheLagging {
        /// The object whose write the cache does not show.
        object: ObjectRef,
    },
    /// A key's circuit breaker opened (X9).
    BreakerOpened {
        /// The reconcile.
        cause: Cause,
        /// What keeps changing, and who changes it, if that is known.
        message: String,
    },
    /// A watch failed.
    WatchFailed {
        /// The kind.
        kind: Kind,
        /// Why.
        error: WatchError,
    },
    /// An audit compared the cache with a live list. A relist repairs the differences.
    Audited {
        /// The kind.
        kind: Kind,
        /// The objects that differ.
        differences: Vec<Difference>,
    },
    /// The API server's versions went backwards, because etcd was restored. Every kind is relisted.
    Restored {
        /// The kind whose versions went backwards.
        kind: Kind,
        /// The versions.
        message: String,
    },
    /// An object could not be decoded.
    Undecodable {
        /// The kind.
        kind: Kind,
        /// The object and the error.
        message: String,
    },
    /// A write failed.
    WriteFailed {
        /// The reconcile that sent it; None for the host's own writes.
        cause: Option<Cause>,
        /// The object.
        target: ObjectRef,
        /// The error.
        error: WriteError,
    },
}

/// controller-runtime's result labels, and `Terminal`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReconcileResult {
    /// Nothing more to do.
    Success,
    /// Retried with backoff.
    Error,
    /// Requeued at the guest's request.
    RequeueAfter,
    /// Not retried until something changes.
    Terminal,
}
