//! What the Reconciler remembers of one object under reconciliation. Everything here may be lost at any moment: a restart
//! begins with none of it and ends in the same place.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::breaker::Breaker;
use crate::component::Version;
use crate::dependencies::Dependencies;
use crate::eviction::Blocked;
use crate::expectation::Expectation;
use crate::limits::WRITE_TIMEOUT_MS;
use crate::manifest::ControllerSpec;
use crate::object::{Kind, ObjectRef, ResourceVersion};
use crate::observation::ReconcileResult;
use crate::permission::Permission;
use crate::plan::{self, Applied, Memory, Prepared, PreparedAction, Sent};
use crate::store::Snapshot;
use crate::workqueue::Lane;
use crate::write::{WriteErrorClass, WriteOp};

/// One key's state.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// The object that all of this is about; empty before its first turn.
    pub uid: Arc<str>,
    pub turn: Turn,
    pub failures: u32,
    /// Outcomes that were thrown away because the object had changed during the call.
    pub discarded: u32,
    pub last: Option<LastCall>,
    pub expectations: Expectations,
    pub unknown_writes: UnknownWrites,
    pub status: StatusWrites,
    pub memory: PlanMemory,
    pub breaker: Option<Breaker>,
    /// Why the object gets no further.
    pub stalled: Option<StalledReason>,
    /// Objects of others that have the names of its children, and objects that are to be patched and are absent; their
    /// deletion and creation wakes it.
    pub name_conflicts: Vec<ObjectRef>,
    pub recorded: Recorded,
    /// Its last call ended in a fault, which the plugin's faults count.
    pub is_faulted: bool,
    /// Rights that the API server refused it.
    pub denied: BTreeSet<Permission>,
}

/// From being taken to the last write.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub work: Work,
    /// It woke during its turn, and returns to the queue when that ends.
    pub dirty: Option<Lane>,
    /// A change of the object itself that came while its own writes were under way; ours or not is known afterwards.
    pub unsorted_version: Option<ResourceVersion>,
    pub taken_ms: u64,
}

/// Own writes that the view does not show yet (R2).
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub pending: Vec<Expectation>,
    pub waiting: Option<Waiting>,
}

/// A key waits for the view to show one of its writes.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub since_ms: u64,
    pub target: ObjectRef,
}

impl Expectations {
    /// Expects a write to be shown, in the place of an earlier one of the same object.
    pub fn expect(&mut self, write: Expectation) {
        self.pending.retain(|before| before.target != write.target);
        self.pending.push(write);
    }
}

/// Writes of which nobody knows whether they were carried out, and that may still be.
#[derive(Debug, Default)]
pub(super) struct UnknownWrites {
    /// Until when one may still be.
    pub until_ms: u64,
    /// Objects of others that they were about. Their state is read live before the finalizer is removed.
    pub targets: BTreeSet<ObjectRef>,
    /// How often that failed.
    pub unread: u32,
    /// A host before this one may have left such writes, of which nothing is known here.
    pub inherited: bool,
}

/// The writes of the object's status.
#[derive(Debug, Default)]
pub(super) struct StatusWrites {
    /// The version that the last one made (W3).
    pub version: Option<ResourceVersion>,
    /// Until when one of unknown result may still be carried out.
    pub unknown_until_ms: u64,
    /// The version of the object, and what was wanted of it, when its status was found to need no write.
    pub settled: Option<(ResourceVersion, Arc<Prepared>)>,
    /// Since when the status waits for the children (X11).
    pub deferred_since_ms: Option<u64>,
}

/// What was sent, as far as the next diff needs it.
#[derive(Debug, Default)]
pub(super) struct PlanMemory {
    /// The last apply to each object that is changed in place.
    pub applied: Applied,
    /// The last patch of each object that is no child.
    pub sent: Sent,
    /// Evictions that a budget does not allow for now.
    pub blocked: Blocked,
}

/// Events that were recorded about the object.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// That it waits for its plugin to clean up.
    pub finalizing: bool,
    /// Hash of the guest's last events.
    pub guest_events: Option<u64>,
}

/// Why an object gets no further: the reason and message of its Stalled condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StalledReason {
    pub reason: String,
    pub message: String,
}

