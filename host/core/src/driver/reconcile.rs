//! One key's way: taken from the queue, held back until the view shows our own writes (R2), called or not (W2), and its
//! outcome checked. `carry_out.rs` makes a plan of it.

use std::sync::Arc;

use super::keys::{Answer, Ending, KeyState, LastCall, Run, StalledReason, Work};
use super::{Controller, Driver, LiveRead, MAX_KEYS_WRITING, ReadFor};
use crate::backoff::{Patience, delay_ms};
use crate::call::{Call, CallDone, CallId};
use crate::contract::{CallResult, Failure, GuestFault, Outcome};
use crate::dependencies::Inputs;
use crate::digest::Digest;
use crate::digest::spread;
use crate::event::Effect;
use crate::finalizer;
use crate::limits::CONSISTENCY_TIMEOUT_MS;
use crate::object::{Object, ObjectRef};
use crate::observation::{Observation, ReconcileResult};
use crate::plan::{self, Prepared};
use crate::view::View;
use crate::workqueue::{Key, Lane, MayRun, Taken};

/// The periodic look at every key: ten hours, as informers have it, spread over one more so that they do not come at
/// once. What a watch lost for good is found by it.
const RESYNC_MS: u64 = 10 * 3_600 * 1_000;
const RESYNC_SPREAD_MS: u64 = 3_600 * 1_000;
/// How often in a row an answer is thrown away because its object changed during the call. After that it is used: an
/// object that changes all the time must not keep its children from ever being written.
const MAX_DISCARDED: u32 = 3;

impl Driver {
    /// Takes keys as long as there is room for their calls and writes.
    pub(super) fn run_queue(&mut self, effects: &mut Vec<Effect>) {
        for (key, lane) in self.queue.release(self.now.mono_ms) {
            if let Some(controller) = self.controllers.get(&key.controller) {
                let controller = Arc::clone(&controller.label);
                effects.push(Effect::Observe(Observation::Enqueued { controller, retry: lane == Lane::Retry }));
            }
        }
        let most_calls = most_calls_of_a_plugin(self.config.call_slots);
        let may_begin = !self.draining && self.may_write();
        while may_begin && self.calls.len() < self.config.call_slots && self.writing.total() < MAX_KEYS_WRITING {
            let may_write = |plugin: &str| {
                let writing = self.writing.of(plugin);
                writing < most_keys_writing_of_a_plugin(self.writing.total() - writing)
            };
            let may_run = |id| {
                let of_plugin = |controller: &Controller| {
                    self.calling.of(&controller.plugin) < most_calls && may_write(&controller.plugin)
                };
                let is_free =
                    |controller: &&Controller| controller.ready && controller.calls < controller.spec.concurrency;
                match self.controllers.get(&id).filter(is_free) {
                    None => MayRun::NotThisController,
                    Some(controller) if of_plugin(controller) => MayRun::Yes,
                    Some(_) => MayRun::NotThisPlugin,
                }
            };
            let Some(taken) = self.queue.take(self.now.mono_ms, may_run) else { break };
            self.begin(taken, effects);
        }
    }

    fn begin(&mut self, taken: Taken, effects: &mut Vec<Effect>) {
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
        let snapshot = self.store.snapshot();
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let spec = Arc::clone(&controller.spec);
        let Some(primary) =
            snapshot.get(&spec.primary, &key.name).filter(|object| controller.reconciles(object)).cloned()
        else {
            self.drop_key(&key);
            return;
        };
        let Some(state) = self.keys.get_mut(&key) else { return };
        let now_ms = self.now.mono_ms;
        if primary.deleting && !finalizer::is_on(&primary, &controller.finalizer) {
            // Its children are collected with it; there is nothing to reconcile any more.
            return;
        }
        if state.meet(&primary.uid) && spec.finalize && finalizer::is_on(&primary, &controller.finalizer) {
            // Whoever put it on, a host that died or a plugin that went, may have left writes under way.
            state.inherit(now_ms);
        }
        state.expectations.retain(|write| !write.is_met_by(&snapshot));
        if let Some(write) = state.expectations.first() {
            let since_ms = *state.gated_since_ms.get_or_insert(now_ms);
            let target = write.target.clone();
            self.wait_for_view(&key, since_ms, target, effects);
            return;
        }
        state.gated_since_ms = None;
        self.gated.remove(&key);
        state.follow(&spec, &snapshot);
        let breaker = state.breaker.as_ref();
        if let Some(until_ms) = breaker.and_then(|breaker| breaker.open_until_ms(now_ms, primary.generation)) {
            self.queue.add_at(until_ms, &controller.plugin, key, Lane::Retry);
            return;
        }
        state.taken_ms = now_ms;
        let label = Arc::clone(&controller.label);
        effects.push(Effect::Observe(Observation::Taken { controller: label, queued_ms }));
        if primary.deleting && !controller.spec.finalize {
            return self.release_finalizer(&key, &primary, effects);
        }
        let unchanged = state.last.as_ref().filter(|last| {
            last.digest == controller.digest
                && last.config == controller.config
                && last.uid == primary.uid
                && last.reads.holds(&Inputs {
                    snapshot: &snapshot,
                    primary: &primary,
                    now_unix_ms: self.now.unix_ms,
                    config: &controller.config,
                })
        });
        match unchanged.map(|last| (last.answer.clone(), last.generation)) {
            None | Some((Answer::Nothing, _)) => self.call(&key, primary, effects),
            Some((answer, generation)) => self.act_on(&key, &primary, &answer, generation, true, effects),
        }
    }

