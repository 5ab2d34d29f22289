//! Facts for metrics and logs. Nothing is decided by them.

use std::sync::Arc;

use crate::audit::Difference;
use crate::contract::GuestFault;
use crate::digest::Digest;
use crate::object::{Kind, ObjectRef};
use crate::refusal::Refusal;
use crate::watch::WatchError;
use crate::write::{Cause, WriteError};

/// Facts for metrics and logs. The driver decides nothing by them.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation {
    /// A key entered a controller's queue.
    Enqueued {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// True when it comes back after a failure.
        retry: bool,
    },
    /// A key left the queue to be worked on.
    Taken {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// How long it waited.
        queued_ms: u64,
    },
    /// A reconcile, from being taken to its last write, came to its end.
    Reconciled {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// The reconciled object.
        object: ObjectRef,
        /// How it ended.
        result: ReconcileResult,
        /// From being taken to the end.
        elapsed_ms: u64,
        /// Writes that were sent.
        writes: u32,
        /// True when the guest was not called because its inputs hash as before (W2).
        skipped: bool,
    },
    /// A key that was taken was given back without a result: its object or its plugin changed meanwhile, or is gone.
    TurnEnded {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// The reconciled object.
        object: ObjectRef,
    },
    /// A guest broke a bound or trapped.
    Fault {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// The reconciled object.
        object: ObjectRef,
        /// What happened.
        fault: GuestFault,
    },
    /// A plugin's new digest took over.
    Activated {
        /// The plugin.
        plugin: Arc<str>,
        /// Its digest.
        digest: Digest,
        /// True when another digest served before.
        reload: bool,
    },
    /// A plugin's source no longer offers it.
    Withdrawn {
        /// The plugin.
        plugin: Arc<str>,
    },
    /// A plugin is gone, and objects keep its finalizer.
    FinalizersLeft {
        /// The plugin.
        plugin: Arc<str>,
        /// Which objects, and what releases them.
        message: String,
    },
    /// A plugin is gone, and definitions still have it convert.
    ConversionLeft {
        /// The plugin.
        plugin: Arc<str>,
        /// Which, what that means and what to do.
        message: String,
    },
    /// A plugin is over its budget of writes: its keys wait.
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
    /// A key waited too long for its own writes to show (R2).
    CacheLagging {
        /// The object that has not shown up.
        object: ObjectRef,
    },
    /// A key's circuit breaker opened (X9).
    BreakerOpened {
        /// "podset/PodSet".
        controller: Arc<str>,
        /// The reconciled object.
        object: ObjectRef,
        /// Who fights over what, as far as it is known.
        message: String,
    },
    /// A watch cannot be had.
    WatchFailed {
        /// The kind.
        kind: Kind,
        /// Why.
        error: WatchError,
    },
    /// A kind in the cache was compared with a live list. What differs is mended by a relist.
    Audited {
        /// The kind.
        kind: Kind,
        /// What differs.
        differences: Vec<Difference>,
    },
    /// The API server's versions went backwards, because its etcd was restored; every kind is listed anew.
    Restored {
        /// The kind by which it was noticed.
        kind: Kind,
        /// What was noticed.
        message: String,
    },
    /// An object could not be decoded.
    Undecodable {
        /// The kind.
        kind: Kind,
        /// Which, and why.
        message: String,
    },
    /// A write was refused by the API server.
    WriteFailed {
        /// The reconcile that it was part of, or None for the host's own.
        cause: Option<Cause>,
        /// What was written.
        target: ObjectRef,
        /// The error.
        error: WriteError,
    },
}

/// controller-runtime's result labels, and one of our own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReconcileResult {
    /// Nothing more to do.
    Success,
    /// Comes back with backoff.
    Error,
    /// Comes back because the guest asked for it.
    RequeueAfter,
    /// Does not come back until something changes.
    Terminal,
}
