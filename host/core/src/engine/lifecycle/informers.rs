//! Informers of the kinds that plugins read, and what their state means for those plugins (R4, R5).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Lifecycle;
use super::crds::CRD_RETRY_MS;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::object::Kind;
use crate::observation::Observation;
use crate::plugin_object;
use crate::watch::WatchError;

/// The informer of one kind, apart from its objects.
#[derive(Debug, Default)]
pub(super) struct Informer {
    pub error: Option<WatchError>,
    /// Plugins that read the kind, and the host under its own name; it is watched for as long as there is one.
    pub readers: BTreeSet<Arc<str>>,
    /// The first list is known to be complete.
    pub listed: bool,
}

impl Informer {
    /// The API server says no: the kind may not be read, or does not exist.
    pub fn is_denied_or_gone(&self) -> bool {
        matches!(self.error, Some(WatchError::Denied(_) | WatchError::NotServed(_)))
    }
}

impl Lifecycle {
    /// R4, R5: listed once, and neither forbidden nor gone.
    pub(super) fn is_readable(&self, kind: &Kind, cx: &Context<'_>) -> bool {
        cx.store.synced(kind) && self.informers.get(kind).is_none_or(|informer| !informer.is_denied_or_gone())
    }

    /// Sends the Reconciler which of a plugin's controllers may be called, where that has changed. A primary that may have
    /// been deleted unseen is not reconciled: its children would be created again while they are garbage collected.
    pub(super) fn settle_readiness(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
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

    /// A watch has brought something, so the kind is served and may be read.
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
        for name in self.concerned_by(kind) {
            self.advance(&name, cx);
            self.touch(&name);
        }
        self.settle_touched(cx);
    }

    /// The plugins whose state the state of this informer is part of: all for the Plugin objects, else those that read it, now
    /// or in the version that is coming up.
    fn concerned_by(&self, kind: &Kind) -> Vec<Arc<str>> {
        if *kind == plugin_object::kind() {
            return self.plugins.keys().cloned().collect();
        }
        self.informers.get(kind).into_iter().flat_map(|informer| &informer.readers).cloned().collect()
    }

    pub fn on_watch_failed(&mut self, kind: &Kind, error: WatchError, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(kind) else { return };
        let known = informer.error.as_ref();
        // A verdict holds until the kind is listed again: that the API server cannot be reached now does not undo it (R5).
        let is_verdict = |error: &WatchError| !matches!(error, WatchError::Unavailable(_));
        let repeated = known == Some(&error) || (known.is_some_and(is_verdict) && !is_verdict(&error));
        let is_gone = matches!(error, WatchError::NotServed(_));
        if !repeated {
            cx.observe(Observation::WatchFailed { kind: kind.clone(), error: error.clone() });
            informer.error = Some(error);
            for name in self.concerned_by(kind) {
                self.touch(&name);
            }
            if *kind == plugin_object::kind() {
                self.names_are_known(cx);
            }
        }
        if is_gone {
            // A CRD that was restored may have been deleted again, so this is done at each failure.
            self.restore_crd(kind, if repeated { CRD_RETRY_MS } else { 0 }, cx);
        }
        self.settle_touched(cx);
    }
}
