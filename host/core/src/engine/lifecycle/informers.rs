//! Informers: who reads which part of a kind, and which controllers are ready (R4, R5). `informer.rs` decides which
//! watches an informer has; this file starts and stops them.

use std::sync::Arc;

use super::Lifecycle;
use super::informer::Watch;
use super::reviews::sees_some;
use crate::engine::context::Context;
use crate::engine::message::{Message, ToReconciler};
use crate::event::Effect;
use crate::object::Kind;
use crate::observation::Observation;
use crate::plugin_object;
use crate::scope::{Scope, Slice};
use crate::store::Store;
use crate::watch::WatchError;

impl Lifecycle {
    /// A reader reads a kind, or from now on another part of it.
    pub(super) fn start_informer(&mut self, reader: &Arc<str>, kind: &Kind, scope: Scope, cx: &mut Context<'_>) {
        self.informers.entry(kind.clone()).or_default().readers.insert(Arc::clone(reader), scope);
        self.sync_watches(kind, cx);
    }

    pub(super) fn stop_informer(&mut self, reader: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(kind) else { return };
        informer.readers.remove(reader);
        if !informer.readers.is_empty() {
            return self.sync_watches(kind, cx);
        }
        let slices: Vec<Slice> = informer.slices(kind).collect();
        self.informers.remove(kind);
        cx.messages.push_back(Message::Forget(kind.clone()));
        slices.into_iter().for_each(|slice| self.stop_watch(slice, cx));
    }

    /// Starts the watches that an informer lacks and stops those that it no longer needs.
    fn sync_watches(&mut self, kind: &Kind, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(kind) else { return };
        let (labels, mut started, mut stopped) = (informer.scope().labels_text(), Vec::new(), Vec::new());
        let slice = |namespace: &Option<Arc<str>>, labels: &Option<Arc<str>>| Slice {
            kind: kind.clone(),
            namespace: namespace.clone(),
            labels: labels.clone(),
        };
        for (namespace, watch) in &mut informer.watches {
            if watch.labels != labels {
                // Its new list replaces what the cache shows of the namespace, which its readers see until then.
                stopped.push(slice(namespace, &watch.labels));
                started.push(slice(namespace, &labels));
                *watch = Watch { labels: labels.clone(), serves: watch.serves, ..Watch::default() };
            }
        }
        for namespace in informer.missing() {
            started.push(slice(&namespace, &labels));
            informer.watches.insert(namespace, Watch { labels: labels.clone(), ..Watch::default() });
        }
        for namespace in informer.needless() {
            informer.watches.remove(&namespace);
            let slice = slice(&namespace, &labels);
            cx.messages.push_back(Message::Drop(slice.clone()));
            stopped.push(slice);
        }
        for slice in started {
            cx.effects.push(Effect::StartWatch(slice.clone()));
            self.audits.begin(cx.now.mono_ms, &slice);
        }
        stopped.into_iter().for_each(|slice| self.stop_watch(slice, cx));
    }

    fn stop_watch(&mut self, slice: Slice, cx: &mut Context<'_>) {
        self.audits.end(&slice);
        cx.effects.push(Effect::StopWatch(slice));
    }

    /// R4, R5: listed once, and neither denied nor gone.
    pub(super) fn is_readable(&self, kind: &Kind, scope: &Scope, cx: &Context<'_>) -> bool {
        self.unreadable(kind, scope, cx.store).next().is_none()
    }

    /// Where a scope is not readable.
    pub(super) fn unreadable(
        &self,
        kind: &Kind,
        scope: &Scope,
        store: &Store,
    ) -> impl Iterator<Item = Option<Arc<str>>> {
        let (informer, labels) = (self.informers.get(kind), scope.labels_text());
        let shows = move |namespace: Option<Arc<str>>| {
            let slice = Slice { kind: kind.clone(), namespace, labels: None };
            let watch = informer.and_then(|informer| informer.watches.get(&slice.namespace));
            !watch.is_some_and(Watch::is_denied_or_gone) && store.has_listed(&slice, labels.as_ref())
        };
        let has_namespaces = informer.is_none_or(|informer| informer.no_namespaces.is_none());
        scope.places().filter(move |place| match place {
            Some(_) => !(has_namespaces && (shows(place.clone()) || shows(None))),
            None => !shows(None),
        })
    }