/// Bytes of a Stalled condition's message. The API server's bound is 32,768, and each key keeps its own; what a person needs
/// is at its beginning.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

impl StalledReason {
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        Self { reason: reason.to_owned(), message }
    }

    /// An object that is to be patched is not there.
    pub fn nothing_to_patch(target: &ObjectRef) -> Self {
        Self::new("NotFound", format!("{target} is to be patched and is not there"))
    }

    /// Somebody else's object has the name of a child (X3).
    pub fn child_exists(target: &ObjectRef, owner: &Kind) -> Self {
        Self::new("ChildExists", format!("{target} exists already and is not controlled by this {}", owner.kind))
    }
}

/// What a key is doing.
#[derive(Debug, Default)]
pub(super) enum Work {
    #[default]
    Idle,
    Calling,
    Writing(Box<Run>),
}

/// A call's inputs and answer, for as long as they hold (W2).
#[derive(Clone, Debug)]
pub(super) struct LastCall {
    pub version: Version,
    pub uid: Arc<str>,
    /// The generation that the guest was given.
    pub generation: i64,
    pub reads: Dependencies,
    pub answer: Answer,
}

/// What a guest's answer came to.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Wants(Arc<Prepared>),
    Terminal(String),
    /// A fault, or a wish to be called again: nothing to go by, but what it asked about still wakes the key.
    Nothing,
}

/// A plan on its way to the API server.
#[derive(Debug)]
pub(super) struct Run {
    pub stages: VecDeque<Stage>,
    pub in_flight: u32,
    pub sent: u32,
    /// Writes of the current stage that may go at once (slow start).
    pub batch: usize,
    pub failed: Option<RunFailure>,
    /// What happens to the key when every stage is through.
    pub ending: Ending,
    /// The guest was not called for this run.
    pub skipped: bool,
    /// Writes that change what the guest reads were sent, so the key has to be looked at again.
    pub look_again: bool,
}

/// One stage of a plan; the next begins when all of its writes are answered.
#[derive(Debug)]
pub(super) struct Stage {
    pub writes: VecDeque<WriteOp>,
    /// Begin with one write and double: a template that the API server refuses costs one request, not 500.
    pub slow_start: bool,
}

impl Stage {
    /// One write.
    pub fn of_one(op: WriteOp) -> Self {
        Self { writes: [op].into(), slow_start: false }
    }
}

#[derive(Clone, Debug)]
pub(super) struct RunFailure {
    pub class: WriteErrorClass,
    pub stall: Option<StalledReason>,
    /// It was the status that was refused, so a condition cannot say so.
    pub of_status: bool,
}

/// How a reconcile ends when its writes go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    pub result: ReconcileResult,
    /// When to come back though nothing changes.
    pub requeue_ms: Option<u64>,
    /// What woke the key during its turn waits until then too: the API server is away, or has asked for patience.
    pub hold: bool,
}

impl Ending {
    pub fn new(result: ReconcileResult, requeue_ms: Option<u64>) -> Self {
        Self { result, requeue_ms, hold: false }
    }
}

impl Run {
    pub fn new(stages: impl IntoIterator<Item = Stage>, ending: Ending, skipped: bool) -> Self {
        let stages = stages.into_iter().collect();
        Self { stages, in_flight: 0, sent: 0, batch: 1, failed: None, ending, skipped, look_again: false }
    }
}

impl PlanMemory {
    /// Keeps what a write was that the API server has accepted.
    pub fn remember(&mut self, op: &WriteOp, version: ResourceVersion) {
        match op {
            WriteOp::Apply { target, body, .. } => {
                self.applied.insert(target.clone(), (Arc::clone(body), version));
                return;
            }
            WriteOp::Patch { target, body, subresource, .. } => {
                self.sent.insert((target.clone(), subresource.clone()), (Arc::clone(body), version));
            }
            WriteOp::Evict { target, .. } => self.blocked.forget(target),
            WriteOp::Create { .. } | WriteOp::Delete { .. } | WriteOp::PatchStatus { .. } => {}
        }
        self.applied.remove(op.target());
    }

