//! Plugin objects whose plugin no source offers any more. They are the host's own notes, and it deletes them; each is a
//! matter of its own, so that a thousand plugins that go at once cost a thousand requests.

use std::sync::Arc;

use super::admission::ADMITTING;
use super::report::plugin_object_of;
use super::{Driver, Timer, WriteFor};
use crate::backoff::delay_ms;
use crate::contract::Propagation;
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::object::Object;
use crate::observation::Observation;
use crate::plugin_object;
use crate::selector::Selector;
use crate::well_known::HOST_NAMESPACE_LABEL;
use crate::write::{WriteError, WriteOp, Written};

/// A delete that failed is not tried again sooner: nobody waits for a note to go.
const MIN_RETRY_MS: u64 = 100;

/// How far its webhooks are gone, which would refuse its objects for ever.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Webhooks {
    /// Nobody has been asked to end them.
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

impl Driver {
    /// Looks at every Plugin object, when all of them, or all plugins, have become known.
    pub(super) fn delete_orphans(&mut self, effects: &mut Vec<Effect>) {
        let snapshot = self.store.snapshot();
        for live in snapshot.list(&plugin_object::kind(), None, &Selector::default()) {
            self.delete_orphan(&live.name.name, effects);
        }
    }

    /// Deletes the Plugin object of this name, if it is ours and there is no such plugin: with one request until that has
    /// failed or is shown. Those of hosts in other namespaces are theirs.
    pub(super) fn delete_orphan(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        if !self.sources_listed || self.draining || !self.may_write() || !self.store.synced(&plugin_object::kind()) {
            return;
        }
        let snapshot = self.store.snapshot();
        let target = plugin_object_of(name);
        let is_orphan = |live: &&Arc<Object>| {
            let is_ours = live.label(HOST_NAMESPACE_LABEL) == Some(&*self.config.namespace);
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
        if orphan.in_flight || is_deleted || self.now.mono_ms < orphan.not_before_ms {
            return;
        }
        if orphan.webhooks != Webhooks::Gone && live.json().contains(&format!("{ADMITTING:?}")) {
            // A host that starts anew knows of them by this object alone, so it goes after them.
            if std::mem::replace(&mut orphan.webhooks, Webhooks::Ending) == Webhooks::Unknown {
                effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), serving: None });
            }
            return;
        }
        orphan.in_flight = true;
        let op = WriteOp::Delete { target, uid: Arc::clone(&live.uid), propagation: Propagation::Background };
        self.send(None, op.clone(), WriteFor::Orphan(Arc::clone(name), op), effects);
    }

    /// The API server asks this plugin no longer.
    pub(super) fn on_admission_ended(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        if let Some(orphan) = self.orphans.get_mut(name).filter(|orphan| orphan.webhooks == Webhooks::Ending) {
            orphan.webhooks = Webhooks::Gone;
            self.delete_orphan(name, effects);
        }
    }

    pub(super) fn on_orphan_deleted(
        &mut self,
        name: &Arc<str>,
        op: &WriteOp,
        result: Result<Written, WriteError>,
        effects: &mut Vec<Effect>,
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
                let delay = delay_ms(orphan.failures, name, Self::patience(error.class)).max(MIN_RETRY_MS);
                orphan.not_before_ms = self.now.mono_ms.saturating_add(delay);
                self.arm(delay, Timer::Orphan(Arc::clone(name)));
                let target = op.target().clone();
                effects.push(Effect::Observe(Observation::WriteFailed { cause: None, target, error }));
            }
        }
        // The view may show its end already, or another object that has taken the name.
        self.delete_orphan(name, effects);
    }
}
