//! What each plugin needs of what all of them share: watches, components, and kinds that are its alone (L2).
//!
//! It is written down per plugin, and beside what is needed who needs it, so that a plugin that changes costs what it needs
//! and not what all others do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plugins::{PluginState, Stage};
use super::{Driver, KindState, Timer};
use crate::digest::Digest;
use crate::event::Effect;
use crate::manifest::{ControllerSpec, Manifest};
use crate::object::Kind;
use crate::refusal::Refusal;

/// A group and a kind: what the versions of one resource have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Resource {
    group: Box<str>,
    kind: Arc<str>,
}

impl Resource {
    fn of(kind: &Kind) -> Self {
        Self { group: kind.group().into(), kind: Arc::clone(&kind.kind) }
    }
}

/// What a plugin has for itself alone (L2). Of a kind that it writes the status of, that is the kind. A kind of Kubernetes
/// itself may have any number of plugins, which leave its status alone; but its children of one kind have one plugin,
/// because what one wants another would prune. Which objects a controller selects makes no difference: two selections that
/// never meet today may meet at the next label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Claim {
    primary: Resource,
    /// None: the kind as a whole.
    children: Option<Resource>,
}

impl Claim {
    fn all_of(controller: &ControllerSpec) -> Vec<Self> {
        let primary = Resource::of(&controller.primary);
        if !controller.builtin {
            return vec![Self { primary, children: None }];
        }
        let children = controller.owns.iter().map(|owned| Some(Resource::of(&owned.kind)));
        children.map(|children| Self { primary: primary.clone(), children }).collect()
    }
}

/// What one plugin needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Needs {
    /// Kinds that it reads.
    kinds: BTreeSet<Kind>,
    /// Components that it is offered as or serves.
    digests: BTreeSet<Digest>,
    /// What is its alone, with the reconciled kind in the version that it named first.
    claims: BTreeMap<Claim, Kind>,
}

impl Needs {
    fn of(plugin: &PluginState) -> Self {
        let serving = plugin.active.as_ref().map(|active| &active.manifest);
        let coming = plugin.candidate.as_ref().map(|candidate| &candidate.stage);
        let listing = coming.and_then(|stage| match stage {
            Stage::Listing { manifest } => Some(manifest),
            _ => None,
        });
        let mut claims = BTreeMap::new();
        for controller in
            serving.into_iter().chain(coming.and_then(Stage::manifest)).flat_map(|manifest| &manifest.controllers)
        {
            for claim in Claim::all_of(controller) {
                claims.entry(claim).or_insert_with(|| controller.primary.clone());
            }
        }
        let read = serving.into_iter().chain(listing).flat_map(|manifest| &manifest.controllers);
        let offered = plugin.offer.iter().map(|offer| &offer.digest);
        Self {
            kinds: read.flat_map(|controller| controller.readable()).collect(),
            digests: offered.chain(plugin.active.iter().map(|active| &active.digest)).cloned().collect(),
            claims,
        }
    }
}

/// Which plugin has what for itself, and who waits for something that another has.
#[derive(Debug, Default)]
pub(super) struct Claims {
    holders: BTreeMap<Claim, (Arc<str>, Kind)>,
    /// Plugins that were refused because another has something of theirs.
    waiting: BTreeSet<Arc<str>>,
}

impl Driver {
    /// Brings watches, components and claims in line with what a plugin is now, and its controllers with what is listed.
    /// Has to follow every change of what the plugin is offered as, of what is on its way and of what serves.
    pub(super) fn settle(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let needs = Needs::of(plugin);
        let before = std::mem::replace(&mut plugin.needs, needs.clone());
        if plugin.refused.as_ref().is_some_and(|(_, refusal)| refusal.reason == KIND_CLAIMED) {
            self.claims.waiting.insert(Arc::clone(name));
        } else {
            self.claims.waiting.remove(name);
        }
        if before != needs {
            self.exchange(name, &before, &needs, effects);
        }
        self.settle_readiness(name);
    }

