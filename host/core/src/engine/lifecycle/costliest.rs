//! Plugins that kept most when memory was scarce: their Plugin objects show it until they have behaved for a while, also after
//! a restart, which that may have caused. Until then one object of such a plugin is called at a time, and after a restart it
//! comes up last. What was killed before it was shown is not known.

use std::sync::Arc;

use super::Lifecycle;
use super::plugin::Costly;
use super::timers::Timer;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::observation::Observation;
use crate::plugin_object;

/// The reason of the condition Ready, by which a restarted host knows such a plugin.
pub(super) const MEMORY_PRESSURE: &str = "MemoryPressure";
/// How long a plugin has to behave. A controller looks at each of its objects some times in it.
const CALM_MS: u64 = 600_000;
/// How long such a plugin waits for the others at a start, which have the time that the host takes to be ready.
const LAST_MS: u64 = 60_000;
/// How often it looks whether they serve.
const LOOK_MS: u64 = 1_000;

impl Lifecycle {
    pub(super) fn on_costliest(&mut self, name: Arc<str>, kept_bytes: usize, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        if let Some(costly) = &mut plugin.costly {
            costly.at_ms = cx.now.mono_ms;
            return;
        }
        let message = format!(
            "the host was short of memory while this plugin kept more than any other, {} MiB; until that has not happened for {} \
             minutes, one of its objects is called at a time. Have it return or read less, or raise the container's memory limit",
            kept_bytes >> 20,
            CALM_MS / 60_000
        );
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

    /// Whether a plugin that could serve waits for the others, since its Plugin object says that it was the costliest.
    pub(super) fn comes_up_last(&mut self, name: &Arc<str>, cx: &mut Context<'_>) -> bool {
        let Some(plugin) = self.plugins.get(name).filter(|plugin| plugin.active.is_none()) else { return false };
        if plugin.costly.is_none() {
            let target = plugin_object::of(name);
            let snapshot = cx.store.snapshot();
            let shown = snapshot.get(&target.kind, &target.name).map(|live| plugin_object::shown(live).conditions);
            let shown = shown.into_iter().flatten().find(|it| it.name == "Ready" && it.reason == MEMORY_PRESSURE);
            let Some(shown) = shown else { return false };
            let (serves, message) = shown.message.split_once(", but ").unwrap_or_default();
            let message = if serves.is_empty() { shown.message.clone() } else { message.to_owned() };
            self.confine(name, message, cx);
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
        let why = "it waits until the other plugins serve, since the host was short of memory while it kept more than any other";
        candidate.waits_for = waits.then(|| why.to_owned());
        if waits {
            self.arm(LOOK_MS, Timer::Costly(Arc::clone(name)), cx);
        }
        waits
    }
}
