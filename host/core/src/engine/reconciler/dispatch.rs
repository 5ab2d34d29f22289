//! Takes keys from the work queue, within the bounds on calls and writes in flight (Q4).

use std::sync::Arc;

use super::Reconciler;
use super::key::Run;
use super::plugin_counts::PluginCounts;
use super::shedding::is_confined;
use crate::engine::context::Context;
use crate::engine::message::Message;
use crate::observation::Observation;
use crate::workqueue::{ControllerId, Lane, MayRun, ParkedFor, WorkQueue};

/// Keys that may be between their first and their last write at once, beside one of each share: as many as the shared permits
/// for writes. More keys would wait for permits instead of in this queue, which knows their order.
const MAX_KEYS_WRITING: usize = 64;
/// Of one share: some more than it has permits, so that one is ready when another has ended. What is slow of a share is before its
/// other keys for as long as these take.
const MAX_KEYS_OF_SHARE: usize = 16;

/// A call that has not ended after this time, with its wait for a worker, is slow, and plugins without a call do not wait
/// for it. It is the time of eight calls of an interpreter in a row; a person does not notice it.
const QUICK_MS: u64 = 50;

/// Delayed keys that one step enqueues when they are due, some hundred microseconds.
const RELEASED: usize = 256;

/// What the turns of one step may take, as counted; the next step, at once, begins the next ones. A turn that begins a call
/// or ends without one takes some ten microseconds, beside what it looks at and compares.
const TURNS_US: u64 = 4_000;
const US_PER_TURN: u64 = 10;

impl Reconciler {
    pub fn run_queue(&mut self, cx: &mut Context<'_>) {
        self.wake_due(cx);
        self.let_go_next(cx);
        for (key, lane) in self.queue.release(cx.now.mono_ms, RELEASED) {
            if let Some(controller) = self.controllers.get(&key.controller) {
                let controller = Arc::clone(&controller.label);
                cx.observe(Observation::Enqueued { controller, retry: lane == Lane::Retry });
            }
        }
        while let Some(share) = self.throttled.take_due(cx.now.mono_ms) {
            self.queue.unpark_share(&share);
        }
        cx.messages.extend(self.index.take_field_changes().into_iter().map(Message::Field));
        (self.slots_free_ms, self.more_turns_ms) = (None, None);
        let (mut turns, before_us) = (0, self.charges.total_us());
        while !cx.draining && cx.may_write && self.has_call_slot(cx.now.mono_ms) {
            if turns * US_PER_TURN + (self.charges.total_us() - before_us) >= TURNS_US {
                self.more_turns_ms = self.queue.is_ready().then_some(cx.now.mono_ms);
                break;
            }
            turns += 1;
            let used_up = |share: &Arc<str>| {
                if self.throttled.has(share) {
                    Some(ParkedFor::Budget)
                } else if !self.calling.has_room(share, self.call_slots) {
                    Some(ParkedFor::Calls)
                } else {
                    let has_bytes = self.writing.of(share) == 0 || self.writing_bytes.fits(share, 0, 1);
                    (!has_bytes || !may_write_another(&self.writing, share)).then_some(ParkedFor::Writes)
                }
            };
            let may_run = |id| match self.controllers.get(&id) {
                Some(controller)
                    if controller.may_be_called()
                        && !self.suspended.contains(&controller.plugin)
                        && !is_confined(&self.confined, &self.controllers, &controller.plugin) =>
                {
                    used_up(&controller.share).map_or(MayRun::Yes, MayRun::NotThisShare)
                }
                _ => MayRun::NotThisController,
            };
            let Some(taken) = self.queue.take(cx.now.mono_ms, may_run) else { break };
            self.begin(taken, cx);
        }
    }

    /// Whether any key may be taken; if not, sets when that may change. While calls are quick, their slots bound all
    /// plugins together, so that plugins take turns and few are called at a time; once a call takes longer, each plugin
    /// may begin its first (Q4).
    fn has_call_slot(&mut self, now_ms: u64) -> bool {
        let oldest = self.calls.values().next().filter(|_| self.calling.is_full(self.call_slots));
        let free_ms = oldest.map(|call| call.began_ms + QUICK_MS).filter(|free_ms| *free_ms > now_ms);
        self.slots_free_ms = free_ms.filter(|_| self.queue.is_ready());
        free_ms.is_none()
    }

    pub(super) fn call_ended(&mut self, controller: ControllerId, share: &Arc<str>) {
        self.calling.subtract(share, 1);
        self.queue.unpark(controller);
        if !self.confined.is_empty()
            && let Some(plugin) = self.controllers.get(&controller).map(|controller| Arc::clone(&controller.plugin))
        {
            self.unpark_confined(&plugin);
        }
        let has_room = |share: &str| self.calling.has_room(share, self.call_slots);
        unpark(&mut self.queue, share, ParkedFor::Calls, self.calling.is_full(self.call_slots), has_room);
    }

    /// A run of a share's key has ended, or the key is dropped.
    pub(super) fn writing_ended(&mut self, share: &str, run: &Run) {
        self.writing.subtract(share, 1);
        self.writing_bytes.subtract(share, run.began_bytes);
        let has_room = |share: &str| may_write_another(&self.writing, share);
        unpark(&mut self.queue, share, ParkedFor::Writes, self.writing.is_full(MAX_KEYS_WRITING), has_room);
    }
}

fn may_write_another(writing: &PluginCounts, share: &str) -> bool {
    writing.of(share) < MAX_KEYS_OF_SHARE && writing.has_room(share, MAX_KEYS_WRITING)
}

/// A share has one call or write fewer in flight, so those that were parked for that and have room now are tried again.
/// While all common slots are taken, only that share can have room; otherwise few are parked, because each holds a slot.
fn unpark(queue: &mut WorkQueue, share: &str, parked_for: ParkedFor, is_full: bool, has_room: impl Fn(&str) -> bool) {
    if !is_full {
        queue.unpark_shares(parked_for, |share| has_room(share));
    } else if has_room(share) {
        queue.unpark_share(share);
    }
}
