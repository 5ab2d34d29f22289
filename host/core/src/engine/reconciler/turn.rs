//! One turn of a key: taken from the work queue, delayed until the cache shows its writes (R2), called unless its
//! inputs are unchanged (W2). `run.rs` makes a plan of the outcome.

use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::cost;
use super::key::{CallInFlight, CallOutcome, Ending, KeyState, LastCall, Run, StalledReason, Waiting, Work};
use super::live_reads::Reason;
use crate::backoff::{FailureCause, delay_ms};
use crate::budget::Budget;
use crate::call::{Call, CallDone, CallId, Check, Conclusion};
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

/// The resync period: ten hours, as in controller-runtime, spread over one more so that keys do not come at once.
pub(super) const RESYNC_MS: u64 = 10 * 3_600 * 1_000;
const RESYNC_SPREAD_MS: u64 = 3_600 * 1_000;
/// How many outcomes in a row are discarded because the object changed during the call. The next one is used, so that
/// the children of an object that changes all the time are written.
const MAX_DISCARDED: u32 = 3;

impl Reconciler {
    pub(super) fn begin(&mut self, taken: Taken, cx: &mut Context<'_>) {
        let Taken { key, queued_ms } = taken;
        // The end of this turn sets the next delay.
        self.queue.cancel_delay(&key);
        if let Some(state) = self.keys.get_mut(&key)
            && !state.is_idle()
        {
            // Its delay ended during a turn (Q1).
            state.mark_dirty(Lane::Retry);
            return;
        }
        let snapshot = cx.store.snapshot();
        let Some(primary) = self.primary_of(&key, cx) else { return self.drop_key(&key, cx) };
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(&key) else { return };
        let now_ms = cx.now.mono_ms;
        let has_finalizer = finalizer::is_on(&primary, &controller.finalizer);
        if primary.deleting && !has_finalizer {
            // The garbage collector deletes its children, and nobody wants its requests.
            self.exchanges.drop_key(&key);
            return;
        }
        if state.reset_if_replaced(&primary.uid) {
            self.exchanges.drop_key(&key);
            if controller.spec.has_finalizer() && has_finalizer {
                // Another host, or an earlier plugin of this name, added it and may have left writes in flight.
                state.expect_others_writes(now_ms);
            }
        }
        state.memory.replacements.begin(now_ms);
        state.expectations.pending.retain(|write| !write.is_met_by(&snapshot));
        if let Some(write) = state.expectations.pending.first() {
            let target = write.target.clone();
            return self.wait_for_cache(&key, target, cx);
        }
        self.stop_waiting(&key);
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(&key) else { return };
        let looks = Budget::unlimited();
        state.close_breaker_if_inputs_changed(&controller.spec, &snapshot, &looks);
        let breaker = state.breaker.as_ref();
        if let Some(until_ms) = breaker.and_then(|breaker| breaker.open_until_ms(now_ms, primary.generation)) {
            self.charges.add(&mut self.queue, &controller.share, cost::of_looks(looks.spent()));
            self.queue.add_at(until_ms, &controller.share, key, Lane::Retry);
            return;
        }
        state.turn.taken_ms = now_ms;
        let label = Arc::clone(&controller.label);
        cx.observe(Observation::Taken { controller: label, queued_ms });
        if primary.deleting && !controller.spec.finalize {
            return self.release_finalizer(&key, &primary, cx);
        }
        self.call_unless_unchanged(&key, primary, &looks, cx);
    }

    /// W2: a key whose inputs hash as before is not called, and its outcome is compared again. `looks` is what the turn has
    /// looked at so far.
    fn call_unless_unchanged(&mut self, key: &Key, primary: Arc<Object>, looks: &Budget, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let snapshot = cx.store.snapshot();
        state.review_rejections(&controller.spec, &controller.version, &primary, &snapshot);
        let rejected = state.rejected();
        let replies = self.exchanges.replies(key);
        let kinds = self.dynamic_kinds.states(&controller.plugin);
        let inputs = Inputs {
            snapshot: &snapshot,
            primary: &primary,
            now_unix_ms: cx.now.unix_ms,
            config: &controller.version.config,
            rejected: &rejected,
            replies: &replies,
            kinds: &kinds,
        };
        let is_same = |last: &&LastCall| last.version == controller.version && last.uid == primary.uid;
        let unchanged = state.last.as_ref().filter(is_same).filter(|last| last.reads.holds(&inputs, looks));
        self.charges.add(&mut self.queue, &controller.share, cost::of_looks(looks.spent()));
        match unchanged.map(|last| (last.outcome.clone(), last.generation)) {
            None | Some((CallOutcome::Absent, _)) => self.call(key, primary, cx),
            Some((outcome, generation)) => self.act_on(key, &primary, &outcome, generation, true, cx),
        }
    }

