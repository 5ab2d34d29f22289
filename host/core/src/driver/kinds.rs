//! Which kinds are watched, and what it means for the plugins that a kind is listed, forbidden or gone (R4, R5).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::crds::CRD_RETRY_MS;
use super::plugins::{PluginState, Stage};
use super::{Driver, KindState};
use crate::event::{Digest, Effect, Observation, WatchError};
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::plugin_object;
use crate::queue::ControllerId;

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

    /// Brings watches, components and the readiness of controllers in line with what the plugins are now.
    pub(super) fn settle(&mut self, effects: &mut Vec<Effect>) {
        self.settle_kinds(effects);
        self.settle_digests(effects);
        let ready: Vec<(ControllerId, bool)> = self
            .controllers
            .iter()
            .map(|(id, controller)| {
                let readable = controller.access.readable.iter().all(|kind| self.is_readable(kind));
                (*id, readable && self.is_current(&controller.spec.primary))
            })
            .collect();
        for (id, ready) in ready {
            if let Some(controller) = self.controllers.get_mut(&id) {
                controller.ready = ready;
            }
        }
    }

    pub(super) fn settle_kinds(&mut self, effects: &mut Vec<Effect>) {
        let mut wanted: BTreeSet<Kind> = BTreeSet::new();
        if self.host_crd_established {
            wanted.insert(plugin_object::kind());
        }
        for plugin in self.plugins.values() {
            let serving = plugin.active.as_ref().map(|active| &active.manifest);
            let coming = plugin.candidate.as_ref().and_then(|candidate| match &candidate.stage {
                Stage::Listing { manifest } => Some(manifest),
                _ => None,
            });
            for manifest in serving.into_iter().chain(coming) {
                wanted.extend(manifest.controllers.iter().flat_map(|controller| controller.readable()));
            }
        }
        let gone: Vec<Kind> = self.kinds.keys().filter(|kind| !wanted.contains(*kind)).cloned().collect();
        for kind in gone {
            self.kinds.remove(&kind);
            self.listed.remove(&kind);
            self.store.forget(&kind);
            effects.push(Effect::StopWatch(kind));
        }
        for kind in wanted {
            if !self.kinds.contains_key(&kind) {
                self.kinds.insert(kind.clone(), KindState::default());
                effects.push(Effect::StartWatch(kind));
            }
        }
    }

    fn settle_digests(&mut self, effects: &mut Vec<Effect>) {
        let mut wanted: BTreeSet<Digest> = BTreeSet::new();
        for plugin in self.plugins.values() {
            wanted.extend(plugin.offer.as_ref().map(|offer| offer.digest.clone()));
            wanted.extend(plugin.active.as_ref().map(|active| active.digest.clone()));
        }
        let gone: Vec<Digest> = self.digests.keys().filter(|digest| !wanted.contains(*digest)).cloned().collect();
        for digest in gone {
            self.digests.remove(&digest);
            effects.push(Effect::Unload(digest));
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
        self.settle(effects);
        for name in self.concerned_by(kind) {
            self.advance(&name, effects);
            self.report(&name, effects);
        }
    }

    /// The plugins whose state the state of this kind's watch is part of: all for the Plugin objects, which tell of them, else
    /// those that read it, now or in the version that is on its way.
    fn concerned_by(&self, kind: &Kind) -> Vec<Arc<str>> {
        let reads = |manifest: &Arc<Manifest>| {
            manifest.controllers.iter().any(|controller| controller.readable().contains(kind))
        };
        let is_concerned = |plugin: &PluginState| {
            let coming = plugin.candidate.as_ref().and_then(|candidate| candidate.stage.manifest());
            coming.into_iter().chain(plugin.active.as_ref().map(|active| &active.manifest)).any(reads)
        };
        let every = *kind == plugin_object::kind();
        let names = self.plugins.iter().filter(|(_, plugin)| every || is_concerned(plugin));
        names.map(|(name, _)| Arc::clone(name)).collect()
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
        self.settle(effects);
        for name in self.concerned_by(kind) {
            self.report(&name, effects);
        }
    }
}
