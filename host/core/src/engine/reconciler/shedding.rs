//! What the Reconciler does while memory is short: keys give up what they keep of calls, those of the share that keeps
//! most first, and when memory is scarce the objects of the share wait that takes most. What a call returned is computed
//! again, so nothing is lost but time. `memory.rs` of the core says how short memory is, `kept_calls.rs` what a key gives up.
//!
//! A share may have a hundred thousand keys of which few have something left, so its keys are walked: in the order of
//! their objects, some in each step of the event loop, and from where the last one ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::kept_calls::STEPS;
use super::plugin_counts::PluginCounts;
use crate::engine::context::Context;
use crate::engine::message::ToLifecycle;
use crate::memory::{Level, Pressure};
use crate::object::Name;
use crate::workqueue::{ControllerId, Key};

/// What one step of the event loop looks at and gives up, some milliseconds: a look at a key is one.
const LOOKS: usize = 8_192;
/// What it takes to give up something of a key, and how many bytes of it take as much as a look. Outcomes are freed
/// elsewhere.
const LOOKS_TO_GIVE_UP: usize = 8;
const BYTES_PER_LOOK: usize = 512;
/// Looks at keys of one share in a row.
const IN_A_ROW: usize = 256;
/// Bytes that a share has to take to be named as what costs most, a sixteenth of what it may keep of calls. Below, other
/// things take the memory, and to let a plugin wait frees nothing.
const NAMED_BYTES: usize = 4 << 20;
/// How long the objects of a share wait that costs most. It is prolonged as long as memory is scarce, several times a
/// second.
const WAIT_MS: u64 = 5_000;

/// What was given up since memory became short.
#[derive(Debug, Default)]
pub(super) struct Shedding {
    /// Bytes.
    given_up: PluginCounts,
    walks: BTreeMap<Arc<str>, Walk>,
}

/// The walk through the keys of a share.
#[derive(Debug)]
struct Walk {
    /// What each key gives up.
    step: usize,
    controller: ControllerId,
    /// The object of the last key.
    after: Option<Name>,
    /// What the share kept when a walk had ended: nothing of that can be given up.
    rest: usize,
}

impl Walk {
    fn new(rest: usize) -> Self {
        Self { step: 0, controller: ControllerId(0), after: None, rest }
    }

    /// The walk continues with this controller.
    fn enter(&mut self, controller: ControllerId) {
        if self.controller != controller {
            (self.controller, self.after) = (controller, None);
        }
    }
}

impl Reconciler {
    /// `objects` are bytes of the objects that were made for shares.
    pub(super) fn on_memory_pressure(
        &mut self,
        pressure: Pressure,
        objects: &BTreeMap<Arc<str>, usize>,
        cx: &mut Context<'_>,
    ) {
        if pressure.level == Level::Ample {
            self.shedding = Shedding::default();
            return;
        }
        let excess = usize::try_from(pressure.excess_bytes).unwrap_or(usize::MAX);
        self.give_up(excess, cx);
        if pressure.level == Level::Scarce {
            self.hold_costliest(objects, cx);
        }
    }

    /// Gives up so many bytes, or as much as a step allows.
    fn give_up(&mut self, bytes: usize, cx: &mut Context<'_>) {
        let (mut left, mut looks) = (bytes, LOOKS);
        while left > 0
            && looks > 0
            && let Some(share) = self.most_to_give_up()
        {
            let before = self.kept_bytes.of(&share);
            self.walk(&share, left, &mut looks, cx);
            let freed = before.saturating_sub(self.kept_bytes.of(&share));
            self.shedding.given_up.add(&share, freed);
            left = left.saturating_sub(freed);
        }
    }

    /// The share that keeps most of what can be given up.
    fn most_to_give_up(&self) -> Option<Arc<str>> {
        let rest = |share: &str| self.shedding.walks.get(share).map_or(0, |walk| walk.rest);
        let left = self.kept_bytes.iter().map(|(share, kept)| (kept.saturating_sub(rest(share)), share));
        let (_, share) = left.filter(|(left, _)| *left > 0).max()?;
        Some(Arc::clone(share))
    }

