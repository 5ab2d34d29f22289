//! The state of one key. All of it may be lost at any time: a host that restarts without it converges to the same
//! state.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use super::replacements::Replacements;
use crate::breaker::Breaker;
use crate::budget::Budget;
use crate::component::Version;
use crate::dependencies::Dependencies;
use crate::dependency_index::CONFLICT_BYTES;
use crate::digest::fingerprint;
use crate::eviction::Blocked;
use crate::expectation::Expectation;
use crate::generated::fingerprint_of;
use crate::heap::{HeapBytes, tree};
use crate::http::OutgoingRequest;
use crate::left_out::LeftOut;
use crate::limits::WRITE_TIMEOUT_MS;
use crate::manifest::ControllerSpec;
use crate::object::{Kind, Object, ObjectRef, ResourceVersion};
use crate::observation::ReconcileResult;
use crate::permission::Permission;
use crate::plan::{self, Applied, Memory, Prepared, Sent, Taken, Written};
use crate::rejection::Rejections;
use crate::spared::{Spared, Undeletable};
use crate::store::Snapshot;
use crate::text::FAILURE;
use crate::workqueue::{Key, Lane};
use crate::write::{Cause, WriteErrorClass, WriteOp};

#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// The UID of the object; empty before its first turn.
    pub uid: Arc<str>,
    pub turn: Turn,
    /// Failures in a row (Q3).
    pub failures: u32,
    /// Outcomes in a row that were discarded because the object changed during the call.
    pub discarded: u32,
    pub last: Option<LastCall>,
    pub expectations: Expectations,
    pub unknown_writes: UnknownWrites,
    pub status: StatusWrites,
    pub memory: PlanMemory,
    pub breaker: Option<Breaker>,
    pub stalled: Option<StalledReason>,
    /// Others' objects that have the names of its children, and absent objects that it patches. Their deletion or
    /// creation wakes the key.
    pub name_conflicts: Vec<ObjectRef>,
    /// What of its outcomes could not be written: rare, so a pointer.
    pub rejections: Option<Box<Rejections>>,
    pub recorded: Recorded,
    /// Its last call ended in a fault. The key is in its plugin's faults then.
    pub is_faulted: bool,
    /// Permissions that the API server denied it.
    pub denied: BTreeSet<Permission>,
    /// What its share is charged for of what it keeps.
    pub kept_bytes: usize,
}

/// One turn: from the work queue to the last write.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub work: Work,
    /// It was woken during its turn, and returns to the queue afterwards.
    pub dirty: Option<Lane>,
    /// A version of the object seen during its writes. Whether it is the host's own is known when they have ended.
    pub unsorted_version: Option<ResourceVersion>,
    pub taken_ms: u64,
    /// Children have changed since the last call. Only known while the breaker is low.
    pub follows_children: bool,
}

/// The key's writes that the cache does not show yet (R2).
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub pending: Vec<Expectation>,
    pub waiting: Option<Waiting>,
}

/// The write that the key waits for the cache to show.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub since_ms: u64,
    pub target: ObjectRef,
}

impl Expectations {
    /// Replaces the expectation of an earlier write of the same object.
    pub fn expect(&mut self, write: Expectation) {
        self.pending.retain(|before| before.target != write.target);
        self.pending.push(write);
    }
}

/// Writes of unknown result, such as timeouts.
#[derive(Debug, Default)]
pub(super) struct UnknownWrites {
    /// Until when the API server may carry one out.
    pub until_ms: u64,
    /// The objects they write, except children. They are read live before the finalizer is removed.
    pub targets: BTreeSet<ObjectRef>,
    /// How often that read failed in a row.
    pub unread: u32,
    /// Another host may have left such writes. Their targets are not known here.
    pub inherited: bool,
}

/// The writes of the object's status.
#[derive(Debug, Default)]
pub(super) struct StatusWrites {
    /// The version that the last one created (W3).
    pub version: Option<ResourceVersion>,
    /// Until when the API server may carry out one of unknown result.
    pub unknown_until_ms: u64,
    /// The object's version and the outcome for which the status was found to need no write. Weak, so that an outcome
    /// for which there is no room is not kept here.
    pub in_sync: Option<(ResourceVersion, Weak<Prepared>)>,
    /// Since when the status waits for the children (X11).
    pub deferred_since_ms: Option<u64>,
    /// The writes for which it waits only create.
    pub follows_creates: bool,
}

