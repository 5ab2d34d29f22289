//! The CRDs that plugins bring, and the host's own: asked for, answered, lost and restored (L4). What a definition has to
//! be is `crd.rs`'s to say.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::plugins::{Candidate, Denial, HOST, REFUSED_RETRY_MS, Stage, Step};
use super::{Driver, Timer};
use crate::crd;
use crate::crd::CrdError;
use crate::digest::Digest;
use crate::event::Effect;
use crate::object::{Kind, Name, ObjectRef};
use crate::observation::Observation;
use crate::permission::Permission;
use crate::refusal::Refusal;
use crate::watch::WatchError;
use crate::webhook::Endpoint;
use crate::well_known;
use crate::write::{WriteError, WriteErrorClass};
use crate::{plugin_object, rbac};

/// How soon a CRD that could not be registered is tried again. RBAC that is given back should be noticed while the person
/// who gave it is still looking.
pub(super) const CRD_RETRY_MS: u64 = 3_000;

/// A registration that is under way.
#[derive(Debug)]
pub(super) struct Registration {
    /// The version of the plugin that asked for it; None for the host's own.
    digest: Option<Digest>,
    /// It may only look, because this host may not write.
    looks_only: bool,
    /// Where it has the API server ask for conversion.
    endpoint: Option<Arc<Endpoint>>,
}

impl Driver {
    /// Asks for a CRD to be registered, once at a time: which version of the plugin wanted it is remembered, because a
    /// newer one may be offered before the answer comes.
    pub(super) fn register_crd(&mut self, plugin: &Arc<str>, crd: &Arc<str>, effects: &mut Vec<Effect>) {
        let place = (Arc::clone(plugin), Arc::clone(crd));
        if self.draining || self.registrations.contains_key(&place) {
            return;
        }
        let mut endpoint = None;
        let (body, digest) = if **plugin == *HOST {
            (crd::prepare(well_known::HOST, plugin_object::CRD, None), None)
        } else {
            let Some(state) = self.plugins.get(plugin) else { return };
            let Some((found, digest)) = state.custom_resource(crd) else { return };
            if state.converts(crd) {
                endpoint = state.endpoint().cloned();
                if endpoint.is_none() {
                    // It is asked for again as soon as the host answers.
                    return;
                }
            }
            let conversion = endpoint.as_ref().map(|endpoint| crd::conversion::strategy(plugin, endpoint));
            (crd::prepare(plugin, &found.body, conversion), Some(digest.clone()))
        };
        let looks_only = !self.may_write();
        self.registrations.insert(place, Registration { digest, looks_only, endpoint });
        let (plugin, crd, not_after_ms) = (Arc::clone(plugin), Arc::clone(crd), self.claim.not_after_ms());
        effects.push(Effect::RegisterCrd { plugin, crd, body, not_after_ms });
    }

    pub(super) fn on_crd_registered(
        &mut self,
        name: &Arc<str>,
        crd: &Arc<str>,
        result: Result<(), CrdError>,
        effects: &mut Vec<Effect>,
    ) {
        let place = (Arc::clone(name), Arc::clone(crd));
        let Some(Registration { digest: asked_by, looks_only, endpoint }) = self.registrations.remove(&place) else {
            return;
        };
        let again = Timer::RegisterCrd(Arc::clone(name), Arc::clone(crd));
        if matches!(result, Err(CrdError::Unavailable(_))) && looks_only && self.may_write() {
            // This host has come to lead since it was asked for.
            self.arm(0, again);
        } else if let Err(CrdError::Denied(_) | CrdError::Unavailable(_)) = &result {
            self.arm(CRD_RETRY_MS, again);
        } else if self.is_still_gone(name, crd) {
            // It was deleted again before its watch came back, or the watch has not noticed yet; then this finds it there.
            self.arm(CRD_RETRY_MS, again);
        }
        if **name == *HOST {
            return self.on_host_crd(crd, result, effects);
        }
        let wanted_by = self.plugins.get(name).and_then(|state| state.custom_resource(crd)).map(|(_, digest)| digest);
        let moved =
            endpoint.is_some() && self.plugins.get(name).and_then(|state| state.endpoint()) != endpoint.as_ref();
        if asked_by.as_ref() != wanted_by || moved {
            // A newer version has come meanwhile, or another certificate authority: the answer is not about that.
            return self.register_crd(name, crd, effects);
        }
        let crd_kind = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        match result {
            Ok(()) => {
                plugin.denied.retain(|permission, _| permission.kind != crd_kind);
                if let Some(Candidate { stage: Stage::Registering { missing, .. }, waits_for, .. }) =
                    &mut plugin.candidate
                {
                    missing.remove(crd);
                    *waits_for = None;
                }
                self.advance(name, effects);
            }
            Err(CrdError::Refused(refusal)) => {
                self.refuse(name, Step::Established, refusal, effects);
            }
            Err(CrdError::Denied(message)) => {
                let permission = Permission { kind: crd_kind, verb: "create", subresource: None };
                plugin.denied.insert(permission, Denial { message, keys: BTreeSet::new() });
            }
            Err(CrdError::Unavailable(message)) => {
                if let Some(candidate) = &mut plugin.candidate {
                    candidate.waits_for = Some(message);
                }
            }
        }
        self.settle(name, effects);
        self.report(name, effects);
    }

