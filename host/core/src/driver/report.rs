//! Plugins as the cluster sees them: one Plugin object each, whose conditions say in turn how far its newest version has
//! come. Every acceptance, refusal and trap is told once (L5): a condition is written when it changes, and an Event goes
//! with the change.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::admission::Admitting;
use super::conversion::Converting;
use super::health::PluginHealth;
use super::plugins::{PluginState, Report, Stage, Step};
use super::{Driver, Timer, WriteFor};
use crate::backoff::delay_ms;
use crate::contract::{Condition, ConditionStatus};
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::kube_event::EventRecord;
use crate::manifest::Manifest;
use crate::object::{Kind, Name, Object, ObjectRef, is_object_name};
use crate::observation::Observation;
use crate::plugin_object;
use crate::rbac;
use crate::status::{self, StatusShape, Wanted};
use crate::watch::WatchError;
use crate::well_known::{HOST, HOST_NAMESPACE_LABEL, MANAGED_BY_LABEL};
use crate::write::{WriteError, WriteOp, Written};

/// How long a plugin that is new may be on its way before its object says how far it is.
const NEW_GRACE_MS: u64 = 1_000;
/// The same for one whose object tells of a version already: a restart lists and loads within this time, and a large
/// component may take as long to compile.
const KNOWN_GRACE_MS: u64 = 10_000;
/// An object that somebody deletes is not made again sooner: two hosts that know of different plugins, and of no election,
/// would delete and create it without end.
const RECREATE_MS: u64 = 10_000;
/// Digits of a digest that fit a column and still tell versions apart.
const SHORT_DIGEST: usize = 12;

/// The object that tells of the plugin of this name.
pub(super) fn plugin_object_of(name: &Arc<str>) -> ObjectRef {
    ObjectRef { kind: plugin_object::kind(), name: Name { namespace: Arc::from(""), name: Arc::clone(name) } }
}

impl Driver {
    /// Writes what has changed about a plugin, one write at a time.
    pub(super) fn report(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        if self.draining || !self.may_write() || !self.store.synced(&plugin_object::kind()) {
            return;
        }
        if !is_object_name(name) {
            // A file may have a name that no object can have. That it is refused for it stands in the log.
            return;
        }
        let snapshot = self.store.snapshot();
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        if plugin.report.expected.as_ref().is_some_and(|write| write.is_met_by(&snapshot)) {
            plugin.report.expected = None;
        }
        if plugin.report.in_flight || plugin.report.expected.is_some() {
            return;
        }
        let target = plugin_object_of(name);
        let Some(live) = snapshot.get(&target.kind, &target.name).cloned() else {
            return self.create_plugin_object(name, target, effects);
        };
        if self.is_of_another_host(&live) {
            // Not here: whoever reports may be in the middle of a turn of one of the plugin's keys.
            if self.plugins.get(name).is_some_and(|plugin| plugin.active.is_some()) {
                self.arm(0, Timer::GiveWay(Arc::clone(name)));
            }
            return;
        }
        let plugin = &self.plugins[name];
        if let Some(due_ms) = self.tells_progress_at(plugin, &live) {
            self.arm(due_ms - self.now.mono_ms, Timer::Report(Arc::clone(name)));
            return;
        }
        let (fields, conditions) = (self.status_fields(plugin), self.conditions(plugin));
        let shape = StatusShape {
            subresource: true,
            observed_generation: true,
            conditions: true,
            condition_generation: true,
            conditions_by_type: true,
        };
        let wanted = Wanted {
            fields: Some(&fields),
            conditions: Some(&conditions),
            generation: live.generation,
            ..Wanted::default()
        };
        if let Some(body) = status::patch(&live, HOST, shape, &wanted, self.now) {
            self.send_report(name, WriteOp::PatchStatus { target, body }, effects);
            self.tell_transitions(name, &live, &conditions, effects);
        }
    }

    fn create_plugin_object(&mut self, name: &Arc<str>, target: ObjectRef, effects: &mut Vec<Effect>) {
        let created_ms = self.plugins.get(name).and_then(|plugin| plugin.report.created_ms);
        let due_ms = created_ms.map_or(0, |created_ms| created_ms + RECREATE_MS);
        if due_ms > self.now.mono_ms {
            self.arm(due_ms - self.now.mono_ms, Timer::Report(Arc::clone(name)));
            return;
        }
        let labels = json!({
            (MANAGED_BY_LABEL): HOST,
            (HOST_NAMESPACE_LABEL): &*self.config.namespace,
        });
        let body = json!({
            "apiVersion": &*target.kind.api_version,
            "kind": &*target.kind.kind,
            "metadata": {"name": &**name, "labels": labels},
            "spec": {},
        });
        self.send_report(name, WriteOp::Create { target, body: body.to_string().into() }, effects);
    }

