//! The Reconciler: the keys of controllers that serve. It owns who wakes, the work queue, calls, plans, and what it remembers of
//! each key. It knows nothing of plugins that come up: the Lifecycle sends which version serves and what may be called.
//!
//! A shard of keys is a Reconciler that takes some of the objects: [`Controller::reconciles`] is where a filter belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context::{Context, Map};
use super::message::ToReconciler;
use crate::call::CallId;
use crate::dependency_index::DependencyIndex;
use crate::object::{Kind, ObjectRef};
use crate::workqueue::{ControllerId, Key, WorkQueue};

mod controller;
mod dispatch;
mod faults;
mod finalizers;
mod in_flight;
mod key;
mod keys;
mod live_reads;
mod outcomes;
mod run;
mod status;
mod turn;
mod wake;
mod writes;

use controller::Controller;
use faults::PluginFaults;
use in_flight::InFlight;
use keys::Keys;
use live_reads::LiveRead;
use outcomes::OutcomeBytes;
use turn::CallInFlight;

/// The state of all keys.
#[derive(Debug)]
pub(super) struct Reconciler {
    /// Guest calls that may be under way at once.
    call_slots: usize,
    controllers: BTreeMap<ControllerId, Controller>,
    last_controller: u32,
    /// Who reconciles a kind: one at most, but any number of plugins a built-in one (L2).
    by_primary: Map<Kind, Arc<[ControllerId]>>,
    keys: Keys,
    index: DependencyIndex,
    outcomes: OutcomeBytes,
    queue: WorkQueue,
    calls: Map<CallId, CallInFlight>,
    last_call: u64,
    calling: InFlight,
    /// Keys that are being written.
    writing: InFlight,
    /// Keys that wait for the view to show a write of theirs, by what was written.
    waiting: BTreeMap<ObjectRef, BTreeSet<Key>>,
    live_reads: BTreeMap<ObjectRef, LiveRead>,
    faults: BTreeMap<Arc<str>, PluginFaults>,
    /// Plugins that are over their budget of writes, and until when their keys wait.
    throttled: BTreeMap<Arc<str>, u64>,
}

impl Reconciler {
    pub fn new(call_slots: usize) -> Self {
        Self {
            call_slots,
            controllers: BTreeMap::new(),
            last_controller: 0,
            by_primary: Map::default(),
            keys: Keys::default(),
            index: DependencyIndex::default(),
            outcomes: OutcomeBytes::default(),
            queue: WorkQueue::default(),
            calls: Map::default(),
            last_call: 0,
            calling: InFlight::default(),
            writing: InFlight::default(),
            waiting: BTreeMap::new(),
            live_reads: BTreeMap::new(),
            faults: BTreeMap::new(),
            throttled: BTreeMap::new(),
        }
    }

    pub fn take(&mut self, message: ToReconciler, cx: &mut Context<'_>) {
        match message {
            ToReconciler::Serve { plugin, version, manifest } => self.serve(&plugin, &version, &manifest, cx),
            ToReconciler::Withdraw { plugin } => self.withdraw(&plugin, cx),
            ToReconciler::SetReady { plugin, primary, ready } => self.set_ready(&plugin, &primary, ready),
            ToReconciler::Throttle { plugin, until_ms } => _ = self.throttled.insert(plugin, until_ms),
            ToReconciler::Resync => self.resync(cx),
            ToReconciler::Wrote { key, op, result } => self.on_wrote(&key, &op, result, cx),
        }
    }

    /// When a key that waits, or a plugin, is due.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.throttled.values().copied().chain(self.queue.next_due_ms()).min()
    }

    /// Keys that wait in the queue, per controller label.
    pub fn queue_depths(&self) -> Vec<(Arc<str>, usize)> {
        let depth =
            |(id, controller): (&ControllerId, &Controller)| (Arc::clone(&controller.label), self.queue.depth(*id));
        self.controllers.iter().map(depth).collect()
    }
}

#[cfg(test)]
impl Reconciler {
    pub fn key_count(&self) -> usize {
        self.controllers.keys().map(|id| self.keys.of(*id).len()).sum()
    }

    /// Keys that are being written, and calls.
    pub fn under_way(&self) -> (usize, usize) {
        (self.writing.total(), self.calling.total())
    }
}
