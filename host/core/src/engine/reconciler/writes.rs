//! Carrying a plan out: stage after stage, in bounded batches, with every answer of the API server classified. The first
//! failure ends the plan; what is left of it is found again by the next diff.

use std::sync::Arc;

use super::Reconciler;
use super::key::{KeyState, Run, RunFailure, Turn, Work};
use super::live_reads::Reason;
use crate::backoff::Patience;
use crate::engine::context::Context;
use crate::engine::message::Owner;
use crate::expectation::Expectation;
use crate::limits::WRITE_TIMEOUT_MS;
use crate::object::Object;
use crate::observation::{Observation, ReconcileResult};
use crate::workqueue::Key;
use crate::write::{Cause, WriteError, WriteErrorClass, WriteOp, Written};

/// Deletes and status writes of one key that may be in flight at once.
const MAX_BATCH: usize = 16;

impl Reconciler {
    pub(super) fn begin_run(&mut self, key: &Key, run: Run, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        state.turn.work = Work::Writing(Box::new(run));
        self.writing.begin(&controller.plugin);
        self.pump_run(key, cx);
    }

    /// Sends the next batch when the last one is answered, and ends the run when nothing is left.
    fn pump_run(&mut self, key: &Key, cx: &mut Context<'_>) {
        let may_write = cx.may_write;
        let Some(KeyState { turn: Turn { work: Work::Writing(run), .. }, .. }) = self.keys.get_mut(key) else { return };
        if run.in_flight > 0 {
            return;
        }
        while run.stages.front().is_some_and(|stage| stage.writes.is_empty()) {
            run.stages.pop_front();
            run.batch = 1;
        }
        // X7: what is left of the plan is found again when there is the right to write it.
        let is_held_back = !may_write && !run.stages.is_empty();
        run.look_again |= is_held_back;
        if run.failed.is_some() || cx.draining || is_held_back {
            return self.end_run(key, cx);
        }
        let Some(stage) = run.stages.front_mut() else { return self.end_run(key, cx) };
        let room = if stage.slow_start { run.batch } else { MAX_BATCH };
        run.batch = run.batch.saturating_mul(2);
        let count = room.min(stage.writes.len());
        let batch: Vec<WriteOp> = stage.writes.drain(..count).collect();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        run.in_flight = count;
        run.sent = run.sent.saturating_add(count);
        let plugin = self.controllers.get(&key.controller).map(|controller| Arc::clone(&controller.plugin));
        let cause = self.cause(key);
        for op in batch {
            cx.send(plugin.clone(), cause.clone(), op, Owner::Key(key.clone()));
        }
    }

    /// The object that a key is about, as it is now, as long as it is reconciled.
    pub(super) fn primary_of(&self, key: &Key, cx: &Context<'_>) -> Option<Arc<Object>> {
        let controller = self.controllers.get(&key.controller)?;
        cx.store
            .snapshot()
            .get(&controller.spec.primary, &key.name)
            .filter(|object| controller.reconciles(object))
            .cloned()
    }

    fn end_run(&mut self, key: &Key, cx: &mut Context<'_>) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let Work::Writing(mut run) = std::mem::take(&mut state.turn.work) else { return };
        self.writing_ended(key);
        // A key lives no longer than its controller.
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let object = controller.object_of(key);
        let Some(primary) = self.primary_of(key, cx) else {
            let controller = Arc::clone(&controller.label);
            cx.observe(Observation::TurnEnded { controller, object });
            self.drop_key(key, cx);
            return;
        };
        let Some(failure) = run.failed.take() else { return self.end_turn(key, &run, cx) };
        let patience = Patience::after(failure.class);
        let mut requeue_ms = self.count_failure(key, patience);
        if let WriteErrorClass::TooManyRequests { retry_after_ms } = failure.class {
            requeue_ms = requeue_ms.max(retry_after_ms);
        }
        run.ending.result = ReconcileResult::Error;
        run.ending.requeue_ms = Some(requeue_ms);
        if let Some(state) = self.keys.get_mut(key) {
            // X11 counts anew from the plan that goes through: a status of before it is as old as ever.
            state.status.deferred_since_ms = None;
        }
        run.ending.hold = patience == Patience::Unreachable;
        let Some(stall) = failure.stall else { return self.end_turn(key, &run, cx) };
        self.stall(key, &primary, stall, cx);
        if failure.of_status {
            return self.end_turn(key, &run, cx);
        }
        // The guest's status stays back, however often this happens: it may well say that the child was made.
        self.write_stall_only(key, &primary, run.ending, run.skipped, cx);
    }

    /// What a key's turn is called outside.
    fn cause(&self, key: &Key) -> Option<Cause> {
        let controller = self.controllers.get(&key.controller)?;
        Some(Cause { controller: Arc::clone(&controller.label), object: controller.object_of(key) })
    }