    /// A version that is on its way is not told of at every step: it is mostly there within a second, and after a restart
    /// the object says already what it will say again (X5). None: there is something to tell now.
    fn tells_progress_at(&self, plugin: &PluginState, live: &Object) -> Option<u64> {
        let candidate = plugin.candidate.as_ref()?;
        let grace_ms = if live.json().contains("\"conditions\"") { KNOWN_GRACE_MS } else { NEW_GRACE_MS };
        let due_ms = candidate.since_ms + grace_ms;
        let is_held_up = !self.conditions(plugin).iter().all(|condition| {
            condition.status != ConditionStatus::False || (condition.name == "Ready" && condition.reason == "Starting")
        });
        (!is_held_up && due_ms > self.now.mono_ms).then_some(due_ms)
    }

    fn send_report(&mut self, name: &Arc<str>, op: WriteOp, effects: &mut Vec<Effect>) {
        if let Some(plugin) = self.plugins.get_mut(name) {
            plugin.report.in_flight = true;
        }
        self.send(None, op.clone(), WriteFor::Plugin(Arc::clone(name), op), effects);
    }

    /// One Event for each condition that has come to say something else and is worth a person's attention.
    fn tell_transitions(
        &mut self,
        name: &Arc<str>,
        live: &Arc<Object>,
        wanted: &[Condition],
        effects: &mut Vec<Effect>,
    ) {
        #[derive(serde::Deserialize, Default)]
        struct WithStatus {
            #[serde(default)]
            status: Map<String, Value>,
        }
        let before: WithStatus = serde_json::from_str(live.json()).unwrap_or_default();
        let before = before.status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        for condition in wanted {
            let was = before.iter().find(|was| was["type"] == condition.name);
            let same = was.is_some_and(|was| {
                let same_digest = condition.reason != "Serving" || was["message"] == condition.message.as_str();
                was["status"] == condition.status.as_str() && was["reason"] == condition.reason.as_str() && same_digest
            });
            let warning = condition.status == ConditionStatus::False || condition.reason == "GuestFault";
            // Progress is told by Ready alone; a refusal by the step that refused.
            let worth_telling =
                if condition.name == "Ready" { condition.status != ConditionStatus::Unknown } else { warning };
            let told_by_step = condition.name == "Ready" && condition.status == ConditionStatus::False;
            if !same && worth_telling && !told_by_step {
                let record = EventRecord { warning, reason: condition.reason.clone(), note: condition.message.clone() };
                self.send_event(Some(Arc::clone(name)), live, record, effects);
            }
        }
    }

    pub(super) fn on_report_wrote(
        &mut self,
        name: &Arc<str>,
        op: &WriteOp,
        result: Result<Written, WriteError>,
        effects: &mut Vec<Effect>,
    ) {
        if let Err(error) = &result {
            let (target, error) = (op.target().clone(), error.clone());
            effects.push(Effect::Observe(Observation::WriteFailed { cause: None, target, error }));
        }
        let now_ms = self.now.mono_ms;
        let Some(Report { in_flight, expected, failures, created_ms }) =
            self.plugins.get_mut(name).map(|plugin| &mut plugin.report)
        else {
            return;
        };
        *in_flight = false;
        match result {
            Ok(written) => {
                *failures = 0;
                if matches!(op, WriteOp::Create { .. }) {
                    *created_ms = Some(now_ms);
                }
                let version = Some(written.resource_version);
                *expected = Some(Expectation { target: op.target().clone(), uid: written.uid, version });
            }
            Err(error) => {
                *failures += 1;
                let delay = delay_ms(*failures, name, Self::patience(error.class));
                self.arm(delay.max(100), Timer::Report(Arc::clone(name)));
                return;
            }
        }
        self.report(name, effects);
    }

    /// A Plugin object has changed: our own write has come, perhaps after its plugin has gone, or somebody else touched it.
    pub(super) fn on_plugin_object_change(&mut self, object: &Object, effects: &mut Vec<Effect>) {
        if object.kind != plugin_object::kind() {
            return;
        }
        if self.plugins.contains_key(&object.name.name) {
            self.retry_name(&object.name.name, effects);
            self.report(&object.name.name, effects);
        } else {
            self.delete_orphan(&object.name.name, effects);
        }
    }

    pub(super) fn plugin_health(&self, name: &Arc<str>, plugin: &PluginState) -> PluginHealth {
        let conditions = self.conditions(plugin);
        let ready = conditions.iter().find(|condition| condition.name == "Ready");
        let ready = ready.expect("conditions always ends with Ready");
        PluginHealth {
            name: Arc::clone(name),
            digest: plugin.active.as_ref().map(|active| active.digest.clone()),
            ready: ready.status == ConditionStatus::True,
            loading: plugin.candidate.is_some(),
            reason: ready.reason.clone(),
            message: ready.message.clone(),
        }
    }

