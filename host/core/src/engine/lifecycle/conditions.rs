//! The conditions of a Plugin object: each step of its newest version's rollout, and whether the plugin serves.
//! `plugin_status.rs` writes them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Lifecycle;
use super::condition::{no, unknown, yes};
use super::costliest::MEMORY_PRESSURE;
use super::plugin::{Plugin, Refused, RefusedBy, Stage};
use super::reviews::sees_some;
use crate::contract::{Condition, ConditionStatus};
use crate::digest;
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::permission::{Denial, Permission, missing_text, printed_by};
use crate::plugin_object::Shown;
use crate::refusal::RefusedAt;
use crate::scope::Scope;
use crate::service_account::ServiceAccount;
use crate::status::{RECONCILING, STALLED};
use crate::watch::WatchError;

/// Digits of a digest in `status.shortDigest`, a column of `kubectl get`: enough to distinguish versions.
const SHORT_DIGEST: usize = 12;

/// Concerns both the serving version and the one that comes up.
const PERMITTED: &str = "Permitted";
/// The reason while the API server does not say what a plugin may.
pub(super) const REVIEW_FAILED: &str = "ReviewFailed";

#[derive(Debug)]
pub(super) struct Conditions {
    /// Resolved, Verified, Compiled, Permitted and Established of the newest version, and Converting and Admitting of a
    /// plugin with webhooks.
    pub steps: Vec<Condition>,
    pub ready: Condition,
    pub readiness: Readiness,
}

/// The meaning of the Ready condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    Starting,
    Blocked,
    Serving,
    /// The newest version was refused, so the previous one serves.
    ServingPrevious,
    /// It serves, but calls end in a fault, or it is over a budget.
    Faulting,
}

impl Conditions {
    pub fn all(&self) -> Vec<Condition> {
        self.steps.iter().chain([&self.ready]).cloned().chain(self.progress()).collect()
    }

    /// As kstatus has it: a version that comes up, or that somebody has to look at. Neither, when the newest one serves.
    fn progress(&self) -> Option<Condition> {
        if let Some(failed) = self.steps.iter().find(|step| step.status == ConditionStatus::False) {
            return Some(yes(STALLED, &failed.reason, failed.message.clone()));
        }
        let waits = self.steps.iter().find(|step| step.status == ConditionStatus::Unknown)?;
        Some(yes(RECONCILING, &waits.reason, waits.message.clone()))
    }

    /// Whether a version may be coming up and no condition is False.
    pub fn is_progressing(&self) -> bool {
        let is_blocked = self.steps.iter().any(|condition| condition.status == ConditionStatus::False);
        !is_blocked && self.readiness != Readiness::Blocked
    }
}

