//! Plugin objects whose plugin no source offers any more: the host deletes them. Each is retried on its own, so that a
//! thousand plugins that go at once cost a thousand requests.

use std::sync::Arc;

use super::Lifecycle;
use super::admission::ADMITTING;
use super::timers::Timer;
use crate::backoff::{Patience, delay_ms};
use crate::contract::Propagation;
use crate::engine::context::Context;
use crate::engine::message::{Owner, PluginWrite};
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::object::Object;
use crate::observation::Observation;
use crate::plugin_object;
use crate::selector::Selector;
use crate::well_known::HOST_NAMESPACE_LABEL;
use crate::write::{WriteError, WriteOp, Written};

/// A delete that failed is not tried again sooner: nobody waits for it.
const MIN_RETRY_MS: u64 = 100;

/// Teardown of the plugin's webhooks; those left behind would reject its objects for ever.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Webhooks {
    #[default]
    Unknown,
    Ending,
    Gone,
}

/// How far the delete of one orphan has come.
#[derive(Debug, Default)]
pub(super) struct Orphan {
    webhooks: Webhooks,
    in_flight: bool,
    /// The delete that the view does not show yet.
    expected: Option<Expectation>,
    failures: u32,
    /// After a failure it is left alone until then, whatever happens to the object.
    not_before_ms: u64,
}

impl Lifecycle {
    pub fn on_sources_listed(&mut self, cx: &mut Context<'_>) {
        self.sources_listed = true;
        self.delete_orphans(cx);
    }

    /// Looks at every Plugin object, when all of them, or all plugins, have become known.
    pub(super) fn delete_orphans(&mut self, cx: &mut Context<'_>) {
        let snapshot = cx.store.snapshot();
        for live in snapshot.list(&plugin_object::kind(), None, &Selector::default()) {
            self.delete_orphan(&live.name.name, cx);
        }
    }

    /// Deletes the Plugin object of this name, if it is ours and there is no such plugin: with one request until that has
    /// failed or is shown. Those of hosts in other namespaces are theirs.
    pub(super) fn delete_orphan(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        if !self.sources_listed || cx.draining || !cx.may_write || !cx.store.synced(&plugin_object::kind()) {
            return;
        }
        let snapshot = cx.store.snapshot();
        let target = plugin_object::of(name);
        let is_orphan = |live: &&Arc<Object>| {
            let is_ours = live.label(HOST_NAMESPACE_LABEL) == Some(&*self.namespace);
            is_ours && !live.deleting && !self.plugins.contains_key(name)
        };
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
            // A host that starts anew knows of them by this condition alone.
            if std::mem::replace(&mut orphan.webhooks, Webhooks::Ending) == Webhooks::Unknown {
                cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: None });
            }
            return;
        }
        orphan.in_flight = true;
        let op = WriteOp::Delete { target, uid: Arc::clone(&live.uid), propagation: Propagation::Background };
        cx.send(None, None, op, Owner::Lifecycle(PluginWrite::Orphan(Arc::clone(name))));
    }

    /// The API server asks this plugin no longer.
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
                orphan.failures = orphan.failures.saturating_add(1);
                let delay = delay_ms(orphan.failures, name, Patience::after(error.class)).max(MIN_RETRY_MS);
                orphan.not_before_ms = cx.now.mono_ms.saturating_add(delay);
                self.arm(delay, Timer::Orphan(Arc::clone(name)), cx);
                let target = op.target().clone();
                cx.observe(Observation::WriteFailed { cause: None, target, error });
            }
        }
        // The view may show its end already, or another object that has taken the name.
        self.delete_orphan(name, cx);
    }
}
