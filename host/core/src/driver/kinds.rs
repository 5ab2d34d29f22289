//! What it means for the plugins that a kind is listed, forbidden or gone (R4, R5).

use std::sync::Arc;

use super::Driver;
use super::crds::CRD_RETRY_MS;
use crate::event::Effect;
use crate::object::Kind;
use crate::observation::Observation;
use crate::plugin_object;
use crate::watch::WatchError;

impl Driver {
    /// R4, R5: listed once, and neither forbidden nor gone.
    pub(super) fn is_readable(&self, kind: &Kind) -> bool {
        let error = self.kinds.get(kind).and_then(|state| state.error.as_ref());
        self.store.synced(kind) && !matches!(error, Some(WatchError::Denied(_) | WatchError::NotServed(_)))
    }

    /// Its watch works, as far as is known. A primary that may have been deleted unseen is not acted for: its children
    /// would be made again while the garbage collector removes them.
    fn is_current(&self, kind: &Kind) -> bool {
        self.kinds.get(kind).is_some_and(|state| state.error.is_none())
    }

    /// Whether a plugin's controllers may be called, as far as the kinds go that they read.
    pub(super) fn settle_readiness(&mut self, name: &str) {
        let Some(active) = self.plugins.get(name).and_then(|plugin| plugin.active.as_ref()) else { return };
        for id in active.controllers.clone() {
            let Some(controller) = self.controllers.get(&id) else { continue };
            let readable = controller.access.readable.iter().all(|kind| self.is_readable(kind));
            let ready = readable && self.is_current(&controller.spec.primary);
            if let Some(controller) = self.controllers.get_mut(&id) {
                controller.ready = ready;
                self.queue.unpark(id);
            }
        }
    }

    fn settle_readers(&mut self, kind: &Kind) {
        let readers = self.kinds.get(kind).map(|state| state.readers.clone()).unwrap_or_default();
        for name in readers {
            self.settle_readiness(&name);
        }
    }

    /// A watch has brought something, so the kind is served and may be read.
    pub(super) fn on_kind_served(&mut self, kind: &Kind, effects: &mut Vec<Effect>) {
        let had_error = self.kinds.get_mut(kind).and_then(|state| state.error.take()).is_some();
        let was_listed = self.listed.contains(kind);
        if !had_error && was_listed {
            return;
        }
        if self.store.synced(kind) {
            self.listed.insert(kind.clone());
        }
        if *kind == plugin_object::kind() {
            self.delete_orphans(effects);
        }
        self.settle_readers(kind);
        for name in self.concerned_by(kind) {
            self.advance(&name, effects);
            self.report(&name, effects);
        }
    }

    /// The plugins whose state the state of this kind's watch is part of: all for the Plugin objects, which tell of them, else
    /// those that read it, now or in the version that is on its way.
    fn concerned_by(&self, kind: &Kind) -> Vec<Arc<str>> {
        if *kind == plugin_object::kind() {
            return self.plugins.keys().cloned().collect();
        }
        self.kinds.get(kind).into_iter().flat_map(|state| &state.readers).cloned().collect()
    }

    pub(super) fn on_watch_failed(&mut self, kind: &Kind, error: WatchError, effects: &mut Vec<Effect>) {
        let Some(state) = self.kinds.get_mut(kind) else { return };
        let known = state.error.as_ref();
        // A verdict stands until the kind is listed again: that the API server cannot be reached now does not undo it (R5).
        let is_verdict = |error: &WatchError| !matches!(error, WatchError::Unavailable(_));
        let repeated = known == Some(&error) || (known.is_some_and(is_verdict) && !is_verdict(&error));
        let is_gone = matches!(error, WatchError::NotServed(_));
        if is_gone {
            // A CRD that was restored may have been deleted again, so this is done at each failure.
            let due_ms = self.now.mono_ms + if repeated { CRD_RETRY_MS } else { 0 };
            self.restore_crd(kind, due_ms);
        }
        if repeated {
            return;
        }
        effects.push(Effect::Observe(Observation::WatchFailed { kind: kind.clone(), error: error.clone() }));
        if let Some(state) = self.kinds.get_mut(kind) {
            state.error = Some(error);
        }
        self.settle_readers(kind);
        if *kind == plugin_object::kind() {
            self.names_are_known(effects);
        }
        for name in self.concerned_by(kind) {
            self.report(&name, effects);
        }
    }
}
