//! The Reconciler owns the keys of serving controllers: which are woken, the work queue, calls, plans, and the state of
//! each key. It does not know plugins that are coming up: the Lifecycle sends which version serves and which
//! controllers are ready.
//!
//! To shard keys, a Reconciler would take some of the objects: the filter belongs in [`Controller::reconciles`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::allowance::Allowance;
use super::context::Context;
use super::message::ToReconciler;
use crate::call::CallId;
use crate::dependency_index::DependencyIndex;
use crate::event::LiveTarget;
use crate::map::Map;
use crate::object::{Kind, ObjectRef};
use crate::plan::Reserved;
use crate::workqueue::{ControllerId, Key, WorkQueue};

mod charges;
mod controller;
mod cost;
mod dispatch;
mod dynamic_kinds;
mod enqueuing;
mod exchanges;
mod faults;
mod finalizers;
mod kept_calls;
mod key;
mod keys;
mod leaving;
mod ledger;
mod live_reads;
mod plugin_counts;
mod rejections;
mod replacements;
mod requests;
mod run;
mod shedding;
mod status;
mod throttled;
mod turn;
mod wake;
mod writes;

use charges::Charges;
use controller::Controller;
use dynamic_kinds::DynamicKinds;
use enqueuing::Enqueuing;
use exchanges::Exchanges;
use faults::PluginFaults;
use key::CallInFlight;
use keys::Keys;
use leaving::Leaving;
use ledger::Ledger;
use live_reads::LiveRead;
use plugin_counts::PluginCounts;
use shedding::Shedding;
use throttled::Throttled;

#[derive(Debug)]
pub(super) struct Reconciler {
    /// Where plugins write with a grant alone.
    reserved: Reserved,
    /// Guest calls in flight at once while they are quick.
    call_slots: usize,
    controllers: BTreeMap<ControllerId, Controller>,
    last_controller: u32,
    /// The controllers of each kind: one, or any number for a built-in kind (L2).
    by_primary: Map<Kind, Arc<[ControllerId]>>,
    keys: Keys,
    leaving: Leaving,
    index: DependencyIndex,
    /// Bytes of what is kept of keys.
    kept_bytes: Ledger,
    /// Objects that outcomes want, by plugin.
    wanted_objects: PluginCounts,
    queue: WorkQueue,
    /// In the order in which they began.
    calls: BTreeMap<CallId, CallInFlight>,
    last_call: u64,
    /// While quick calls take all slots and keys wait: when the oldest call stops being quick.
    slots_free_ms: Option<u64>,
    /// When the turns go on that had no time left in the last step.
    more_turns_ms: Option<u64>,
    enqueuing: Enqueuing,
    /// Keys of large sets that are woken.
    woken: Allowance,
    /// What the current step was charged.
    charges: Charges,
    /// Calls in flight, by share.
    calling: PluginCounts,
    /// Keys that are being written, by share.
    writing: PluginCounts,
    /// Bytes of the plans of these keys.
    writing_bytes: Ledger,
    /// Keys that wait for the cache to show one of their writes, by the object that was written.
    waiting: BTreeMap<ObjectRef, BTreeSet<Key>>,
    live_reads: BTreeMap<LiveTarget, LiveRead>,
    faults: BTreeMap<Arc<str>, PluginFaults>,
    exchanges: Exchanges,
    dynamic_kinds: DynamicKinds,
    /// The shares that are over their write budget, and until when their keys wait.
    throttled: Throttled,
    /// Plugins whose keys wait until a person lets them.
    suspended: BTreeSet<Arc<str>>,
    /// Plugins that have one call at a time.
    confined: BTreeSet<Arc<str>>,
    shedding: Shedding,
}

