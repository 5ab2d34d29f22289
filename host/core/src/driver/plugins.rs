//! A plugin's way from its offer to serving: compiled, its kinds claimed, its CRDs established, its kinds listed; then it
//! takes over between two calls. Whatever fails on that way leaves the old version serving (L1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::Admitting;
use super::conversion::Converting;
use super::keys::Work;
use super::needs::{KIND_CLAIMED, Needs};
use super::{Controller, Driver, Timer};
use crate::component::{Compiled, Offer};
use crate::digest::Digest;
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::finalizer;
use crate::manifest::{ControllerSpec, CustomResource, Manifest};
use crate::object::{Kind, ObjectRef};
use crate::observation::Observation;
use crate::permission::Permission;
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::status::StatusShape;
use crate::view::Access;
use crate::well_known::field_manager;
use crate::workqueue::{ControllerId, Key, Lane};

/// How soon a version that the cluster's state has kept out is tried again: what to do was said, and whoever has done it
/// should see it work while still looking.
pub(super) const REFUSED_RETRY_MS: u64 = 15_000;

/// A component, by the digest of its bytes.
#[derive(Debug)]
pub(super) struct Component {
    pub state: ComponentState,
    /// Plugins that are offered as it, or serve it.
    pub users: BTreeSet<Arc<str>>,
}

/// What is known of a component's bytes.
#[derive(Debug)]
pub(super) enum ComponentState {
    Compiling,
    Accepted(Accepted),
    /// Remembered, so that the same bytes are not compiled again (G3).
    Refused(Refusal),
}

/// A component that compiled, and its manifest, which is read once.
#[derive(Debug)]
pub(super) struct Accepted {
    pub manifest: Arc<Manifest>,
    pub component_bytes: u64,
}

/// One plugin, by its name.
#[derive(Debug, Default)]
pub(super) struct PluginState {
    /// What its source offers now.
    pub offer: Option<Offer>,
    /// A source has something under this name that cannot be read.
    pub unreadable: Option<(Arc<str>, Refusal)>,
    /// The version that is on its way.
    pub candidate: Option<Candidate>,
    /// The version that serves.
    pub active: Option<Active>,
    /// Why the offered version does not serve, and which condition says so.
    pub refused: Option<(Step, Refusal)>,
    /// The refusal that was observed last: trying again is no news.
    pub told: Option<Refusal>,
    /// Rights that RBAC has refused, with the API server's words.
    pub denied: BTreeMap<Permission, Denial>,
    /// Objects whose last call was a fault of the guest.
    pub faults: BTreeMap<Key, String>,
    /// Whether the API server asks it, for a plugin that has admission.
    pub admission: Option<Admitting>,
    /// Who converts its objects, for a plugin that has several versions of its kinds.
    pub conversion: Option<Converting>,
    pub report: Report,
    /// What is kept for it; see [`Driver::settle`].
    pub needs: Needs,
}

/// A right that the API server has refused.
#[derive(Debug, Default)]
pub(super) struct Denial {
    /// The API server's words.
    pub message: String,
    /// Whose writes need it. When none of them does any more, the refusal is forgotten.
    pub keys: BTreeSet<Key>,
}

/// What a plugin is held up by; each is a condition of the Plugin object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Compiled,
    Established,
}

/// A version on its way.
#[derive(Debug)]
pub(super) struct Candidate {
    pub digest: Digest,
    pub config: Arc<str>,
    pub stage: Stage,
    pub since_ms: u64,
    /// Why the current stage takes so long.
    pub waits_for: Option<String>,
}

#[derive(Debug)]
pub(super) enum Stage {
    Compiling,
    Registering { manifest: Arc<Manifest>, missing: BTreeSet<Arc<str>> },
    Listing { manifest: Arc<Manifest> },
}

impl PluginState {
    /// A CRD of the version that is on its way, else of the one that serves, and that version.
    pub fn custom_resource(&self, name: &str) -> Option<(&CustomResource, &Digest)> {
        let coming = self.candidate.as_ref().and_then(|c| Some((c.stage.manifest()?, &c.digest)));
        let serving = self.active.as_ref().map(|active| (&active.manifest, &active.digest));
        let (manifest, digest) = coming.or(serving)?;
        let found = manifest.custom_resources.iter().find(|found| *found.name == *name)?;
        Some((found, digest))
    }
}