    fn status_fields(&self, plugin: &PluginState) -> Map<String, Value> {
        let mut fields = Map::new();
        if let Some(active) = &plugin.active {
            let hex = active.digest.0.trim_start_matches("sha256:");
            fields.insert("digest".to_owned(), json!(&*active.digest.0));
            fields.insert("shortDigest".to_owned(), json!(hex.chars().take(SHORT_DIGEST).collect::<String>()));
            fields.insert("version".to_owned(), json!(&*active.manifest.version));
            fields.insert("kinds".to_owned(), json!(kinds(&active.manifest)));
            if let Some(accepted) = self.accepted(&active.digest) {
                fields.insert("componentBytes".to_owned(), json!(accepted.component_bytes));
            }
        }
        let source = plugin.offer.as_ref().map(|offer| &offer.source);
        let source = source.or(plugin.unreadable.as_ref().map(|(source, _)| source));
        fields.extend(source.map(|source| ("source".to_owned(), json!(&**source))));
        fields
    }

    /// The six conditions, with Converting and Admitting for a plugin that the API server asks, each with a reason a person
    /// understands. The first five tell of the newest version, the others of whatever serves.
    fn conditions(&self, plugin: &PluginState) -> Vec<Condition> {
        let resolved = match (&plugin.offer, &plugin.unreadable) {
            (_, Some((_, refusal))) => no("Resolved", refusal.reason, refusal.message.clone()),
            (Some(offer), None) => yes("Resolved", "Found", format!("{} holds {}", offer.source, offer.digest)),
            (None, None) => unknown("Resolved", "Waiting", "no source has offered it yet"),
        };
        let (verified, compiled) = self.verified_and_compiled(plugin);
        let permitted = self.permitted(plugin);
        let established = established(plugin);
        let ready = self.ready(plugin, &[&resolved, &verified, &compiled, &permitted, &established]);
        let first = [resolved, verified, compiled, permitted, established];
        first.into_iter().chain(asked(plugin)).chain([ready]).collect()
    }

    fn verified_and_compiled(&self, plugin: &PluginState) -> (Condition, Condition) {
        let waiting = || {
            let text = "nothing to compile yet";
            (unknown("Verified", "Waiting", text), unknown("Compiled", "Waiting", text))
        };
        if plugin.unreadable.is_some() {
            return waiting();
        }
        let Some(offer) = &plugin.offer else { return waiting() };
        let verified = yes("Verified", "DigestPinned", format!("the bytes hash to {}", offer.digest));
        if let Some((Step::Compiled, refusal)) = &plugin.refused {
            if !COMPILE_REASONS.contains(&refusal.reason) {
                let verified = no("Verified", refusal.reason, refusal.message.clone());
                return (verified, unknown("Compiled", "Waiting", "the component was not accepted"));
            }
            return (verified, no("Compiled", refusal.reason, refusal.message.clone()));
        }
        let compiled = match self.accepted(&offer.digest) {
            Some(accepted) => {
                let size = accepted.component_bytes;
                yes("Compiled", "Compiled", format!("{size} bytes of wasm are compiled and the manifest is read"))
            }
            None => unknown("Compiled", "Compiling", "the component is being compiled"),
        };
        (verified, compiled)
    }

    fn permitted(&self, plugin: &PluginState) -> Condition {
        if let Some((permission, denial)) = plugin.denied.iter().next() {
            let rule = rbac::missing_permission_text(permission);
            return no("Permitted", "Forbidden", format!("{}\n{rule}", denial.message));
        }
        for kind in self.kinds_of(plugin) {
            if let Some(WatchError::Denied(message)) = self.kinds.get(&kind).and_then(|state| state.error.as_ref()) {
                let rule = rbac::missing_rule_text(&kind, "list");
                return no("Permitted", "Forbidden", format!("{message}\n{rule}"));
            }
        }
        let listed = plugin.active.is_some() && plugin.candidate.is_none();
        if listed {
            yes("Permitted", "Allowed", "nothing that the plugin needs is refused")
        } else {
            unknown("Permitted", "Waiting", "not tried yet")
        }
    }

    fn kinds_of(&self, plugin: &PluginState) -> Vec<Kind> {
        let coming = plugin.candidate.as_ref().and_then(|candidate| match &candidate.stage {
            Stage::Listing { manifest } => Some(manifest),
            _ => None,
        });
        let serving = plugin.active.as_ref().map(|active| &active.manifest);
        let manifests = coming.into_iter().chain(serving);
        manifests.flat_map(|manifest| &manifest.controllers).flat_map(|controller| controller.readable()).collect()
    }

