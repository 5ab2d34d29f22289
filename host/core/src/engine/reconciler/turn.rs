//! One key's turn: taken from the queue, held back until the view shows its own writes (R2), called or not (W2), and its outcome
//! checked. `run.rs` makes a plan of it.

use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::key::{Answer, Ending, KeyState, LastCall, Run, StalledReason, Work};
use super::live_reads::Reason;
use crate::backoff::{Patience, delay_ms};
use crate::call::{Call, CallDone, CallId, Check, Conclusion};
use crate::component::Version;
use crate::contract::{Failure, GuestFault};
use crate::dependencies::Inputs;
use crate::digest::spread;
use crate::engine::context::Context;
use crate::event::Effect;
use crate::finalizer;
use crate::limits::CONSISTENCY_TIMEOUT_MS;
use crate::object::{Object, ObjectRef};
use crate::observation::{Observation, ReconcileResult};
use crate::plan::Prepared;
use crate::view::View;
use crate::workqueue::{Key, Lane, Taken};

/// The periodic look at every key: ten hours, as informers have it, spread over one more so that they do not come at
/// once. What a watch lost for good is found by it.
const RESYNC_MS: u64 = 10 * 3_600 * 1_000;
const RESYNC_SPREAD_MS: u64 = 3_600 * 1_000;
/// How often in a row an answer is thrown away because its object changed during the call. After that it is used: an
/// object that changes all the time must not keep its children from ever being written.
const MAX_DISCARDED: u32 = 3;

impl Reconciler {
    pub(super) fn begin(&mut self, taken: Taken, cx: &mut Context<'_>) {
        let Taken { key, queued_ms } = taken;
        // Whatever it was to come back for, it is here now; the end of this turn says anew when it comes back.
        self.queue.cancel_delay(&key);
        if let Some(state) = self.keys.get_mut(&key)
            && !state.is_idle()
        {
            // Its time has come while it was still at work (Q1).
            state.mark_dirty(Lane::Retry);
            return;
        }
        let snapshot = cx.store.snapshot();
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let spec = Arc::clone(&controller.spec);
        let Some(primary) =
            snapshot.get(&spec.primary, &key.name).filter(|object| controller.reconciles(object)).cloned()
        else {
            self.drop_key(&key, cx);
            return;
        };
        let Some(state) = self.keys.get_mut(&key) else { return };
        let now_ms = cx.now.mono_ms;
        if primary.deleting && !finalizer::is_on(&primary, &controller.finalizer) {
            // Its children are collected with it; there is nothing to reconcile any more.
            return;
        }
        if state.meet(&primary.uid) && spec.finalize && finalizer::is_on(&primary, &controller.finalizer) {
            // Whoever put it on, a host that died or a plugin that went, may have left writes under way.
            state.inherit(now_ms);
        }
        state.expectations.pending.retain(|write| !write.is_met_by(&snapshot));
        if let Some(write) = state.expectations.pending.first() {
            let target = write.target.clone();
            return self.wait_for_view(&key, target, cx);
        }
        self.stop_waiting(&key);
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(&key) else { return };
        state.follow(&spec, &snapshot);
        let breaker = state.breaker.as_ref();
        if let Some(until_ms) = breaker.and_then(|breaker| breaker.open_until_ms(now_ms, primary.generation)) {
            self.queue.add_at(until_ms, &controller.plugin, key, Lane::Retry);
            return;
        }
        state.turn.taken_ms = now_ms;
        let label = Arc::clone(&controller.label);
        cx.observe(Observation::Taken { controller: label, queued_ms });
        if primary.deleting && !controller.spec.finalize {
            return self.release_finalizer(&key, &primary, cx);
        }
        let inputs = Inputs {
            snapshot: &snapshot,
            primary: &primary,
            now_unix_ms: cx.now.unix_ms,
            config: &controller.version.config,
        };
        let unchanged = state
            .last
            .as_ref()
            .filter(|last| last.version == controller.version && last.uid == primary.uid && last.reads.holds(&inputs));
        match unchanged.map(|last| (last.answer.clone(), last.generation)) {
            None | Some((Answer::Nothing, _)) => self.call(&key, primary, cx),
            Some((answer, generation)) => self.act_on(&key, &primary, &answer, generation, true, cx),
        }
    }

