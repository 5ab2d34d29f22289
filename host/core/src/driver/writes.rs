//! Carrying a plan out: stage after stage, in bounded batches, with every answer of the API server classified. The first
//! failure ends the plan; what is left of it is found again by the next diff.

use std::sync::Arc;

use super::keys::{KeyState, Run, RunFailure, StalledReason, Work};
use super::{Driver, LiveRead, ReadFor, WriteFor};
use crate::backoff::Patience;
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::kube_event::EventRecord;
use crate::limits::WRITE_TIMEOUT_MS;
use crate::object::{Object, ObjectRef};
use crate::observation::{Observation, ReconcileResult};
use crate::plan;
use crate::workqueue::Key;
use crate::write::{WriteError, WriteErrorClass, WriteId, WriteOp, Written};

/// Deletes and status writes of one key that may be in flight at once.
const MAX_BATCH: usize = 16;

impl Driver {
    pub(super) fn begin_run(&mut self, key: &Key, run: Run, effects: &mut Vec<Effect>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        state.work = Work::Writing(Box::new(run));
        self.writing.begin(&controller.plugin);
        self.pump_run(key, effects);
    }

    /// Sends the next batch when the last one is answered, and ends the run when nothing is left.
    fn pump_run(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        let may_write = self.may_write();
        let Some(KeyState { work: Work::Writing(run), .. }) = self.keys.get_mut(key) else { return };
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
        if run.failed.is_some() || self.draining || is_held_back {
            return self.end_run(key, effects);
        }
        let Some(stage) = run.stages.front_mut() else { return self.end_run(key, effects) };
        let room = if stage.slow_start { run.batch } else { MAX_BATCH };
        run.batch = run.batch.saturating_mul(2);
        let count = room.min(stage.writes.len());
        let batch: Vec<WriteOp> = stage.writes.drain(..count).collect();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        run.in_flight = count;
        run.sent = run.sent.saturating_add(count);
        let plugin = self.controllers.get(&key.controller).map(|controller| Arc::clone(&controller.plugin));
        for op in batch {
            self.send(plugin.clone(), op.clone(), WriteFor::Key(key.clone(), op), effects);
        }
    }

    /// The object that a key is about, as it is now, as long as it is reconciled.
    pub(super) fn primary_of(&self, key: &Key) -> Option<Arc<Object>> {
        let controller = self.controllers.get(&key.controller)?;
        self.store
            .snapshot()
            .get(&controller.spec.primary, &key.name)
            .filter(|object| controller.reconciles(object))
            .cloned()
    }

    /// A key is written no more: its run is through, or it is forgotten. Its controller is there still.
    pub(super) fn writing_ended(&mut self, key: &Key) {
        if let Some(controller) = self.controllers.get(&key.controller) {
            self.writing.end(&controller.plugin);
            self.queue.unpark_plugins();
        }
    }

    fn end_run(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let Work::Writing(mut run) = std::mem::take(&mut state.work) else { return };
        self.writing_ended(key);
        // A key lives no longer than its controller.
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let object = ObjectRef { kind: controller.spec.primary.clone(), name: key.name.clone() };
        let Some(primary) = self.primary_of(key) else {
            let controller = Arc::clone(&controller.label);
            effects.push(Effect::Observe(Observation::TurnEnded { controller, object }));
            self.drop_key(key);
            return;
        };
        let Some(failure) = run.failed.take() else { return self.end_turn(key, &run, effects) };
        let patience = Self::patience(failure.class);
        let mut requeue_ms = self.count_failure(key, patience);
        if let WriteErrorClass::TooManyRequests { retry_after_ms } = failure.class {
            requeue_ms = requeue_ms.max(retry_after_ms);
        }
        run.ending.result = ReconcileResult::Error;
        run.ending.requeue_ms = Some(requeue_ms);
        if let Some(state) = self.keys.get_mut(key) {
            // X11 counts anew from the plan that goes through: a status of before it is as old as ever.
            state.deferred_since_ms = None;
        }
        run.ending.hold = patience == Patience::Unreachable;
        let Some(stall) = failure.stall else { return self.end_turn(key, &run, effects) };
        self.stall(key, &primary, stall, effects);
        if failure.of_status {
            return self.end_turn(key, &run, effects);
        }
        // The guest's status stays back, however often this happens: it may well say that the child was made.
        self.write_stall_only(key, &primary, run.ending, run.skipped, effects);
    }

