//! What crosses between host and guest, in the host's own types: the crate that runs guests converts from the
//! generated bindings of whichever contract version a guest speaks, so nothing here knows WIT.

use std::sync::Arc;

use crate::object::ObjectRef;

/// What one reconcile wants, as data.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The whole desired set, or None to leave children alone. Some of an empty list deletes all of them.
    pub children: Option<Vec<Child>>,
    /// Writes to objects that are not children.
    pub actions: Vec<Action>,
    /// JSON object: the status fields that this plugin owns. None leaves the status alone.
    pub status: Option<Arc<str>>,
    /// Merged into status.conditions by type; the host stamps times.
    pub conditions: Vec<Condition>,
    /// Sent as events.k8s.io/v1 Events.
    pub events: Vec<GuestEvent>,
    /// Reconcile again after this long even if nothing changes.
    pub requeue_after_ms: Option<u32>,
    /// The cleanup of an object that is being deleted is complete.
    pub finalized: bool,
}

/// One member of the desired set.
#[derive(Clone, PartialEq, Debug)]
pub struct Child {
    /// Unique among the children of one kind of one object.
    pub key: Arc<str>,
    /// The wanted object as JSON text.
    pub object: Arc<str>,
}

/// A write to an object that is not a child.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Server-side apply of a partial object.
    Apply {
        /// The partial object as JSON text.
        object: Arc<str>,
        /// Take fields over from other managers.
        force: bool,
    },
    /// A patch of a named object.
    Patch {
        /// What to patch.
        target: ObjectRef,
        /// "merge", "json-patch" or "strategic".
        patch_kind: PatchKind,
        /// The patch as JSON text.
        body: Arc<str>,
        /// "status", "scale"; None patches the object itself.
        subresource: Option<String>,
    },
    /// A delete; the host adds the UID that the snapshot showed.
    Delete {
        /// What to delete.
        target: ObjectRef,
        /// What happens to its dependents.
        propagation: Propagation,
    },
    /// An eviction of a Pod.
    Evict {
        /// The Pod.
        target: ObjectRef,
    },
}

/// How a patch body is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatchKind {
    /// RFC 7396.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' own, built-in kinds only.
    Strategic,
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

/// A condition as the guest states it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The condition's type ("Ready").
    pub name: String,
    /// "True", "False" or "Unknown".
    pub status: ConditionStatus,
    /// CamelCase, one word.
    pub reason: String,
    /// For a person.
    pub message: String,
}

/// The three states of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionStatus {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// An event that a guest asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestEvent {
    /// Warning instead of Normal.
    pub warning: bool,
    /// CamelCase, one word.
    pub reason: String,
    /// For a person.
    pub message: String,
    /// None: about the reconciled object.
    pub regarding: Option<ObjectRef>,
}

/// The guest's own answer that it could not reconcile. Not a fault of the guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Try again with backoff.
    Retry(String),
    /// Pointless to repeat until something it read changes.
    Terminal(String),
}

/// A fault of the guest: the call gave no answer that can be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuestFault {
    /// The guest trapped: the trap, its backtrace, and the tail of what it wrote to stderr.
    Trap {
        /// One line: the panic message when the guest left one, else the trap's own name.
        message: String,
        /// Symbolised frames, and the stderr tail.
        detail: String,
    },
    /// It ran past its deadline.
    Deadline {
        /// The deadline that it overran.
        limit_ms: u64,
    },
    /// It used up its fuel.
    Fuel {
        /// The amount that it was given.
        limit: u64,
    },
    /// It asked for more memory (or table space) than it may have, and then trapped.
    Memory {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// Its outcome is larger than the host accepts.
    OutputTooLarge {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// It made more calls into the host than it may.
    TooManyHostCalls {
        /// The limit, and what to do instead.
        message: String,
    },
    /// It passed more bytes to the host than it may: with one call, or with all of its questions together.
    HostCallsTooLarge {
        /// Which of the two, with the limit.
        message: String,
    },
    /// It answered something that breaks the contract's rules (owner references, foreign namespaces, bad JSON, ...).
    BadOutcome {
        /// What and where.
        message: String,
    },
}

impl GuestFault {
    /// One CamelCase word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Trap { .. } => "Trap",
            Self::Deadline { .. } => "DeadlineExceeded",
            Self::Fuel { .. } => "FuelExhausted",
            Self::Memory { .. } => "MemoryExceeded",
            Self::OutputTooLarge { .. } => "OutputTooLarge",
            Self::TooManyHostCalls { .. } => "TooManyHostCalls",
            Self::HostCallsTooLarge { .. } => "HostCallsTooLarge",
            Self::BadOutcome { .. } => "BadOutcome",
        }
    }

    /// One sentence for a person.
    pub fn message(&self) -> String {
        match self {
            Self::Trap { message, .. } => format!("the plugin trapped: {message}"),
            Self::Deadline { limit_ms } => format!("the call ran past its deadline of {limit_ms} ms"),
            Self::Fuel { limit } => format!("the call used up its {limit} units of fuel"),
            Self::Memory { limit_bytes } => format!("the plugin asked for more than its {limit_bytes} bytes of memory"),
            Self::OutputTooLarge { limit_bytes } => format!("the outcome is larger than {limit_bytes} bytes"),
            Self::TooManyHostCalls { message } | Self::HostCallsTooLarge { message } => message.clone(),
            Self::BadOutcome { message } => format!("the outcome was refused: {message}"),
        }
    }
}

/// How one call ended.
#[derive(Clone, PartialEq, Debug)]
pub enum CallResult {
    /// The guest answered what should be.
    Done(Outcome),
    /// The guest answered that it could not.
    Failed(Failure),
    /// The guest gave no usable answer.
    Fault(GuestFault),
    /// The host could not run the call; the guest is not at fault. One sentence for a person.
    HostFault(String),
}