impl Lifecycle {
    pub(super) fn status_fields(&self, plugin: &Plugin, shown: &Shown) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut insert = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        if let Some(active) = &plugin.active {
            let digest = &active.version.digest;
            let hex = digest.0.trim_start_matches("sha256:");
            insert("digest", json!(&*digest.0));
            insert("shortDigest", json!(hex.chars().take(SHORT_DIGEST).collect::<String>()));
            insert("version", json!(&*active.manifest.version));
            insert("kinds", json!(kinds(&active.manifest)));
            if let Some(accepted) = self.accepted(digest) {
                insert("componentBytes", json!(accepted.component_bytes));
            }
        }
        let owned_kinds = owned_kinds(plugin, shown);
        if !owned_kinds.is_empty() {
            insert("ownedKinds", json!(owned_kinds));
        }
        if let Some(source) = plugin.source() {
            insert("source", json!(&**source));
        }
        insert("host", json!(&*self.namespace));
        if let Some(active) = &plugin.active {
            let account = active.version.service_account.as_ref();
            let identity = account.map_or_else(|| "host".to_owned(), ToString::to_string);
            insert("identity", json!(identity));
        }
        if let Some(offer) = &plugin.read {
            let config = digest::of(offer.config.as_bytes());
            let observed = json!({
                "digest": &*offer.digest.0, "configDigest": &*config.0, "sourceVersion": &*offer.source_version,
            });
            insert("observed", observed);
        }
        fields
    }

    /// With `is_pinned` the spec names the digest that may serve.
    pub(super) fn conditions(&self, name: &Arc<str>, plugin: &Plugin, is_pinned: bool) -> Conditions {
        let resolved = match (&plugin.offer, &plugin.unreadable) {
            (_, Some((_, refusal))) => no("Resolved", refusal.reason, refusal.message.clone()),
            (Some(offer), None) => yes("Resolved", "Found", format!("{} holds {}", offer.source, offer.digest)),
            (None, None) => unknown("Resolved", "Waiting", "no source has offered it yet"),
        };
        let (verified, compiled) = self.verified_and_compiled(plugin, is_pinned);
        let newest = [resolved, verified, compiled, self.permitted(name, plugin), self.established(plugin)];
        let (readiness, ready) = self.ready(plugin, &newest);
        Conditions { steps: newest.into_iter().chain(webhooks(plugin)).collect(), ready, readiness }
    }

    fn verified_and_compiled(&self, plugin: &Plugin, is_pinned: bool) -> (Condition, Condition) {
        let Some(offer) = plugin.offer.as_ref().filter(|_| plugin.unreadable.is_none()) else {
            let text = "nothing to compile yet";
            return (unknown("Verified", "Waiting", text), unknown("Compiled", "Waiting", text));
        };
        let (reason, pin) = if is_pinned { ("DigestPinned", ", as spec.digest says") } else { ("DigestKnown", "") };
        let verified = yes("Verified", reason, format!("the bytes hash to {}{pin}", offer.digest));
        if let Some(Refused { by: RefusedBy::Component, refusal }) = &plugin.refused {
            let refused = |name| no(name, refusal.reason, refusal.message.clone());
            return match refusal.at {
                RefusedAt::Bytes => {
                    (refused("Verified"), unknown("Compiled", "Waiting", "the component was not accepted"))
                }
                RefusedAt::Compile => (verified, refused("Compiled")),
            };
        }
        let compiled = match self.accepted(&offer.digest) {
            Some(accepted) => {
                let size = accepted.component_bytes;
                yes("Compiled", "Compiled", format!("{size} bytes of wasm are compiled and the manifest is read"))
            }
            None => match self.compile_delay(&offer.digest) {
                Some(why) => {
                    let text = format!("{why}; the component is not at fault, and is compiled once that ends");
                    unknown("Compiled", "CompilerUnavailable", text)
                }
                None => unknown("Compiled", "Compiling", "the component is being compiled"),
            },
        };
        (verified, compiled)
    }

    fn permitted(&self, name: &Arc<str>, plugin: &Plugin) -> Condition {
        if let Some(Refused { by: RefusedBy::Rights | RefusedBy::Identity | RefusedBy::Bytes, refusal }) =
            &plugin.refused
        {
            return no(PERMITTED, refusal.reason, refusal.message.clone());
        }
        if let Some(why) = self.beyond_tenant(plugin) {
            return unknown(PERMITTED, "Waiting", why);
        }
        if let Some((account, why)) = plugin.unknown_identity() {
            let text =
                format!("whether the host may act as the ServiceAccount {account} is not known: {}", why.message);
            return unknown(PERMITTED, REVIEW_FAILED, text);
        }
        if let Some((permission, message)) = plugin.denied.iter().next() {
            let account = plugin.active.as_ref().and_then(|active| active.version.service_account.as_deref());
            let rule = missing_text(message, permission, account, &self.rights_printed_by(name, plugin));
            return no(PERMITTED, "Forbidden", format!("{message}\n{rule}"));
        }
        if let Some(message) = &plugin.not_granted {
            return no(PERMITTED, "NotGranted", &**message);
        }
        if let Some((account, kind, reviewed)) = plugin.unreadable_kind() {
            let printed = format!("`{}` prints the rules", self.rights_printed_by(name, plugin));
            return match &reviewed.asking.failed {
                None => {
                    let more = plugin.too_many_namespaces().map(|why| format!("; {why}")).unwrap_or_default();
                    no(PERMITTED, "Forbidden", format!("{}; {printed}{more}", may_not_read(&account, &kind)))
                }
                Some(why) => {
                    let why = &why.message;
                    let text = format!("what the ServiceAccount {account} may read of {kind} is not known: {why}");
                    unknown(PERMITTED, REVIEW_FAILED, text)
                }
            };
        }
        let dynamic = plugin.dynamic_kinds.keys().map(|kind| (kind.clone(), Scope::default()));
        for (kind, scope) in plugin.scopes().into_iter().chain(dynamic) {
            if let Some((namespace, WatchError::Denied(message))) = self.watch_error(&kind, &scope) {
                let permission = Permission { kind, verb: "list", subresource: None, namespace };
                let rule = missing_text(message, &permission, None, &self.rights_printed_by(name, plugin));
                return no(PERMITTED, "Forbidden", format!("{message}\n{rule}"));
            }
        }
        if plugin.active.is_some() && plugin.candidate.is_none() {
            match plugin.too_many_namespaces() {
                Some(why) => yes(PERMITTED, "TooManyNamespaces", why),
                None => yes(PERMITTED, "Allowed", "nothing that the plugin needs is refused"),
            }
        } else {
            unknown(PERMITTED, "Waiting", self.not_served(plugin).unwrap_or_else(|| "not tried yet".to_owned()))
        }
    }

    /// The command that prints the rights of the version that comes up, else of the one that serves.
    fn rights_printed_by(&self, name: &Arc<str>, plugin: &Plugin) -> String {
        let coming = plugin.candidate.as_ref().map(|candidate| &candidate.version);
        let version = coming.or(plugin.active.as_ref().map(|active| &active.version));
        self.printed_by(name, version.and_then(|version| version.service_account.as_deref()))
    }

    pub(super) fn printed_by(&self, name: &str, account: Option<&ServiceAccount>) -> String {
        printed_by(name, account, &self.namespace)
    }

    /// Why a scope of a kind cannot be read, with the namespace, if it is about one.
    pub(super) fn watch_error(&self, kind: &Kind, scope: &Scope) -> Option<(Option<Arc<str>>, &WatchError)> {
        self.informers.get(kind)?.error(scope)
    }

    /// Why something that its versions read cannot be listed, other than for a right.
    fn not_served(&self, plugin: &Plugin) -> Option<String> {
        let mut errors = plugin.declared().filter_map(|(kind, scope)| Some(self.watch_error(&kind, &scope)?.1));
        errors.find(|error| matches!(error, WatchError::NotServed(_))).map(ToString::to_string)
    }

    /// Which of its kinds is in no tenant's namespace, which the API server alone knows.
    fn beyond_tenant(&self, plugin: &Plugin) -> Option<String> {
        plugin.tenant.as_ref()?;
        let has_none = |(kind, scope): &(Kind, Scope)| {
            self.watch_error(kind, scope).is_some_and(|(_, error)| *error == WatchError::no_namespaces(kind))
        };
        let (kind, _) = plugin.declared().find(has_none)?;
        Some(format!(
            "{kind} has no namespaces, and the plugin of a tenant sees its namespace alone: an administrator may bring this plugin \
             into the host's namespace"
        ))
    }

    /// A tenant's plugin brings no definitions, so an administrator has to know which it lacks.
    fn established(&self, plugin: &Plugin) -> Condition {
        if let Some(why) = self.beyond_tenant(plugin) {
            return no("Established", "BeyondTenant", why);
        }
        match self.not_served(plugin).filter(|_| plugin.tenant.is_some()) {
            Some(why) => {
                let apply = "`mortise crd FILE.wasm` prints the plugin's CustomResourceDefinitions, for an administrator to apply";
                no("Established", "NotServed", format!("{why} {apply}"))
            }
            None => established(plugin),
        }
    }

    /// What its first version waits for.
    fn starting(&self, plugin: &Plugin) -> String {
        match self.not_served(plugin) {
            Some(why) => format!("{}: {why}", starting(plugin)),
            None => starting(plugin),
        }
    }

    fn ready(&self, plugin: &Plugin, newest: &[Condition]) -> (Readiness, Condition) {
        let blocked = newest.iter().find(|condition| condition.status == ConditionStatus::False);
        let not_ready = |reason: &str, message: String| (Readiness::Blocked, no("Ready", reason, message));
        let Some(active) = &plugin.active else {
            let failed = webhooks(plugin).find(|condition| condition.status == ConditionStatus::False);
            return match blocked.or(failed.as_ref()) {
                Some(step) => not_ready(&step.reason, step.message.clone()),
                None => {
                    let reason = if plugin.costly.is_some() { MEMORY_PRESSURE } else { "Starting" };
                    (Readiness::Starting, no("Ready", reason, self.starting(plugin)))
                }
            };
        };
        for (kind, scope) in active.manifest.scopes() {
            match self.watch_error(&kind, &scope) {
                Some((namespace, WatchError::Denied(_))) => {
                    let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
                    let text = format!("the host may not read {kind}{place}, so nothing is reconciled; see Permitted");
                    return not_ready("Forbidden", text);
                }
                Some((_, WatchError::NotServed(message))) => return not_ready("NotServed", message.clone()),
                _ => {}
            }
        }
        if let Some(account) = active.version.service_account.as_ref()
            && let mut scopes = active.manifest.scopes()
            && let Some((kind, _)) =
                scopes.find(|scope| !sees_some(active.rights.as_deref(), std::slice::from_ref(scope)))
        {
            let text = format!("{}, so nothing is reconciled; see Permitted", may_not_read(account, &kind));
            return not_ready("Forbidden", text);
        }
        if let Some(account) = active.version.service_account.as_ref()
            && plugin
                .denied
                .values()
                .any(|message| Denial::read(message).is_some_and(|denial| denial.is_impersonation()))
        {
            let text =
                format!("the host may not act as the ServiceAccount {account}, so nothing is written; see Permitted");
            return not_ready("Forbidden", text);
        }
        let serving = format!("{} serves {}", active.version.digest, kinds(&active.manifest).join(", "));
        let is_refused = |step: &&Condition| step.name != PERMITTED || plugin.refused.is_some();
        if let Some(step) = blocked.filter(is_refused) {
            let text = format!("{serving}; its newer version does not: {}", step.message);
            return (Readiness::ServingPrevious, yes("Ready", "ServingPrevious", text));
        }
        if let Some(unserved) = webhooks(plugin).find(|condition| condition.status != ConditionStatus::True) {
            return not_ready(&unserved.reason, unserved.message);
        }
        if plugin.suspended {
            let text =
                format!("{serving}, but spec.suspend is true: nothing is reconciled; admission and conversion answer");
            return not_ready("Suspended", text);
        }
        if let Some(costly) = &plugin.costly {
            let text = format!("{serving}, but {}", costly.message);
            return (Readiness::Faulting, yes("Ready", MEMORY_PRESSURE, text));
        }
        if let Some(fault) = &plugin.fault {
            return (Readiness::Faulting, yes("Ready", "GuestFault", format!("{serving}, but {fault}")));
        }
        if let Some(throttled) = &plugin.throttled {
            return (Readiness::Faulting, yes("Ready", "Throttled", format!("{serving}, but {}", throttled.message)));
        }
        (Readiness::Serving, yes("Ready", "Serving", serving))
    }
}