impl Stage {
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        match self {
            Self::Compiling => None,
            Self::Registering { manifest, .. } | Self::Listing { manifest } => Some(manifest),
        }
    }
}

/// A version that serves.
#[derive(Debug)]
pub(super) struct Active {
    pub digest: Digest,
    pub config: Arc<str>,
    pub manifest: Arc<Manifest>,
    pub controllers: Vec<ControllerId>,
}

/// The state of a Plugin object's own writes.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub in_flight: bool,
    pub expected: Option<Expectation>,
    pub failures: u32,
    /// When this host last created it.
    pub created_ms: Option<u64>,
}

/// Whether a refusal is about what stands in the cluster, and not about the component alone. A claimed kind is retried when
/// it is free.
fn is_of_the_cluster(step: Step, refusal: &Refusal) -> bool {
    step == Step::Established && refusal.reason != KIND_CLAIMED
}

/// Under this the host registers its own CRD: no plugin can have an empty name.
pub(super) const HOST: &str = "";

impl Driver {
    pub(super) fn start(&mut self, effects: &mut Vec<Effect>) {
        self.register_crd(&Arc::from(HOST), &Arc::from(crate::plugin_object::CRD_NAME), effects);
    }

    pub(super) fn on_sources_listed(&mut self, effects: &mut Vec<Effect>) {
        self.sources_listed = true;
        self.delete_orphans(effects);
    }

    pub(super) fn on_plugin_found(&mut self, offer: Offer, effects: &mut Vec<Effect>) {
        let name = Arc::clone(&offer.name);
        let plugin = self.plugins.entry(Arc::clone(&name)).or_default();
        if let Some(first) = &plugin.offer
            && first.source != offer.source
        {
            let message = format!("{} offers a plugin named {name:?}, but {} came first", offer.source, first.source);
            let refusal = Refusal::new("NameTaken", message);
            effects.push(Effect::Observe(Observation::Refused { plugin: name, refusal }));
            return;
        }
        if plugin.offer.as_ref() == Some(&offer) {
            // A relist, or a change of something that does not matter here: what was said of it stands.
            return;
        }
        plugin.offer = Some(offer);
        plugin.unreadable = None;
        plugin.told = None;
        self.load(&name, effects);
    }

    /// Begins to bring up what is offered, unless it serves already.
    pub(super) fn load(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let now_ms = self.now.mono_ms;
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(Offer { digest, config, .. }) = plugin.offer.clone() else { return };
        plugin.refused = None;
        let serves = |active: &Active| active.digest == digest && active.config == config;
        let serves = plugin.active.as_ref().is_some_and(serves);
        plugin.candidate = None;
        if !serves {
            let (stage, since_ms) = (Stage::Compiling, now_ms);
            plugin.candidate = Some(Candidate { digest: digest.clone(), config, stage, since_ms, waits_for: None });
            match self.components.get(&digest).map(|component| &component.state) {
                None if self.draining => {}
                None => {
                    let component = Component { state: ComponentState::Compiling, users: BTreeSet::new() };
                    self.components.insert(digest.clone(), component);
                    effects.push(Effect::Compile(digest));
                }
                Some(ComponentState::Compiling) => {}
                Some(ComponentState::Accepted(_) | ComponentState::Refused(_)) => {
                    self.advance_compiled(name, effects);
                }
            }
        }
        self.serve_conversion(name, effects);
        self.settle(name, effects);
        self.report(name, effects);
    }

    pub(super) fn on_plugin_unreadable(
        &mut self,
        name: Arc<str>,
        source: Arc<str>,
        refusal: Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let plugin = self.plugins.entry(Arc::clone(&name)).or_default();
        if plugin.offer.as_ref().is_some_and(|offer| offer.source != source) {
            return;
        }
        if plugin.unreadable.as_ref() != Some(&(Arc::clone(&source), refusal.clone())) {
            let (plugin, refusal) = (Arc::clone(&name), refusal.clone());
            effects.push(Effect::Observe(Observation::Refused { plugin, refusal }));
        }
        plugin.unreadable = Some((source, refusal));
        plugin.candidate = None;
        plugin.offer = None;
        self.serve_conversion(&name, effects);
        self.settle(&name, effects);
        self.report(&name, effects);
    }