    /// Forgets actions that are not wanted any more, or whose Pods are gone. The guest was called anew unless that was
    /// `skipped`, so something that it reads has changed, perhaps a budget.
    fn forget_actions(&mut self, wanted: &[PreparedAction], snapshot: &Snapshot, skipped: bool) {
        if !self.sent.is_empty() {
            let targets: BTreeSet<&ObjectRef> = wanted.iter().map(|action| &action.target).collect();
            self.sent.retain(|(target, _), _| targets.contains(target));
        }
        if self.blocked.message().is_none() {
            return;
        }
        let pods: BTreeSet<&ObjectRef> = plan::evictions(wanted).collect();
        let is_there = |pod: &ObjectRef| snapshot.get(&pod.kind, &pod.name).is_some_and(|live| !live.deleting);
        self.blocked.keep(|pod| pods.contains(pod) && is_there(pod));
        if !skipped {
            self.blocked.hurry();
        }
    }

    /// What the diff of actions reads.
    pub fn of_actions(&mut self) -> Memory<'_> {
        Memory { applied: &mut self.applied, sent: &mut self.sent, blocked: &self.blocked }
    }
}

impl LastCall {
    /// The bytes of the outcome that is kept in it.
    pub fn outcome_bytes(&self) -> usize {
        match &self.answer {
            Answer::Wants(prepared) => prepared.bytes(),
            Answer::Terminal(message) => message.len(),
            Answer::Nothing => 0,
        }
    }
}

impl KeyState {
    /// Begins anew when another object has taken the name: its failures, its breaker and its conditions were not those of
    /// this one. What the Reconciler has indexed under the key stays until it is replaced. True when it is another one.
    pub fn meet(&mut self, uid: &Arc<str>) -> bool {
        let is_another = self.uid != *uid;
        if is_another {
            let Self { expectations, last, name_conflicts, is_faulted, denied, .. } = std::mem::take(self);
            let uid = Arc::clone(uid);
            *self = Self { uid, expectations, last, name_conflicts, is_faulted, denied, ..Self::default() };
        }
        is_another
    }

    /// Forgets every version that was seen or made.
    pub fn forget_versions(&mut self) {
        self.expectations = Expectations::default();
        self.status.version = None;
        self.status.settled = None;
        self.memory.applied.clear();
        self.memory.sent.clear();
        self.turn.unsorted_version = None;
    }

    /// Whether the last outcome has this object among its children.
    pub fn wants_child(&self, target: &ObjectRef) -> bool {
        let Some(Answer::Wants(prepared)) = self.last.as_ref().map(|last| &last.answer) else { return false };
        prepared.children.iter().flatten().any(|child| child.target == *target)
    }

    /// Another host may have written for the object, and may have left writes under way of which nothing is known here.
    pub fn inherit(&mut self, now_ms: u64) {
        self.unknown_writes.until_ms = now_ms + WRITE_TIMEOUT_MS;
        self.unknown_writes.inherited = true;
    }

    /// As [`PlanMemory::remember`]; an eviction that went through changes what the status says.
    pub fn remember(&mut self, op: &WriteOp, version: ResourceVersion) {
        self.memory.remember(op, version);
        if matches!(op, WriteOp::Evict { .. }) {
            self.status.settled = None;
        }
    }

    /// As [`PlanMemory::forget_actions`]; evictions that wait are part of the status.
    pub fn forget_actions(&mut self, wanted: &[PreparedAction], snapshot: &Snapshot, skipped: bool) {
        let before = self.memory.blocked.message();
        self.memory.forget_actions(wanted, snapshot, skipped);
        if self.memory.blocked.message() != before {
            self.status.settled = None;
        }
    }

    /// X9: to follow what is only read is no fight, however often that changes. So the breaker closes, and counts anew.
    pub fn follow(&mut self, spec: &ControllerSpec, snapshot: &Snapshot) {
        let last = self.last.as_ref().filter(|_| self.breaker.is_some());
        if last.is_some_and(|last| last.reads.has_changed_of(|kind| spec.only_reads(kind), snapshot)) {
            self.breaker = None;
        }
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.turn.work, Work::Idle)
    }

    /// Marks the key to be looked at again; the more urgent lane wins.
    pub fn mark_dirty(&mut self, lane: Lane) {
        self.turn.dirty = Some(self.turn.dirty.map_or(lane, |before| before.min(lane)));
    }
}
