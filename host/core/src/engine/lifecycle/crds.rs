//! Registration of CRDs, those of plugins and the host's own, again whenever somebody deletes one (L4). `crd.rs`
//! prepares the definitions.

use std::sync::Arc;

use super::Lifecycle;
use super::attempts::{Place, Why};
use super::plugin::{Candidate, Plugin, RefusedBy, Stage};
use super::timers::Timer;
use crate::component::Version;
use crate::crd::{self, CrdError, CrdOwner};
use crate::engine::context::Context;
use crate::engine::message::ToOutbox;
use crate::object::{Kind, Name, ObjectRef};
use crate::observation::Observation;
use crate::permission::{Permission, missing_text};
use crate::plugin_object;
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::watch::WatchError;
use crate::webhook::Endpoint;
use crate::well_known::HOST;
use crate::write::{WriteError, WriteErrorClass};

/// The host registers its own CRD and reads Plugin objects under this name, which no plugin can have.
const NO_PLUGIN: &str = "";

/// A registration in flight.
#[derive(Debug)]
pub(super) struct Registration {
    /// The plugin's version that it is for; None for the host's own CRD.
    version: Option<Version>,
    /// This host may not write, so it only checks whether the CRD exists as it should.
    is_read_only: bool,
    /// The conversion webhook in the definition.
    endpoint: Option<Arc<Endpoint>>,
}

/// The host's own CRD.
#[derive(Debug, Default)]
pub(super) struct HostCrd {
    pub established: bool,
    /// Why the last registration failed.
    pub error: Option<String>,
}

fn to_create_crds() -> Permission {
    Permission { kind: crd_kind(), verb: "create", subresource: None, namespace: None }
}