/// What the next diff needs to know about earlier writes.
#[derive(Debug, Default)]
pub(super) struct PlanMemory {
    /// The last apply to each object.
    pub applied: Applied,
    /// The exact maps that were found to have nothing to remove.
    pub exact: Applied,
    /// The last patch of each object.
    pub sent: Sent,
    /// Evictions that a PodDisruptionBudget does not allow now.
    pub blocked: Blocked,
    /// Where deletes of unwanted children were denied.
    pub undeletable: Undeletable,
    pub replacements: Replacements,
}

/// Events that were recorded about the object.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// The Event "Finalizing".
    pub finalizing: bool,
    /// Hash of the guest's last events.
    pub guest_events: Option<u64>,
}

/// The reason and message of the object's Stalled condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StalledReason {
    pub reason: String,
    pub message: String,
}

/// The reason for children whose names others have.
pub(super) const CHILD_EXISTS: &str = "ChildExists";
/// The reason for children in the host's namespace.
const RESERVED_NAMESPACE: &str = "ReservedNamespace";
const HOSTS_NAMESPACE: &str =
    "it is the host's namespace, where a plugin writes only if spec.grants.hostNamespace of its Plugin is true";
/// The reason for ConfigMaps that bring plugins.
const RESERVED_CONFIG_MAP: &str = "ReservedConfigMap";
const PLUGINS_CONFIG_MAP: &str = "its label mortise.dev/plugin says that it brings a plugin, and a plugin writes such a ConfigMap only if \
     spec.grants.hostNamespace of its Plugin is true";
/// The reason for writes that the API server denies.
pub(super) const FORBIDDEN: &str = "Forbidden";
/// The reason for objects beyond `spec.grants.maxObjects`.
const TOO_MANY_OBJECTS: &str = "TooManyObjects";
/// The reason for patches of what does not exist.
pub(super) const NOT_FOUND: &str = "NotFound";
/// Objects that a Stalled condition names. `kubectl describe` shows its message in one line.
const MAX_NAMED: usize = 3;

impl StalledReason {
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: FAILURE.own(message.into()) }
    }

    /// The targets of patches do not exist.
    pub fn nothing_to_patch(targets: &[ObjectRef]) -> Option<Self> {
        let subject = subject(targets, "is", "are")?;
        let does_not = if targets.len() == 1 { "does not" } else { "do not" };
        Some(Self::new(NOT_FOUND, format!("{subject} to be patched and {does_not} exist")))
    }

    /// There is no room for the objects of an outcome beside those of other keys.
    pub fn too_many_objects(plugin: &str, wanted: usize, others: usize, most: usize) -> Self {
        let message = format!(
            "it wants {wanted} objects beside {others} of others, and spec.grants.maxObjects of the Plugin {plugin} lets them have \
             {most} in all, so none is created; raise it, or delete others"
        );
        Self::new(TOO_MANY_OBJECTS, message)
    }

    /// Actions would write in the host's namespace.
    pub fn actions_are_reserved(targets: &[ObjectRef]) -> Option<Self> {
        let subject = subject(targets, "is", "are")?;
        Some(Self::new(RESERVED_NAMESPACE, format!("{subject} not written: {HOSTS_NAMESPACE}")))
    }

    /// Actions would write ConfigMaps that bring plugins.
    pub fn actions_are_on_sources(targets: &[ObjectRef]) -> Option<Self> {
        let subject = subject(targets, "is", "are")?;
        Some(Self::new(RESERVED_CONFIG_MAP, format!("{subject} not written: {PLUGINS_CONFIG_MAP}")))
    }

    /// An object has the name of a child, and the plugin may not read whose it is.
    pub fn exists_unread(target: &ObjectRef, denial: &str) -> Self {
        let message = format!("{target} exists already, and the plugin may not read it there: {denial}");
        Self::new(CHILD_EXISTS, message)
    }

    /// Others' objects have the names of children (X3), or these would be in the host's namespace.
    pub fn children_exist(taken: &[Taken], owner: &Kind) -> Option<Self> {
        let (reserved, existing): (Vec<_>, Vec<_>) = taken.iter().partition(|taken| taken.is_reserved);
        if let Some(subject) = subject(&existing, "exists already and is", "exist already and are") {
            return Some(Self::new(CHILD_EXISTS, format!("{subject} not controlled by this {}", owner.kind)));
        }
        let subject = subject(&reserved, "is", "are")?;
        Some(Self::new(RESERVED_NAMESPACE, format!("{subject} not created: {HOSTS_NAMESPACE}")))
    }
}