    /// R2: the key waits for the watch to bring its own writes; their events wake it. After a while the host looks for
    /// itself and says that its cache lags.
    fn wait_for_view(&mut self, key: &Key, since_ms: u64, target: ObjectRef, effects: &mut Vec<Effect>) {
        let plugin = Arc::clone(&self.controllers[&key.controller].plugin);
        self.gated.insert(key.clone());
        let mut due_ms = since_ms + CONSISTENCY_TIMEOUT_MS;
        if due_ms <= self.now.mono_ms {
            due_ms = self.now.mono_ms + CONSISTENCY_TIMEOUT_MS;
            if let Some(state) = self.keys.get_mut(key) {
                state.gated_since_ms = Some(self.now.mono_ms);
            }
            effects.push(Effect::Observe(Observation::CacheLagging { object: target.clone() }));
            self.read_live(key, target, ReadFor::View, effects);
        }
        self.queue.add_at(due_ms, &plugin, key.clone(), Lane::Retry);
    }

    fn call(&mut self, key: &Key, primary: Arc<Object>, effects: &mut Vec<Effect>) {
        let id = CallId(self.next_id());
        let controller = self.controllers.get_mut(&key.controller).expect("begin has seen this controller");
        controller.calls += 1;
        self.calling.begin(&controller.plugin);
        let view = View::new(
            self.store.snapshot(),
            Arc::clone(&primary),
            Arc::clone(&controller.access),
            self.now.unix_ms,
            Arc::clone(&controller.config),
        );
        effects.push(Effect::Call(Box::new(Call {
            id,
            controller: Arc::clone(&controller.label),
            plugin: Arc::clone(&controller.plugin),
            digest: controller.digest.clone(),
            object: Arc::clone(&primary),
            view,
            limits: controller.limits,
        })));
        let state = self.keys.get_mut(key).expect("begin has seen this key");
        state.work = Work::Calling;
        // The inputs are known now and the answer is not: until it comes, nothing can be skipped.
        self.calls.insert(id, key.clone());
        let inputs = CallInputs {
            digest: controller.digest.clone(),
            config: Arc::clone(&controller.config),
            plugin: Arc::clone(&controller.plugin),
            label: Arc::clone(&controller.label),
            called_with: primary,
        };
        self.call_inputs.insert(id, inputs);
    }

