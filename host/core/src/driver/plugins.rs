//! A plugin's way from its offer to serving: compiled, its kinds claimed, its CRDs established, its kinds listed; then it
//! takes over between two calls. Whatever fails on that way leaves the old version serving (L1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::keys::Work;
use super::{Controller, Driver, Timer};
use crate::event::{Compiled, Digest, Effect, Observation, Offer, Refusal};
use crate::manifest::{CustomResource, Manifest};
use crate::object::{Kind, Name, ObjectRef};
use crate::own_write::OwnWrite;
use crate::queue::{ControllerId, Key, Lane};
use crate::selector::Selector;
use crate::status::StatusShape;
use crate::view::Access;

/// How soon a version that the cluster's state has kept out is tried again: what to do was said, and whoever has done it
/// should see it work while still looking.
pub(super) const REFUSED_RETRY_MS: u64 = 15_000;

/// What is known of a component's bytes.
#[derive(Debug)]
pub(super) enum DigestState {
    Compiling,
    Accepted(Compiled),
    /// Remembered, so that the same bytes are not compiled again (G3).
    Refused(Refusal),
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
    /// Verbs that RBAC has refused, with the API server's words.
    pub denied: BTreeMap<(Kind, &'static str), Denial>,
    /// Objects whose last call was a fault of the guest.
    pub faults: BTreeMap<Key, String>,
    pub report: Report,
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
}

/// The state of a Plugin object's own writes.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub in_flight: bool,
    pub expected: Option<OwnWrite>,
    pub failures: u32,
}

