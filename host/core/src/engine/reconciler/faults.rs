//! Denied permissions and guest faults by plugin, which the Lifecycle shows in the Plugin object. It is sent a message
//! when the first key has one, another when the last key has none any more, and a new one when a fault occurs after the key
//! that the last one named has recovered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Reconciler;
use crate::engine::context::{Context, remove_member};
use crate::engine::message::ToLifecycle;
use crate::permission::{Denial, Permission};
use crate::text::FAULT;
use crate::workqueue::Key;
use crate::write::WriteOp;

/// The keys of one plugin that have a denied permission, or a fault.
#[derive(Debug, Default)]
pub(super) struct PluginFaults {
    denied: BTreeMap<Permission, BTreeSet<Key>>,
    faulted: BTreeSet<Key>,
    /// Which of these the Plugin object names.
    named: Option<Key>,
}

impl Reconciler {
    pub(super) fn plugin_of(&self, key: &Key) -> Option<Arc<str>> {
        Some(Arc::clone(&self.controllers.get(&key.controller)?.plugin))
    }

    /// Those of the version before, or of a plugin that is gone.
    pub(super) fn forget_faults(&mut self, plugin: &str, cx: &mut Context<'_>) {
        if let Some(faults) = self.faults.remove(plugin) {
            cx.discard(faults);
        }
    }

    pub(super) fn note_denied(&mut self, key: &Key, op: &WriteOp, message: &str, cx: &mut Context<'_>) {
        let Some(denial) = Denial::read(message) else { return };
        let (Some(controller), Some(state)) = (self.controllers.get(&key.controller), self.keys.get_mut(key)) else {
            return;
        };
        let (plugin, permission) = (Arc::clone(&controller.plugin), controller.permission(op));
        // A guest chooses the names of what it writes, and where.
        let granted = controller.version.namespaces.as_ref();
        let is_known = |namespace: &str| {
            *key.name.namespace == *namespace || granted.is_some_and(|granted| granted.contains(namespace))
        };
        state.denied.insert(permission.clone());
        let denied = &mut self.faults.entry(Arc::clone(&plugin)).or_default().denied;
        let keys = denied.entry(permission.clone()).or_default();
        let is_first = keys.is_empty();
        keys.insert(key.clone());
        if is_first {
            let message = FAULT.own(denial.shown(|namespace| is_known(namespace)));
            cx.notify_lifecycle(ToLifecycle::Denied { plugin, permission, message });
        }
    }

    /// A write succeeded, so its permission is not denied any more.
    pub(super) fn note_permitted(&mut self, key: &Key, op: &WriteOp, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(faults) = self.faults.get_mut(&controller.plugin).filter(|faults| !faults.denied.is_empty()) else {
            return;
        };
        let permission = controller.permission(op);
        if faults.denied.remove(&permission).is_some() {
            let plugin = Arc::clone(&controller.plugin);
            cx.notify_lifecycle(ToLifecycle::Permitted { plugin, permission });
        }
    }

    /// The key's turn succeeded. What the plugin does without because it is rejected is denied still.
    pub(super) fn review_denials(&mut self, key: &Key, cx: &mut Context<'_>) {
        let Some(state) = self.keys.get(key) else { return };
        let denied = state.denied.iter().filter(|permission| !state.is_forbidden(permission)).cloned().collect();
        self.permit(key, denied, cx);
    }

    /// The key is dropped.
    pub(super) fn clear_denials(&mut self, key: &Key, cx: &mut Context<'_>) {
        let denied = self.keys.get(key).map(|state| state.denied.clone()).unwrap_or_default();
        self.permit(key, denied, cx);
    }

    fn permit(&mut self, key: &Key, denied: BTreeSet<Permission>, cx: &mut Context<'_>) {
        if let Some(state) = self.keys.get_mut(key) {
            state.denied.retain(|permission| !denied.contains(permission));
        }
        let Some(plugin) = self.plugin_of(key).filter(|_| !denied.is_empty()) else { return };
        let Some(faults) = self.faults.get_mut(&plugin) else { return };
        for permission in denied {
            if remove_member(&mut faults.denied, &permission, key) {
                cx.notify_lifecycle(ToLifecycle::Permitted { plugin: Arc::clone(&plugin), permission });
            }
        }
    }

    pub(super) fn note_fault(&mut self, key: &Key, message: String, cx: &mut Context<'_>) {
        let (Some(plugin), Some(state)) = (self.plugin_of(key), self.keys.get_mut(key)) else { return };
        state.is_faulted = true;
        let faults = self.faults.entry(Arc::clone(&plugin)).or_default();
        faults.faulted.insert(key.clone());
        if faults.named.is_none() {
            faults.named = Some(key.clone());
            cx.notify_lifecycle(ToLifecycle::Faulted { plugin, message: FAULT.own(message) });
        }
    }

    pub(super) fn clear_fault(&mut self, key: &Key, cx: &mut Context<'_>) {
        let was_faulted = self.keys.get_mut(key).is_some_and(|state| std::mem::take(&mut state.is_faulted));
        let Some(plugin) = self.plugin_of(key).filter(|_| was_faulted) else { return };
        let Some(faults) = self.faults.get_mut(&plugin) else { return };
        faults.named.take_if(|named| named == key);
        if faults.faulted.remove(key) && faults.faulted.is_empty() {
            cx.notify_lifecycle(ToLifecycle::Recovered { plugin });
        }
    }
}