    pub(super) fn on_wrote(&mut self, id: WriteId, result: Result<Written, WriteError>, effects: &mut Vec<Effect>) {
        match self.writes.remove(&id) {
            Some(WriteFor::Key(key, op)) => self.on_key_wrote(&key, &op, result, effects),
            Some(WriteFor::Plugin(plugin, op)) => self.on_report_wrote(&plugin, &op, result, effects),
            Some(WriteFor::Orphan(name, op)) => self.on_orphan_deleted(&name, &op, result, effects),
            Some(WriteFor::Nobody(target)) => {
                if let Err(error) = result {
                    effects.push(Effect::Observe(Observation::WriteFailed { cause: None, target, error }));
                }
            }
            None => {}
        }
    }

    fn on_key_wrote(
        &mut self,
        key: &Key,
        op: &WriteOp,
        result: Result<Written, WriteError>,
        effects: &mut Vec<Effect>,
    ) {
        match result {
            Ok(written) => {
                self.note_permitted(key, op, effects);
                self.expect_write(key, op, &written);
            }
            Err(error) if error.class == WriteErrorClass::Blocked => self.on_blocked(key, op, &error.message, effects),
            Err(error) => {
                let (cause, target) = (self.cause(key), op.target().clone());
                effects.push(Effect::Observe(Observation::WriteFailed { cause, target, error: error.clone() }));
                self.note_may_land(key, op, &error);
                if self.on_key_write_error(key, op, &error, effects) {
                    // The answer comes with the live read; until then the write counts as in flight.
                    return;
                }
            }
        }
        self.write_answered(key, effects);
    }

