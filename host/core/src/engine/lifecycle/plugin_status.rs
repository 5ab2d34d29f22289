//! The writes of Plugin objects: one object for each plugin, created, and patched where it differs from
//! `conditions.rs`. Each acceptance, refusal and trap is recorded once as an Event (L5).

use std::sync::Arc;

use serde_json::json;

use super::Lifecycle;
use super::conditions::{Conditions, Readiness, owned_kinds};
use super::plugin::Plugin;
use super::timers::Timer;
use crate::backoff::{FailureCause, delay_ms};
use crate::contract::{Condition, ConditionStatus};
use crate::engine::context::Context;
use crate::engine::message::{Owner, PluginWrite, Sender};
use crate::expectation::Expectation;
use crate::kube_event::{EventRecord, Words};
use crate::object::{ObjectRef, is_object_name};
use crate::observation::Observation;
use crate::plugin_object::{self, Shown};
use crate::status::{self, StatusShape, Wanted};
use crate::token_bucket::TokenBucket;
use crate::well_known::{HOST, HOST_NAMESPACE_LABEL, MANAGED_BY_LABEL};
use crate::write::{WriteError, WriteOp, Written};

/// The shortest backoff of a failed write.
const MIN_RETRY_MS: u64 = 100;
/// The status of a new plugin is not written for this long while it is coming up: mostly it serves by then.
const NEW_GRACE_MS: u64 = 1_000;
/// The same for a new version: a large component may take as long to compile.
const RELOAD_GRACE_MS: u64 = 10_000;
/// The same after a restart of the host, when the object already shows this version (X5): a thousand plugins take a
/// while.
const RESTART_GRACE_MS: u64 = 60_000;
/// Writes of one Plugin object in a minute. A rollout takes three. What changes more often, such as a fault that comes and
/// ends or a source that is changed every second, is shown as it is then.
const WRITES_PER_MINUTE: u32 = 20;
/// The shortest time between two creates of an object. Two hosts with different plugins and without leader election
/// would delete and create it without end.
const RECREATE_MS: u64 = 10_000;

impl Lifecycle {
    /// Writes the Plugin object if it differs, one write at a time.
    pub(super) fn write_status(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        // A file's name may be no valid object name; its refusal is only logged.
        if cx.draining || !cx.may_write || !cx.store.synced(plugin_object::kind()) || !is_object_name(name) {
            return;
        }
        let snapshot = cx.store.snapshot();
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let writes = &mut plugin.object;
        writes.expected = writes.expected.take().filter(|write| !write.is_met_by(&snapshot));
        if writes.in_flight || writes.expected.is_some() {
            return;
        }
        let wait_ms = writes.not_before_ms.saturating_sub(cx.now.mono_ms);
        if wait_ms > 0 {
            return self.arm(wait_ms, Timer::Status(Arc::clone(name)), cx);
        }
        let target = plugin_object::of(name);
        let Some(live) = snapshot.get(&target.kind, &target.name).cloned() else {
            return self.create_plugin_object(name, target, cx);
        };
        if self.is_of_another_host(&live) {
            if self.plugins.get(name).is_some_and(|plugin| plugin.active.is_some()) {
                self.give_way(name, cx);
            }
            return;
        }
        let (shown, is_pinned) = (plugin_object::shown(&live), plugin_object::spec(&live).digest.is_some());
        self.recall_costly(name, &shown, cx);
        let plugin = &self.plugins[name];
        let conditions = self.conditions(name, plugin, is_pinned);
        if let Some(due_ms) = waits_until(plugin, &shown, &conditions).filter(|due_ms| *due_ms > cx.now.mono_ms) {
            return self.arm(due_ms - cx.now.mono_ms, Timer::Status(Arc::clone(name)), cx);
        }
        let (fields, all) = (self.status_fields(plugin, &shown), conditions.all());
        let shape = StatusShape {
            subresource: true,
            observed_generation: true,
            conditions: true,
            condition_generation: true,
            conditions_by_type: true,
        };
        // Of hosts that claim it at once, one does.
        let is_claimed = plugin_object::claim(&live).is_some_and(|claim| claim.host == self.namespace);
        let wanted = Wanted {
            at_version: !is_claimed,
            fields: Some(&fields),
            conditions: Some(&all),
            is_whole: true,
            generation: live.generation,
            ..Wanted::default()
        };
        if let Some(body) = status::patch(&live, HOST, shape, &wanted, cx.now) {
            self.send_object(name, WriteOp::PatchStatus { target, body }, cx);
            let tenants = self.plugins[name].tenant.as_ref().and_then(|tenant| tenant.object()).map(Arc::new);
            for record in transitions(&shown, &conditions) {
                // A tenant may read no Plugin, and its ConfigMap.
                for about in tenants.iter().chain([&live]) {
                    cx.say(name, about, record.clone());
                }
            }
        }
    }