    pub(super) fn on_call_done(&mut self, id: CallId, done: CallDone, effects: &mut Vec<Effect>) {
        let (Some(key), Some(inputs)) = (self.calls.remove(&id), self.call_inputs.remove(&id)) else { return };
        let CallInputs { digest, config, plugin, label, called_with } = inputs;
        self.calling.end(&plugin);
        self.queue.unpark(key.controller);
        self.queue.unpark_plugins();
        let ended = Observation::TurnEnded { controller: label, object: called_with.reference() };
        let Some(controller) = self.controllers.get_mut(&key.controller) else {
            effects.push(Effect::Observe(ended));
            return;
        };
        controller.calls = controller.calls.saturating_sub(1);
        self.queue.charge(&controller.plugin, done.elapsed_us);
        let still_serves = controller.digest == digest && controller.config == config;
        let Some(state) = self.keys.get_mut(&key) else {
            effects.push(Effect::Observe(ended));
            return;
        };
        state.work = Work::Idle;
        let snapshot = self.store.snapshot();
        let Some(primary) = snapshot.get(&controller.spec.primary, &key.name).cloned() else {
            effects.push(Effect::Observe(ended));
            self.drop_key(&key);
            return;
        };
        let may_write = self.claim.allows_writes(self.now.mono_ms);
        let changed = primary.uid != called_with.uid || primary.generation != called_with.generation;
        let of_another_state = primary.uid != called_with.uid || primary.deleting != called_with.deleting;
        let is_moot = of_another_state || !controller.reconciles(&primary);
        if !still_serves || is_moot || !may_write || (changed && state.discarded < MAX_DISCARDED) {
            // L1: what a replaced version answered is thrown away too; the new one is asked instead. And X7: what may not be
            // written any more is asked about again by whoever may.
            state.discarded += 1;
            state.dirty = None;
            effects.push(Effect::Observe(ended));
            self.wake(&key, Lane::Live, effects);
            return;
        }
        state.discarded = 0;
        let (answer, trouble) = match done.result {
            CallResult::Done(outcome) => match prepared_anew(controller, state, &primary, &outcome) {
                Ok(prepared) => (Answer::Wants(prepared), None),
                Err(fault) => (Answer::Nothing, Some(Trouble::Fault(fault))),
            },
            CallResult::Failed(Failure::Terminal(message)) => (Answer::Terminal(message), None),
            CallResult::Failed(Failure::Retry(message)) => (Answer::Nothing, Some(Trouble::Retry(message))),
            // The guest was never asked: what is known of its last answer still holds, and still wakes the key.
            CallResult::HostFault(message) => return self.on_host_fault(&key, &primary, &message, effects),
            CallResult::Fault(fault) => (Answer::Nothing, Some(Trouble::Fault(fault))),
        };
        // What changed during the call found nobody who had asked for it yet.
        if done.reads.is_outdated(&self.store) {
            state.mark_dirty(Lane::Live);
        }
        let mut reads = done.reads;
        self.index.replace(&key, state.last.take().as_ref().map(|before| &before.reads), &mut reads);
        let (uid, generation) = (Arc::clone(&called_with.uid), called_with.generation);
        state.last = Some(LastCall { digest, config, uid, generation, reads, answer: answer.clone() });
        match trouble {
            Some(Trouble::Fault(fault)) => self.on_fault(&key, &primary, fault, effects),
            Some(Trouble::Retry(message)) => self.on_retry_asked(&key, &primary, &message, effects),
            None => {
                self.clear_fault(&key);
                self.act_on(&key, &primary, &answer, generation, false, effects);
            }
        }
    }

    fn act_on(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        answer: &Answer,
        generation: i64,
        skipped: bool,
        effects: &mut Vec<Effect>,
    ) {
        match answer {
            Answer::Nothing => {}
            Answer::Wants(prepared) => self.carry_out(key, primary, prepared, generation, skipped, effects),
            Answer::Terminal(message) => {
                self.stall(key, primary, StalledReason::new("Terminal", message), effects);
                let ending = Ending::new(ReconcileResult::Terminal, None);
                self.write_stall_only(key, primary, ending, skipped, effects);
            }
        }
    }

    fn on_fault(&mut self, key: &Key, primary: &Arc<Object>, fault: GuestFault, effects: &mut Vec<Effect>) {
        let controller = &self.controllers[&key.controller];
        let (reason, message) = (fault.reason(), fault.message());
        effects.push(Effect::Observe(Observation::Fault {
            controller: Arc::clone(&controller.label),
            object: primary.reference(),
            fault,
        }));
        self.note_fault(key, format!("{}: {message}", primary.reference()), effects);
        self.stall(key, primary, StalledReason::new(reason, message), effects);
        let requeue_ms = Some(self.count_failure(key, Patience::Failed));
        self.write_stall_only(key, primary, Ending::new(ReconcileResult::Error, requeue_ms), false, effects);
    }

    /// The host could not run the call. Nobody can mend that on the object, so its conditions stay as they are.
    fn on_host_fault(&mut self, key: &Key, primary: &Arc<Object>, message: &str, effects: &mut Vec<Effect>) {
        self.tell(key, primary, true, "HostFault", message, effects);
        let requeue_ms = Some(self.count_failure(key, Patience::Failed));
        self.begin_run(key, Run::new(None, Ending::new(ReconcileResult::Error, requeue_ms), false), effects);
    }

    fn on_retry_asked(&mut self, key: &Key, primary: &Arc<Object>, message: &str, effects: &mut Vec<Effect>) {
        self.tell(key, primary, true, "Retry", message, effects);
        self.clear_fault(key);
        self.clear_stall(key);
        let requeue_ms = Some(self.count_failure(key, Patience::Failed));
        self.write_stall_only(key, primary, Ending::new(ReconcileResult::Error, requeue_ms), false, effects);
    }

    /// Counts a failure of a key and says how long it has to wait (Q3).
    pub(super) fn count_failure(&mut self, key: &Key, patience: Patience) -> u64 {
        let Some(state) = self.keys.get_mut(key) else { return 0 };
        state.failures = state.failures.saturating_add(1);
        delay_ms(state.failures, &key.name.to_string(), patience)
    }