    /// A plugin that is gone needs nothing any more.
    pub(super) fn release(&mut self, name: &Arc<str>, needs: &Needs, effects: &mut Vec<Effect>) {
        self.claims.waiting.remove(name);
        self.exchange(name, needs, &Needs::default(), effects);
    }

    fn exchange(&mut self, name: &Arc<str>, before: &Needs, after: &Needs, effects: &mut Vec<Effect>) {
        for kind in before.kinds.difference(&after.kinds) {
            self.end_watch(name, kind, effects);
        }
        for kind in after.kinds.difference(&before.kinds) {
            self.begin_watch(name, kind, effects);
        }
        for digest in before.digests.difference(&after.digests) {
            let Some(component) = self.components.get_mut(digest) else { continue };
            component.users.remove(name);
            if component.users.is_empty() {
                self.components.remove(digest);
                effects.push(Effect::Unload(digest.clone()));
            }
        }
        for digest in after.digests.difference(&before.digests) {
            if let Some(component) = self.components.get_mut(digest) {
                component.users.insert(Arc::clone(name));
            }
        }
        for claim in before.claims.keys().filter(|claim| !after.claims.contains_key(*claim)) {
            self.claims.holders.remove(claim);
            if !self.claims.waiting.is_empty() {
                self.arm(0, Timer::Claims);
            }
        }
        for (claim, kind) in &after.claims {
            self.claims.holders.insert(claim.clone(), (Arc::clone(name), kind.clone()));
        }
    }

    /// Watches a kind for a plugin, or for the host itself.
    pub(super) fn begin_watch(&mut self, reader: &Arc<str>, kind: &Kind, effects: &mut Vec<Effect>) {
        let state = self.kinds.entry(kind.clone()).or_insert_with(|| {
            effects.push(Effect::StartWatch(kind.clone()));
            KindState::default()
        });
        state.readers.insert(Arc::clone(reader));
    }

    fn end_watch(&mut self, reader: &Arc<str>, kind: &Kind, effects: &mut Vec<Effect>) {
        let Some(state) = self.kinds.get_mut(kind) else { return };
        state.readers.remove(reader);
        if state.readers.is_empty() {
            self.kinds.remove(kind);
            self.listed.remove(kind);
            self.store.forget(kind);
            effects.push(Effect::StopWatch(kind.clone()));
        }
    }

    /// L2: what a plugin claims is not another's; the first that claimed it has it.
    pub(super) fn claimed_by_another(&self, name: &Arc<str>, manifest: &Manifest) -> Option<Refusal> {
        let claims = manifest.controllers.iter().flat_map(Claim::all_of);
        let mut held = claims.filter_map(|claim| Some((self.claims.holders.get(&claim)?, claim)));
        let ((other, theirs), claim) = held.find(|((other, _), _)| other != name)?;
        let message = match claim.children {
            None => format!(
                "{theirs} is reconciled by the plugin {other:?} already; a kind has one plugin. Remove one of the two"
            ),
            Some(children) => format!(
                "the plugin {other:?} owns {} of {theirs} already; each would delete what the other wants. Remove one of \
                 the two, or let one of them own another kind",
                children.kind
            ),
        };
        Some(Refusal::new(KIND_CLAIMED, message))
    }

    /// Plugins that wait for what is free now.
    pub(super) fn may_claim_now(&self) -> Vec<Arc<str>> {
        let is_free = |name: &&Arc<str>| {
            let offer = self.plugins.get(*name).and_then(|plugin| plugin.offer.as_ref());
            let manifest = offer.and_then(|offer| self.accepted(&offer.digest)).map(|accepted| &accepted.manifest);
            manifest.is_some_and(|manifest| self.claimed_by_another(name, manifest).is_none())
        };
        self.claims.waiting.iter().filter(is_free).cloned().collect()
    }
}

/// The reason of a refusal that passes when the other plugin goes.
pub(super) const KIND_CLAIMED: &str = "KindClaimed";