    /// R2: the key waits for the watch to bring its own writes; their events wake it. After a while the host reads live and
    /// says that its cache lags.
    fn wait_for_view(&mut self, key: &Key, target: ObjectRef, cx: &mut Context<'_>) {
        let plugin = Arc::clone(&self.controllers[&key.controller].plugin);
        let now_ms = cx.now.mono_ms;
        let mut since_ms = self.wait_for(key, target.clone(), now_ms);
        if since_ms + CONSISTENCY_TIMEOUT_MS <= now_ms {
            self.stop_waiting(key);
            since_ms = self.wait_for(key, target.clone(), now_ms);
            cx.observe(Observation::CacheLagging { object: target.clone() });
            self.read_live(key, target, Reason::Lagging, cx);
        }
        self.queue.add_at(since_ms + CONSISTENCY_TIMEOUT_MS, &plugin, key.clone(), Lane::Retry);
    }

    fn call(&mut self, key: &Key, primary: Arc<Object>, cx: &mut Context<'_>) {
        self.last_call += 1;
        let id = CallId(self.last_call);
        let controller = self.controllers.get_mut(&key.controller).expect("begin has seen this controller");
        let state = self.keys.get_mut(key).expect("begin has seen this key");
        state.turn.work = Work::Calling;
        controller.calls += 1;
        self.calling.begin(&controller.plugin);
        let view = View::new(
            cx.store.snapshot(),
            Arc::clone(&primary),
            Arc::clone(&controller.access),
            cx.now.unix_ms,
            Arc::clone(&controller.version.config),
        );
        cx.effects.push(Effect::Call(Box::new(Call {
            id,
            controller: Arc::clone(&controller.label),
            plugin: Arc::clone(&controller.plugin),
            digest: controller.version.digest.clone(),
            object: Arc::clone(&primary),
            view,
            limits: controller.limits,
            check: Check { spec: Arc::clone(&controller.spec), before: last_outcome(controller, state, &primary) },
        })));
        let call = CallInFlight {
            key: key.clone(),
            version: controller.version.clone(),
            plugin: Arc::clone(&controller.plugin),
            label: Arc::clone(&controller.label),
            object: primary,
            is_void: false,
        };
        self.calls.insert(id, call);
    }

    pub fn on_call_done(&mut self, id: CallId, done: CallDone, cx: &mut Context<'_>) {
        let Some(CallInFlight { key, version, plugin, label, object: called_with, is_void }) = self.calls.remove(&id)
        else {
            return;
        };
        self.call_ended(key.controller, &plugin);
        self.queue.charge(&plugin, done.elapsed_us);
        let ended = Observation::TurnEnded { controller: label, object: called_with.reference() };
        let Some(controller) = self.controllers.get_mut(&key.controller) else { return cx.observe(ended) };
        controller.calls = controller.calls.saturating_sub(1);
        let Some(state) = self.keys.get_mut(&key) else { return cx.observe(ended) };
        state.turn.work = Work::Idle;
        let snapshot = cx.store.snapshot();
        let Some(primary) = snapshot.get(&controller.spec.primary, &key.name).cloned() else {
            cx.observe(ended);
            return self.drop_key(&key, cx);
        };
        let changed = primary.uid != called_with.uid || primary.generation != called_with.generation;
        let of_another_state = primary.uid != called_with.uid || primary.deleting != called_with.deleting;
        let is_moot = is_void || of_another_state || controller.version != version || !controller.reconciles(&primary);
        if is_moot || !cx.may_write || (changed && state.discarded < MAX_DISCARDED) {
            // L1: what a replaced version returned is thrown away too; the new one is called instead. And X7: what may not be
            // written any more is computed again by whoever may.
            state.discarded += 1;
            state.turn.dirty = None;
            cx.observe(ended);
            return self.wake(&key, Lane::Live, cx);
        }
        state.discarded = 0;
        let (answer, trouble) = match done.conclusion {
            Conclusion::Wants(prepared) => (Answer::Wants(prepared), None),
            Conclusion::Failed(Failure::Terminal(message)) => (Answer::Terminal(message), None),
            Conclusion::Failed(Failure::Retry(message)) => (Answer::Nothing, Some(Trouble::Retry(message))),
            // The guest did not run: what is known of its last outcome still holds, and still wakes the key.
            Conclusion::HostFault(message) => return self.on_host_fault(&key, &primary, &message, cx),
            Conclusion::Fault(fault) => (Answer::Nothing, Some(Trouble::Fault(fault))),
        };
        // What changed during the call found nobody who had asked for it yet.
        if done.reads.is_outdated(cx.store) {
            state.mark_dirty(Lane::Live);
        }
        let (uid, generation) = (Arc::clone(&called_with.uid), called_with.generation);
        let reads = done.reads;
        self.remember_call(&key, &plugin, LastCall { version, uid, generation, reads, answer: answer.clone() });
        match trouble {
            Some(Trouble::Fault(fault)) => self.on_fault(&key, &primary, fault, cx),
            Some(Trouble::Retry(message)) => self.on_retry_asked(&key, &primary, &message, cx),
            None => {
                self.clear_fault(&key, cx);
                self.act_on(&key, &primary, &answer, generation, false, cx);
            }
        }
    }

