//! Writes a plan: stage by stage, in bounded batches. The first failure ends the run; the next diff finds what is still
//! missing.

use std::sync::Arc;

use super::controller::Controller;
use super::key::{FORBIDDEN, KeyState, NOT_FOUND, Run, RunFailure, Work};
use super::ledger::Bounds;
use super::live_reads::Reason;
use super::{Reconciler, cost};
use crate::backoff::{FailureCause, postponed_ms};
use crate::engine::context::Context;
use crate::engine::message::{Owner, Sender};
use crate::expectation::Expectation;
use crate::limits::WRITE_TIMEOUT_MS;
use crate::object::{Object, ObjectRef};
use crate::observation::{Observation, ReconcileResult};
use crate::workqueue::Key;
use crate::write::{Cause, WriteError, WriteErrorClass, WriteOp, Written};

/// Writes of one key that are sent at once, and so wait together: some times those that a share has in flight, so that its keys
/// take turns. A slow start ends with as many.
const MAX_BATCH: usize = 16;
/// Of the plans that are being written: eight of the largest outcomes of one share, and an eighth of the memory limit of the
/// Deployment in deploy/ of all. Each share has one plan beyond that, as large as an outcome may be.
pub(super) const BOUNDS: Bounds = Bounds { share: 64 << 20, total: 256 << 20, own: 0, reserve: 0 };

impl Reconciler {
    pub(super) fn begin_run(&mut self, key: &Key, mut run: Run, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        if run.stages.is_empty() {
            return self.end_turn(key, &run, cx);
        }
        run.began_bytes = run.bytes();
        self.writing_bytes.add(&controller.share, run.began_bytes);
        state.turn.work = Work::Writing(Box::new(run));
        self.writing.add(&controller.share, 1);
        self.pump_run(key, cx);
    }

    /// Sends the next batch when the last one has all its responses, and ends the run after the last stage.
    fn pump_run(&mut self, key: &Key, cx: &mut Context<'_>) {
        let Some(run) = self.keys.get_mut(key).and_then(KeyState::run_mut).filter(|run| run.in_flight == 0) else {
            return;
        };
        while run.stages.front().is_some_and(|stage| stage.writes.is_empty()) {
            run.stages.pop_front();
            run.batch = 1;
        }
        // X7: the rest of the plan is computed again when this host may write.
        let is_held_back = !cx.may_write && !run.stages.is_empty();
        run.requeue |= is_held_back;
        if run.failed.is_some() || cx.draining || is_held_back {
            return self.end_run(key, cx);
        }
        let Some(stage) = run.stages.front_mut() else { return self.end_run(key, cx) };
        let room = if stage.slow_start { run.batch } else { MAX_BATCH };
        run.batch = (run.batch * 2).min(MAX_BATCH);
        let count = room.min(stage.writes.len());
        let batch: Vec<WriteOp> = stage.writes.drain(..count).collect();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        run.in_flight = count;
        run.sent = run.sent.saturating_add(count);
        let (by, cause) = (self.sender(key), self.cause(key));
        for op in batch {
            cx.send(by.clone(), cause.clone(), op, Owner::Key(key.clone()));
        }
    }

    /// The key's object in the cache, if the controller reconciles it.
    pub(super) fn primary_of(&self, key: &Key, cx: &Context<'_>) -> Option<Arc<Object>> {
        let controller = self.controllers.get(&key.controller)?;
        cx.store
            .snapshot()
            .get(&controller.spec.primary, &key.name)
            .filter(|object| controller.reconciles(object))
            .cloned()
    }

    fn end_run(&mut self, key: &Key, cx: &mut Context<'_>) {
        let (Some(controller), Some(state)) = (self.controllers.get(&key.controller), self.keys.get_mut(key)) else {
            return;
        };
        let Work::Writing(mut run) = std::mem::take(&mut state.turn.work) else { return };
        let share = Arc::clone(&controller.share);
        self.writing_ended(&share, &run);
        let Some(primary) = self.primary_of(key, cx) else {
            self.observe_turn_ended(key, cx);
            return self.drop_key(key, cx);
        };
        let Some(failure) = run.failed.take() else { return self.end_turn(key, &run, cx) };
        let cause = FailureCause::after(failure.class);
        let mut requeue_ms = self.count_failure(key, cause);
        if let WriteErrorClass::TooManyRequests { retry_after_ms } = failure.class {
            requeue_ms = requeue_ms.max(postponed_ms(retry_after_ms, &key.name.to_string()));
        }
        run.ending.result = ReconcileResult::Error;
        run.ending.requeue_ms = Some(requeue_ms);
        if let Some(state) = self.keys.get_mut(key) {
            // X11: the delay counts from the plan that succeeds.
            state.status.deferred_since_ms = None;
        }
        run.ending.hold = cause == FailureCause::Unreachable;
        let Some(stall) = failure.stall else { return self.end_turn(key, &run, cx) };
        self.stall(key, &primary, stall, cx);
        if failure.of_status {
            return self.end_turn(key, &run, cx);
        }
        // The guest's status is not written: it may claim that the child was created.
        self.write_stall_only(key, &primary, run.ending, run.skipped, cx);
    }

