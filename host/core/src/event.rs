//! What flows through the driver: events in, effects out. The shells translate between these and the world.
//!
//! An effect is a request; its answer, when it has one, is an event that carries the same id. Nothing here may hold a
//! client, a task or a channel.

use std::fmt;
use std::sync::Arc;

use crate::admission::Serving;
use crate::contract::{CallResult, PatchKind, Propagation};
use crate::conversion;
use crate::object::{Kind, Object, ObjectRef, ResourceVersion};
use crate::rbac::Permission;
use crate::read_set::ReadSet;
use crate::view::View;
use crate::webhook::Reach;

/// The time of one step. Both clocks come from the caller: the core has none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now {
    /// Milliseconds on a clock that never goes back; its zero means nothing.
    pub mono_ms: u64,
    /// Unix milliseconds, for what people and other programs read.
    pub unix_ms: u64,
}

/// The sha256 of a component's bytes, as "sha256:<64 hex digits>".
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub Arc<str>);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why something that a plugin or its source offers is not accepted. Becomes a condition, an Event and a metric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// One CamelCase word: the condition's reason.
    pub reason: &'static str,
    /// What, where, why and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal with its reason and its explanation.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// A plugin as a source offers it. The bytes stay with the shell, under their digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The plugin's name: the ConfigMap's name, or the file's stem.
    pub name: Arc<str>,
    /// Where it comes from, for people: "ConfigMap mortise-system/podset", "file plugins/podset.wasm".
    pub source: Arc<str>,
    /// What the bytes hash to.
    pub digest: Digest,
    /// The plugin's configuration as a JSON object, "{}" when none was given.
    pub config: Arc<str>,
}

/// What enters the driver.
#[derive(Debug)]
pub enum Event {
    /// The first event: the host has begun.
    Started,
    /// Something about one watched kind.
    Watch(Kind, WatchEvent),
    /// A source offers a plugin, for the first time or changed.
    PluginFound(Offer),
    /// A source has something under this name that is not a plugin that can be read.
    PluginUnreadable {
        /// The plugin's name.
        name: Arc<str>,
        /// Where it comes from.
        source: Arc<str>,
        /// Why it cannot be read.
        refusal: Refusal,
    },
    /// A source no longer offers this plugin.
    PluginGone {
        /// The plugin's name.
        name: Arc<str>,
        /// Where it came from: what another source offers under the same name stays.
        source: Arc<str>,
    },
    /// Every source has told what it has once.
    SourcesListed,
    /// The answer to [`Effect::Compile`].
    Compiled(Digest, Result<Compiled, Refusal>),
    /// The answer to [`Effect::RegisterCrd`].
    CrdRegistered {
        /// The plugin that asked.
        plugin: Arc<str>,
        /// The CRD's name ("podsets.app.example.com").
        crd: Arc<str>,
        /// Established, or why not.
        result: Result<(), CrdError>,
    },
    /// The answer to [`Effect::ServeAdmission`] with a version; told again when it changes.
    AdmissionServed {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version.
        digest: Digest,
        /// The API server asks, or why it cannot be had to.
        result: Result<(), Refusal>,
    },
    /// The answer to [`Effect::ServeAdmission`] without a version: the API server asks no longer.
    AdmissionEnded {
        /// The plugin.
        plugin: Arc<str>,
    },
    /// The answer to [`Effect::ServeConversion`] with a version; told again when it changes.
    ConversionServed {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version.
        digest: Digest,
        /// How the API server finds the host, which answers; or why it does not.
        result: Result<Reach, Refusal>,
    },
    /// The answer to [`Effect::Call`].
    CallDone(CallId, CallDone),
    /// The answer to [`Effect::Write`].
    Wrote(WriteId, Result<Written, WriteError>),
    /// The answer to [`Effect::ReadLive`]; None when there is no such object.
    LiveRead(ObjectRef, Result<Option<Arc<Object>>, WriteError>),
    /// The election has gone on: the lead was won, renewed or lost. Only for a host that takes part in one.
    LeaseChanged {
        /// Until when this host leads, on the monotonic clock, if nothing else is heard; None when it does not.
        claim_until_ms: Option<u64>,
    },
    /// Time has passed; sent when a [`Effect::WakeAt`] is due.
    Tick,
    /// Finish what is in flight and begin nothing new.
    Shutdown,
}