/// Whether a refusal is about what stands in the cluster, and not about the component alone. A claimed kind is retried when
/// it is free.
fn is_of_the_cluster(step: Step, refusal: &Refusal) -> bool {
    step == Step::Established && refusal.reason != "KindClaimed"
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
    fn load(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let now_ms = self.now.mono_ms;
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(Offer { digest, config, .. }) = plugin.offer.clone() else { return };
        plugin.refused = None;
        let serves = |active: &Active| active.digest == digest && active.config == config;
        let serves = plugin.active.as_ref().is_some_and(serves);
        let may_free_a_kind = plugin.candidate.take().is_some();
        if !serves {
            let (stage, since_ms) = (Stage::Compiling, now_ms);
            plugin.candidate = Some(Candidate { digest: digest.clone(), config, stage, since_ms, waits_for: None });
            match self.digests.get(&digest) {
                None if self.draining => {}
                None => {
                    self.digests.insert(digest.clone(), DigestState::Compiling);
                    effects.push(Effect::Compile(digest));
                }
                Some(DigestState::Compiling) => {}
                Some(DigestState::Accepted(_) | DigestState::Refused(_)) => self.advance_compiled(name, effects),
            }
        }
        if may_free_a_kind {
            self.arm(0, Timer::Claims);
        }
        self.settle(effects);
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
        self.arm(0, Timer::Claims);
        self.settle(effects);
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
        self.plugins.remove(name);
        effects.push(Effect::Observe(Observation::Withdrawn { plugin: Arc::clone(name) }));
        let ids: Vec<ControllerId> =
            self.controllers.iter().filter(|(_, controller)| controller.plugin == *name).map(|(id, _)| *id).collect();
        for id in ids {
            self.remove_controller(id, effects);
        }
        self.timers.forget_plugin(name);
        self.arm(0, Timer::Claims);
        self.settle(effects);
        self.delete_orphan(name, effects);
    }

    pub(super) fn on_compiled(&mut self, digest: Digest, result: Result<Compiled, Refusal>, effects: &mut Vec<Effect>) {
        let state = match result {
            Ok(compiled) => DigestState::Accepted(compiled),
            Err(refusal) => DigestState::Refused(refusal),
        };
        if !self.digests.contains_key(&digest) {
            // Nobody wants it any more.
            return;
        }
        self.digests.insert(digest.clone(), state);
        let waiting = |(name, plugin): (&Arc<str>, &PluginState)| {
            let candidate = plugin.candidate.as_ref()?;
            (candidate.digest == digest && matches!(candidate.stage, Stage::Compiling)).then(|| Arc::clone(name))
        };
        let names: Vec<Arc<str>> = self.plugins.iter().filter_map(waiting).collect();
        for name in names {
            self.advance_compiled(&name, effects);
            self.settle(effects);
            self.report(&name, effects);
        }
    }

    /// The component is compiled or refused; on with its manifest.
    fn advance_compiled(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(candidate) = self.plugins.get(name).and_then(|plugin| plugin.candidate.as_ref()) else { return };
        let compiled = match self.digests.get(&candidate.digest) {
            Some(DigestState::Accepted(compiled)) => compiled,
            Some(DigestState::Refused(refusal)) => {
                let refusal = refusal.clone();
                return self.refuse(name, Step::Compiled, refusal, effects);
            }
            Some(DigestState::Compiling) | None => return,
        };
        let manifest = match Manifest::parse(&compiled.manifest) {
            Ok(manifest) => Arc::new(manifest),
            Err(refusal) => return self.refuse(name, Step::Compiled, refusal, effects),
        };
        if let Some(refusal) = self.claimed_by_another(name, &manifest) {
            return self.refuse(name, Step::Established, refusal, effects);
        }
        let missing: BTreeSet<Arc<str>> = manifest.custom_resources.iter().map(|crd| Arc::clone(&crd.name)).collect();
        let plugin = self.plugins.get_mut(name).expect("it was there a moment ago");
        let candidate = plugin.candidate.as_mut().expect("it was there a moment ago");
        candidate.stage = Stage::Registering { manifest, missing: missing.clone() };
        for crd in &missing {
            self.register_crd(name, crd, effects);
        }
        self.advance(name, effects);
    }

    /// L2: a kind has one plugin, the first that claimed it.
    fn claimed_by_another(&self, name: &Arc<str>, manifest: &Manifest) -> Option<Refusal> {
        for (other, plugin) in self.plugins.iter().filter(|(other, _)| *other != name) {
            let serving = plugin.active.as_ref().map(|active| &active.manifest);
            let coming = plugin.candidate.as_ref().and_then(|candidate| candidate.stage.manifest());
            let claimed = serving.into_iter().chain(coming).flat_map(|manifest| &manifest.controllers);
            for theirs in claimed {
                if manifest.controllers.iter().any(|ours| ours.primary.is_same_resource(&theirs.primary)) {
                    let message = format!(
                        "{} is reconciled by the plugin {other:?} already; a kind has one plugin. Remove one of the two",
                        theirs.primary
                    );
                    return Some(Refusal::new("KindClaimed", message));
                }
            }
        }
        None
    }

    /// A kind may have become free.
    pub(super) fn retry_claims(&mut self, effects: &mut Vec<Effect>) {
        let refused = |(name, plugin): (&Arc<str>, &PluginState)| {
            let waits = plugin.refused.as_ref().is_some_and(|(_, refusal)| refusal.reason == "KindClaimed");
            let offer = plugin.offer.as_ref().filter(|_| waits)?;
            let Some(DigestState::Accepted(compiled)) = self.digests.get(&offer.digest) else { return None };
            let manifest = Manifest::parse(&compiled.manifest).ok()?;
            self.claimed_by_another(name, &manifest).is_none().then(|| Arc::clone(name))
        };
        let names: Vec<Arc<str>> = self.plugins.iter().filter_map(refused).collect();
        for name in names {
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
        let may_free_a_kind = plugin.candidate.take().is_some_and(|candidate| candidate.stage.manifest().is_some());
        plugin.refused = Some((step, refusal.clone()));
        let is_news = plugin.told.replace(refusal.clone()).as_ref() != Some(&refusal);
        if may_free_a_kind {
            self.arm(0, Timer::Claims);
        }
        if is_of_the_cluster(step, &refusal) {
            self.arm(REFUSED_RETRY_MS, Timer::Refused(Arc::clone(name)));
        }
        if is_news {
            effects.push(Effect::Observe(Observation::Refused { plugin: Arc::clone(name), refusal }));
        }
    }

    /// Takes a candidate as far as it gets now.
    pub(super) fn advance(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(candidate) = &mut plugin.candidate else { return };
        if let Stage::Registering { manifest, missing } = &candidate.stage
            && missing.is_empty()
        {
            candidate.stage = Stage::Listing { manifest: Arc::clone(manifest) };
            self.settle_kinds(effects);
        }
        let candidate = self.plugins.get(name).and_then(|plugin| plugin.candidate.as_ref());
        let Some(Stage::Listing { manifest }) = candidate.map(|candidate| &candidate.stage) else { return };
        let manifest = Arc::clone(manifest);
        let kinds = manifest.controllers.iter().flat_map(|controller| controller.readable());
        if kinds.into_iter().all(|kind| self.is_readable(&kind)) {
            self.activate(name, &manifest, effects);
        }
    }

    fn activate(&mut self, name: &Arc<str>, manifest: &Arc<Manifest>, effects: &mut Vec<Effect>) {
        let plugin = self.plugins.get_mut(name).expect("advance has seen this plugin");
        let Some(candidate) = plugin.candidate.take() else { return };
        let (digest, config) = (candidate.digest, candidate.config);
        let reload = plugin.active.is_some();
        plugin.active =
            Some(Active { digest: digest.clone(), config: Arc::clone(&config), manifest: Arc::clone(manifest) });
        plugin.refused = None;
        plugin.told = None;
        plugin.faults.clear();
        plugin.denied.clear();
        let mine = |(_, controller): &(&ControllerId, &Controller)| controller.plugin == *name;
        let mut before: BTreeMap<Kind, ControllerId> =
            self.controllers.iter().filter(mine).map(|(id, c)| (c.spec.primary.clone(), *id)).collect();
        for spec in &manifest.controllers {
            let id = before.remove(&spec.primary).unwrap_or_else(|| {
                self.last_controller += 1;
                ControllerId(self.last_controller)
            });
            let calls = self.controllers.get(&id).map_or(0, |before| before.calls);
            let crd = manifest.custom_resources.iter().find(|crd| crd.kinds.contains(&spec.primary));
            let controller = Controller {
                plugin: Arc::clone(name),
                label: format!("{name}/{}", spec.primary.kind).into(),
                manager: format!("mortise/{name}"),
                digest: digest.clone(),
                config: Arc::clone(&config),
                spec: Arc::new(spec.clone()),
                access: Arc::new(Access::new(spec.readable(), manifest.limits.read_bytes)),
                limits: manifest.limits,
                // Without a CRD of the plugin's own nothing is known of the schema but that most kinds have a status.
                shape: crd.map_or(StatusShape { subresource: true, ..StatusShape::default() }, |crd| {
                    StatusShape::of(crd, &spec.primary)
                }),
                ready: true,
                calls,
            };
            self.controllers.insert(id, controller);
            self.enqueue_all(id, effects);
        }
        let is_kind_freed = !before.is_empty();
        for id in before.into_values() {
            self.remove_controller(id, effects);
        }
        effects.push(Effect::Observe(Observation::Activated { plugin: Arc::clone(name), digest, reload }));
        self.settle(effects);
        if is_kind_freed {
            self.arm(0, Timer::Claims);
        }
    }

    /// W1: a new version, or a new configuration, is a reason to look at every object again.
    fn enqueue_all(&mut self, controller: ControllerId, effects: &mut Vec<Effect>) {
        let Some(primary) = self.controllers.get(&controller).map(|controller| controller.spec.primary.clone()) else {
            return;
        };
        let snapshot = self.store.snapshot();
        let all = Selector::default();
        let names: Vec<Name> = snapshot.list(&primary, None, &all).map(|object| object.name.clone()).collect();
        for name in names {
            let key = Key { controller, name };
            self.keys.entry(key.clone()).or_default();
            self.wake(&key, Lane::Resync, effects);
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
    }
}