fn may_not_read(account: &ServiceAccount, kind: &Kind) -> String {
    format!("the ServiceAccount {account} may not list, watch and get {kind} in any namespace that the plugin reads")
}

/// The conditions of a plugin's webhooks.
fn webhooks(plugin: &Plugin) -> impl Iterator<Item = Condition> {
    let converting = plugin.conversion.iter().map(|it| it.condition());
    converting.chain(plugin.admission.iter().map(|it| it.condition()))
}

fn starting(plugin: &Plugin) -> String {
    let Some(candidate) = &plugin.candidate else { return "no version of it was offered yet".to_owned() };
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
            format!("listing {}", all.map(|kind| kind.to_string()).collect::<Vec<_>>().join(", "))
        }
    }
}

fn established(plugin: &Plugin) -> Condition {
    let is_elsewhere =
        |by| matches!(by, RefusedBy::Component | RefusedBy::Rights | RefusedBy::Identity | RefusedBy::Bytes);
    let is_here = |refused: &&Refused| !is_elsewhere(refused.by);
    if let Some(refused) = plugin.refused.as_ref().filter(is_here) {
        return no("Established", refused.refusal.reason, refused.refusal.message.clone());
    }
    let is_established = match &plugin.candidate {
        Some(candidate) => matches!(candidate.stage, Stage::Listing { .. }),
        None => plugin.active.is_some(),
    };
    match is_established {
        true => yes("Established", "Established", "its CustomResourceDefinitions are served"),
        false => unknown("Established", "Waiting", starting(plugin)),
    }
}

/// A plugin whose component is being compiled, as after a restart, keeps the kinds that it shows.
pub(super) fn owned_kinds(plugin: &Plugin, shown: &Shown) -> Vec<String> {
    if plugin.is_compiling() {
        return shown.owned_kinds.clone();
    }
    plugin.requirements.owned_kinds.iter().map(ToString::to_string).collect()
}

fn kinds(manifest: &Manifest) -> Vec<String> {
    let name = |kind: &Kind| match kind.group() {
        "" => kind.kind.to_string(),
        group => format!("{}.{}.{group}", kind.kind, kind.version()),
    };
    manifest.controllers.iter().map(|controller| name(&controller.primary)).collect()
}