/// The first objects, how many more there are, and the verb for one or several; None without any.
fn subject(objects: &[impl ToString], of_one: &str, of_several: &str) -> Option<String> {
    let shown: Vec<String> = objects.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let names = match (shown.split_last()?, objects.len() - shown.len()) {
        ((last, []), 0) => return Some(format!("{last} {of_one}")),
        ((last, first), 0) => format!("{} and {last}", first.join(", ")),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    };
    Some(format!("{names} {of_several}"))
}

/// What a key is doing.
#[derive(Debug, Default)]
pub(super) enum Work {
    #[default]
    Idle,
    Calling,
    Writing(Box<Run>),
}

/// A call that has not returned.
#[derive(Debug)]
pub(super) struct CallInFlight {
    pub key: Key,
    pub version: Version,
    pub plugin: Arc<str>,
    pub share: Arc<str>,
    pub cause: Cause,
    pub began_ms: u64,
    pub object: Arc<Object>,
    pub is_void: bool,
}

impl CallInFlight {
    /// Its snapshot lacks what another leader wrote, or has what a restore of etcd undid.
    pub fn make_void(&mut self) {
        self.is_void = true;
    }
}

/// The last call's inputs and outcome (W2).
#[derive(Clone, Debug)]
pub(super) struct LastCall {
    pub version: Version,
    pub uid: Arc<str>,
    /// The object's generation in the call.
    pub generation: i64,
    /// [`Object::edition`] of the object in the call.
    pub edition: u64,
    /// The objects for which the key has room: those of its last outcome that had it.
    pub objects: usize,
    pub reads: Dependencies,
    pub outcome: CallOutcome,
}

#[derive(Clone, Debug)]
pub(super) enum CallOutcome {
    Wants(Arc<Prepared>),
    Terminal(String),
    /// The call ended at a dynamic kind without a view.
    Waits(Kind),
    /// The call ended in a fault or a retry, or there was no room for its outcome. Its reads still wake the key.
    Absent,
}

/// A plan that is being written.
#[derive(Debug)]
pub(super) struct Run {
    pub stages: VecDeque<Stage>,
    pub in_flight: u32,
    pub sent: u32,
    /// The size of the next batch, for a stage with slow start.
    pub batch: usize,
    pub failed: Option<RunFailure>,
    pub ending: Ending,
    /// The guest was not called for this run.
    pub skipped: bool,
    /// Its writes change what the guest reads, so the key has to return to the queue.
    pub requeue: bool,
    /// The children that it writes: its outcome may not be kept.
    pub children: BTreeMap<ObjectRef, Written>,
    /// [`LastCall::edition`] and version of the call whose outcome it writes; None without an outcome.
    pub of: Option<(u64, Version)>,
    /// What is requested by HTTP when everything is written.
    pub requests: Vec<Arc<OutgoingRequest>>,
    /// [`Self::bytes`] when it began.
    pub began_bytes: usize,
}

/// One stage of a plan. The next begins when all of its writes have a response.
#[derive(Debug)]
pub(super) struct Stage {
    pub writes: VecDeque<WriteOp>,
    /// Begin with one write and double: a template that the API server rejects costs one request, not 500.
    pub slow_start: bool,
}

impl Stage {
    pub fn of_one(op: WriteOp) -> Self {
        Self { writes: [op].into(), slow_start: false }
    }
}

#[derive(Clone, Debug)]
pub(super) struct RunFailure {
    pub class: WriteErrorClass,
    pub stall: Option<StalledReason>,
    /// The status write was rejected, so a condition cannot be written either.
    pub of_status: bool,
}

/// How a reconcile ends when its writes have succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    pub result: ReconcileResult,
    /// When the key returns to the queue though nothing changes.
    pub requeue_ms: Option<u64>,
    /// The API server is unreachable or throttles: wake-ups during the turn wait until then too.
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
        Self {
            stages,
            in_flight: 0,
            sent: 0,
            batch: 1,
            failed: None,
            ending,
            skipped,
            requeue: false,
            children: BTreeMap::new(),
            of: None,
            requests: Vec::new(),
            began_bytes: 0,
        }
    }

    /// Bytes of the texts that it writes: those of the outcome are shared with what is kept of it.
    pub fn bytes(&self) -> usize {
        let writes = self.stages.iter().flat_map(|stage| &stage.writes);
        let written = self.children.iter().map(|(target, written)| target.heap_bytes() + written.key.heap_bytes());
        writes.map(WriteOp::bytes).sum::<usize>()
            + tree(self.children.len(), size_of::<(ObjectRef, Written)>())
            + written.sum::<usize>()
    }

    /// Another leader may have written since it was planned: what is not sent yet is planned anew.
    pub fn make_void(&mut self) {
        self.stages.clear();
        self.requests.clear();
        self.requeue = true;
    }
}