    /// The host's own CRD: without it no plugin's state can be told, so what keeps it away is told at once, to the log, the
    /// metrics and the readiness probe, and tried again for as long as it takes.
    fn on_host_crd(&mut self, crd: &Arc<str>, result: Result<(), CrdError>, effects: &mut Vec<Effect>) {
        let crd_kind = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let refused = |refusal| Observation::Refused { plugin: Arc::from(well_known::HOST), refusal };
        let (message, told) = match result {
            Ok(()) => {
                self.host_crd_established = true;
                self.host_crd_error = None;
                return self.begin_watch(&Arc::from(HOST), &plugin_object::kind(), effects);
            }
            Err(CrdError::Unavailable(message)) => {
                let target =
                    ObjectRef { kind: crd_kind, name: Name { namespace: Arc::from(""), name: Arc::clone(crd) } };
                let error = WriteError { class: WriteErrorClass::Unavailable, message: message.clone() };
                (message, Observation::WriteFailed { cause: None, target, error })
            }
            Err(CrdError::Denied(message)) => {
                let rule = rbac::missing_rule_text(&crd_kind, "create");
                let refusal = Refusal::new("Forbidden", format!("{message}; {rule}"));
                (refusal.message.clone(), refused(refusal))
            }
            Err(CrdError::Refused(refusal)) => {
                self.arm(REFUSED_RETRY_MS, Timer::RegisterCrd(Arc::from(HOST), Arc::clone(crd)));
                (refusal.message.clone(), refused(refusal))
            }
        };
        // Trying again is no news.
        if self.host_crd_error.replace(message.clone()) != Some(message) {
            effects.push(Effect::Observe(told));
        }
        self.names_are_known(effects);
    }

    /// Somebody deleted a CRD that the host or a plugin brings: it is created again.
    pub(super) fn restore_crd(&mut self, kind: &Kind, due_ms: u64) {
        let mut timers = Vec::new();
        if *kind == plugin_object::kind() {
            timers.push(Timer::RegisterCrd(Arc::from(HOST), Arc::from(plugin_object::CRD_NAME)));
        }
        for (name, plugin) in &self.plugins {
            let coming = plugin.candidate.as_ref().and_then(|candidate| candidate.stage.manifest());
            let manifest = coming.or(plugin.active.as_ref().map(|active| &active.manifest));
            let mut crds = manifest.into_iter().flat_map(|manifest| &manifest.custom_resources);
            let crd = crds.find(|crd| crd.kinds.contains(kind));
            timers.extend(crd.map(|crd| Timer::RegisterCrd(Arc::clone(name), Arc::clone(&crd.name))));
        }
        for timer in timers {
            self.arm(due_ms.saturating_sub(self.now.mono_ms), timer);
        }
    }

    /// A kind of this CRD is not served, as far as its watch knows.
    fn is_still_gone(&self, plugin: &str, crd: &str) -> bool {
        let is_gone = |kind: &Kind| {
            let error = self.kinds.get(kind).and_then(|state| state.error.as_ref());
            matches!(error, Some(WatchError::NotServed(_)))
        };
        let manifest =
            self.plugins.get(plugin).and_then(|plugin| plugin.active.as_ref()).map(|active| &active.manifest);
        let mut crds = manifest.into_iter().flat_map(|manifest| &manifest.custom_resources);
        match crds.find(|found| *found.name == *crd) {
            Some(found) => found.kinds.iter().any(is_gone),
            None => *crd == *plugin_object::CRD_NAME && is_gone(&plugin_object::kind()),
        }
    }
}
