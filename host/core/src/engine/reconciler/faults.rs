//! What the keys of each plugin have in common that the Lifecycle shows: rights that are refused, and calls that end in a
//! fault. One sentence each is sent when it begins, and one message when the last key has none any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Reconciler;
use crate::engine::context::Context;
use crate::engine::message::ToLifecycle;
use crate::permission::{Denial, Permission};
use crate::workqueue::Key;
use crate::write::WriteOp;

/// Bytes of a sentence that is sent: it becomes part of a condition's message beside others, and one is kept for each plugin
/// and right.
const MAX_SENTENCE_BYTES: usize = 1 << 10;

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_SENTENCE_BYTES));
    text
}

/// The keys of one plugin that have each fault.
#[derive(Debug, Default)]
pub(super) struct PluginFaults {
    denied: BTreeMap<Permission, BTreeSet<Key>>,
    faulted: BTreeSet<Key>,
}

impl Reconciler {
    pub(super) fn plugin_of(&self, key: &Key) -> Option<Arc<str>> {
        Some(Arc::clone(&self.controllers.get(&key.controller)?.plugin))
    }

    pub(super) fn note_denied(&mut self, key: &Key, op: &WriteOp, message: &str, cx: &mut Context<'_>) {
        if Denial::read(message).is_none() {
            return;
        }
        let (Some(plugin), Some(state)) = (self.plugin_of(key), self.keys.get_mut(key)) else { return };
        let permission = op.permission();
        state.denied.insert(permission.clone());
        let denied = &mut self.faults.entry(Arc::clone(&plugin)).or_default().denied;
        denied.entry(permission.clone()).or_default().insert(key.clone());
        cx.notify_lifecycle(ToLifecycle::Denied { plugin, permission, message: cut(message.to_owned()) });
    }

    /// A write that used a right went through, so nobody is denied it any more.
    pub(super) fn note_permitted(&mut self, key: &Key, op: &WriteOp, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(faults) = self.faults.get_mut(&controller.plugin).filter(|faults| !faults.denied.is_empty()) else {
            return;
        };
        let permission = op.permission();
        if faults.denied.remove(&permission).is_some() {
            let plugin = Arc::clone(&controller.plugin);
            cx.notify_lifecycle(ToLifecycle::Permitted { plugin, permission });
        }
    }

    /// The key needs no refused right any more: its turn went well, or its object is gone.
    pub(super) fn clear_denials(&mut self, key: &Key, cx: &mut Context<'_>) {
        let Some(denied) = self.keys.get_mut(key).map(|state| std::mem::take(&mut state.denied)) else { return };
        let Some(plugin) = self.plugin_of(key).filter(|_| !denied.is_empty()) else { return };
        let Some(faults) = self.faults.get_mut(&plugin) else { return };
        for permission in denied {
            let Some(keys) = faults.denied.get_mut(&permission) else { continue };
            keys.remove(key);
            if keys.is_empty() {
                faults.denied.remove(&permission);
                cx.notify_lifecycle(ToLifecycle::Permitted { plugin: Arc::clone(&plugin), permission });
            }
        }
    }

    pub(super) fn note_fault(&mut self, key: &Key, message: String, cx: &mut Context<'_>) {
        let (Some(plugin), Some(state)) = (self.plugin_of(key), self.keys.get_mut(key)) else { return };
        state.is_faulted = true;
        let faulted = &mut self.faults.entry(Arc::clone(&plugin)).or_default().faulted;
        let is_first = faulted.is_empty();
        faulted.insert(key.clone());
        if is_first {
            cx.notify_lifecycle(ToLifecycle::Faulted { plugin, message: cut(message) });
        }
    }

    pub(super) fn clear_fault(&mut self, key: &Key, cx: &mut Context<'_>) {
        let was_faulted = self.keys.get_mut(key).is_some_and(|state| std::mem::take(&mut state.is_faulted));
        let Some(plugin) = self.plugin_of(key).filter(|_| was_faulted) else { return };
        let Some(faults) = self.faults.get_mut(&plugin) else { return };
        if faults.faulted.remove(key) && faults.faulted.is_empty() {
            cx.notify_lifecycle(ToLifecycle::Recovered { plugin });
        }
    }
}
