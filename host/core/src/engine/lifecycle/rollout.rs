//! A plugin's rollout: the host compiles the component, makes it the owner of its kinds, registers its CRDs, lists its
//! kinds; then the new version takes over between two calls. If a step fails, the old version keeps serving (L1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::attempts::{Place, Why};
use super::component::{Accepted, Component, ComponentState};
use super::plugin::{Active, Candidate, Plugin, Refused, RefusedBy, Stage};
use super::requirements::Requirements;
use super::reviews::sees_some;
use super::tenants::manifest_of;
use super::timers::Timer;
use crate::component::{Compiled, Offer, Version};
use crate::digest::Digest;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::event::Effect;
use crate::finalizer;
use crate::grants::Names;
use crate::manifest::{ControllerSpec, Manifest};
use crate::object::Kind;
use crate::observation::Observation;
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::scope::Scope;
use crate::tenant::{self, TenantSource};

impl Lifecycle {
    pub(super) fn take_offer(&mut self, name: &Arc<str>, offer: Offer, cx: &mut Context<'_>) {
        let plugin = self.plugins.entry(Arc::clone(name)).or_default();
        if plugin.offer.as_ref() == Some(&offer) {
            return;
        }
        let is_same_version = plugin.offer.as_ref().is_some_and(|known| known.version() == offer.version());
        plugin.tenant.clone_from(&offer.tenant);
        plugin.read = Some(offer.clone());
        plugin.offer = Some(offer);
        plugin.unreadable = None;
        if is_same_version {
            return self.mark_dirty(name);
        }
        plugin.observed = None;
        self.attempts.forget_plugin(name);
        self.load(name, cx);
    }

    pub(super) fn take_unreadable(
        &mut self,
        name: &Arc<str>,
        source: Arc<str>,
        refusal: Refusal,
        tenant: Option<Arc<TenantSource>>,
        cx: &mut Context<'_>,
    ) {
        let plugin = self.plugins.entry(Arc::clone(name)).or_default();
        let unreadable = (source, refusal.clone());
        if plugin.unreadable.as_ref() != Some(&unreadable) {
            cx.observe(Observation::Refused { plugin: Arc::clone(name), refusal });
        }
        plugin.unreadable = Some(unreadable);
        (plugin.candidate, plugin.refused) = (None, None);
        plugin.offer = None;
        plugin.tenant = tenant;
        self.end_former_account(name, cx);
        self.release_shown_kinds(name, cx);
        self.serve_conversion(name, cx);
        self.mark_dirty(name);
    }

    /// L3: its CRDs, its objects and their children stay.
    pub(super) fn remove(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.remove(name) else { return };
        self.record_leftovers(name, &plugin, cx);
        let was_compiling = plugin.is_compiling();
        self.withdraw(name, plugin, cx);
        if was_compiling {
            self.release_shown_kinds(name, cx);
        }
        self.delete_orphan(name, cx);
    }

