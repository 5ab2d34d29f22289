//! Plugins that took most when memory was scarce: their Plugin objects show it until they have behaved for a while,
//! also while they come up after a restart, which that may have caused. Until then one object of such a plugin is
//! called at a time, and after a restart it comes up last. A restarted host knows it by the reason of the condition
//! alone. What was killed before it was shown is not known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Lifecycle;
use super::plugin::{Costly, Plugin};
use super::timers::Timer;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::memory::{Level, Pressure};
use crate::observation::Observation;
use crate::plugin_object::{self, Shown};

/// The reason of the condition Ready, by which a restarted host knows such a plugin.
pub(super) const MEMORY_PRESSURE: &str = "MemoryPressure";
/// How long a plugin has to behave. A controller looks at each of its objects some times in it.
const CALM_MS: u64 = 600_000;
/// How long such a plugin waits for the others at a start, which have the time that the host takes to be ready.
const LAST_MS: u64 = 60_000;
/// How often it looks whether they serve.
const LOOK_MS: u64 = 1_000;

impl Lifecycle {
    /// The Reconciler gives up what it keeps. Objects are made for tenants, so they count as theirs.
    pub fn on_memory_pressure(&self, pressure: Pressure, cx: &mut Context<'_>) {
        let objects = if pressure.level == Level::Scarce { self.bytes_of_tenants() } else { BTreeMap::new() };
        cx.notify_reconciler(ToReconciler::Press { pressure, objects });
    }

    pub(super) fn on_costliest(&mut self, name: Arc<str>, bytes: usize, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        if let Some(costly) = &mut plugin.costly {
            costly.at_ms = cx.now.mono_ms;
            return;
        }
        let message = message(&format!("took more than any other, {} MiB", bytes >> 20));
        cx.observe(Observation::Throttled { plugin: Arc::clone(&name), message: message.clone() });
        self.confine(&name, message, cx);
    }

    fn confine(&mut self, name: &Arc<str>, message: String, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        plugin.costly = Some(Costly { at_ms: cx.now.mono_ms, message });
        cx.notify_reconciler(ToReconciler::Confine { plugin: Arc::clone(name), confined: true });
        self.mark_dirty(name);
        self.arm(CALM_MS, Timer::Costly(Arc::clone(name)), cx);
    }

    pub(super) fn on_costly_due(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(due_ms) = plugin.costly.as_ref().map(|costly| costly.at_ms + CALM_MS) else { return };
        if due_ms > cx.now.mono_ms {
            if plugin.active.is_none() {
                self.advance(name, cx);
            }
            return self.arm(due_ms - cx.now.mono_ms, Timer::Costly(Arc::clone(name)), cx);
        }
        plugin.costly = None;
        cx.notify_reconciler(ToReconciler::Confine { plugin: Arc::clone(name), confined: false });
        self.mark_dirty(name);
    }

    /// Whether the Plugin object of a plugin that does not serve yet says that it was the costliest. That is known from
    /// then on, since the condition may change before the plugin serves.
    pub(super) fn recall_costly(&mut self, name: &Arc<str>, shown: &Shown, cx: &mut Context<'_>) -> bool {
        let is_new = |plugin: &Plugin| plugin.active.is_none() && plugin.costly.is_none();
        let is_shown = shown.conditions.iter().any(|it| it.name == "Ready" && it.reason == MEMORY_PRESSURE);
        let recalls = is_shown && self.plugins.get(name).is_some_and(is_new);
        if recalls {
            self.confine(name, message("took more than any other, before the host started"), cx);
        }
        recalls
    }

    /// Whether a plugin that could serve waits for the others, since its Plugin object says that it was the costliest.
    pub(super) fn comes_up_last(&mut self, name: &Arc<str>, cx: &mut Context<'_>) -> bool {
        let Some(plugin) = self.plugins.get(name).filter(|plugin| plugin.active.is_none()) else { return false };
        if plugin.costly.is_none() {
            let target = plugin_object::of(name);
            let snapshot = cx.store.snapshot();
            let shown = snapshot.get(&target.kind, &target.name).map(|live| plugin_object::shown(live));
            if !shown.is_some_and(|shown| self.recall_costly(name, &shown, cx)) {
                return false;
            }
        }
        let is_starting = |name: &Arc<str>| {
            let plugin = &self.plugins[name];
            plugin.active.is_none() && plugin.candidate.is_some() && plugin.costly.is_none()
        };
        let others_start = !self.sources_listed || self.plugins.keys().any(is_starting);
        let Some(candidate) = self.plugins.get_mut(name).and_then(|plugin| plugin.candidate.as_mut()) else {
            return false;
        };
        let waits = others_start && cx.now.mono_ms < candidate.since_ms + LAST_MS;
        let why = "it waits until the other plugins serve, since the host was short of memory while it took more than any other";
        candidate.waits_for = waits.then(|| why.to_owned());
        if waits {
            self.arm(LOOK_MS, Timer::Costly(Arc::clone(name)), cx);
        }
        waits
    }
}

fn message(what: &str) -> String {
    format!(
        "the host was short of memory while this plugin {what}; until that has not happened for {} minutes, one of its objects is \
         called at a time. Have it return, read or request less, or raise the container's memory limit",
        CALM_MS / 60_000
    )
}
