//! Informers: the error of each, its readers, and which controllers are ready (R4, R5).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Lifecycle;
use super::timers::CRD_RETRY_MS;
use crate::engine::context::Context;
use crate::engine::message::{Message, ToReconciler};
use crate::event::Effect;
use crate::object::Kind;
use crate::observation::Observation;
use crate::plugin_object;
use crate::watch::WatchError;

#[derive(Debug, Default)]
pub(super) struct Informer {
    pub error: Option<WatchError>,
    /// Plugins that read the kind, and the host under its own name. The last one to leave stops the informer.
    pub readers: BTreeSet<Arc<str>>,
    /// The first list is complete.
    pub listed: bool,
}

impl Informer {
    /// The API server denies reading the kind or does not serve it.
    pub fn is_denied_or_gone(&self) -> bool {
        matches!(self.error, Some(WatchError::Denied(_) | WatchError::NotServed(_)))
    }
}

impl Lifecycle {
    pub(super) fn start_informer(&mut self, reader: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) {
        let informer = self.informers.entry(kind.clone()).or_insert_with(|| {
            cx.effects.push(Effect::StartWatch(kind.clone()));
            self.audits.begin(cx.now.mono_ms, kind);
            Informer::default()
        });
        informer.readers.insert(Arc::clone(reader));
    }

    pub(super) fn stop_informer(&mut self, reader: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(kind) else { return };
        informer.readers.remove(reader);
        if informer.readers.is_empty() {
            self.informers.remove(kind);
            self.audits.end(kind);
            cx.messages.push_back(Message::Forget(kind.clone()));
            cx.effects.push(Effect::StopWatch(kind.clone()));
        }
    }

    /// R4, R5: listed once, and neither denied nor gone.
    pub(super) fn is_readable(&self, kind: &Kind, cx: &Context<'_>) -> bool {
        cx.store.synced(kind) && self.informers.get(kind).is_none_or(|informer| !informer.is_denied_or_gone())
    }

    /// Sends the Reconciler which of a plugin's controllers have become ready or unready. While the primaries' watch
    /// fails, a primary may have been deleted unseen: reconciling it would recreate children that are being garbage
    /// collected.
    pub(super) fn sync_readiness(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(active) = self.plugins.get(name).and_then(|plugin| plugin.active.as_ref()) else { return };
        let mut changed = Vec::new();
        for controller in &active.manifest.controllers {
            let primary = &controller.primary;
            let is_current = self.informers.get(primary).is_some_and(|informer| informer.error.is_none());
            let ready = is_current && controller.readable().iter().all(|kind| self.is_readable(kind, cx));
            if active.ready.get(primary) != Some(&ready) {
                changed.push((primary.clone(), ready));
            }
        }
        let Some(active) = self.plugins.get_mut(name).and_then(|plugin| plugin.active.as_mut()) else { return };
        for (primary, ready) in changed {
            active.ready.insert(primary.clone(), ready);
            cx.notify_reconciler(ToReconciler::SetReady { plugin: Arc::clone(name), primary, ready });
        }
    }

    /// An event of a watch shows that the kind is served and may be read.
    pub fn on_kind_served(&mut self, kind: &Kind, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(kind) else { return };
        if informer.error.is_none() && informer.listed {
            return;
        }
        informer.error = None;
        informer.listed = cx.store.synced(kind);
        if *kind == plugin_object::kind() {
            self.delete_orphans(cx);
        }
        for name in self.readers_of(kind) {
            self.advance(&name, cx);
        }
        self.sync_dirty(cx);
    }

    /// The plugins whose serving or coming version reads a kind. All read the kind Plugin.
    fn readers_of(&self, kind: &Kind) -> Vec<Arc<str>> {
        if *kind == plugin_object::kind() {
            return self.plugins.keys().cloned().collect();
        }
        self.informers.get(kind).into_iter().flat_map(|informer| &informer.readers).cloned().collect()
    }

    pub fn on_watch_failed(&mut self, kind: &Kind, error: WatchError, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(kind) else { return };
        let known = informer.error.as_ref();
        // R5: an outage does not replace a denial; only a list does.
        let is_outage = |error: &WatchError| matches!(error, WatchError::Unavailable(_));
        let repeated = known == Some(&error) || (known.is_some_and(|known| !is_outage(known)) && is_outage(&error));
        let is_gone = matches!(error, WatchError::NotServed(_));
        if !repeated {
            cx.observe(Observation::WatchFailed { kind: kind.clone(), error: error.clone() });
            informer.error = Some(error);
            for name in self.readers_of(kind) {
                self.mark_dirty(&name);
            }
            if *kind == plugin_object::kind() {
                self.names_are_known(cx);
            }
        }
        if is_gone {
            // At each failure, since somebody may delete the CRD again.
            self.restore_crd(kind, if repeated { CRD_RETRY_MS } else { 0 }, cx);
        }
        self.sync_dirty(cx);
    }
}
