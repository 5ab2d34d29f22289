//! Objects that are being deleted with the plugin's finalizer: when it may be removed, the Event about it, and its
//! removal when the plugin has no cleanup. `run.rs` orders adding and removing it among the other writes (X1).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Reconciler;
use super::live_reads::Reason;
use crate::backoff::{FailureCause, delay_ms};
use crate::dependencies::Dependency;
use crate::engine::context::Context;
use crate::object::{Object, ObjectRef};
use crate::plan::Prepared;
use crate::successor_mark::is_marked;
use crate::workqueue::Key;

/// The shortest delay before a key whose finalizer could not be removed is tried again.
const MIN_RECHECK_MS: u64 = 1_000;

impl Reconciler {
    /// Whether the cache shows every write of the key, so that the finalizer may be removed. The API server may have
    /// carried out a write of unknown result that a lagging watch does not show yet, so its target is read live.
    pub(super) fn knows_all_writes(&mut self, key: &Key, prepared: &Prepared, cx: &mut Context<'_>) -> bool {
        let Some(controller) = self.controllers.get(&key.controller) else { return false };
        let Some(state) = self.keys.get_mut(key) else { return false };
        if std::mem::take(&mut state.unknown_writes.inherited) {
            // The other host's targets are assumed to be what this host's guest has read, wants or wants to write.
            let reads = state.last.iter().flat_map(|last| last.reads.iter());
            let read = reads.filter_map(|(dependency, _)| match dependency {
                Dependency::Get { target, .. } => Some(target.clone()),
                _ => None,
            });
            let wanted = prepared.actions.iter().map(|action| action.target.clone());
            let tracked = state.wanted().into_iter().chain([prepared]).flat_map(Prepared::tracked).cloned();
            let targets: Vec<ObjectRef> = read.chain(wanted).chain(tracked).collect();
            state.unknown_writes.targets.extend(targets);
        }
        let targets = std::mem::take(&mut state.unknown_writes.targets);
        let (readable, others): (BTreeSet<_>, BTreeSet<_>) =
            targets.into_iter().partition(|target| controller.spec.sees(&target.kind, &target.name.namespace));
        for target in &others {
            // What no informer watches cannot be compared: the write is repeated.
            state.memory.applied.remove(target);
            state.memory.sent.retain(|(of, _), _| of != target);
        }
        state.unknown_writes.targets.clone_from(&readable);
        let knows_all = readable.is_empty() && others.is_empty();
        for target in readable {
            self.read_live(key, target, Reason::Unknown, cx);
        }
        knows_all
    }

    /// How long until the cache or a live read shows every write that was carried out. Of a marked object another host may
    /// have created tracked children under names that only it knows, so there is nothing to read: a watch shows them.
    pub(super) fn unknown_ms(&self, key: &Key, primary: &Object, cx: &Context<'_>) -> u64 {
        let Some(state) = self.keys.get(key) else { return 0 };
        let tracks = || self.controllers[&key.controller].spec.tracked().next().is_some();
        let unseen_ms = if primary.deleting && tracks() && is_marked(primary) { self.unsure_ms(key, cx) } else { 0 };
        state.unknown_writes.until_ms.saturating_sub(cx.now.mono_ms).max(unseen_ms)
    }

    /// When to try again to remove the finalizer.
    pub(super) fn recheck_ms(&self, key: &Key) -> u64 {
        let unread = self.keys.get(key).map_or(0, |state| state.unknown_writes.unread);
        delay_ms(unread, &key.name.to_string(), FailureCause::Denied).max(MIN_RECHECK_MS)
    }

    /// Records once that a deleted object waits for its plugin.
    pub(super) fn record_finalizing(&mut self, key: &Key, primary: &Arc<Object>, cx: &mut Context<'_>) {
        let Some(state) = self.keys.get_mut(key).filter(|_| primary.deleting) else { return };
        if std::mem::replace(&mut state.recorded.finalizing, true) {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let awaited = match (controller.spec.finalize, controller.spec.has_finalizer()) {
            (true, _) => "its plugin has cleaned up",
            (false, true) => "its children are deleted",
            (false, false) => return,
        };
        let note = format!("it is deleted when {awaited} and the host removes {}", controller.finalizer);
        self.record(key, primary, false, "Finalizing", &note, cx);
    }

    /// Deletes the tracked children and removes the finalizer, when the plugin has no cleanup: the host has added it for
    /// these children, or for an earlier version.
    pub(super) fn release_finalizer(&mut self, key: &Key, primary: &Arc<Object>, cx: &mut Context<'_>) {
        self.carry_out(key, primary, &Arc::new(Prepared::finalized()), primary.generation, true, cx);
    }
}
