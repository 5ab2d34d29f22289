//! What the Reconciler does while memory is short: it gives up outcomes and reads of last calls, of the share that keeps most
//! first, and when memory is scarce that share's objects wait. What a call returned is computed again, so nothing is lost but
//! time. `memory.rs` of the core says how short memory is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::key::{CallOutcome, LastCall};
use super::plugin_counts::PluginCounts;
use crate::engine::context::Context;
use crate::engine::message::ToLifecycle;
use crate::memory::{Level, Pressure};
use crate::workqueue::{ControllerId, Key};

/// Keys that are given up in one step of the event loop: some milliseconds.
const KEYS: usize = 500;
/// Bytes that a share has to keep to be named as what costs most, a sixteenth of its bound. Below, other things take the
/// memory, and to let a plugin wait frees nothing.
const NAMED_BYTES: usize = 4 << 20;
/// How long the objects of a share wait that costs most. It is prolonged as long as memory is scarce, several times a second.
const WAIT_MS: u64 = 5_000;

/// Bytes that were given up since memory became short.
pub(super) type Shed = PluginCounts;

impl Reconciler {
    pub fn on_memory_pressure(&mut self, pressure: Pressure, cx: &mut Context<'_>) {
        if pressure.level == Level::Ample {
            self.shed = PluginCounts::default();
            return;
        }
        let excess = usize::try_from(pressure.excess_bytes).unwrap_or(usize::MAX);
        self.give_up(excess, cx);
        if pressure.level == Level::Scarce {
            self.hold_costliest(cx);
        }
    }

    /// Gives up so many bytes, or as much as a step allows.
    fn give_up(&mut self, bytes: usize, cx: &mut Context<'_>) {
        let (mut left, mut keys) = (bytes, KEYS);
        while left > 0 && keys > 0 {
            let Some((share, before)) = self.kept_bytes.most() else { return };
            let some = self.keys_to_give_up(&share, keys);
            if some.is_empty() {
                // What keys keep whose controller is gone leaves without this.
                return;
            }
            for key in some {
                keys -= 1;
                self.give_up_key(&key, cx);
                if before.saturating_sub(self.kept_bytes.of(&share)) >= left {
                    break;
                }
            }
            let freed = before.saturating_sub(self.kept_bytes.of(&share));
            self.shed.add(&share, freed);
            left = left.saturating_sub(freed);
        }
    }

    /// Keys of a share that keep an outcome; if there are none, those that keep more of their reads than kinds.
    fn keys_to_give_up(&self, share: &Arc<str>, most: usize) -> Vec<Key> {
        let of_share = || self.controllers.iter().filter(|(_, controller)| controller.share == *share);
        let find = |keeps: fn(&LastCall) -> bool| -> Vec<Key> {
            let states = of_share().flat_map(|(id, _)| self.keys.with_states_of(*id).map(|(name, it)| (*id, name, it)));
            let keeping = states.filter(|(.., state)| state.last.as_ref().is_some_and(keeps)).take(most);
            keeping.map(|(controller, name, _)| Key { controller, name: name.clone() }).collect()
        };
        let with_outcome = find(|last| !matches!(last.outcome, CallOutcome::Absent));
        if with_outcome.is_empty() { find(|last| !last.reads.is_collapsed()) } else { with_outcome }
    }

    fn give_up_key(&mut self, key: &Key, cx: &mut Context<'_>) {
        let Some(mut last) = self.keys.get(key).and_then(|state| state.last.clone()) else { return };
        if matches!(last.outcome, CallOutcome::Absent) {
            last.reads.collapse();
        }
        last.outcome = CallOutcome::Absent;
        self.remember_call(key, last, cx);
    }

    /// The objects of the share wait that keeps most, or kept it until now, and its plugins are named. Of several that keep as
    /// much, one at a time.
    fn hold_costliest(&mut self, cx: &mut Context<'_>) {
        let cost = |share: &Arc<str>| self.kept_bytes.of(share) + self.shed.of(share);
        let shares = self.controllers.values().map(|controller| &controller.share);
        let costliest = shares.map(|share| (cost(share), share)).max().filter(|(bytes, _)| *bytes >= NAMED_BYTES);
        let Some((bytes, share)) = costliest.map(|(bytes, share)| (bytes, Arc::clone(share))) else { return };
        self.throttled.hold(&share, cx.now.mono_ms + WAIT_MS);
        let of_share = self.controllers.values().filter(|controller| controller.share == share);
        for plugin in of_share.map(|controller| Arc::clone(&controller.plugin)) {
            cx.notify_lifecycle(ToLifecycle::Costliest { plugin, kept_bytes: bytes });
        }
    }

    /// A call of a plugin has ended that may have one, so its other controllers may have the next.
    pub(super) fn unpark_confined(&mut self, plugin: &Arc<str>) {
        if self.confined.contains(plugin) {
            let ids: Vec<_> = self.controllers_of(plugin).map(|(id, _)| id).collect();
            ids.into_iter().for_each(|id| self.queue.unpark(id));
        }
    }
}

/// Whether another call of the plugin would be its second, while it may have one.
pub(super) fn is_confined(
    confined: &BTreeSet<Arc<str>>,
    controllers: &BTreeMap<ControllerId, Controller>,
    plugin: &Arc<str>,
) -> bool {
    let is_called = |controller: &Controller| controller.plugin == *plugin && controller.calls > 0;
    confined.contains(plugin) && controllers.values().any(is_called)
}