    /// A turn ends without a result, so that metrics do not count it as in progress.
    pub(super) fn observe_turn_ended(&self, key: &Key, cx: &mut Context<'_>) {
        if let Some(cause) = self.cause(key) {
            cx.observe(Observation::TurnEnded { cause });
        }
    }

    /// Who sends what a key writes.
    pub(super) fn sender(&self, key: &Key) -> Sender {
        self.controllers.get(&key.controller).map(Controller::sender).unwrap_or_default()
    }

    pub(super) fn cause(&self, key: &Key) -> Option<Cause> {
        let controller = self.controllers.get(&key.controller)?;
        Some(self.keys.get(key).map_or_else(|| controller.cause(key), |state| controller.cause_of(key, state)))
    }

    pub fn on_wrote(&mut self, key: &Key, op: &WriteOp, result: Result<Written, WriteError>, cx: &mut Context<'_>) {
        self.charge_event(key);
        match result {
            Ok(written) => {
                self.note_permitted(key, op, cx);
                self.expect_write(key, op, &written, cx.now.mono_ms);
            }
            Err(error) if error.class == WriteErrorClass::Blocked => self.on_blocked(key, op, &error.message, cx),
            Err(error) => {
                let (cause, target) = (self.cause(key), op.target().clone());
                cx.observe(Observation::WriteFailed { cause, target, error: error.clone() });
                self.note_unknown(key, op, &error, cx);
                if self.on_write_error(key, op, &error, cx) {
                    return; // The write counts as in flight until the live read is done.
                }
            }
        }
        self.write_ended(key, cx);
    }

    /// The API server may carry out a write until its timeout, also when the connection is lost.
    fn note_unknown(&mut self, key: &Key, op: &WriteOp, error: &WriteError, cx: &Context<'_>) {
        if error.class != WriteErrorClass::Unknown {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let until_ms = cx.now.mono_ms + WRITE_TIMEOUT_MS;
        state.memory.replacements.note_unknown(op, cx.now.mono_ms);
        match op {
            WriteOp::PatchStatus { .. } => state.status.unknown_until_ms = until_ms,
            WriteOp::Create { target, .. } if !controller.spec.tracks(&target.kind) => {}
            WriteOp::Create { target, .. } | WriteOp::Apply { target, .. } | WriteOp::Patch { target, .. } => {
                state.unknown_writes.until_ms = until_ms;
                // The garbage collector deletes the other children, however late they are created.
                let is_child = state.run_mut().is_some_and(|run| run.children.contains_key(target));
                let is_collected = is_child && !controller.spec.tracks(&target.kind);
                if controller.spec.has_finalizer() && !is_collected {
                    state.unknown_writes.targets.insert(target.clone());
                }
            }
            _ => {}
        }
    }

    pub(super) fn write_ended(&mut self, key: &Key, cx: &mut Context<'_>) {
        if let Some(run) = self.keys.get_mut(key).and_then(KeyState::run_mut) {
            run.in_flight = run.in_flight.saturating_sub(1);
            self.pump_run(key, cx);
        }
    }

    fn expect_write(&mut self, key: &Key, op: &WriteOp, written: &Written, now_ms: u64) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let (uid, version) = match op {
            WriteOp::Delete { uid, .. } | WriteOp::Evict { uid, .. } => (Arc::clone(uid), None),
            _ => (Arc::clone(&written.uid), Some(written.resource_version)),
        };
        if matches!(op, WriteOp::PatchStatus { .. }) {
            // One that changed nothing has the version of an earlier write, perhaps of one whose result is unknown.
            state.status.version = version.filter(|_| state.status.unknown_until_ms <= now_ms);
        }
        state.remember(op, written.resource_version);
        if state.succeed(op)
            && let Some(run) = state.run_mut()
        {
            run.requeue = true;
        }
        if let WriteOp::Apply { body, .. } | WriteOp::Patch { body, .. } = op {
            self.charges.add(&mut self.queue, &controller.share, cost::of_text(body.len()));
        }
        // The cache never shows an object that no informer watches.
        let target = op.target();
        if controller.spec.sees(&target.kind, &target.name.namespace) {
            state.expectations.expect(Expectation { target: target.clone(), uid, version });
        }
    }