    fn ready(&self, plugin: &PluginState, steps: &[&Condition]) -> Condition {
        let blocked = steps.iter().copied().find(|condition| condition.status == ConditionStatus::False);
        let Some(active) = &plugin.active else {
            let unserved = asked(plugin).find(|condition| condition.status == ConditionStatus::False);
            return match blocked.or(unserved.as_ref()) {
                Some(step) => no("Ready", &step.reason, step.message.clone()),
                None => no("Ready", "Starting", starting(plugin)),
            };
        };
        for kind in active.manifest.controllers.iter().flat_map(|controller| controller.readable()) {
            match self.kinds.get(&kind).and_then(|state| state.error.as_ref()) {
                Some(WatchError::Denied(_)) => {
                    let text = format!("{kind} may not be read, so nothing is reconciled; see Permitted");
                    return no("Ready", "Forbidden", text);
                }
                Some(WatchError::NotServed(message)) => return no("Ready", "NotServed", message.clone()),
                _ => {}
            }
        }
        let serving = format!("{} serves {}", active.digest, kinds(&active.manifest).join(", "));
        if let Some(step) = blocked.filter(|step| step.name != "Permitted") {
            let text = format!("{serving}; its newer version does not: {}", step.message);
            return yes("Ready", "ServingPrevious", text);
        }
        if let Some(unserved) = asked(plugin).find(|condition| condition.status != ConditionStatus::True) {
            return no("Ready", &unserved.reason, unserved.message);
        }
        if let Some(fault) = plugin.faults.values().next() {
            return yes("Ready", "GuestFault", format!("{serving}, but {fault}"));
        }
        yes("Ready", "Serving", serving)
    }
}

/// How far it is that the API server asks a plugin.
fn asked(plugin: &PluginState) -> impl Iterator<Item = Condition> {
    let converting = plugin.conversion.as_ref().map(Converting::condition);
    converting.into_iter().chain(plugin.admission.as_ref().map(Admitting::condition))
}

/// Refusals that come after the bytes themselves were found to be a component of the contract.
const COMPILE_REASONS: [&str; 11] = [
    "TooCostlyToCompile",
    "CompileFailed",
    "CompilerUnavailable",
    "ArtifactUnusable",
    "ContractMismatch",
    "InstantiationFailed",
    "ManifestFailed",
    "InvalidManifest",
    "ProtectedGroup",
    "ProtectedKind",
    "NameTooLong",
];

fn starting(plugin: &PluginState) -> String {
    let Some(candidate) = &plugin.candidate else { return "no version of it has come yet".to_owned() };
    if let Some(waits_for) = &candidate.waits_for {
        return waits_for.clone();
    }
    match &candidate.stage {
        Stage::Compiling => "its component is being compiled".to_owned(),
        Stage::Registering { missing, .. } => {
            let names: Vec<&str> = missing.iter().map(|name| &**name).collect();
            let waits_for_host = missing.iter().any(|crd| plugin.converts(crd)) && plugin.endpoint().is_none();
            let when = if waits_for_host { ", which are registered when the host converts their objects" } else { "" };
            format!("waiting for the CustomResourceDefinitions {}{when}", names.join(", "))
        }
        Stage::Listing { manifest } => {
            let all = manifest.controllers.iter().flat_map(|controller| controller.readable());
            let names: Vec<String> = all.map(|kind| kind.to_string()).collect();
            format!("listing {}", names.join(", "))
        }
    }
}

fn established(plugin: &PluginState) -> Condition {
    if let Some((Step::Established, refusal)) = &plugin.refused {
        return no("Established", refusal.reason, refusal.message.clone());
    }
    match &plugin.candidate {
        Some(candidate) => match &candidate.stage {
            Stage::Listing { .. } => yes("Established", "Established", "its CustomResourceDefinitions are served"),
            _ => unknown("Established", "Waiting", starting(plugin)),
        },
        None if plugin.active.is_some() => {
            yes("Established", "Established", "its CustomResourceDefinitions are served")
        }
        None => unknown("Established", "Waiting", "no version of it has come so far"),
    }
}

fn kinds(manifest: &Manifest) -> Vec<String> {
    let name = |kind: &Kind| match kind.group() {
        "" => kind.kind.to_string(),
        group => format!("{}.{}.{group}", kind.kind, kind.version()),
    };
    manifest.controllers.iter().map(|controller| name(&controller.primary)).collect()
}

fn condition(name: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) -> Condition {
    Condition { name: name.to_owned(), status, reason: reason.to_owned(), message: message.into() }
}

pub(super) fn yes(name: &str, reason: &str, message: impl Into<String>) -> Condition {
    condition(name, ConditionStatus::True, reason, message)
}

pub(super) fn no(name: &str, reason: &str, message: impl Into<String>) -> Condition {
    condition(name, ConditionStatus::False, reason, message)
}

pub(super) fn unknown(name: &str, reason: &str, message: impl Into<String>) -> Condition {
    condition(name, ConditionStatus::Unknown, reason, message)
}