    /// Sends the Reconciler which of a plugin's controllers have become ready or unready. While the primaries' watch
    /// fails, a primary may have been deleted unseen: reconciling it would recreate children that are being garbage
    /// collected.
    pub(super) fn sync_readiness(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(active) = self.plugins.get(name).and_then(|plugin| plugin.active.as_ref()) else { return };
        let mut changed = Vec::new();
        for controller in &active.manifest.controllers {
            let primary = &controller.primary;
            let is_current = self.informers.get(primary).is_some_and(|informer| informer.is_current(&controller.scope));
            let scopes = controller.scopes();
            let ready = is_current
                && scopes.iter().all(|(kind, scope)| self.is_readable(kind, scope, cx))
                && sees_some(active.rights.as_deref(), &scopes);
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
    pub fn on_kind_served(&mut self, slice: &Slice, cx: &mut Context<'_>) {
        let Some(watch) = self.watch_mut(slice) else { return };
        if watch.error.is_none() && watch.listed {
            return;
        }
        let was_gone = matches!(watch.error.take(), Some(WatchError::NotServed(_)));
        watch.listed = cx.store.synced(slice);
        watch.serves |= watch.listed;
        let (kind, is_listed) = (&slice.kind, watch.listed);
        if is_listed
            && slice.namespace.is_some()
            && let Some(informer) = self.informers.get_mut(kind)
        {
            informer.no_namespaces = None;
        }
        if was_gone {
            self.on_crd_made(kind, cx);
        }
        self.sync_watches(kind, cx);
        if *kind == plugin_object::kind() {
            self.delete_orphans(cx);
        }
        self.on_rbac_served(kind);
        self.on_namespaces_served(slice, cx);
        for name in self.readers_of(slice) {
            self.review_served(&name, kind, cx);
            self.advance(&name, cx);
        }
        self.sync_dirty(cx);
    }

    /// A list of all objects of a kind begins, and the API server says that they have no namespaces.
    pub fn on_cluster_scoped(&mut self, slice: &Slice, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(&slice.kind) else { return };
        if informer.no_namespaces.is_some() {
            return;
        }
        informer.no_namespaces = Some(WatchError::no_namespaces(&slice.kind));
        self.dirty.extend(self.readers_of(slice));
        self.sync_dirty(cx);
    }

    /// The plugins whose serving or coming version reads some of what a watch shows. All read the kind Plugin. The watch
    /// of one namespace concerns none of those that read all: with many namespaces and plugins that would be each
    /// plugin for each namespace.
    pub(super) fn readers_of(&self, slice: &Slice) -> Vec<Arc<str>> {
        if slice.kind == plugin_object::kind() {
            return self.plugins.keys().cloned().collect();
        }
        let readers = self.informers.get(&slice.kind).into_iter().flat_map(|informer| &informer.readers);
        let reads = |scope: &Scope| slice.namespace.as_ref().is_none_or(|place| scope.namespaces.contains(place));
        readers.filter(|(_, scope)| reads(scope)).map(|(name, _)| Arc::clone(name)).collect()
    }

    fn watch_mut(&mut self, slice: &Slice) -> Option<&mut Watch> {
        self.informers.get_mut(&slice.kind)?.watches.get_mut(&slice.namespace)
    }

    pub fn on_watch_failed(&mut self, slice: &Slice, error: WatchError, cx: &mut Context<'_>) {
        let Some(watch) = self.watch_mut(slice) else { return };
        let (known, kind) = (watch.error.as_ref(), &slice.kind);
        // R5: an outage does not replace a denial; only a list does.
        let is_outage = |error: &WatchError| matches!(error, WatchError::Unavailable(_));
        let repeated = known == Some(&error) || (known.is_some_and(|known| !is_outage(known)) && is_outage(&error));
        let is_gone = matches!(error, WatchError::NotServed(_));
        if !repeated {
            cx.observe(Observation::WatchFailed { kind: kind.clone(), error: error.clone() });
            watch.error = Some(error);
            if is_gone
                && slice.namespace.is_none()
                && let Some(informer) = self.informers.get_mut(kind)
            {
                // A CRD of this kind may come back with another scope.
                informer.no_namespaces = None;
            }
            self.sync_watches(kind, cx);
            self.dirty.extend(self.readers_of(slice));
            if *kind == plugin_object::kind() {
                self.names_are_known(cx);
            }
            self.on_rbac_served(kind);
        }
        if is_gone {
            // At each failure, since somebody may delete the CRD again.
            self.restore_crd(kind, !repeated, cx);
        }
        self.sync_dirty(cx);
    }
}