    /// A PodDisruptionBudget does not allow an eviction now. That is no failure: the rest of the plan is written, the
    /// object's condition names the budget, and the eviction is retried.
    fn on_blocked(&mut self, key: &Key, op: &WriteOp, message: &str, cx: &mut Context<'_>) {
        let now_ms = cx.now.mono_ms;
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.memory.blocked.message();
        state.memory.blocked.refuse(op.target(), message, now_ms);
        let after = state.memory.blocked.message();
        if before == after {
            return;
        }
        state.status.in_sync = None;
        if let Some(run) = state.run_mut() {
            run.requeue = true;
        }
        let (Some(owner), Some(message)) = (self.primary_of(key, cx), after) else { return };
        if before.is_none() {
            self.record(key, &owner, true, "EvictionBlocked", &message, cx);
        }
    }

    /// Whether an object is an unwanted child that anybody may have made: outside of its owner's namespace, and by its marks
    /// alone or without a field that a plugin wrote.
    fn is_stray(&self, key: &Key, target: &ObjectRef, cx: &Context<'_>) -> bool {
        let Some(wanted) = self.keys.get(key).and_then(KeyState::wanted) else { return false };
        let children = wanted.children.iter().flatten().map(|child| &child.target);
        let actions = wanted.actions.iter().map(|action| &action.target);
        let tracks = self.controllers.get(&key.controller).is_some_and(|it| it.spec.tracks(&target.kind));
        let is_anybodys = |live: &Arc<Object>| tracks || !live.is_written;
        target.name.namespace != key.name.namespace
            && !children.chain(actions).any(|wanted| wanted == target)
            && cx.store.snapshot().get(&target.kind, &target.name).is_some_and(is_anybodys)
            && self.primary_of(key, cx).is_some_and(|primary| !primary.deleting)
    }

    /// The plugin may not delete such an object. That is no failure of its owner, which does not want it.
    fn spare_stray(&mut self, key: &Key, target: &ObjectRef, message: &str, cx: &mut Context<'_>) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let is_new = state.memory.undeletable.deny(target, cx.now.mono_ms);
        let Some(primary) = self.primary_of(key, cx).filter(|_| is_new) else { return };
        let note = format!("{target} names this object as its owner, is not wanted, and cannot be deleted: {message}");
        self.record(key, &primary, true, FORBIDDEN, &note, cx);
    }

    /// Returns true when a live read decides the result.
    fn on_write_error(&mut self, key: &Key, op: &WriteOp, error: &WriteError, cx: &mut Context<'_>) -> bool {
        match (op, error.class) {
            // X3: our own first attempt may have created it.
            (WriteOp::Create { target, .. } | WriteOp::Apply { target, .. }, WriteErrorClass::AlreadyExists) => {
                if let Some(state) = self.keys.get_mut(key) {
                    state.memory.replacements.note_unknown(op, cx.now.mono_ms);
                }
                self.read_live(key, target.clone(), Reason::Exists, cx);
                return true;
            }
            // X4: the object of this UID is gone. Expect the cache to show that, as if the delete had succeeded.
            (
                WriteOp::Delete { target, uid, .. } | WriteOp::Evict { target, uid },
                WriteErrorClass::Conflict | WriteErrorClass::NotFound,
            ) => {
                if let Some(state) = self.keys.get_mut(key) {
                    state.memory.blocked.forget(target);
                    let (target, uid) = (target.clone(), Arc::clone(uid));
                    state.expectations.expect(Expectation { target, uid, version: None });
                }
                return false;
            }
            // The object is gone; its event follows. A conflict is retried: it may also mean that the object changed
            // too often while the API server patched it.
            (WriteOp::PatchStatus { .. }, WriteErrorClass::NotFound) => return false,
            (WriteOp::Delete { target, .. }, WriteErrorClass::Denied) if self.is_stray(key, target, cx) => {
                self.spare_stray(key, target, &error.message, cx);
                return false;
            }
            (_, WriteErrorClass::Denied) => self.note_denied(key, op, &error.message, cx),
            _ => {}
        }
        let of_status = matches!(op, WriteOp::PatchStatus { .. });
        // A child that is gone is created again.
        let run = self.keys.get_mut(key).and_then(KeyState::run_mut);
        let is_child = run.is_some_and(|run| run.children.contains_key(op.target()));
        let stall = Self::stall_of(op, error).filter(|stall| !is_child || stall.reason != NOT_FOUND);
        if let Some(stall) = stall.clone().filter(|_| !of_status) {
            self.note_rejected(key, op, stall);
        }
        let failure = RunFailure { class: error.class, stall, of_status };
        if let Some(run) = self.keys.get_mut(key).and_then(KeyState::run_mut) {
            run.failed.get_or_insert(failure);
        }
        false
    }
}