impl PlanMemory {
    /// For a plan of an outcome whose call was not shown these objects.
    pub fn of_plan<'a>(&'a mut self, left_out: &'a [LeftOut], now_ms: u64) -> Memory<'a> {
        let Self { applied, exact, sent, blocked, undeletable, replacements } = self;
        undeletable.end(now_ms);
        let spared = Spared { left_out, undeletable: (!undeletable.is_empty()).then_some((&*undeletable, now_ms)) };
        Memory { applied, exact, sent, blocked, creates: replacements.creates(now_ms), spared }
    }
}

impl LastCall {
    /// Bytes of its reads and its outcome.
    pub fn bytes(&self) -> usize {
        let of_outcome = match &self.outcome {
            CallOutcome::Wants(prepared) => prepared.bytes(),
            CallOutcome::Terminal(message) => message.heap_bytes(),
            CallOutcome::Waits(kind) => kind.api_version.heap_bytes() + kind.kind.heap_bytes(),
            CallOutcome::Absent => 0,
        };
        self.reads.bytes() + of_outcome
    }
}

impl HeapBytes for StalledReason {
    fn heap_bytes(&self) -> usize {
        self.reason.heap_bytes() + self.message.heap_bytes()
    }
}

impl KeyState {
    /// Bytes of what it keeps, beside what every key takes.
    pub fn count_bytes(&self) -> usize {
        let PlanMemory { applied, exact, sent, blocked, undeletable, replacements } = &self.memory;
        let of_targets = |targets: &Applied| {
            let names: usize = targets.keys().map(HeapBytes::heap_bytes).sum();
            tree(targets.len(), size_of::<(ObjectRef, (u128, ResourceVersion))>()) + names
        };
        let of_sent = sent.keys().map(|(target, subresource)| target.heap_bytes() + subresource.heap_bytes());
        self.last.as_ref().map_or(0, LastCall::bytes)
            + of_targets(applied)
            + of_targets(exact)
            + tree(sent.len(), size_of::<((ObjectRef, Option<Arc<str>>), (u128, ResourceVersion))>())
            + of_sent.sum::<usize>()
            + blocked.heap_bytes()
            + undeletable.heap_bytes()
            + replacements.heap_bytes()
            + self.expectations.pending.heap_bytes()
            + self.unknown_writes.targets.heap_bytes()
            + self.stalled.heap_bytes()
            + self.name_conflicts.len() * CONFLICT_BYTES
            + self.name_conflicts.heap_bytes()
            + self.rejections.as_ref().map_or(0, |rejections| rejections.bytes())
            + tree(self.denied.len(), size_of::<Permission>())
    }

    /// Resets the state when another object has the name now: failures, breaker and conditions belong to the old one.
    /// State that the Reconciler has indexed by key stays until it is replaced. Returns true for another object and at the first
    /// turn.
    pub fn reset_if_replaced(&mut self, uid: &Arc<str>) -> bool {
        let is_another = self.uid != *uid;
        if is_another {
            let before = std::mem::take(self);
            let replacements = if before.uid.is_empty() { before.memory.replacements } else { Replacements::default() };
            let memory = PlanMemory { replacements, ..PlanMemory::default() };
            let Self { expectations, last, name_conflicts, is_faulted, denied, kept_bytes, .. } = before;
            let uid = Arc::clone(uid);
            *self = Self {
                uid,
                expectations,
                last,
                name_conflicts,
                is_faulted,
                denied,
                kept_bytes,
                memory,
                ..Self::default()
            };
        }
        is_another
    }

    pub fn forget_versions(&mut self) {
        self.memory.replacements.inherit();
        self.expectations = Expectations::default();
        self.status.version = None;
        self.status.in_sync = None;
        self.memory.applied.clear();
        self.memory.exact.clear();
        self.memory.sent.clear();
        self.turn.unsorted_version = None;
    }

    /// The last outcome.
    pub fn wanted(&self) -> Option<&Prepared> {
        match &self.last.as_ref()?.outcome {
            CallOutcome::Wants(prepared) => Some(prepared),
            CallOutcome::Terminal(_) | CallOutcome::Waits(_) | CallOutcome::Absent => None,
        }
    }