    /// Ends a key's turn: it comes back when it was woken meanwhile, when the guest asked for it, or at the resync.
    pub(super) fn end_turn(&mut self, key: &Key, run: &Run, effects: &mut Vec<Effect>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let now_ms = self.now.mono_ms;
        effects.push(Effect::Observe(Observation::Reconciled {
            controller: Arc::clone(&controller.label),
            object: ObjectRef { kind: controller.spec.primary.clone(), name: key.name.clone() },
            result: run.ending.result,
            elapsed_ms: now_ms.saturating_sub(state.taken_ms),
            writes: run.sent,
            skipped: run.skipped,
        }));
        let failed = run.ending.result == ReconcileResult::Error;
        if !failed {
            state.failures = 0;
        }
        // An eviction that waits for its budget is tried again in its time, whatever the guest has asked for.
        let evicts_in_ms = state.blocked.next_ms().map(|at_ms| at_ms.saturating_sub(now_ms));
        let requeue_ms = run.ending.requeue_ms.into_iter().chain(evicts_in_ms.filter(|_| !failed)).min();
        let due_ms = match requeue_ms {
            Some(requeue_ms) => now_ms.saturating_add(requeue_ms),
            None => now_ms + RESYNC_MS + spread(&[&controller.label, &key.name.to_string()], RESYNC_SPREAD_MS),
        };
        let lane = if requeue_ms.is_some() { Lane::Retry } else { Lane::Resync };
        if let Some(version) = state.unsorted_version.take()
            && (state.status_version != Some(version) || state.status_lands_until_ms > now_ms)
        {
            state.mark_dirty(Lane::Live);
        }
        let again = state.dirty.take().or((run.look_again && !failed).then_some(Lane::Live));
        let again = again.filter(|_| !run.ending.hold);
        if failed {
            // What the plan had set to come back to, such as a status that waits, is overtaken by the backoff.
            self.queue.cancel_delay(key);
        }
        self.queue.add_at(due_ms, &controller.plugin, key.clone(), lane);
        if let Some(lane) = again {
            self.wake(key, lane, effects);
        }
        if !failed {
            self.clear_denials(key);
        }
    }

    pub(super) fn read_live(&mut self, key: &Key, target: ObjectRef, why: ReadFor, effects: &mut Vec<Effect>) {
        let now_ms = self.now.mono_ms;
        let read = self.live_reads.entry(target.clone()).or_insert_with(|| {
            effects.push(Effect::ReadLive(target));
            LiveRead { asked_ms: now_ms, ..LiveRead::default() }
        });
        read.by.insert((key.clone(), why));
    }
}

/// Checks an outcome. One that says what the last one said is the last one, so that what is known of that still holds.
fn prepared_anew(
    controller: &Controller,
    state: &KeyState,
    primary: &Object,
    outcome: &Outcome,
) -> Result<Arc<Prepared>, GuestFault> {
    let same = |last: &&LastCall| {
        last.digest == controller.digest && last.config == controller.config && last.uid == primary.uid
    };
    let before = match state.last.as_ref().filter(same).map(|last| &last.answer) {
        Some(Answer::Wants(before)) => Some(before),
        _ => None,
    };
    let prepared = plan::prepare(&controller.spec, primary, outcome, before.map(Arc::as_ref))?;
    Ok(before.filter(|before| ***before == prepared).map_or_else(|| Arc::new(prepared), Arc::clone))
}

/// Why a call led to nothing.
enum Trouble {
    Fault(GuestFault),
    Retry(String),
}

/// What a call that is under way was given.
#[derive(Debug)]
pub(super) struct CallInputs {
    digest: Digest,
    config: Arc<str>,
    plugin: Arc<str>,
    label: Arc<str>,
    called_with: Arc<Object>,
}

/// Q4: three quarters of the slots. A plugin whose calls all spin leaves the others some to go on with, and one that is
/// alone loses little, because there are more slots than workers.
fn most_calls_of_a_plugin(slots: usize) -> usize {
    (slots * 3 / 4).max(1)
}

/// Q4: half of what the others leave. However many plugins wait for writes that hang, there is room for one more.
fn most_keys_writing_of_a_plugin(of_others: usize) -> usize {
    (MAX_KEYS_WRITING.saturating_sub(of_others) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_plugins_whose_writes_hang_leave_room_for_one_more() {
        let mut hanging = 0;
        for plugin in 1..=6 {
            let share = most_keys_writing_of_a_plugin(hanging);
            assert!(share >= 1 && hanging + share < MAX_KEYS_WRITING, "plugin {plugin} gets {share} beside {hanging}");
            hanging += share;
        }
        assert_eq!(most_keys_writing_of_a_plugin(0), MAX_KEYS_WRITING / 2);
    }
}