    /// The API server goes on with a request for as long as one may take, also when nobody waits for its answer any more.
    fn note_may_land(&mut self, key: &Key, op: &WriteOp, error: &WriteError) {
        if error.class != WriteErrorClass::Unknown {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let lands_until_ms = self.now.mono_ms + WRITE_TIMEOUT_MS;
        match op {
            WriteOp::PatchStatus { .. } => state.status_lands_until_ms = lands_until_ms,
            WriteOp::Apply { target, .. } | WriteOp::Patch { target, .. } => {
                state.may_land_until_ms = lands_until_ms;
                // Children are collected with the object, whenever they land.
                if controller.spec.finalize && !state.wants_child(target) {
                    state.unsure.insert(target.clone());
                }
            }
            _ => {}
        }
    }

    fn write_answered(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        if let Some(KeyState { work: Work::Writing(run), .. }) = self.keys.get_mut(key) {
            run.in_flight = run.in_flight.saturating_sub(1);
            self.pump_run(key, effects);
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
            state.status_version = version;
        }
        state.remember(op, written.resource_version);
        // What is not watched is never shown, so nothing can wait for it.
        if controller.access.readable.contains(&op.target().kind) {
            state.expectations.retain(|before| before.target != *op.target());
            state.expectations.push(Expectation { target: op.target().clone(), uid, version });
        }
    }

    /// A budget does not allow an eviction now. That is no failure: what else the plan wants goes on, the object says whom it
    /// waits for, and the Pod's turn comes again.
    fn on_blocked(&mut self, key: &Key, op: &WriteOp, message: &str, effects: &mut Vec<Effect>) {
        let now_ms = self.now.mono_ms;
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.blocked.message();
        state.blocked.refuse(op.target(), message, now_ms);
        let words = state.blocked.message();
        if before == words {
            return;
        }
        state.settled_status = None;
        if let Work::Writing(run) = &mut state.work {
            run.look_again = true;
        }
        let (Some(owner), Some(words)) = (self.primary_of(key), words) else { return };
        if before.is_none() {
            self.tell(key, &owner, true, "EvictionBlocked", &words, effects);
        }
    }

    /// True when the answer has to wait for a live read.
    fn on_key_write_error(&mut self, key: &Key, op: &WriteOp, error: &WriteError, effects: &mut Vec<Effect>) -> bool {
        match (op, error.class) {
            // X3: our own first try may have made it. Whose it is decides.
            (WriteOp::Create { target, .. } | WriteOp::Apply { target, .. }, WriteErrorClass::AlreadyExists) => {
                self.read_live(key, target.clone(), ReadFor::Create, effects);
                return true;
            }
            // X4: another object of the same name, or none: what we meant to delete is gone. A view that still shows it is
            // behind, so it is waited for as if the delete had been ours.
            (
                WriteOp::Delete { target, uid, .. } | WriteOp::Evict { target, uid },
                WriteErrorClass::Conflict | WriteErrorClass::NotFound,
            ) => {
                if let Some(state) = self.keys.get_mut(key) {
                    state.blocked.forget(target);
                    let (target, uid) = (target.clone(), Arc::clone(uid));
                    state.expectations.retain(|before| before.target != target);
                    state.expectations.push(Expectation { target, uid, version: None });
                }
                return false;
            }
            // The object itself is gone; its own event says the rest. A conflict may as well mean that it changed too often
            // while it was being patched, so that is tried again.
            (WriteOp::PatchStatus { .. }, WriteErrorClass::NotFound) => return false,
            (_, WriteErrorClass::Denied) => self.note_denied(key, op, &error.message, effects),
            _ => {}
        }
        let failure = RunFailure {
            class: error.class,
            stall: Self::stall_of(op, error),
            of_status: matches!(op, WriteOp::PatchStatus { .. }),
        };
        if let Some(KeyState { work: Work::Writing(run), .. }) = self.keys.get_mut(key) {
            run.failed.get_or_insert(failure);
        }
        false
    }

    pub(super) fn on_live_read(
        &mut self,
        target: &ObjectRef,
        result: Result<Option<Arc<Object>>, WriteError>,
        effects: &mut Vec<Effect>,
    ) {
        let LiveRead { asked_ms, by } = self.live_reads.remove(target).unwrap_or_default();
        for (key, why) in by {
            match why {
                ReadFor::Create => {
                    self.on_existing_read(&key, target, &result);
                    self.write_answered(&key, effects);
                }
                ReadFor::View => self.on_lagging_read(&key, target, &result, effects),
                ReadFor::Landed => self.on_landed_read(&key, target, asked_ms, &result, effects),
            }
        }
    }

    /// What stands in the way of a create: ours, somebody else's, or nothing any more.
    fn on_existing_read(&mut self, key: &Key, target: &ObjectRef, result: &Result<Option<Arc<Object>>, WriteError>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let snapshot = self.store.snapshot();
        let owner_uid = snapshot.get(&controller.spec.primary, &key.name).map(|primary| Arc::clone(&primary.uid));
        let Some(state) = self.keys.get_mut(key) else { return };
        let failure = match result {
            Ok(Some(live)) => {
                if owner_uid.is_some_and(|uid| plan::is_child(&controller.spec, &uid, live)) {
                    state.expectations.push(Expectation {
                        target: target.clone(),
                        uid: Arc::clone(&live.uid),
                        version: Some(live.resource_version),
                    });
                    return;
                }
                let stall = Some(StalledReason::child_exists(target, &controller.spec.primary));
                RunFailure { class: WriteErrorClass::Conflict, stall, of_status: false }
            }
            // It existed and is gone again.
            Ok(None) => RunFailure { class: WriteErrorClass::Conflict, stall: None, of_status: false },
            Err(error) => RunFailure { class: error.class, stall: None, of_status: false },
        };
        if let Work::Writing(run) = &mut state.work {
            run.failed.get_or_insert(failure);
        }
    }

    /// R2's last resort: a write of which even the API server knows nothing any more is not waited for. One that it knows
    /// of is: then it is the view that is behind.
    fn on_lagging_read(
        &mut self,
        key: &Key,
        target: &ObjectRef,
        result: &Result<Option<Arc<Object>>, WriteError>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let Ok(live) = result else { return };
        state.expectations.retain(|write| {
            let same = live.as_ref().filter(|live| live.uid == write.uid);
            let still_holds = match write.version {
                Some(_) => same.is_some(),
                None => same.is_none_or(|live| live.deleting),
            };
            write.target != *target || still_holds
        });
        self.wake(key, crate::workqueue::Lane::Retry, effects);
    }

    pub(super) fn send_event(
        &mut self,
        plugin: Option<Arc<str>>,
        about: &Object,
        record: EventRecord,
        effects: &mut Vec<Effect>,
    ) {
        if !self.may_write() {
            return;
        }
        if let Some(op) = self.events.tell(self.now, plugin.as_deref(), about, record) {
            let target = op.target().clone();
            self.send(plugin, op, WriteFor::Nobody(target), effects);
        }
    }
}
