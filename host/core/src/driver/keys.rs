//! What the driver remembers of one object under reconciliation. Everything here may be lost at any moment: a restart
//! begins with none of it and ends in the same place.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::breaker::Breaker;
use crate::event::{Digest, ReconcileResult, WriteErrorClass, WriteOp};
use crate::object::{Kind, ObjectRef, ResourceVersion};
use crate::own_write::OwnWrite;
use crate::plan::{Applied, Prepared};
use crate::queue::Lane;
use crate::read_set::ReadSet;

/// One key's state.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// The object that all of this is about; empty before its first turn.
    pub uid: Arc<str>,
    pub work: Work,
    /// It woke while it was at work, and goes back into the queue when that ends.
    pub dirty: Option<Lane>,
    /// A change of the object itself that came while its own writes were under way; ours or not is known afterwards.
    pub unsorted_version: Option<ResourceVersion>,
    pub taken_ms: u64,
    pub failures: u32,
    /// Answers that were thrown away because the object had changed during the call.
    pub discarded: u32,
    pub last: Option<LastCall>,
    /// Writes that the view does not show yet (R2).
    pub own_writes: Vec<OwnWrite>,
    /// What was applied last to each child that is changed in place.
    pub applied: Applied,
    /// Since when the key waits for them.
    pub gated_since_ms: Option<u64>,
    /// The version that our last status write made (W3).
    pub status_version: Option<ResourceVersion>,
    /// The version of the object, and what was wanted of it, when its status was found to need no write.
    pub settled_status: Option<(ResourceVersion, Arc<Prepared>)>,
    /// Since when the status waits for the children (X11).
    pub deferred_since_ms: Option<u64>,
    pub breaker: Option<Breaker>,
    /// Why the object gets no further; the reason and message of its Stalled condition.
    pub stalled: Option<Stall>,
    /// Objects of others that have the names of its children; their going wakes it.
    pub taken: Vec<ObjectRef>,
    /// Hash of the guest's events that were told last.
    pub told: Option<u64>,
}

/// Why an object gets no further.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stall {
    pub reason: String,
    pub message: String,
}

impl Stall {
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
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
    pub digest: Digest,
    pub config: Arc<str>,
    pub uid: Arc<str>,
    /// The generation that the guest was given.
    pub generation: i64,
    pub reads: ReadSet,
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

#[derive(Clone, Debug)]
pub(super) struct RunFailure {
    pub class: WriteErrorClass,
    pub stall: Option<Stall>,
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

impl KeyState {
    /// Begins anew when another object has taken the name: its failures, its breaker and its conditions were not those of
    /// this one. What the driver has registered under the key stays until it is replaced.
    pub fn meet(&mut self, uid: &Arc<str>) {
        if self.uid != *uid {
            let Self { own_writes, last, taken, .. } = std::mem::take(self);
            *self = Self { uid: Arc::clone(uid), own_writes, last, taken, ..Self::default() };
        }
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.work, Work::Idle)
    }

    /// Marks the key to be looked at again; the more urgent lane wins.
    pub fn mark_dirty(&mut self, lane: Lane) {
        self.dirty = Some(self.dirty.map_or(lane, |before| before.min(lane)));
    }
}