    /// Releases everything of a plugin that was removed from the map.
    pub(super) fn withdraw(&mut self, name: &Arc<str>, plugin: Plugin, cx: &mut Context<'_>) {
        cx.observe(Observation::Withdrawn { plugin: Arc::clone(name) });
        if plugin.conversion.is_some() {
            cx.effects.push(Effect::ServeConversion { plugin: Arc::clone(name), backend: None });
        }
        if plugin.active.is_some() {
            cx.notify_reconciler(ToReconciler::Withdraw { plugin: Arc::clone(name) });
        }
        if plugin.admission.is_some() {
            cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: None });
        }
        self.timers.forget_plugin(name);
        self.attempts.forget_plugin(name);
        self.dirty.remove(name);
        self.exchange(name, &plugin.requirements, &Requirements::default(), cx);
    }

    /// Begins the rollout of the offer, unless it serves already.
    pub(super) fn load(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(version) = plugin.offer.as_ref().map(Offer::version) else { return };
        plugin.refused = None;
        plugin.candidate = None;
        if let Some(refusal) = self.has_too_many_bytes(name, cx) {
            return self.refuse(name, RefusedBy::Bytes, refusal, cx);
        }
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        if plugin.active.as_ref().is_none_or(|active| active.version != version) {
            let digest = version.digest.clone();
            let (stage, since_ms) = (Stage::Compiling, cx.now.mono_ms);
            plugin.candidate = Some(Candidate { version, stage, since_ms, waits_for: None, foreign: Names::new() });
            if !self.components.contains_key(&digest) && !cx.draining {
                let component = Component { state: ComponentState::Compiling(None), users: BTreeSet::new() };
                self.components.insert(digest.clone(), component);
                cx.effects.push(Effect::Compile(digest.clone()));
            }
            // An offer that was not loaded before requires its component already.
            self.components.get_mut(&digest).map(|component| component.users.insert(Arc::clone(name)));
            self.advance(name, cx);
        }
        self.serve_conversion(name, cx);
        self.mark_dirty(name);
    }

    pub fn on_compiled(&mut self, digest: &Digest, result: Result<Compiled, Refusal>, cx: &mut Context<'_>) {
        let Some(component) = self.components.get_mut(digest) else { return };
        let read = result.and_then(|compiled| {
            let manifest = Arc::new(Manifest::parse(&compiled.manifest)?);
            Ok(Accepted { manifest, component_bytes: compiled.component_bytes })
        });
        component.state = read.map_or_else(ComponentState::Refused, ComponentState::Accepted);
        for name in component.users.clone() {
            let candidate = self.plugins.get(&name).and_then(|plugin| plugin.candidate.as_ref());
            if candidate.is_some_and(|it| it.version.digest == *digest && matches!(it.stage, Stage::Compiling)) {
                self.advance(&name, cx);
            }
        }
        self.sync_dirty(cx);
    }

    /// The component is not at fault, so the plugin waits, and its conditions say for what.
    pub fn on_compile_delayed(&mut self, digest: &Digest, why: String, cx: &mut Context<'_>) {
        let Some(Component { state: ComponentState::Compiling(delayed), users }) = self.components.get_mut(digest)
        else {
            return;
        };
        *delayed = Some(why.into());
        self.dirty.extend(users.iter().cloned());
        self.sync_dirty(cx);
    }

    /// What delays the compilation of a component.
    pub(super) fn compile_delay(&self, digest: &Digest) -> Option<&Arc<str>> {
        match &self.components.get(digest)?.state {
            ComponentState::Compiling(delayed) => delayed.as_ref(),
            ComponentState::Accepted(_) | ComponentState::Refused(_) => None,
        }
    }

    pub(super) fn accepted(&self, digest: &Digest) -> Option<&Accepted> {
        match &self.components.get(digest)?.state {
            ComponentState::Accepted(accepted) => Some(accepted),
            ComponentState::Compiling(_) | ComponentState::Refused(_) => None,
        }
    }

    /// Loads the plugins that waited for a kind's owner.
    pub(super) fn retry_waiting(&mut self, cx: &mut Context<'_>) {
        for name in self.may_own_now(cx) {
            self.load(&name, cx);
        }
    }

    /// The reason of a refusal may have ended without an event.
    pub(super) fn retry_refused(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let refused = self.plugins.get(name).and_then(|plugin| plugin.refused.as_ref());
        if refused.is_some_and(|refused| refused.by.retry_ms().is_some()) && !cx.draining {
            self.load(name, cx);
        }
    }

    pub(super) fn refuse(&mut self, name: &Arc<str>, by: RefusedBy, refusal: Refusal, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        plugin.candidate = None;
        plugin.refused = Some(Refused { by, refusal: refusal.clone() });
        self.end_former_account(name, cx);
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let is_new = plugin.observed.replace(refusal.clone()).as_ref() != Some(&refusal);
        self.release_shown_kinds(name, cx);
        let retry_ms = match by {
            // It takes requests; the others look at what is in memory.
            RefusedBy::Definition => Some(self.attempts.failed(&whole_version(name), Why::Refused)),
            by => by.retry_ms(),
        };
        if let Some(retry_ms) = retry_ms {
            self.arm(retry_ms, Timer::Refused(Arc::clone(name)), cx);
        }
        if is_new {
            cx.observe(Observation::Refused { plugin: Arc::clone(name), refusal });
        }
        self.serve_conversion(name, cx);
        self.mark_dirty(name);
    }

    /// Advances a candidate through all steps whose conditions are met.
    pub(super) fn advance(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        self.mark_dirty(name);
        if matches!(self.stage(name), Some(Stage::Compiling)) {
            self.begin_registering(name, cx);
        }
        if let Some(stage) = self.stage(name)
            && let Stage::Registering { manifest, missing } = &*stage
            && missing.is_empty()
        {
            let manifest = Arc::clone(manifest);
            if let Some(refusal) = self.lacks_rights(name, &manifest) {
                return self.refuse(name, RefusedBy::Rights, refusal, cx);
            }
            *self.stage(name).expect("it was read above") = Stage::Listing { manifest };
            self.require(name, cx);
            self.take_from_tenants(name, cx);
        }
        let Some(Stage::Listing { manifest }) = self.stage(name) else { return };
        let manifest = Arc::clone(manifest);
        if !manifest.scopes().all(|(kind, scope)| self.is_readable(&kind, &scope, cx)) || !self.knows_names(cx) {
            return;
        }
        if let Some(namespace) = tenant::of_plugin(name)
            && self.end_for_bytes(&namespace.into(), cx)
        {
            return;
        }
        let scopes: Vec<(Kind, Scope)> = manifest.scopes().collect();
        let plugin = self.plugins.get(name).and_then(|plugin| Some((plugin, plugin.candidate.as_ref()?)));
        let rights = plugin.and_then(|(plugin, candidate)| plugin.rights(&candidate.version, &manifest));
        let Some(rights) = rights else { return };
        if !sees_some(rights.as_deref(), &scopes) {
            return self.end_account_of_blind(name, cx);
        }
        match self.named_elsewhere(name, cx) {
            Some(refusal) => self.refuse(name, RefusedBy::NameOwner, refusal, cx),
            None if self.comes_up_last(name, cx) => {}
            None => self.activate(name, manifest, rights, cx),
        }
    }

    fn stage(&mut self, name: &str) -> Option<&mut Stage> {
        Some(&mut self.plugins.get_mut(name)?.candidate.as_mut()?.stage)
    }

    /// Checks a compiled component's manifest against the other plugins, and registers its CRDs.
    fn begin_registering(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(candidate) = self.plugins.get(name).and_then(|plugin| plugin.candidate.as_ref()) else { return };
        let manifest = match self.components.get(&candidate.version.digest).map(|component| &component.state) {
            Some(ComponentState::Accepted(accepted)) => manifest_of(name, &accepted.manifest),
            Some(ComponentState::Refused(refusal)) => Err(refusal.clone()),
            Some(ComponentState::Compiling(_)) | None => return,
        };
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(refusal) => return self.refuse(name, RefusedBy::Component, refusal, cx),
        };
        if !self.knows_names(cx) {
            return;
        }
        if let Some(refusal) = self.named_elsewhere(name, cx) {
            return self.refuse(name, RefusedBy::NameOwner, refusal, cx);
        }
        if let Some(refusal) = self.cannot_own(name, &manifest, cx).or_else(|| self.cannot_watch(name, &manifest)) {
            return self.refuse(name, RefusedBy::KindOwner, refusal, cx);
        }
        if let Some(refusal) = cannot_finalize(name, &manifest) {
            return self.refuse(name, RefusedBy::Component, refusal, cx);
        }
        if let Some(refusal) = self.cannot_send(&manifest) {
            return self.refuse(name, RefusedBy::Component, refusal, cx);
        }
        if let Some(refusal) = self.lacks_rights(name, &manifest) {
            self.end_ungranted_admission(name, &manifest, cx);
            return self.refuse(name, RefusedBy::Rights, refusal, cx);
        }
        if !self.acts(name, &manifest, cx) {
            return;
        }
        let missing: Names = manifest.custom_resources.iter().map(|crd| Arc::clone(&crd.name)).collect();
        *self.stage(name).expect("its candidate was read above") =
            Stage::Registering { manifest, missing: missing.clone() };
        self.require(name, cx);
        self.release_shown_kinds(name, cx);
        self.serve_conversion(name, cx);
        for crd in &missing {
            self.register_crd(name, crd, cx);
        }
    }

    /// Requests of plugins are an administrator's decision.
    fn cannot_send(&self, manifest: &Manifest) -> Option<Refusal> {
        let first = manifest.http.first().filter(|_| !self.allows_http)?;
        let message = format!(
            "the plugin sends HTTP requests, to {} first, and this host does not allow any; if it should, start `mortise \
             run` with --allow-http. `mortise inspect` shows all of them",
            first.origin
        );
        Some(Refusal::new("HttpNotAllowed", message))
    }

    fn activate(
        &mut self,
        name: &Arc<str>,
        manifest: Arc<Manifest>,
        rights: Option<Arc<Rights>>,
        cx: &mut Context<'_>,
    ) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(Candidate { version, foreign, .. }) = plugin.candidate.take() else { return };
        let (ready, manifest_of) = (BTreeMap::new(), Arc::clone(&manifest));
        let serving =
            Active { version: version.clone(), manifest: manifest_of, foreign, rights: rights.clone(), ready };
        let reload = plugin.active.replace(serving).is_some();
        plugin.refused = None;
        plugin.observed = None;
        plugin.fault = None;
        plugin.denied.clear();
        let digest = version.digest.clone();
        cx.observe(Observation::Activated {
            plugin: Arc::clone(name),
            digest,
            manifest: Arc::clone(&manifest),
            reload,
        });
        let suspended = plugin.suspended;
        if suspended {
            cx.notify_reconciler(ToReconciler::Suspend { plugin: Arc::clone(name), suspended });
        }
        let version = Version { rights, ..version };
        cx.notify_reconciler(ToReconciler::Serve { plugin: Arc::clone(name), version, manifest });
        self.serve_conversion(name, cx);
        self.serve_admission(name, cx);
        // What the version before it read may have been wider.
        self.require(name, cx);
        self.take_from_tenants(name, cx);
    }
}

/// The place of a version whose definitions are refused; no CRD has an empty name.
fn whole_version(name: &Arc<str>) -> Place {
    (Arc::clone(name), "".into())
}

/// A finalizer contains the plugin's name, and the API server bounds its length.
fn cannot_finalize(name: &str, manifest: &Manifest) -> Option<Refusal> {
    let most = finalizer::MAX_PLUGIN_BYTES;
    let finalizes = manifest.controllers.iter().any(ControllerSpec::has_finalizer);
    (finalizes && name.len() > most).then(|| {
        let message =
            format!("the plugin's name has {} bytes, and one with a finalizer may have {most}; rename it", name.len());
        Refusal::new("NameTooLong", message)
    })
}
