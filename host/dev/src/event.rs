//! What happens in a session, as its parts tell it. It must not know who shows it.

use std::sync::Arc;

use mortise_core::object::ObjectRef;
use mortise_core::observation::ReconcileResult;

/// One thing that happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A source file of a plugin was saved.
    Saved { plugin: String },
    /// cargo began to build a plugin.
    Building { plugin: String },
    /// What cargo does meanwhile, every few seconds.
    Progress { plugin: String, status: String },
    /// cargo has built it: the component's digest and size.
    Built { plugin: String, elapsed_ms: u64, digest: String, bytes: u64 },
    /// cargo made the same component as before, which serves already.
    Unchanged { plugin: String },
    /// cargo refused it; what it printed.
    BuildFailed { plugin: String, output: String },
    /// The host serves a version of a plugin.
    Serves { plugin: String, digest: String, reload: bool },
    /// The host refused a version of a plugin; another one may serve on.
    Refused { plugin: String, reason: String, message: String },
    /// A sample was applied, or why not.
    Sample { file: String, result: Result<String, String> },
    /// The cache shows an object, or its end.
    Object { object: ObjectRef, state: Option<Shown> },
    /// The host calls a plugin for an object; what woke it, as far as that shows.
    Calls { object: ObjectRef, woken_by: Option<String> },
    /// A call has ended.
    Called { object: ObjectRef, elapsed_us: u64, reads: Vec<String>, logs: Vec<String> },
    /// The host sends a write for an object.
    Writes { object: ObjectRef, write: Wrote },
    /// A write failed.
    WriteFailed { target: ObjectRef, message: String },
    /// A reconcile has ended.
    Reconciled { object: ObjectRef, result: ReconcileResult, elapsed_ms: u64, writes: u32, skipped: bool },
    /// A plugin trapped or exceeded a bound.
    Fault { object: ObjectRef, message: String, detail: String },
    /// Anything else that a person wants to know.
    Note(String),
}

/// One write of a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wrote {
    /// `create`, `apply`, `patch`, `delete`.
    pub(crate) verb: &'static str,
    pub(crate) target: ObjectRef,
    /// The body as JSON text; empty for a deletion.
    pub(crate) body: Arc<str>,
    /// The target as the cache had it when the write was sent.
    pub(crate) before: Option<Arc<str>>,
}

/// An object as the cache has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shown {
    /// The object as JSON text.
    pub(crate) json: Arc<str>,
    /// Its controller.
    pub(crate) owner: Option<ObjectRef>,
    /// Whether it is being deleted.
    pub(crate) terminates: bool,
}