    /// R2: the events of its own writes wake the key. After a while the host reads live and reports that its cache
    /// lags.
    fn wait_for_cache(&mut self, key: &Key, target: ObjectRef, cx: &mut Context<'_>) {
        let share = Arc::clone(&self.controllers[&key.controller].share);
        let now_ms = cx.now.mono_ms;
        let mut since_ms = self.stop_waiting(key).map_or(now_ms, |waiting| waiting.since_ms);
        if since_ms + CONSISTENCY_TIMEOUT_MS <= now_ms {
            since_ms = now_ms;
            cx.observe(Observation::CacheLagging { object: target.clone() });
            self.read_live(key, target.clone(), Reason::Lagging, cx);
        }
        let Some(state) = self.keys.get_mut(key) else { return };
        self.waiting.entry(target.clone()).or_default().insert(key.clone());
        state.expectations.waiting = Some(Waiting { since_ms, target });
        self.queue.add_at(since_ms + CONSISTENCY_TIMEOUT_MS, &share, key.clone(), Lane::Retry);
    }

    pub(super) fn call(&mut self, key: &Key, primary: Arc<Object>, cx: &mut Context<'_>) {
        self.last_call += 1;
        let id = CallId(self.last_call);
        let controller = self.controllers.get_mut(&key.controller).expect("begin has found this controller");
        let state = self.keys.get_mut(key).expect("begin has found this key");
        state.turn.work = Work::Calling;
        controller.calls += 1;
        self.calling.add(&controller.share, 1);
        let before = last_outcome(controller, state, &primary);
        let view = View::new(
            cx.store.snapshot(),
            Arc::clone(&primary),
            Arc::clone(&controller.access),
            cx.now.unix_ms,
            Arc::clone(&controller.version.config),
        )
        .with_rejected(state.rejected())
        .with_replies(self.exchanges.replies(key))
        .with_kinds(self.dynamic_kinds.states(&controller.plugin))
        .with_wanted(before.clone());
        let cause = controller.cause(key);
        cx.effects.push(Effect::Call(Box::new(Call {
            id,
            cause: cause.clone(),
            plugin: Arc::clone(&controller.plugin),
            share: Arc::clone(&controller.share),
            object: Arc::clone(&primary),
            view,
            limits: controller.limits,
            check: Check {
                spec: Arc::clone(&controller.spec),
                reserved: (!controller.version.grants.host_namespace).then(|| self.reserved.clone()),
                before,
                manager: Arc::clone(&controller.field_manager),
                snapshot: cx.store.snapshot(),
            },
        })));
        let call = CallInFlight {
            key: key.clone(),
            version: controller.version.clone(),
            plugin: Arc::clone(&controller.plugin),
            share: Arc::clone(&controller.share),
            cause,
            began_ms: cx.now.mono_ms,
            object: primary,
            is_void: false,
        };
        self.calls.insert(id, call);
    }