    pub fn on_wrote(&mut self, key: &Key, op: &WriteOp, result: Result<Written, WriteError>, cx: &mut Context<'_>) {
        match result {
            Ok(written) => {
                self.note_permitted(key, op, cx);
                self.expect_write(key, op, &written);
            }
            Err(error) if error.class == WriteErrorClass::Blocked => self.on_blocked(key, op, &error.message, cx),
            Err(error) => {
                let (cause, target) = (self.cause(key), op.target().clone());
                cx.observe(Observation::WriteFailed { cause, target, error: error.clone() });
                self.note_unknown(key, op, &error, cx);
                if self.on_write_error(key, op, &error, cx) {
                    // The answer comes with the live read; until then the write counts as in flight.
                    return;
                }
            }
        }
        self.write_answered(key, cx);
    }

    /// The API server goes on with a request for as long as one may take, also when nobody waits for its answer any more.
    fn note_unknown(&mut self, key: &Key, op: &WriteOp, error: &WriteError, cx: &Context<'_>) {
        if error.class != WriteErrorClass::Unknown {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let lands_until_ms = cx.now.mono_ms + WRITE_TIMEOUT_MS;
        match op {
            WriteOp::PatchStatus { .. } => state.status.unknown_until_ms = lands_until_ms,
            WriteOp::Apply { target, .. } | WriteOp::Patch { target, .. } => {
                state.unknown_writes.until_ms = lands_until_ms;
                // Children are collected with the object, whenever they land.
                if controller.spec.finalize && !state.wants_child(target) {
                    state.unknown_writes.targets.insert(target.clone());
                }
            }
            _ => {}
        }
    }

    pub(super) fn write_answered(&mut self, key: &Key, cx: &mut Context<'_>) {
        if let Some(KeyState { turn: Turn { work: Work::Writing(run), .. }, .. }) = self.keys.get_mut(key) {
            run.in_flight = run.in_flight.saturating_sub(1);
            self.pump_run(key, cx);
        }
    }

    fn expect_write(&mut self, key: &Key, op: &WriteOp, written: &Written) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let (uid, version) = match op {
            WriteOp::Delete { uid, .. } | WriteOp::Evict { uid, .. } => (Arc::clone(uid), None),
            _ => (Arc::clone(&written.uid), Some(written.resource_version)),
        };
        if matches!(op, WriteOp::PatchStatus { .. }) {
            state.status.version = version;
        }
        state.remember(op, written.resource_version);
        // What is not watched is never shown, so nothing can wait for it.
        if controller.access.readable.contains(&op.target().kind) {
            state.expectations.expect(Expectation { target: op.target().clone(), uid, version });
        }
    }

    /// A budget does not allow an eviction now. That is no failure: what else the plan wants goes on, the object says whom it
    /// waits for, and the Pod's turn comes again.
    fn on_blocked(&mut self, key: &Key, op: &WriteOp, message: &str, cx: &mut Context<'_>) {
        let now_ms = cx.now.mono_ms;
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.memory.blocked.message();
        state.memory.blocked.refuse(op.target(), message, now_ms);
        let words = state.memory.blocked.message();
        if before == words {
            return;
        }
        state.status.settled = None;
        if let Work::Writing(run) = &mut state.turn.work {
            run.look_again = true;
        }
        let (Some(owner), Some(words)) = (self.primary_of(key, cx), words) else { return };
        if before.is_none() {
            self.record(key, &owner, true, "EvictionBlocked", &words, cx);
        }
    }

    /// True when the answer has to wait for a live read.
    fn on_write_error(&mut self, key: &Key, op: &WriteOp, error: &WriteError, cx: &mut Context<'_>) -> bool {
        match (op, error.class) {
            // X3: our own first try may have made it. Whose it is decides.
            (WriteOp::Create { target, .. } | WriteOp::Apply { target, .. }, WriteErrorClass::AlreadyExists) => {
                self.read_live(key, target.clone(), Reason::Exists, cx);
                return true;
            }
            // X4: another object of the same name, or none: what we meant to delete is gone. A view that still shows it is
            // behind, so it is waited for as if the delete had been ours.
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
            // The object itself is gone; its own event says the rest. A conflict may as well mean that it changed too often
            // while it was being patched, so that is tried again.
            (WriteOp::PatchStatus { .. }, WriteErrorClass::NotFound) => return false,
            (_, WriteErrorClass::Denied) => self.note_denied(key, op, &error.message, cx),
            _ => {}
        }
        let failure = RunFailure {
            class: error.class,
            stall: Self::stall_of(op, error),
            of_status: matches!(op, WriteOp::PatchStatus { .. }),
        };
        if let Some(KeyState { turn: Turn { work: Work::Writing(run), .. }, .. }) = self.keys.get_mut(key) {
            run.failed.get_or_insert(failure);
        }
        false
    }
}
