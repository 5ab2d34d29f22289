//! The outcome, failure and faults of a guest call in the host's own types. The crate that runs guests converts from
//! the generated bindings of the guest's contract version, so nothing here knows WIT.

use std::sync::Arc;

use crate::generated::Recipe;
use crate::heap::HeapBytes;
use crate::http::Request;
use crate::object::{Kind, ObjectRef};
use crate::text::FAULT;

/// The outcome of one reconcile.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// All wanted children. None leaves children alone; an empty list deletes all of them.
    pub children: Option<Vec<Child>>,
    /// Writes to objects that are not children.
    pub actions: Vec<Action>,
    /// JSON object: the status fields that this plugin owns. None leaves the status alone.
    pub status: Option<Arc<str>>,
    /// Merged into status.conditions by type; the host sets the times.
    pub conditions: Vec<Condition>,
    /// Sent as events.k8s.io/v1 Events.
    pub events: Vec<GuestEvent>,
    /// Reconcile again after this time even if nothing changes.
    pub requeue_after_ms: Option<u32>,
    /// The cleanup of an object that is being deleted is complete.
    pub finalized: bool,
    /// HTTP requests.
    pub requests: Vec<Request>,
}

/// One wanted child.
#[derive(Clone, PartialEq, Debug)]
pub struct Child {
    /// Unique among the object's children of one kind.
    pub key: Arc<str>,
    /// The wanted object as JSON text.
    pub object: Arc<str>,
    /// What the host does with it.
    pub handling: Handling,
    /// Leave the child out, without a Stalled condition, while another's object has its name.
    pub or_skip: bool,
    /// Make an object of its name that nobody controls a child.
    pub adopt: bool,
    /// Children of a group are written when those of all lower groups are as wanted and available.
    pub group: u32,
    /// Paths of maps, such as `data`, of which the child has no other members than the wanted ones.
    pub exact: Vec<Arc<str>>,
    /// Values that the host makes.
    pub generated: Vec<Generated>,
}

/// A value that the host makes and no guest sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generated {
    /// `data.password`, or `data` for a certificate.
    pub at: Arc<str>,
    /// How it is made.
    pub recipe: Recipe,
    /// Another text asks for another value.
    pub rotation: Arc<str>,
}

impl Child {
    /// A managed child of the first group.
    pub fn new(key: impl Into<Arc<str>>, object: impl Into<Arc<str>>) -> Self {
        let (key, object) = (key.into(), object.into());
        let (exact, generated) = (Vec::new(), Vec::new());
        Self { key, object, handling: Handling::Managed, or_skip: false, adopt: false, group: 0, exact, generated }
    }
}

/// What the host does with a wanted child.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Handling {
    /// Creates it and changes it, as the manifest says for its kind.
    Managed,
    /// Creates it while it is absent, and never changes it.
    CreateOnce,
    /// Does not delete it, and does nothing else.
    Keep,
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
        /// The format of the body.
        patch_kind: PatchKind,
        /// The patch as JSON text.
        body: Arc<str>,
        /// "status", "scale"; None patches the object itself.
        subresource: Option<String>,
    },
    /// A delete; the host adds the UID in the snapshot as precondition.
    Delete {
        /// What to delete.
        target: ObjectRef,
        /// Whether its dependents are deleted too.
        propagation: Propagation,
    },
    /// An eviction of a Pod.
    Evict {
        /// The Pod.
        target: ObjectRef,
    },
}

/// The format of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatchKind {
    /// JSON merge patch, RFC 7396.
    Merge,
    /// JSON patch, RFC 6902.
    Json,
    /// Strategic merge patch, for built-in kinds only.
    Strategic,
}

/// The propagation policy of a delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// The dependents are deleted afterwards.
    Background,
    /// The dependents are deleted first.
    Foreground,
    /// The dependents stay.
    Orphan,
}

/// A condition of a guest; the host adds its time and generation.
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
    /// It is not known.
    Unknown,
}

impl ConditionStatus {
    /// Kubernetes' text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl HeapBytes for Condition {
    fn heap_bytes(&self) -> usize {
        self.name.heap_bytes() + self.reason.heap_bytes() + self.message.heap_bytes()
    }
}

/// An Event of a guest.
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

impl HeapBytes for GuestEvent {
    fn heap_bytes(&self) -> usize {
        self.reason.heap_bytes() + self.message.heap_bytes() + self.regarding.heap_bytes()
    }
}

/// A failure that the guest returned: no fault of the guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Try again with backoff.
    Retry(String),
    /// Do not try again until something that the call read changes.
    Terminal(String),
}

/// A fault of the guest: the call returned nothing that can be used.
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
        /// The limit in milliseconds of processor time.
        limit_ms: u64,
    },
    /// It used up its fuel.
    Fuel {
        /// The limit in units of fuel.
        limit: u64,
    },
    /// It asked for more memory or table space than its limit, and then trapped.
    Memory {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// Its outcome is too large.
    OutputTooLarge {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// It made too many calls into the host.
    TooManyHostCalls {
        /// The limit, and what to do instead.
        message: String,
    },
    /// It passed too many bytes to the host, in one call or in all reads together.
    HostCallsTooLarge {
        /// Which of the two, with the limit.
        message: String,
    },
    /// Its outcome violates the contract (owner references, foreign namespaces, invalid JSON, ...).
    BadOutcome {
        /// What and where.
        message: String,
    },
}

impl GuestFault {
    /// An outcome that violates the contract. The message may repeat what the guest returned.
    pub fn bad_outcome(message: impl Into<String>) -> Self {
        Self::BadOutcome { message: FAULT.own(message.into()) }
    }

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
            Self::Deadline { limit_ms } => format!("the call ran past its deadline of {limit_ms} ms of processor time"),
            Self::Fuel { limit } => format!("the call used up its {limit} units of fuel"),
            Self::Memory { limit_bytes } => format!("the plugin asked for more than its {limit_bytes} bytes of memory"),
            Self::OutputTooLarge { limit_bytes } => format!("the outcome is larger than {limit_bytes} bytes"),
            Self::TooManyHostCalls { message } | Self::HostCallsTooLarge { message } => message.clone(),
            Self::BadOutcome { message } => format!("the outcome was refused: {message}"),
        }
    }

    /// The same without what the guest said or returned, which may be what it has read: for places whose readers may not read
    /// that.
    pub fn without_words(&self) -> String {
        match self {
            Self::Trap { .. } => "the plugin trapped".to_owned(),
            Self::BadOutcome { .. } => "the outcome was refused".to_owned(),
            fault => fault.message(),
        }
    }
}

/// How one call ended.
#[derive(Clone, PartialEq, Debug)]
pub enum CallResult {
    /// The guest returned an outcome.
    Done(Outcome),
    /// The guest returned a failure.
    Failed(Failure),
    /// The guest returned nothing usable.
    Fault(GuestFault),
    /// The host could not run the call; the guest is not at fault. One sentence for a person.
    HostFault(String),
    /// The host ended the call at a read of a dynamic kind of which it has no view, so that no guest decides by half of
    /// one. It is neither a result nor a fault of the guest.
    Waits(Kind),
}
