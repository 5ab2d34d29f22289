//! What keeps a plugin from its work though it serves: rights that are refused, and calls that end in a fault. The Reconciler
//! sends when each begins and ends; here each is shown in the Plugin object, and for a short while after.

use std::sync::Arc;

use super::Lifecycle;
use super::timers::Timer;
use crate::engine::context::Context;
use crate::permission::Permission;

/// How long a fault that has passed stays shown: a plugin that faults every other call is not a flood of writes.
const PASSED_MS: u64 = 3_000;

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
}
