//! Orphans: Plugin objects whose plugin no source offers any more. The host deletes them. Each has its own retries, so
//! that removing a thousand plugins at once costs a thousand requests.

use std::sync::Arc;

use super::Lifecycle;
use super::admission::ADMITTING;
use super::plugin_status::write_failed;
use super::timers::Timer;
use crate::contract::Propagation;
use crate::engine::context::Context;
use crate::engine::message::{Owner, PluginWrite, Sender};
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::object::Object;
use crate::plugin_object;
use crate::selector::Selector;
use crate::well_known::HOST_NAMESPACE_LABEL;
use crate::write::{WriteError, WriteOp, Written};

/// Removal of the plugin's webhooks. If they stayed, the API server would reject its objects for ever.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Webhooks {
    #[default]
    Unknown,
    Ending,
    Gone,
}

/// The state of one orphan's delete.
#[derive(Debug, Default)]
pub(super) struct Orphan {
    webhooks: Webhooks,
    in_flight: bool,
    /// The delete that the cache does not show yet.
    expected: Option<Expectation>,
    failures: u32,
    /// The end of the backoff. Events of the object do not shorten it.
    not_before_ms: u64,
}

impl Lifecycle {
    pub fn on_sources_listed(&mut self, cx: &mut Context<'_>) {
        self.sources_listed = true;
        self.on_sources_known(cx);
    }

    pub(super) fn on_sources_known(&mut self, cx: &mut Context<'_>) {
        self.resolve_named(cx);
        self.retry_waiting(cx);
        self.sync_dirty(cx);
        self.delete_orphans(cx);
    }

    pub(super) fn delete_orphans(&mut self, cx: &mut Context<'_>) {
        let snapshot = cx.store.snapshot();
        for live in snapshot.list(&plugin_object::kind(), None, &Selector::default()) {
            self.delete_orphan(&live.name.name, cx);
        }
    }

    /// Deletes the Plugin object of this name if it is an orphan of this host, with one request at a time.
    pub(super) fn delete_orphan(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        if !self.has_listed(name) || cx.draining || !cx.may_write || !cx.store.synced(plugin_object::kind()) {
            return;
        }
        let snapshot = cx.store.snapshot();
        let target = plugin_object::of(name);
        // What a person made, a person deletes.
        let is_of_this_host = |live: &Object| live.label(HOST_NAMESPACE_LABEL) == Some(&*self.namespace);
        let is_orphan =
            |live: &&Arc<Object>| is_of_this_host(live) && !live.deleting && !self.plugins.contains_key(name);
        let Some(live) = snapshot.get(&target.kind, &target.name).filter(is_orphan) else {
            if self.orphans.get(name).is_some_and(|orphan| !orphan.in_flight) {
                self.orphans.remove(name);
            }
            return;
        };
        let orphan = self.orphans.entry(Arc::clone(name)).or_default();
        let is_deleted = orphan.expected.as_ref().is_some_and(|write| !write.is_met_by(&snapshot));
        if orphan.in_flight || is_deleted || cx.now.mono_ms < orphan.not_before_ms {
            return;
        }
        if orphan.webhooks != Webhooks::Gone
            && plugin_object::shown(live).conditions.iter().any(|it| it.name == ADMITTING)
        {
            // After a restart of the host, only this condition shows that there are webhooks.
            if std::mem::replace(&mut orphan.webhooks, Webhooks::Ending) == Webhooks::Unknown {
                cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: None });
            }
            return;
        }
        orphan.in_flight = true;
        let op = WriteOp::Delete { target, uid: Arc::clone(&live.uid), propagation: Propagation::Background };
        cx.send(Sender::default(), None, op, Owner::Lifecycle(PluginWrite::Orphan(Arc::clone(name))));
    }

    /// The plugin's webhooks are removed.
    pub fn on_admission_ended(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        if let Some(orphan) = self.orphans.get_mut(name).filter(|orphan| orphan.webhooks == Webhooks::Ending) {
            orphan.webhooks = Webhooks::Gone;
            self.delete_orphan(name, cx);
        }
    }

    pub(super) fn on_orphan_deleted(
        &mut self,
        name: &Arc<str>,
        op: &WriteOp,
        result: Result<Written, WriteError>,
        cx: &mut Context<'_>,
    ) {
        let Some(orphan) = self.orphans.get_mut(name) else { return };
        match (result, op) {
            (Ok(_), WriteOp::Delete { target, uid, .. }) => {
                let expected = Expectation { target: target.clone(), uid: Arc::clone(uid), version: None };
                *orphan = Orphan { expected: Some(expected), ..Orphan::default() };
            }
            (Ok(_), _) => *orphan = Orphan::default(),
            (Err(error), _) => {
                orphan.in_flight = false;
                let delay_ms = write_failed(&mut orphan.failures, op, error, cx);
                orphan.not_before_ms = cx.now.mono_ms.saturating_add(delay_ms);
                self.arm(delay_ms, Timer::Orphan(Arc::clone(name)), cx);
            }
        }
        // The cache may already show the deletion, or another object of this name.
        self.delete_orphan(name, cx);
    }
}
