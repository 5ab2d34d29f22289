//! What is kept of each key, within bounds for each share and for all: the reads of its last call, which wake the key
//! (W1), its outcome, which makes a call needless whose inputs are as before (W2), and what the key remembers of its
//! writes.
//!
//! Outcomes take half of the room at most. A key without one is called whenever it wakes. A key that does not remember
//! its writes compares again, and sends again what it cannot compare. A key without its reads wakes with any change of
//! the kinds that it read. Of rejections and conflicts a few are enough for a person. So they are given up in this
//! order, where a share has no room and while memory is short (`shedding.rs`).

use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::cost;
use super::dynamic_kinds::Named;
use super::key::{CallOutcome, KeyState, LastCall};
use super::ledger::Bounds;
use super::rejections::FEW;
use crate::dependencies::Dependencies;
use crate::engine::context::Context;
use crate::object::ObjectRef;
use crate::workqueue::{ControllerId, Key};

/// Of one share half is 20,000 outcomes of the size of a PodSet's with three Pods, or eight of the largest; the other half are
/// the reads of 50,000 keys that read a few lists each, or of 128 that read the most. All have a quarter of the memory limit of
/// the Deployment in deploy/. What a share has to itself is the reads of 5,000 keys, so that eight others that read very much
/// do not make it work more (Q4), for as many shares as a host of that size has.
pub(super) const BOUNDS: Bounds = Bounds { share: 64 << 20, total: 384 << 20, own: 4 << 20, reserve: 128 << 20 };
/// The part that outcomes may fill.
const OF_OUTCOMES: usize = 2;
/// What a key gives up, in this order. None if it has nothing of it.
pub(super) const STEPS: [fn(&mut KeyState) -> Option<GivenUp>; 5] = [
    KeyState::give_up_outcome,
    KeyState::give_up_comparisons,
    KeyState::give_up_reads,
    KeyState::give_up_writes,
    KeyState::give_up_rejections,
];

/// What a key has given up, as far as indexes have it, or freeing it takes long.
#[derive(Default)]
pub(super) struct GivenUp {
    pub outcome: Option<CallOutcome>,
    reads: Option<Dependencies>,
    conflicts: Vec<ObjectRef>,
}

impl Reconciler {
    pub(super) fn remember_call(&mut self, key: &Key, mut call: LastCall, cx: &mut Context<'_>) {
        let Some(Controller { plugin, share, .. }) = self.controllers.get(&key.controller) else { return };
        let (plugin, share) = (&Arc::clone(plugin), Arc::clone(share));
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.last.take();
        self.kept_bytes.subtract(&share, state.kept_bytes);
        state.kept_bytes = state.count_bytes();
        self.kept_bytes.add(&share, state.kept_bytes);
        let objects = (before.as_ref().map_or(0, |before| before.objects), call.objects);
        if !self.kept_bytes.fits(&share, call.bytes(), OF_OUTCOMES) {
            call.outcome = CallOutcome::Absent;
        }
        if !self.kept_bytes.fits(&share, call.bytes(), 1) {
            call.reads.collapse();
        }
        let before = before.as_ref().map(|before| &before.reads);
        let entries = self.index.replace(&share, key, before, &mut call.reads);
        self.charges.add(&mut self.queue, &share, cost::of_entries(entries));
        let bytes = call.bytes();
        self.kept_bytes.add(&share, bytes);
        state.kept_bytes += bytes;
        let reads = &state.last.insert(call).reads;
        let kinds = Named::of(before, Some(reads));
        self.count_objects(key.controller, objects.0, objects.1);
        self.name_kinds(key, plugin, kinds, cx);
    }

    /// A key wants so many objects, where it has wanted others.
    pub(super) fn count_objects(&mut self, controller: ControllerId, before: usize, after: usize) {
        let Some(controller) = self.controllers.get_mut(&controller) else { return };
        controller.objects = controller.objects.saturating_sub(before) + after;
        self.wanted_objects.subtract(&controller.plugin, before);
        self.wanted_objects.add(&controller.plugin, after);
    }