    pub fn on_call_done(&mut self, id: CallId, done: CallDone, cx: &mut Context<'_>) {
        let Some(CallInFlight { key, version, plugin, share, cause, object: called_with, is_void, .. }) =
            self.calls.remove(&id)
        else {
            return;
        };
        self.call_ended(key.controller, &share);
        self.queue.charge(&share, done.elapsed_us);
        self.charges.add_event(&mut self.queue, &share);
        let ended = Observation::TurnEnded { cause };
        let Some(controller) = self.controllers.get_mut(&key.controller) else { return cx.observe(ended) };
        controller.calls = controller.calls.saturating_sub(1);
        let Some(state) = self.keys.get_mut(&key) else { return cx.observe(ended) };
        state.turn.work = Work::Idle;
        let Some(primary) = cx.store.snapshot().get(&controller.spec.primary, &key.name).cloned() else {
            cx.observe(ended);
            return self.drop_key(&key, cx);
        };
        let is_another = primary.uid != called_with.uid || primary.deleting != called_with.deleting;
        let changed = is_another || primary.generation != called_with.generation;
        let is_stale = is_void || is_another || controller.version != version || !controller.reconciles(&primary);
        if is_stale || !cx.may_write || (changed && state.discarded < MAX_DISCARDED) {
            // L1: the outcome of a replaced version is discarded. X7: so is one that this host may not write any more.
            state.discarded += 1;
            state.turn.dirty = None;
            cx.observe(ended);
            return self.wake(&key, Lane::Live, cx);
        }
        state.discarded = 0;
        let outcome = match &done.conclusion {
            Conclusion::Wants(prepared) => CallOutcome::Wants(Arc::clone(prepared)),
            Conclusion::Failed(Failure::Terminal(message)) => CallOutcome::Terminal(message.clone()),
            Conclusion::Waits(kind) => CallOutcome::Waits(kind.clone()),
            Conclusion::Failed(Failure::Retry(_)) | Conclusion::Fault(_) => CallOutcome::Absent,
            // The guest did not run, so its last outcome and reads stay.
            Conclusion::HostFault(message) => return self.on_host_fault(&key, &primary, message, cx),
        };
        // The dependency index does not have these reads yet, so a change during the call did not wake the key.
        let looks = Budget::unlimited();
        if done.reads.is_outdated(cx.store, &looks) {
            state.mark_dirty(Lane::Live);
        }
        self.charges.add(&mut self.queue, &share, cost::of_looks(looks.spent()));
        let last = LastCall {
            version,
            uid: Arc::clone(&called_with.uid),
            generation: called_with.generation,
            edition: called_with.edition(),
            objects: state.last.as_ref().map_or(0, |last| last.objects),
            reads: done.reads,
            outcome: outcome.clone(),
        };
        let names_outdated = last.reads.names_outdated(&self.dynamic_kinds.states(&plugin));
        self.keep_call(&key, &primary, last, cx);
        if names_outdated && let Some(state) = self.keys.get_mut(&key) {
            state.mark_dirty(Lane::Live);
        }
        match done.conclusion {
            Conclusion::Fault(fault) => self.on_fault(&key, &primary, fault, cx),
            Conclusion::Failed(Failure::Retry(message)) => self.on_retry(&key, &primary, &message, cx),
            Conclusion::Waits(kind) => {
                self.clear_fault(&key, cx);
                self.wait_for_kind(&key, &primary, &kind, false, cx);
            }
            _ => {
                self.clear_fault(&key, cx);
                self.act_on(&key, &primary, &outcome, called_with.generation, false, cx);
            }
        }
    }

    /// Remembers a call, and records what it was not shown.
    fn keep_call(&mut self, key: &Key, primary: &Arc<Object>, last: LastCall, cx: &mut Context<'_>) {
        for left_out in last.reads.left_out() {
            self.record(key, primary, true, "ObjectsLeftOut", &left_out.to_string(), cx);
        }
        self.remember_call(key, last, cx);
    }

    fn act_on(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        outcome: &CallOutcome,
        generation: i64,
        skipped: bool,
        cx: &mut Context<'_>,
    ) {
        match outcome {
            CallOutcome::Absent => {}
            CallOutcome::Waits(kind) => self.wait_for_kind(key, primary, kind, skipped, cx),
            CallOutcome::Wants(prepared) => self.carry_out(key, primary, prepared, generation, skipped, cx),
            CallOutcome::Terminal(message) => {
                if let Some(last) = self.keys.get(key).and_then(|state| state.last.as_ref()) {
                    self.exchanges.quiet(key, |content| last.reads.has_reply(content));
                }
                self.stall(key, primary, StalledReason::new("Terminal", message), cx);
                let ending = Ending::new(ReconcileResult::Terminal, None);
                self.write_stall_only(key, primary, ending, skipped, cx);
            }
        }
    }

    fn on_fault(&mut self, key: &Key, primary: &Arc<Object>, fault: GuestFault, cx: &mut Context<'_>) {
        let (reason, message, words) = (fault.reason(), fault.message(), fault.without_words());
        cx.observe(Observation::Fault { cause: self.controllers[&key.controller].cause(key), fault });
        self.note_fault(key, fault_of(primary, &words), cx);
        self.stall(key, primary, StalledReason::new(reason, message), cx);
        let ending = self.error_ending(key);
        self.write_stall_only(key, primary, ending, false, cx);
    }