impl Reconciler {
    pub fn new(reserved: Reserved, call_slots: usize, http_requests_per_minute: u32) -> Self {
        Self {
            reserved,
            call_slots,
            controllers: BTreeMap::new(),
            last_controller: 0,
            by_primary: Map::default(),
            keys: Keys::default(),
            leaving: Leaving::default(),
            index: DependencyIndex::default(),
            kept_bytes: Ledger::new(kept_calls::BOUNDS),
            wanted_objects: PluginCounts::default(),
            queue: WorkQueue::default(),
            calls: BTreeMap::new(),
            last_call: 0,
            slots_free_ms: None,
            more_turns_ms: None,
            enqueuing: Enqueuing::default(),
            woken: Allowance::of(wake::WOKEN_PER_MS),
            charges: Charges::default(),
            calling: PluginCounts::default(),
            writing: PluginCounts::default(),
            writing_bytes: Ledger::new(writes::BOUNDS),
            waiting: BTreeMap::new(),
            live_reads: BTreeMap::new(),
            faults: BTreeMap::new(),
            exchanges: Exchanges::new(http_requests_per_minute),
            dynamic_kinds: DynamicKinds::default(),
            throttled: Throttled::default(),
            suspended: BTreeSet::new(),
            confined: BTreeSet::new(),
            shedding: Shedding::default(),
        }
    }

    pub fn take(&mut self, message: ToReconciler, cx: &mut Context<'_>) {
        match message {
            ToReconciler::Serve { plugin, version, manifest } => self.serve(&plugin, &version, &manifest, cx),
            ToReconciler::Withdraw { plugin } => self.withdraw(&plugin, cx),
            ToReconciler::SetReady { plugin, primary, ready } => self.set_ready(&plugin, &primary, ready),
            ToReconciler::SetKind { plugin, kind, state } => self.set_kind_state(&plugin, kind, state, cx),
            ToReconciler::Confine { plugin, confined: true } => drop(self.confined.insert(plugin)),
            ToReconciler::Confine { plugin, confined: false } => {
                self.unpark_confined(&plugin);
                self.confined.remove(&plugin);
            }
            ToReconciler::Suspend { plugin, suspended: true } => drop(self.suspended.insert(plugin)),
            ToReconciler::Suspend { plugin, suspended: false } => {
                self.suspended.remove(&plugin);
                let ids: Vec<ControllerId> = self.controllers_of(&plugin).map(|(id, _)| id).collect();
                ids.into_iter().for_each(|id| self.queue.unpark(id));
            }
            ToReconciler::Throttle { share, until_ms } => {
                // Each write reports its own buckets alone, so an earlier time does not replace a later one.
                self.throttled.hold(&share, until_ms);
            }
            ToReconciler::Press { pressure, objects } => self.on_memory_pressure(pressure, &objects, cx),
            ToReconciler::Resync => self.resync(cx),
            ToReconciler::Wrote { key, op, result } => self.on_wrote(&key, &op, result, cx),
        }
    }

    /// The time at which a delayed key is due, or the keys of a throttled plugin, or those that wait for call slots, or
    /// more keys of a large set or of a controller that is gone, or an HTTP request.
    pub fn next_due_ms(&self) -> Option<u64> {
        let of_keys =
            self.throttled.next_due_ms().into_iter().chain(self.queue.next_due_ms()).chain(self.slots_free_ms);
        let of_keys = of_keys.chain(self.more_turns_ms).chain(self.next_wake_ms()).chain(self.leaving.next_due_ms());
        of_keys.chain(self.exchanges.next_due_ms()).min()
    }

    /// The depth of the work queue, per controller label.
    pub fn queue_depths(&self) -> Vec<(Arc<str>, usize)> {
        let depth =
            |(id, controller): (&ControllerId, &Controller)| (Arc::clone(&controller.label), self.queue.depth(*id));
        self.controllers.iter().map(depth).collect()
    }
}

#[cfg(test)]
impl Reconciler {
    pub fn key_count(&self) -> usize {
        self.keys.count()
    }

    /// Bytes that a share keeps.
    pub fn kept_of(&self, share: &str) -> usize {
        self.kept_bytes.of(share)
    }

    /// How many keys are being written, and calls in flight.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.writing.total(), self.calling.total())
    }
}

#[cfg(test)]
mod tests;