    /// Counts what a key has after its turn, and gives up what there is no room for.
    pub(super) fn count_kept(&mut self, key: &Key) {
        let Some(share) = self.controllers.get(&key.controller).map(|controller| Arc::clone(&controller.share)) else {
            return;
        };
        let Some(state) = self.keys.get_mut(key) else { return };
        self.kept_bytes.subtract(&share, state.kept_bytes);
        state.kept_bytes = state.count_bytes();
        self.kept_bytes.add(&share, state.kept_bytes);
        for step in STEPS {
            if self.kept_bytes.fits(&share, 0, 1) {
                return;
            }
            self.give_up_of(key, &share, step);
        }
    }

    /// A key gives up something that it has been counted for. Returns that, and how many bytes it was.
    pub(super) fn give_up_of(
        &mut self,
        key: &Key,
        share: &Arc<str>,
        step: fn(&mut KeyState) -> Option<GivenUp>,
    ) -> Option<(GivenUp, usize)> {
        let state = self.keys.get_mut(key)?;
        let before = state.kept_bytes;
        let given_up = step(state)?;
        if let (Some(before), Some(last)) = (&given_up.reads, &mut state.last) {
            let entries = self.index.replace(share, key, Some(before), &mut last.reads);
            self.charges.add(&mut self.queue, share, cost::of_entries(entries));
        }
        if !given_up.conflicts.is_empty() {
            self.index.replace_conflicts(key, &given_up.conflicts, &state.name_conflicts);
        }
        state.kept_bytes = state.count_bytes();
        self.kept_bytes.subtract(share, before);
        self.kept_bytes.add(share, state.kept_bytes);
        Some((given_up, before.saturating_sub(state.kept_bytes)))
    }

    /// Whether a key's share has room for more than the least of what has to be known.
    pub(super) fn has_kept_room(&self, key: &Key) -> bool {
        let controller = self.controllers.get(&key.controller);
        controller.is_some_and(|controller| self.kept_bytes.fits(&controller.share, 0, 1))
    }
}

impl KeyState {
    fn give_up_outcome(&mut self) -> Option<GivenUp> {
        let last = self.last.as_mut().filter(|last| !matches!(last.outcome, CallOutcome::Absent))?;
        let outcome = std::mem::replace(&mut last.outcome, CallOutcome::Absent);
        Some(GivenUp { outcome: Some(outcome), ..GivenUp::default() })
    }

    fn give_up_comparisons(&mut self) -> Option<GivenUp> {
        if self.memory.applied.is_empty() && self.memory.exact.is_empty() {
            return None;
        }
        self.memory.applied.clear();
        self.memory.exact.clear();
        Some(GivenUp::default())
    }

    fn give_up_reads(&mut self) -> Option<GivenUp> {
        let reads = &mut self.last.as_mut().filter(|last| !last.reads.is_collapsed())?.reads;
        let before = reads.clone();
        reads.collapse();
        Some(GivenUp { reads: Some(before), ..GivenUp::default() })
    }

    fn give_up_writes(&mut self) -> Option<GivenUp> {
        let has_some = !self.memory.sent.is_empty();
        self.memory.sent.clear();
        has_some.then(GivenUp::default)
    }

    fn give_up_rejections(&mut self) -> Option<GivenUp> {
        let has_more = self.rejections.as_mut().is_some_and(|rejections| rejections.truncate(FEW));
        let has_conflicts = self.name_conflicts.len() > FEW;
        if !has_more && !has_conflicts {
            return None;
        }
        let few = self.name_conflicts[..self.name_conflicts.len().min(FEW)].to_vec();
        let conflicts = if has_conflicts { std::mem::replace(&mut self.name_conflicts, few) } else { Vec::new() };
        Some(GivenUp { conflicts, ..GivenUp::default() })
    }
}