    /// L3: what the plugin made stays: its CRDs, its objects and their children.
    pub(super) fn on_plugin_gone(&mut self, name: &Arc<str>, source: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get(name) else { return };
        let offered = plugin.offer.as_ref().map(|offer| &offer.source);
        let unreadable = plugin.unreadable.as_ref().map(|(source, _)| source);
        if offered.or(unreadable) != Some(source) {
            return;
        }
        let Some(plugin) = self.plugins.remove(name) else { return };
        self.tell_of_conversion(name, &plugin, effects);
        self.tell_of_finalizers(name, plugin.active.as_ref(), effects);
        self.withdraw(name, plugin, effects);
        self.delete_orphan(name, effects);
    }

    /// Ends everything that is done for a plugin that has been taken out.
    pub(super) fn withdraw(&mut self, name: &Arc<str>, plugin: PluginState, effects: &mut Vec<Effect>) {
        effects.push(Effect::Observe(Observation::Withdrawn { plugin: Arc::clone(name) }));
        if plugin.conversion.is_some() {
            effects.push(Effect::ServeConversion { plugin: Arc::clone(name), serving: None });
        }
        for id in plugin.active.into_iter().flat_map(|active| active.controllers) {
            self.remove_controller(id, effects);
        }
        if plugin.admission.is_some() {
            effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), serving: None });
        }
        self.timers.forget_plugin(name);
        self.release(name, &plugin.needs, effects);
    }

    pub(super) fn on_compiled(&mut self, digest: Digest, result: Result<Compiled, Refusal>, effects: &mut Vec<Effect>) {
        // None: nobody wants it any more.
        let Some(component) = self.components.get_mut(&digest) else { return };
        let read = result.and_then(|compiled| {
            let manifest = Arc::new(Manifest::parse(&compiled.manifest)?);
            Ok(Accepted { manifest, component_bytes: compiled.component_bytes })
        });
        component.state = read.map_or_else(ComponentState::Refused, ComponentState::Accepted);
        for name in component.users.clone() {
            let candidate = self.plugins.get(&name).and_then(|plugin| plugin.candidate.as_ref());
            if !candidate
                .is_some_and(|candidate| candidate.digest == digest && matches!(candidate.stage, Stage::Compiling))
            {
                continue;
            }
            self.advance_compiled(&name, effects);
            self.settle(&name, effects);
            self.report(&name, effects);
        }
    }

    /// What a component told of itself, if it was accepted.
    pub(super) fn accepted(&self, digest: &Digest) -> Option<&Accepted> {
        match &self.components.get(digest)?.state {
            ComponentState::Accepted(accepted) => Some(accepted),
            ComponentState::Compiling | ComponentState::Refused(_) => None,
        }
    }

    /// The component is compiled or refused; on with its manifest.
    fn advance_compiled(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(candidate) = self.plugins.get(name).and_then(|plugin| plugin.candidate.as_ref()) else { return };
        let manifest = match self.components.get(&candidate.digest).map(|component| &component.state) {
            Some(ComponentState::Accepted(accepted)) => Arc::clone(&accepted.manifest),
            Some(ComponentState::Refused(refusal)) => {
                let refusal = refusal.clone();
                return self.refuse(name, Step::Compiled, refusal, effects);
            }
            Some(ComponentState::Compiling) | None => return,
        };
        if !self.knows_names() {
            return;
        }
        let named_elsewhere = self.named_elsewhere(name);
        if let Some(refusal) = named_elsewhere.or_else(|| self.claimed_by_another(name, &manifest)) {
            return self.refuse(name, Step::Established, refusal, effects);
        }
        if let Some(refusal) = cannot_finalize(name, &manifest) {
            return self.refuse(name, Step::Compiled, refusal, effects);
        }
        let missing: BTreeSet<Arc<str>> = manifest.custom_resources.iter().map(|crd| Arc::clone(&crd.name)).collect();
        let plugin = self.plugins.get_mut(name).expect("it was there a moment ago");
        let candidate = plugin.candidate.as_mut().expect("it was there a moment ago");
        candidate.stage = Stage::Registering { manifest, missing: missing.clone() };
        self.serve_conversion(name, effects);
        for crd in &missing {
            self.register_crd(name, crd, effects);
        }
        self.advance(name, effects);
    }

    /// A kind has become free.
    pub(super) fn retry_claims(&mut self, effects: &mut Vec<Effect>) {
        for name in self.may_claim_now() {
            self.load(&name, effects);
        }
    }

    /// The cluster kept a version out: a CRD that narrows while objects exist, or belongs to somebody else. That may have
    /// changed without a word to the host.
    pub(super) fn retry_refused(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get(name) else { return };
        let by_cluster = |(step, refusal): &(Step, Refusal)| is_of_the_cluster(*step, refusal);
        if plugin.refused.as_ref().is_some_and(by_cluster) && !self.draining {
            self.load(name, effects);
        }
    }

    pub(super) fn refuse(&mut self, name: &Arc<str>, step: Step, refusal: Refusal, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        plugin.candidate = None;
        plugin.refused = Some((step, refusal.clone()));
        let is_news = plugin.told.replace(refusal.clone()).as_ref() != Some(&refusal);
        if is_of_the_cluster(step, &refusal) {
            self.arm(REFUSED_RETRY_MS, Timer::Refused(Arc::clone(name)));
        }
        if is_news {
            effects.push(Effect::Observe(Observation::Refused { plugin: Arc::clone(name), refusal }));
        }
        self.serve_conversion(name, effects);
    }

    /// Takes a candidate as far as it gets now.
    pub(super) fn advance(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(candidate) = &mut plugin.candidate else { return };
        if matches!(candidate.stage, Stage::Compiling) {
            // It may have been compiled before the names were known.
            self.advance_compiled(name, effects);
            return self.settle(name, effects);
        }
        if let Stage::Registering { manifest, missing } = &candidate.stage
            && missing.is_empty()
        {
            candidate.stage = Stage::Listing { manifest: Arc::clone(manifest) };
            self.settle(name, effects);
        }
        let candidate = self.plugins.get(name).and_then(|plugin| plugin.candidate.as_ref());
        let Some(Stage::Listing { manifest }) = candidate.map(|candidate| &candidate.stage) else { return };
        let manifest = Arc::clone(manifest);
        let kinds = manifest.controllers.iter().flat_map(|controller| controller.readable());
        if !kinds.into_iter().all(|kind| self.is_readable(&kind)) || !self.knows_names() {
            return;
        }
        match self.named_elsewhere(name) {
            Some(refusal) => {
                self.refuse(name, Step::Established, refusal, effects);
                self.settle(name, effects);
            }
            None => self.activate(name, &manifest, effects),
        }
    }

    fn activate(&mut self, name: &Arc<str>, manifest: &Arc<Manifest>, effects: &mut Vec<Effect>) {
        let plugin = self.plugins.get_mut(name).expect("advance has seen this plugin");
        let Some(Candidate { digest, config, .. }) = plugin.candidate.take() else { return };
        let reload = plugin.active.is_some();
        let serving = Active { digest, config, manifest: Arc::clone(manifest), controllers: Vec::new() };
        let served = plugin.active.replace(serving).map(|active| active.controllers).unwrap_or_default();
        plugin.refused = None;
        plugin.told = None;
        plugin.faults.clear();
        plugin.denied.clear();
        let primary = |id: ControllerId| Some((self.controllers.get(&id)?.spec.primary.clone(), id));
        let mut before: BTreeMap<Kind, ControllerId> = served.into_iter().filter_map(primary).collect();
        for spec in &manifest.controllers {
            let id = before.remove(&spec.primary).unwrap_or_else(|| {
                self.last_controller += 1;
                ControllerId(self.last_controller)
            });
            let calls = self.controllers.get(&id).map_or(0, |before| before.calls);
            let Some(active) = self.plugins.get_mut(name).and_then(|plugin| plugin.active.as_mut()) else { return };
            active.controllers.push(id);
            self.controllers.insert(id, controller(name, active, spec, calls));
            self.add_reconciler(&spec.primary, id);
            self.enqueue_all(id, effects);
        }
        for id in before.into_values() {
            self.remove_controller(id, effects);
        }
        if let Some(active) = self.plugins.get(name).and_then(|plugin| plugin.active.as_ref()) {
            let digest = active.digest.clone();
            effects.push(Effect::Observe(Observation::Activated { plugin: Arc::clone(name), digest, reload }));
        }
        self.serve_conversion(name, effects);
        self.serve_admission(name, effects);
        self.settle(name, effects);
    }

    /// Looks at every object again. W1: a new version, or a new configuration, is a reason to; one that selects other objects
    /// than the version before leaves those alone that it does not select. X7: so is coming to lead.
    pub(super) fn enqueue_all(&mut self, id: ControllerId, effects: &mut Vec<Effect>) {
        let Some(spec) = self.controllers.get(&id).map(|controller| Arc::clone(&controller.spec)) else { return };
        let snapshot = self.store.snapshot();
        for object in snapshot.list(&spec.primary, None, &Selector::default()) {
            let key = Key { controller: id, name: object.name.clone() };
            if self.controllers.get(&id).is_some_and(|controller| controller.reconciles(object)) {
                self.keys.entry(key.clone()).or_default();
                self.wake(&key, Lane::Resync, effects);
            } else if self.keys.get(&key).is_some_and(|state| state.is_idle()) {
                self.drop_key(&key);
            } else {
                self.wake(&key, Lane::Live, effects);
            }
        }
    }

    /// Ends a controller with its keys, which need it until they are gone.
    fn remove_controller(&mut self, id: ControllerId, effects: &mut Vec<Effect>) {
        let Some(controller) = self.controllers.get(&id) else { return };
        let (label, kind) = (Arc::clone(&controller.label), controller.spec.primary.clone());
        let mut gone: Vec<Key> = self.keys.keys().filter(|key| key.controller == id).cloned().collect();
        gone.sort();
        for key in gone {
            if self.keys.get(&key).is_some_and(|state| matches!(state.work, Work::Writing(_))) {
                let object = ObjectRef { kind: kind.clone(), name: key.name.clone() };
                effects.push(Effect::Observe(Observation::TurnEnded { controller: Arc::clone(&label), object }));
            }
            self.drop_key(&key);
        }
        self.queue.remove_controller(id);
        self.controllers.remove(&id);
        let others = self.reconcilers_of(&kind).iter().copied().filter(|other| *other != id).collect::<Arc<[_]>>();
        if others.is_empty() {
            self.primaries.remove(&kind);
        } else {
            self.primaries.insert(kind, others);
        }
    }

    fn add_reconciler(&mut self, kind: &Kind, id: ControllerId) {
        let known = self.reconcilers_of(kind);
        if !known.contains(&id) {
            self.primaries.insert(kind.clone(), known.iter().copied().chain([id]).collect());
        }
    }

    /// The controllers of a kind.
    pub(super) fn reconcilers_of(&self, kind: &Kind) -> Arc<[ControllerId]> {
        self.primaries.get(kind).cloned().unwrap_or_default()
    }
}