    /// The next keys of a share give up something, until there are so many bytes.
    fn walk(&mut self, share: &Arc<str>, bytes: usize, looks: &mut usize, cx: &mut Context<'_>) {
        let (snapshot, kept) = (cx.store.snapshot(), self.kept_bytes.of(share));
        let mut walk = self.shedding.walks.remove(share).unwrap_or_else(|| Walk::new(0));
        let (mut in_a_row, mut freed) = (IN_A_ROW.min(*looks), 0);
        while in_a_row > 0 && freed < bytes {
            let mut controllers = self.controllers.range(walk.controller..);
            let Some((id, controller)) = controllers.find(|(_, controller)| controller.share == *share) else {
                if walk.step + 1 < STEPS.len() {
                    walk = Walk { step: walk.step + 1, ..Walk::new(walk.rest) };
                    continue;
                }
                walk = Walk::new(self.kept_bytes.of(share));
                break;
            };
            let (id, kind) = (*id, controller.spec.primary.clone());
            walk.enter(id);
            let objects = snapshot.after(&kind, walk.after.as_ref()).take(in_a_row);
            let names: Vec<Name> = objects.map(|object| object.name.clone()).collect();
            if names.is_empty() {
                walk.enter(ControllerId(id.0.saturating_add(1)));
            }
            for name in names {
                let key = Key { controller: id, name };
                let took = 1 + self.give_up_next(&key, share, walk.step, cx);
                walk.after = Some(key.name);
                (in_a_row, *looks) = (in_a_row.saturating_sub(1), looks.saturating_sub(took));
                freed = kept.saturating_sub(self.kept_bytes.of(share));
                if freed >= bytes || *looks == 0 {
                    in_a_row = 0;
                    break;
                }
            }
        }
        walk.rest = walk.rest.min(self.kept_bytes.of(share));
        self.shedding.walks.insert(Arc::clone(share), walk);
    }

    /// A key gives up what it has of a step. Returns how many looks that took.
    fn give_up_next(&mut self, key: &Key, share: &Arc<str>, step: usize, cx: &mut Context<'_>) -> usize {
        let Some((given_up, bytes)) = self.give_up_of(key, share, STEPS[step]) else { return 0 };
        match given_up.outcome {
            Some(outcome) => {
                cx.discard(outcome);
                LOOKS_TO_GIVE_UP
            }
            None => LOOKS_TO_GIVE_UP + bytes / BYTES_PER_LOOK,
        }
    }

    /// The objects of the share wait that takes most, or took it until now, and its plugins are named. Of several that take
    /// as much, one at a time.
    fn hold_costliest(&mut self, objects: &BTreeMap<Arc<str>, usize>, cx: &mut Context<'_>) {
        let shares: BTreeSet<&Arc<str>> = self.controllers.values().map(|controller| &controller.share).collect();
        let cost = |share: &Arc<str>| {
            let of_calls = self.kept_bytes.of(share) + self.shedding.given_up.of(share) + self.writing_bytes.of(share);
            of_calls + self.exchanges.kept_of(share) + objects.get(share).copied().unwrap_or_default()
        };
        let costliest = shares.into_iter().map(|share| (cost(share), share)).max();
        let costliest = costliest.filter(|(bytes, _)| *bytes >= NAMED_BYTES);
        let Some((bytes, share)) = costliest.map(|(bytes, share)| (bytes, Arc::clone(share))) else { return };
        self.throttled.hold(&share, cx.now.mono_ms + WAIT_MS);
        let of_share = self.controllers.values().filter(|controller| controller.share == share);
        for plugin in of_share.map(|controller| Arc::clone(&controller.plugin)) {
            cx.notify_lifecycle(ToLifecycle::Costliest { plugin, bytes });
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