    fn create_plugin_object(&mut self, name: &Arc<str>, target: ObjectRef, cx: &mut Context<'_>) {
        let created_ms = self.plugins.get(name).and_then(|plugin| plugin.object.created_ms);
        let due_ms = created_ms.map_or(0, |created_ms| created_ms + RECREATE_MS);
        if due_ms > cx.now.mono_ms {
            return self.arm(due_ms - cx.now.mono_ms, Timer::Status(Arc::clone(name)), cx);
        }
        let labels = json!({(MANAGED_BY_LABEL): HOST, (HOST_NAMESPACE_LABEL): &*self.namespace});
        let body = json!({
            "apiVersion": &*target.kind.api_version, "kind": &*target.kind.kind,
            "metadata": {"name": &**name, "labels": labels}, "spec": {},
        });
        self.send_object(name, WriteOp::Create { target, body: body.to_string().into() }, cx);
    }

    fn send_object(&mut self, name: &Arc<str>, op: WriteOp, cx: &mut Context<'_>) {
        if let Some(writes) = self.plugins.get_mut(name).map(|plugin| &mut plugin.object) {
            writes.in_flight = true;
            let now_ms = cx.now.mono_ms;
            let bucket = writes.bucket.get_or_insert_with(|| TokenBucket::full(now_ms, WRITES_PER_MINUTE));
            writes.not_before_ms = now_ms + bucket.spend(now_ms, WRITES_PER_MINUTE).unwrap_or_default();
        }
        cx.send(Sender::default(), None, op, Owner::Lifecycle(PluginWrite::Object(Arc::clone(name))));
    }

    pub(super) fn on_object_wrote(
        &mut self,
        name: &Arc<str>,
        op: &WriteOp,
        result: Result<Written, WriteError>,
        cx: &mut Context<'_>,
    ) {
        let Some(writes) = self.plugins.get_mut(name).map(|plugin| &mut plugin.object) else { return };
        writes.in_flight = false;
        match result {
            Ok(written) => {
                if matches!(op, WriteOp::Create { .. }) {
                    writes.created_ms = Some(cx.now.mono_ms);
                }
                let (target, version) = (op.target().clone(), written.resource_version);
                let expected = Expectation { target, uid: written.uid, version: Some(version) };
                let snapshot = cx.store.snapshot();
                let live = snapshot.get(&expected.target.kind, &expected.target.name);
                let is_shown = live.is_some_and(|live| live.resource_version >= version);
                if !is_shown && expected.is_met_by(&snapshot) {
                    // Its event was lost. Until an audit finds that, the object seems to differ after each write.
                    writes.failures = writes.failures.saturating_add(1);
                    let delay_ms = delay_ms(writes.failures, name, FailureCause::Failed).max(MIN_RETRY_MS);
                    return self.arm(delay_ms, Timer::Status(Arc::clone(name)), cx);
                }
                writes.failures = 0;
                writes.expected = Some(expected);
                self.mark_dirty(name);
            }
            Err(error) => {
                let delay_ms = write_failed(&mut writes.failures, op, error, cx);
                self.arm(delay_ms, Timer::Status(Arc::clone(name)), cx);
            }
        }
    }
}

/// Counts and observes a failed write of a Plugin object. Returns its backoff.
pub(super) fn write_failed(failures: &mut u32, op: &WriteOp, error: WriteError, cx: &mut Context<'_>) -> u64 {
    *failures = failures.saturating_add(1);
    let target = op.target().clone();
    let delay_ms = delay_ms(*failures, &target.name.name, FailureCause::after(error.class)).max(MIN_RETRY_MS);
    cx.observe(Observation::WriteFailed { cause: None, target, error });
    delay_ms
}

/// Until when the status of a version that is coming up is not written. Its kinds are shown before it does anything with
/// them: another host refuses a plugin only by what it sees (L2).
fn waits_until(plugin: &Plugin, shown: &Shown, conditions: &Conditions) -> Option<u64> {
    let shows_kinds = owned_kinds(plugin, shown) == shown.owned_kinds;
    let candidate = plugin.candidate.as_ref().filter(|_| conditions.is_progressing() && shows_kinds)?;
    let grace_ms = match &shown.digest {
        Some(digest) if **digest == *candidate.version.digest.0 => RESTART_GRACE_MS,
        _ if shown.conditions.is_empty() => NEW_GRACE_MS,
        _ => RELOAD_GRACE_MS,
    };
    Some(candidate.since_ms + grace_ms)
}

/// An Event for each step that begins to fail, and for each change of the version that serves.
fn transitions(shown: &Shown, conditions: &Conditions) -> Vec<EventRecord> {
    let was = |condition: &Condition| shown.conditions.iter().find(|was| was.name == condition.name);
    let has_changed = |condition: &Condition| {
        was(condition).is_none_or(|was| was.status != condition.status.as_str() || was.reason != condition.reason)
    };
    let record = |warning, condition: &Condition| EventRecord {
        warning,
        reason: condition.reason.clone(),
        note: condition.message.clone(),
        words: Words::Host,
    };
    let failed = conditions.steps.iter().filter(|step| step.status == ConditionStatus::False && has_changed(step));
    let ready = &conditions.ready;
    let serves = match conditions.readiness {
        // The failed step has its own Event.
        Readiness::Starting | Readiness::Blocked => false,
        // The message contains the digest.
        Readiness::Serving => has_changed(ready) || was(ready).is_some_and(|was| was.message != ready.message),
        Readiness::ServingPrevious | Readiness::Faulting => has_changed(ready),
    };
    let warns = conditions.readiness == Readiness::Faulting;
    failed.map(|step| record(true, step)).chain(serves.then(|| record(warns, ready))).collect()
}