/// What a watch tells. The first is always `Listing`.
#[derive(Debug)]
pub enum WatchEvent {
    /// A list, from the API server's newest state, begins; what stands in the store is merged with it.
    Listing,
    /// One object of the list.
    Listed(Box<Object>),
    /// The list is complete and shows everything up to this version.
    ListDone(ResourceVersion),
    /// An object was added or changed.
    Applied(Box<Object>),
    /// An object is gone; its version is that of the deletion.
    Deleted(Box<Object>),
    /// Nothing of this kind has changed up to this version (a bookmark).
    Progress(ResourceVersion),
    /// The watch cannot be had for now; the shell keeps trying. What was listed before stays valid but ages.
    Failed(WatchError),
    /// One object could not be read and is not in the view.
    Undecodable {
        /// Which object, as far as that is known, and why.
        message: String,
    },
}

/// Why a kind cannot be watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchError {
    /// RBAC refuses; the message is the API server's.
    Denied(String),
    /// The API server serves no such kind.
    NotServed(String),
    /// Anything that should pass: the connection, an overload.
    Unavailable(String),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(message) | Self::NotServed(message) | Self::Unavailable(message) => f.write_str(message),
        }
    }
}

/// A component that compiled, instantiated and told its manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The manifest as the guest returned it.
    pub manifest: Arc<str>,
    /// Size of the component in bytes.
    pub component_bytes: u64,
    /// How long compiling took; 0 when the result was cached.
    pub compile_ms: u64,
    /// True when no compiler ran.
    pub cached: bool,
}

/// Why a CRD is not established.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrdError {
    /// It never will be as it stands: it narrows what exists, or belongs to someone else and differs.
    Refused(Refusal),
    /// RBAC refuses.
    Denied(String),
    /// Try again later.
    Unavailable(String),
}

/// Identifies one guest call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CallId(pub u64);

/// Identifies one write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// How a call ended, and what it asked of its view.
#[derive(Clone, Debug)]
pub struct CallDone {
    /// Its answer or its fault.
    pub result: CallResult,
    /// Every question it asked, with a hash of each answer.
    pub reads: ReadSet,
    /// Time on the worker thread in microseconds; the queue is fair by it.
    pub elapsed_us: u64,
}

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

/// What leaves the driver.
#[derive(Debug)]
pub enum Effect {
    /// Keep this kind listed and watched.
    StartWatch(Kind),
    /// Nobody reads this kind any more.
    StopWatch(Kind),
    /// Compile, load and ask for the manifest; answered by [`Event::Compiled`].
    Compile(Digest),
    /// No plugin refers to this digest any more.
    Unload(Digest),
    /// Create or update a CRD as `crd::plan` decides, wait until it is established; answered by
    /// [`Event::CrdRegistered`]. A host that may not write only looks whether it is there as it should be.
    RegisterCrd {
        /// The plugin it belongs to.
        plugin: Arc<str>,
        /// The CRD's metadata.name.
        crd: Arc<str>,
        /// The CustomResourceDefinition as JSON text, with the host's labels and annotations on it.
        body: Arc<str>,
        /// The last moment of the monotonic clock at which it may be written (X7); None: any.
        not_after_ms: Option<u64>,
    },
    /// Answer the API server's questions about a plugin's objects with this version from now on, and have it ask them;
    /// answered by [`Event::AdmissionServed`]. None: have it ask no longer, answered by [`Event::AdmissionEnded`]; the version
    /// before answers until then.
    ServeAdmission {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version, and what it is asked.
        serving: Option<Arc<Serving>>,
    },
    /// Convert a plugin's objects with this version from now on, whenever the API server asks; answered by
    /// [`Event::ConversionServed`]. None: nobody has to be told of it any more, and the version before goes on answering
    /// whoever still asks.
    ServeConversion {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version.
        serving: Option<Arc<conversion::Serving>>,
    },
    /// Call a guest; answered by [`Event::CallDone`].
    Call(Box<Call>),
    /// Send a write; answered by [`Event::Wrote`].
    Write(Box<Write>),
    /// Read one object from the API server; answered by [`Event::LiveRead`].
    ReadLive(ObjectRef),
    /// Send [`Event::Tick`] at this moment of the monotonic clock (an earlier one replaces a later one).
    WakeAt(u64),
    /// Something that operators count or read in the log.
    Observe(Observation),
}

/// One guest call.
#[derive(Debug)]
pub struct Call {
    /// Comes back in the answer.
    pub id: CallId,
    /// "podset/PodSet": plugin and kind, the label of metrics and logs.
    pub controller: Arc<str>,
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// Which component.
    pub digest: Digest,
    /// The reconciled object.
    pub object: Arc<Object>,
    /// What the guest may see.
    pub view: View,
    /// Bounds of the call.
    pub limits: crate::limits::CallLimits,
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
        self.plugin.as_ref().map_or_else(|| "mortise".to_owned(), |plugin| format!("mortise/{plugin}"))
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
        fault: crate::contract::GuestFault,
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