    /// The host could not run the call. A change of the object would not help, so its conditions stay.
    fn on_host_fault(&mut self, key: &Key, primary: &Arc<Object>, message: &str, cx: &mut Context<'_>) {
        self.record(key, primary, true, "HostFault", message, cx);
        let ending = self.error_ending(key);
        self.begin_run(key, Run::new(None, ending, false), cx);
    }

    fn on_retry(&mut self, key: &Key, primary: &Arc<Object>, message: &str, cx: &mut Context<'_>) {
        self.record(key, primary, true, "Retry", message, cx);
        self.clear_fault(key, cx);
        let ending = self.error_ending(key);
        self.write_retry_only(key, primary, message, ending, cx);
    }

    fn error_ending(&mut self, key: &Key) -> Ending {
        Ending::new(ReconcileResult::Error, Some(self.count_failure(key, FailureCause::Failed)))
    }

    /// Counts a failure of a key and returns its backoff (Q3).
    pub(super) fn count_failure(&mut self, key: &Key, cause: FailureCause) -> u64 {
        let Some(state) = self.keys.get_mut(key) else { return 0 };
        state.failures = state.failures.saturating_add(1);
        delay_ms(state.failures, &key.name.to_string(), cause)
    }

    /// Ends a key's turn. It returns to the queue at once if it was woken meanwhile, else at its requeue or the resync.
    pub(super) fn end_turn(&mut self, key: &Key, run: &Run, cx: &mut Context<'_>) {
        let Some(cause) = self.cause(key) else { return };
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let now_ms = cx.now.mono_ms;
        cx.observe(Observation::Reconciled {
            cause,
            result: run.ending.result,
            elapsed_ms: now_ms.saturating_sub(state.turn.taken_ms),
            writes: run.sent,
            skipped: run.skipped,
        });
        let failed = run.ending.result == ReconcileResult::Error;
        if !failed {
            state.failures = 0;
        }
        // A blocked eviction and a denied delete have their own retries, which may be earlier than the guest's requeue.
        let retries = [state.memory.blocked.next_ms(), state.memory.undeletable.next_ms(now_ms)];
        let retry_ms = retries.into_iter().flatten().map(|at_ms| at_ms.saturating_sub(now_ms)).min();
        let requeue_ms = run.ending.requeue_ms.into_iter().chain(retry_ms.filter(|_| !failed)).min();
        let due_ms = match requeue_ms {
            Some(requeue_ms) => now_ms.saturating_add(requeue_ms),
            None => {
                now_ms + RESYNC_MS + spread(&[&controller.label, &key.name.namespace, &key.name.name], RESYNC_SPREAD_MS)
            }
        };
        let lane = if requeue_ms.is_some() { Lane::Retry } else { Lane::Resync };
        if let Some(version) = state.turn.unsorted_version.take()
            && (state.status.version != Some(version) || state.status.unknown_until_ms > now_ms)
        {
            state.mark_dirty(Lane::Live);
        }
        let again = state.turn.dirty.take().or((run.requeue && !failed).then_some(Lane::Live));
        let again = again.filter(|_| !run.ending.hold);
        if failed {
            // The backoff replaces delays of the plan, such as that of a deferred status.
            self.queue.cancel_delay(key);
        }
        self.queue.add_at(due_ms, &controller.share, key.clone(), lane);
        if let Some(lane) = again {
            self.wake(key, lane, cx);
        }
        if !failed {
            self.request(key, run, cx);
            self.review_denials(key, cx);
        }
        self.count_kept(key);
    }
}

/// A fault as the Plugin object shows it: those who may read that may not read what the guest has read.
fn fault_of(primary: &Object, what: &str) -> String {
    let ObjectRef { kind, name } = primary.reference();
    let namespace = if name.namespace.is_empty() { String::new() } else { format!(" -n {}", name.namespace) };
    format!(
        "{}: {what}; `kubectl describe {} {}{namespace}` and the host's log have what it said",
        primary.reference(),
        kind.kind.to_lowercase(),
        name.name
    )
}

/// The last outcome, if the serving version returned it for this very object.
fn last_outcome(controller: &Controller, state: &KeyState, primary: &Object) -> Option<Arc<Prepared>> {
    let is_same = |last: &&LastCall| last.version == controller.version && last.uid == primary.uid;
    match &state.last.as_ref().filter(is_same)?.outcome {
        CallOutcome::Wants(prepared) => Some(Arc::clone(prepared)),
        CallOutcome::Terminal(_) | CallOutcome::Waits(_) | CallOutcome::Absent => None,
    }
}
