//! Denied permissions, guest faults and throttling of serving plugins, as their Plugin objects show them: from when the
//! Reconciler or the Outbox reports one until shortly after its end.

use std::sync::Arc;

use super::Lifecycle;
use super::plugin::Throttled;
use super::timers::Timer;
use crate::engine::context::Context;
use crate::observation::Observation;
use crate::permission::{Denial, Permission};

/// How long a fault is shown after its end, so that a plugin that faults every other call causes few writes.
const PASSED_MS: u64 = 3_000;

/// How long a plugin is shown as throttled after its last write over the budget. One that is always at its bound would
/// otherwise cause several writes a second.
const THROTTLED_MS: u64 = 60_000;

impl Lifecycle {
    pub(super) fn on_denied(&mut self, name: Arc<str>, permission: Permission, message: String, cx: &mut Context<'_>) {
        if Denial::read(&message).is_some_and(|denial| denial.is_impersonation()) {
            self.on_acting_denied(&name, cx);
        }
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        plugin.denied.insert(permission, message);
        self.mark_dirty(&name);
    }

    pub(super) fn on_permitted(&mut self, name: Arc<str>, permission: &Permission, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        if plugin.denied.remove(permission).is_some() {
            self.arm(PASSED_MS, Timer::Status(name), cx);
        }
    }

    pub(super) fn on_not_granted(&mut self, name: Arc<str>, message: Option<Arc<str>>, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        let is_denied = message.is_some();
        plugin.not_granted = message;
        if is_denied {
            self.mark_dirty(&name);
        } else {
            self.arm(PASSED_MS, Timer::Status(name), cx);
        }
    }

    pub(super) fn on_faulted(&mut self, name: Arc<str>, message: String) {
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        plugin.fault = Some(message);
        self.mark_dirty(&name);
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
            throttled.at_ms = at_ms;
            return;
        }
        plugin.throttled = Some(Throttled { at_ms, message: message.clone() });
        self.mark_dirty(&name);
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
        self.mark_dirty(name);
    }
}