fn crd_kind() -> Kind {
    Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

impl Lifecycle {
    pub fn start(&mut self, cx: &mut Context<'_>) {
        self.register_crd(&Arc::from(NO_PLUGIN), &Arc::from(plugin_object::CRD_NAME), cx);
        self.start_tenants(cx);
    }

    /// Registers a CRD, unless a registration of it is in flight.
    pub(super) fn register_crd(&mut self, plugin: &Arc<str>, crd: &Arc<str>, cx: &mut Context<'_>) {
        let place = (Arc::clone(plugin), Arc::clone(crd));
        if cx.draining || self.registrations.contains_key(&place) {
            return;
        }
        let mut endpoint = None;
        let (body, version) = if **plugin == *NO_PLUGIN {
            (crd::prepare(HOST, plugin_object::CRD, None), None)
        } else {
            let Some(state) = self.plugins.get(plugin) else { return };
            let Some((found, version)) = state.custom_resource(crd) else { return };
            if state.converts(crd) {
                endpoint = state.endpoint().cloned();
                if endpoint.is_none() {
                    return; // `on_conversion_served` registers it.
                }
            }
            let strategy = endpoint.as_ref().map(|endpoint| crd::conversion::strategy(plugin, endpoint));
            (crd::prepare(plugin, &found.body, strategy), Some(version.clone()))
        };
        self.registrations.insert(place, Registration { version, is_read_only: !cx.may_write, endpoint });
        cx.notify_outbox(ToOutbox::Register { plugin: Arc::clone(plugin), crd: Arc::clone(crd), body });
    }

    pub fn on_crd_registered(
        &mut self,
        name: &Arc<str>,
        crd: &Arc<str>,
        result: Result<CrdOwner, CrdError>,
        cx: &mut Context<'_>,
    ) {
        let place = (Arc::clone(name), Arc::clone(crd));
        let Some(Registration { version, is_read_only, endpoint }) = self.registrations.remove(&place) else { return };
        let state = self.plugins.get(name);
        let wanted = state.and_then(|state| state.custom_resource(crd)).map(|(_, version)| version);
        let is_moved = endpoint.is_some() && state.and_then(|state| state.endpoint()) != endpoint.as_ref();
        let is_host = **name == *NO_PLUGIN;
        if !is_host && (version.as_ref() != wanted || is_moved) {
            // The version or the endpoint has changed meanwhile.
            return self.register_crd(name, crd, cx);
        }
        if matches!(result, Err(CrdError::Unavailable(_))) && is_read_only && cx.may_write {
            // This host has come to lead meanwhile.
            self.register_crd(name, crd, cx);
        } else {
            self.note_attempt(&place, &result, cx);
        }
        if is_host {
            self.on_host_crd(crd, result, cx)
        } else {
            self.on_plugin_crd(name, crd, result, cx)
        }
        self.sync_dirty(cx);
    }

    /// What the API server has refused for good is tried again more and more seldom.
    fn note_attempt(&mut self, place: &Place, result: &Result<CrdOwner, CrdError>, cx: &Context<'_>) {
        let (name, crd) = place;
        let why = match result {
            Err(CrdError::Denied(_)) => Why::Denied,
            Err(CrdError::Unavailable(_)) => Why::Unavailable,
            // One of a plugin is tried again as a whole version.
            Err(CrdError::Refused(_)) if **name == *NO_PLUGIN => Why::Refused,
            // Somebody may delete it again before its watch works.
            Ok(_) | Err(CrdError::Refused(_)) if self.is_still_gone(name, crd) => Why::NotServed,
            Ok(_) | Err(CrdError::Refused(_)) => {
                self.attempts.succeeded(place);
                return;
            }
        };
        let delay_ms = self.attempts.failed(place, why);
        self.arm(delay_ms, Timer::RegisterCrd(Arc::clone(name), Arc::clone(crd)), cx);
    }

    fn on_plugin_crd(
        &mut self,
        name: &Arc<str>,
        crd: &Arc<str>,
        result: Result<CrdOwner, CrdError>,
        cx: &mut Context<'_>,
    ) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        match result {
            Ok(owner) => {
                plugin.denied.retain(|permission, _| permission.kind != crd_kind());
                if let Some(Candidate { stage: Stage::Registering { missing, .. }, waits_for, foreign, .. }) =
                    &mut plugin.candidate
                {
                    missing.remove(crd);
                    foreign.extend((owner == CrdOwner::Another).then(|| Arc::clone(crd)));
                    *waits_for = None;
                }
                self.note_owner(name, crd, owner, cx);
                self.advance(name, cx);
            }
            Err(CrdError::Refused(refusal)) => self.refuse(name, RefusedBy::Definition, refusal, cx),
            Err(CrdError::Denied(message)) => {
                plugin.denied.insert(to_create_crds(), message);
            }
            Err(CrdError::Unavailable(message)) => {
                if let Some(candidate) = &mut plugin.candidate {
                    candidate.waits_for = Some(message);
                }
            }
        }
        self.mark_dirty(name);
    }

    /// Without its own CRD the host can show no plugin's state, so an error is logged, counted and in the readiness
    /// probe at once, and the registration is retried without end.
    fn on_host_crd(&mut self, crd: &Arc<str>, result: Result<CrdOwner, CrdError>, cx: &mut Context<'_>) {
        let refused = |refusal| Observation::Refused { plugin: Arc::from(HOST), refusal };
        let (message, observation) = match result {
            Ok(_) => {
                self.host_crd = HostCrd { established: true, error: None };
                return self.start_informer(&Arc::from(NO_PLUGIN), &plugin_object::kind(), Scope::default(), cx);
            }
            Err(CrdError::Unavailable(message)) => {
                let name = Name { namespace: Arc::from(""), name: Arc::clone(crd) };
                let target = ObjectRef { kind: crd_kind(), name };
                let error = WriteError { class: WriteErrorClass::Unavailable, message: message.clone() };
                (message, Observation::WriteFailed { cause: None, target, error })
            }
            Err(CrdError::Denied(message)) => {
                let rule = missing_text(
                    &message,
                    &to_create_crds(),
                    None,
                    &format!("mortise rbac --host -n {}", self.namespace),
                );
                let refusal = Refusal::new("Forbidden", format!("{message}; {rule}"));
                (refusal.message.clone(), refused(refusal))
            }
            Err(CrdError::Refused(refusal)) => (refusal.message.clone(), refused(refusal)),
        };
        if self.host_crd.error.replace(message.clone()) != Some(message) {
            cx.observe(observation);
        }
        self.names_are_known(cx);
    }

    /// Registers the CRDs of a kind again after somebody deleted one: at once, or when the next attempt is due.
    pub(super) fn restore_crd(&mut self, kind: &Kind, at_once: bool, cx: &mut Context<'_>) {
        for place in self.places_of(kind) {
            let delay_ms = self.attempts.delay_ms(&place);
            let (name, crd) = place;
            match at_once {
                true => self.register_crd(&name, &crd, cx),
                false => self.arm(delay_ms, Timer::RegisterCrd(name, crd), cx),
            }
        }
    }

    /// A kind that was not served is served now: somebody has made its CRD, so what failed before may succeed.
    pub(super) fn on_crd_made(&mut self, kind: &Kind, cx: &mut Context<'_>) {
        for place in self.places_of(kind) {
            if self.attempts.succeeded(&place) {
                self.register_crd(&place.0, &place.1, cx);
            }
        }
    }

    /// Where the CRDs of a kind are registered.
    fn places_of(&self, kind: &Kind) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        if *kind == plugin_object::kind() {
            places.push((Arc::from(NO_PLUGIN), Arc::from(plugin_object::CRD_NAME)));
        }
        for name in self.definitions.get(kind).into_iter().flatten() {
            let Some((manifest, _)) = self.plugins.get(name).and_then(Plugin::registered) else { continue };
            let crd = manifest.custom_resources.iter().find(|crd| crd.kinds.contains(kind));
            places.extend(crd.map(|crd| (Arc::clone(name), Arc::clone(&crd.name))));
        }
        places
    }

    /// Whether the last error of an informer of this CRD is that its kind is not served.
    fn is_still_gone(&self, plugin: &str, crd: &str) -> bool {
        let is_gone =
            |kind: &Kind| matches!(self.watch_error(kind, &Scope::default()), Some((_, WatchError::NotServed(_))));
        if plugin == NO_PLUGIN {
            return is_gone(&plugin_object::kind());
        }
        let active = self.plugins.get(plugin).and_then(|plugin| plugin.active.as_ref());
        let mut crds = active.into_iter().flat_map(|active| &active.manifest.custom_resources);
        crds.any(|found| *found.name == *crd && found.kinds.iter().any(is_gone))
    }

    /// This host may write now: sends the registrations and writes that it could not send before.
    pub(super) fn catch_up(&mut self, cx: &mut Context<'_>) {
        self.attempts.clear();
        if !self.host_crd.established {
            self.start(cx);
        }
        let names: Vec<Arc<str>> = self.plugins.keys().cloned().collect();
        for name in names {
            let candidate = self.plugins.get_mut(&name).and_then(|plugin| plugin.candidate.as_mut());
            if let Some(Candidate { stage: Stage::Registering { missing, .. }, since_ms, waits_for, .. }) = candidate {
                // The wait for a leader has ended, so it is not shown.
                *since_ms = cx.now.mono_ms;
                *waits_for = None;
                for crd in missing.clone() {
                    self.register_crd(&name, &crd, cx);
                }
            }
            self.mark_dirty(&name);
        }
        self.delete_orphans(cx);
    }
}
