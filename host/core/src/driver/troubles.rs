//! What keeps a plugin from its work though it serves: rights that are refused, and calls that are faults. Each is told once
//! in the plugin's report, and forgotten when it has passed.

use std::sync::Arc;

use super::{Driver, Timer};
use crate::backoff::Patience;
use crate::event::Effect;
use crate::rbac;
use crate::workqueue::Key;
use crate::write::{WriteErrorClass, WriteOp};

/// How long a trouble that has passed stays in the report: a plugin that faults every other call is not a flood of writes.
const TROUBLE_PASSED_MS: u64 = 3_000;

impl Driver {
    pub(super) fn note_denied(&mut self, key: &Key, op: &WriteOp, message: &str, effects: &mut Vec<Effect>) {
        let Some(name) = self.controllers.get(&key.controller).map(|controller| Arc::clone(&controller.plugin)) else {
            return;
        };
        if !rbac::is_refused_by_rbac(message) {
            return;
        }
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        let denial = plugin.denied.entry(op.permission()).or_default();
        denial.message = message.to_owned();
        denial.keys.insert(key.clone());
        self.report(&name, effects);
    }

    pub(super) fn note_permitted(&mut self, key: &Key, op: &WriteOp, effects: &mut Vec<Effect>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let name = Arc::clone(&controller.plugin);
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        if !plugin.denied.is_empty() && plugin.denied.remove(&op.permission()).is_some() {
            self.report(&name, effects);
        }
    }

    /// The key needs no refused right any more: its turn went well, or its object is gone.
    pub(super) fn clear_denials(&mut self, key: &Key) {
        let Some(name) = self.controllers.get(&key.controller).map(|controller| Arc::clone(&controller.plugin)) else {
            return;
        };
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        let before = plugin.denied.len();
        plugin.denied.retain(|_, denial| !(denial.keys.remove(key) && denial.keys.is_empty()));
        if plugin.denied.len() != before {
            self.arm(TROUBLE_PASSED_MS, Timer::Report(name));
        }
    }

    pub(super) fn note_fault(&mut self, key: &Key, message: String, effects: &mut Vec<Effect>) {
        let Some(name) = self.controllers.get(&key.controller).map(|controller| Arc::clone(&controller.plugin)) else {
            return;
        };
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        let first = plugin.faults.is_empty();
        plugin.faults.insert(key.clone(), message);
        if first {
            self.report(&name, effects);
        }
    }

    pub(super) fn clear_fault(&mut self, key: &Key) {
        let Some(name) = self.controllers.get(&key.controller).map(|controller| Arc::clone(&controller.plugin)) else {
            return;
        };
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        if plugin.faults.remove(key).is_some() {
            self.arm(TROUBLE_PASSED_MS, Timer::Report(name));
        }
    }

    /// How long it is worth waiting after an error of this class.
    pub(super) fn patience(class: WriteErrorClass) -> Patience {
        match class {
            WriteErrorClass::Unavailable | WriteErrorClass::Unknown | WriteErrorClass::TooManyRequests { .. } => {
                Patience::Unreachable
            }
            WriteErrorClass::Denied => Patience::Denied,
            WriteErrorClass::AlreadyExists
            | WriteErrorClass::Conflict
            | WriteErrorClass::FieldConflict
            | WriteErrorClass::NotFound
            | WriteErrorClass::Blocked
            | WriteErrorClass::Invalid => Patience::Failed,
        }
    }
}