/// A finalizer carries the plugin's name, of which the API server takes so much only.
fn cannot_finalize(name: &str, manifest: &Manifest) -> Option<Refusal> {
    let most = finalizer::MAX_PLUGIN_BYTES;
    let finalizes = manifest.controllers.iter().any(|controller| controller.finalize);
    (finalizes && name.len() > most).then(|| {
        let message =
            format!("the plugin's name has {} bytes, and one that finalizes may have {most}; rename it", name.len());
        Refusal::new("NameTooLong", message)
    })
}

/// One controller of a version that begins to serve.
fn controller(plugin: &Arc<str>, active: &Active, spec: &ControllerSpec, calls: u32) -> Controller {
    let manifest = &active.manifest;
    let crd = manifest.custom_resources.iter().find(|crd| crd.kinds.contains(&spec.primary));
    Controller {
        plugin: Arc::clone(plugin),
        label: format!("{plugin}/{}", spec.primary.kind).into(),
        manager: field_manager(plugin),
        finalizer: finalizer::name(plugin),
        digest: active.digest.clone(),
        config: Arc::clone(&active.config),
        spec: Arc::new(spec.clone()),
        access: Arc::new(Access::new(spec.readable(), manifest.limits.read_bytes)),
        limits: manifest.limits,
        shape: match crd {
            Some(crd) => StatusShape::of(crd, &spec.primary),
            // A status that is not ours has no place for anything.
            None if spec.builtin => StatusShape::default(),
            // Without a CRD of the plugin's own nothing is known of the schema but that most kinds have a status.
            None => StatusShape { subresource: true, ..StatusShape::default() },
        },
        ready: true,
        calls,
    }
}
