//! What keeps a plugin from its work though it serves: rights that are refused, and calls that end in a fault. The Reconciler
//! sends when each begins and ends; here each is shown in the Plugin object, and for a short while after.

use std::sync::Arc;

use super::Lifecycle;
use super::plugin::Throttled;
use super::timers::Timer;
use crate::engine::context::Context;
use crate::observation::Observation;
use crate::permission::Permission;

/// How long a fault that has passed stays shown: a plugin that faults every other call is not a flood of writes.
const PASSED_MS: u64 = 3_000;

/// How long a plugin has to stay below its budget of writes before that is shown: one that is always at the bound would
/// otherwise have its object written several times a second.
const THROTTLED_MS: u64 = 60_000;

impl Lifecycle {
    pub(super) fn on_denied(&mut self, name: Arc<str>, permission: Permission, message: String) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        plugin.denied.insert(permission, message);
        self.touch(&name);
    }

    pub(super) fn on_permitted(&mut self, name: Arc<str>, permission: &Permission, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        if plugin.denied.remove(permission).is_some() {
            self.arm(PASSED_MS, Timer::Status(name), cx);
        }
    }

    pub(super) fn on_faulted(&mut self, name: Arc<str>, message: String) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        plugin.fault = Some(message);
        self.touch(&name);
    }

    pub(super) fn on_recovered(&mut self, name: Arc<str>, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        if plugin.fault.take().is_some() {
            self.arm(PASSED_MS, Timer::Status(name), cx);
        }
    }

    pub(super) fn on_throttled(&mut self, name: Arc<str>, message: String, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        let at_ms = cx.now.mono_ms;
        if let Some(throttled) = &mut plugin.throttled {
            // The same again is no news.
            throttled.at_ms = at_ms;
            return;
        }
        plugin.throttled = Some(Throttled { at_ms, message: message.clone() });
        self.touch(&name);
        self.arm(THROTTLED_MS, Timer::Throttled(Arc::clone(&name)), cx);
        cx.observe(Observation::Throttled { plugin: name, message });
    }

    pub(super) fn end_throttled(&mut self, name: &Arc<str>, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(due_ms) = plugin.throttled.as_ref().map(|throttled| throttled.at_ms + THROTTLED_MS) else { return };
        if due_ms > cx.now.mono_ms {
            return self.arm(due_ms - cx.now.mono_ms, Timer::Throttled(Arc::clone(name)), cx);
        }
        plugin.throttled = None;
        self.touch(name);
    }
}
