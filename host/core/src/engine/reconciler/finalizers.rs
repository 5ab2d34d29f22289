//! Objects that are being deleted and wait for their plugin: what is told of it, and what becomes of them when the plugin
//! finalizes no more. That a finalizer is put on and taken off in its turn is `carry_out.rs`' business.

use std::sync::Arc;

use super::Reconciler;
use super::key::{Ending, Run, Stage};
use super::live_reads::Reason;
use crate::backoff::{Patience, delay_ms};
use crate::dependencies::Dependency;
use crate::engine::context::Context;
use crate::finalizer;
use crate::object::{Object, ObjectRef};
use crate::observation::ReconcileResult;
use crate::plan::Prepared;
use crate::workqueue::Key;

/// When it is asked anew what has become of an object, should no answer have come; later and later when it cannot be read.
const LOOK_AGAIN_MS: u64 = 1_000;

impl Reconciler {
    /// Whether the view shows all that may have been written for an object that is to go. A write that nobody has heard of may
    /// have landed unseen by a watch that lags, so what it was about is read live, once it cannot land any more.
    pub(super) fn is_sure(&mut self, key: &Key, prepared: &Prepared, cx: &mut Context<'_>) -> bool {
        let Some(controller) = self.controllers.get(&key.controller) else { return false };
        let Some(state) = self.keys.get_mut(key) else { return false };
        if std::mem::take(&mut state.unknown_writes.inherited) {
            // The other host's writes were about what this one's guest would write, or has looked at.
            let read =
                state.last.iter().flat_map(|last| last.reads.iter()).filter_map(|(dependency, _)| match dependency {
                    Dependency::Get(target) => Some(target.clone()),
                    _ => None,
                });
            state
                .unknown_writes
                .targets
                .extend(read.chain(prepared.actions.iter().map(|action| action.target.clone())));
        }
        let unsure: Vec<ObjectRef> = state.unknown_writes.targets.iter().cloned().collect();
        for target in &unsure {
            if controller.access.readable.contains(&target.kind) {
                continue;
            }
            // What has no view is said once more.
            state.unknown_writes.targets.remove(target);
            state.memory.applied.remove(target);
            state.memory.sent.retain(|(of, _), _| of != target);
        }
        for target in state.unknown_writes.targets.clone() {
            self.read_live(key, target, Reason::Unknown, cx);
        }
        unsure.is_empty()
    }

    /// When the key of an object that stays looks again.
    pub(super) fn looks_again_ms(&self, key: &Key) -> u64 {
        let unread = self.keys.get(key).map_or(0, |state| state.unknown_writes.unread);
        delay_ms(unread, &key.name.to_string(), Patience::Denied).max(LOOK_AGAIN_MS)
    }

    /// Tells once that an object waits for its plugin.
    pub(super) fn record_finalizing(&mut self, key: &Key, primary: &Arc<Object>, cx: &mut Context<'_>) {
        let Some(state) = self.keys.get_mut(key).filter(|_| primary.deleting) else { return };
        if std::mem::replace(&mut state.recorded.finalizing, true) {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let note = format!("it goes when its plugin has cleaned up and {} is taken off", controller.finalizer);
        self.record(key, primary, false, "Finalizing", &note, cx);
    }

    /// A version of the plugin that finalizes no more holds up no deletion: what an earlier one has put on is taken off.
    pub(super) fn release_finalizer(&mut self, key: &Key, primary: &Object, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let stage = finalizer::remove(primary, &controller.finalizer).map(Stage::of_one);
        self.begin_run(key, Run::new(stage, Ending::new(ReconcileResult::Success, None), true), cx);
    }
}