    /// Another host may have left writes in flight for the object.
    pub fn expect_others_writes(&mut self, now_ms: u64) {
        self.unknown_writes.until_ms = now_ms + WRITE_TIMEOUT_MS;
        self.unknown_writes.inherited = true;
    }

    /// Remembers a write that succeeded.
    pub fn remember(&mut self, op: &WriteOp, version: ResourceVersion) {
        let memory = &mut self.memory;
        match op {
            WriteOp::Apply { target, body, draws, .. } => {
                let generated = draws.as_ref().map_or(&[][..], |draws| &draws.wanted);
                memory.applied.insert(target.clone(), (fingerprint_of(body, generated), version));
                return;
            }
            WriteOp::Patch { target, body, subresource, .. } => {
                memory.sent.insert((target.clone(), subresource.clone()), (fingerprint(&[body]), version));
            }
            WriteOp::Evict { target, .. } => {
                memory.blocked.forget(target);
                self.status.in_sync = None; // It lists blocked evictions.
            }
            WriteOp::Create { .. } | WriteOp::Delete { .. } | WriteOp::PatchStatus { .. } => {}
        }
        memory.applied.remove(op.target());
    }

    /// Forgets writes that are no longer wanted, and evictions of Pods that are gone. Unless the call was `skipped`,
    /// the outcome may be another, and something that the guest reads has changed, perhaps a PodDisruptionBudget, so
    /// blocked evictions are retried sooner.
    pub fn forget_unwanted(&mut self, wanted: &Prepared, snapshot: &Snapshot, skipped: bool) {
        let memory = &mut self.memory;
        if !skipped {
            let actions: BTreeSet<&ObjectRef> = wanted.actions.iter().map(|action| &action.target).collect();
            let children = || wanted.children.iter().flatten();
            // Most keys remember nothing of their children.
            let names = LazyCell::new(|| BTreeSet::from_iter(children().map(|child| &child.target)));
            let keys = LazyCell::new(|| BTreeSet::from_iter(children().map(|child| (&child.target.kind, &*child.key))));
            // A successor has another name.
            let has_key = |target: &ObjectRef| {
                let live = snapshot.get(&target.kind, &target.name);
                live.and_then(|live| live.child_key.as_deref()).is_some_and(|key| keys.contains(&(&target.kind, key)))
            };
            let is_child = |target: &ObjectRef| names.contains(target) || has_key(target);
            memory.sent.retain(|(target, _), _| actions.contains(target) || is_child(target));
            memory.applied.retain(|target, _| actions.contains(target) || is_child(target));
            memory.exact.retain(|target, _| is_child(target));
        }
        let Some(before) = memory.blocked.message() else { return };
        let pods: BTreeSet<&ObjectRef> = plan::evictions(&wanted.actions).collect();
        let exists = |pod: &ObjectRef| snapshot.get(&pod.kind, &pod.name).is_some_and(|live| !live.deleting);
        memory.blocked.keep(|pod| pods.contains(pod) && exists(pod));
        if !skipped {
            memory.blocked.hurry();
        }
        if memory.blocked.message() != Some(before) {
            self.status.in_sync = None;
        }
    }

    /// X9: writes that follow a change of a kind that the controller only reads are no fight, so such a change closes
    /// the breaker. Nor is a status that follows children.
    pub fn close_breaker_if_inputs_changed(&mut self, spec: &ControllerSpec, snapshot: &Snapshot, looks: &Budget) {
        self.turn.follows_children = false;
        let (Some(last), Some(breaker)) = (&self.last, &self.breaker) else { return };
        if last.reads.has_changed_of(|kind| spec.only_reads(kind), snapshot, looks) {
            self.breaker = None;
        } else if breaker.is_low() {
            self.turn.follows_children = last.reads.has_changed_of(|kind| spec.owned(kind).is_some(), snapshot, looks);
        }
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.turn.work, Work::Idle)
    }

    /// The run, while the key is being written.
    pub fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.turn.work {
            Work::Writing(run) => Some(run),
            Work::Idle | Work::Calling => None,
        }
    }

    /// Returns the key to the queue after its turn, in the most urgent lane.
    pub fn mark_dirty(&mut self, lane: Lane) {
        self.turn.dirty = Some(self.turn.dirty.map_or(lane, |before| before.min(lane)));
    }
}