    /// Keeps what a call has read and returned. An outcome that does not fit is not kept: then the guest is called again.
    fn remember_call(&mut self, key: &Key, plugin: &Arc<str>, mut call: LastCall) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.last.take();
        self.index.replace(key, before.as_ref().map(|before| &before.reads), &mut call.reads);
        self.outcomes.release(plugin, before.map_or(0, |before| before.outcome_bytes()));
        if !self.outcomes.keep(plugin, call.outcome_bytes()) {
            call.answer = Answer::Nothing;
        }
        state.last = Some(call);
    }

    pub(super) fn forget_call(&mut self, key: &Key, plugin: &str) {
        let Some(last) = self.keys.get_mut(key).and_then(|state| state.last.take()) else { return };
        self.index.remove(key, &last.reads);
        self.outcomes.release(plugin, last.outcome_bytes());
    }

    fn act_on(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        answer: &Answer,
        generation: i64,
        skipped: bool,
        cx: &mut Context<'_>,
    ) {
        match answer {
            Answer::Nothing => {}
            Answer::Wants(prepared) => {
                if let Some(controller) = self.controllers.get(&key.controller) {
                    self.queue.charge(&controller.plugin, prepared.diff_us());
                }
                self.carry_out(key, primary, prepared, generation, skipped, cx);
            }
            Answer::Terminal(message) => {
                self.stall(key, primary, StalledReason::new("Terminal", message), cx);
                let ending = Ending::new(ReconcileResult::Terminal, None);
                self.write_stall_only(key, primary, ending, skipped, cx);
            }
        }
    }

    fn on_fault(&mut self, key: &Key, primary: &Arc<Object>, fault: GuestFault, cx: &mut Context<'_>) {
        let controller = &self.controllers[&key.controller];
        let (reason, message) = (fault.reason(), fault.message());
        cx.observe(Observation::Fault {
            controller: Arc::clone(&controller.label),
            object: primary.reference(),
            fault,
        });
        self.note_fault(key, format!("{}: {message}", primary.reference()), cx);
        self.stall(key, primary, StalledReason::new(reason, message), cx);
        let requeue_ms = Some(self.count_failure(key, Patience::Failed));
        self.write_stall_only(key, primary, Ending::new(ReconcileResult::Error, requeue_ms), false, cx);
    }

    /// The host could not run the call. Nobody can mend that on the object, so its conditions stay as they are.
    fn on_host_fault(&mut self, key: &Key, primary: &Arc<Object>, message: &str, cx: &mut Context<'_>) {
        self.record(key, primary, true, "HostFault", message, cx);
        let requeue_ms = Some(self.count_failure(key, Patience::Failed));
        self.begin_run(key, Run::new(None, Ending::new(ReconcileResult::Error, requeue_ms), false), cx);
    }

    fn on_retry_asked(&mut self, key: &Key, primary: &Arc<Object>, message: &str, cx: &mut Context<'_>) {
        self.record(key, primary, true, "Retry", message, cx);
        self.clear_fault(key, cx);
        self.clear_stall(key);
        let requeue_ms = Some(self.count_failure(key, Patience::Failed));
        self.write_stall_only(key, primary, Ending::new(ReconcileResult::Error, requeue_ms), false, cx);
    }

    /// Counts a failure of a key and says how long it has to wait (Q3).
    pub(super) fn count_failure(&mut self, key: &Key, patience: Patience) -> u64 {
        let Some(state) = self.keys.get_mut(key) else { return 0 };
        state.failures = state.failures.saturating_add(1);
        delay_ms(state.failures, &key.name.to_string(), patience)
    }

    /// Ends a key's turn: it comes back when it was woken meanwhile, when the guest asked for it, or at the resync.
    pub(super) fn end_turn(&mut self, key: &Key, run: &Run, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let now_ms = cx.now.mono_ms;
        cx.observe(Observation::Reconciled {
            controller: Arc::clone(&controller.label),
            object: controller.object_of(key),
            result: run.ending.result,
            elapsed_ms: now_ms.saturating_sub(state.turn.taken_ms),
            writes: run.sent,
            skipped: run.skipped,
        });
        let failed = run.ending.result == ReconcileResult::Error;
        if !failed {
            state.failures = 0;
        }
        // An eviction that waits for its budget is tried again in its time, whatever the guest has asked for.
        let evicts_in_ms = state.memory.blocked.next_ms().map(|at_ms| at_ms.saturating_sub(now_ms));
        let requeue_ms = run.ending.requeue_ms.into_iter().chain(evicts_in_ms.filter(|_| !failed)).min();
        let due_ms = match requeue_ms {
            Some(requeue_ms) => now_ms.saturating_add(requeue_ms),
            None => now_ms + RESYNC_MS + spread(&[&controller.label, &key.name.to_string()], RESYNC_SPREAD_MS),
        };
        let lane = if requeue_ms.is_some() { Lane::Retry } else { Lane::Resync };
        if let Some(version) = state.turn.unsorted_version.take()
            && (state.status.version != Some(version) || state.status.unknown_until_ms > now_ms)
        {
            state.mark_dirty(Lane::Live);
        }
        let again = state.turn.dirty.take().or((run.look_again && !failed).then_some(Lane::Live));
        let again = again.filter(|_| !run.ending.hold);
        if failed {
            // What the plan had set to come back to, such as a status that waits, is overtaken by the backoff.
            self.queue.cancel_delay(key);
        }
        self.queue.add_at(due_ms, &controller.plugin, key.clone(), lane);
        if let Some(lane) = again {
            self.wake(key, lane, cx);
        }
        if !failed {
            self.clear_denials(key, cx);
        }
    }
}

/// The last outcome of an object, if the version that serves has returned it for this very object.
fn last_outcome(controller: &Controller, state: &KeyState, primary: &Object) -> Option<Arc<Prepared>> {
    let is_same = |last: &&LastCall| last.version == controller.version && last.uid == primary.uid;
    match &state.last.as_ref().filter(is_same)?.answer {
        Answer::Wants(prepared) => Some(Arc::clone(prepared)),
        Answer::Terminal(_) | Answer::Nothing => None,
    }
}

/// Why a call led to nothing.
enum Trouble {
    Fault(GuestFault),
    Retry(String),
}

/// A call that is under way, with what it was given.
#[derive(Debug)]
pub(super) struct CallInFlight {
    key: Key,
    version: Version,
    plugin: Arc<str>,
    label: Arc<str>,
    object: Arc<Object>,
    is_void: bool,
}

impl CallInFlight {
    /// Its view is of before etcd was restored.
    pub fn make_void(&mut self) {
        self.is_void = true;
    }
}
