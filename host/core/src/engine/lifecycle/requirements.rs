//! What each plugin requires of shared things: informers, components, owned kinds (L2). Requirements are stored by
//! plugin, so that a change of one plugin costs nothing for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::informers::Informer;
use super::kind_owners::{Claim, Edge, edges};
use super::plugin::{Plugin, Stage};
use crate::digest::Digest;
use crate::engine::context::{Context, remove_member};
use crate::engine::message::{Message, ToLifecycle};
use crate::event::Effect;
use crate::object::Kind;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Requirements {
    /// The kinds that it reads.
    kinds: BTreeSet<Kind>,
    /// The components of its offered and serving versions.
    digests: BTreeSet<Digest>,
    /// Its claims, with the primary kind in the version that the manifest names first.
    pub claims: BTreeMap<Claim, Kind>,
    /// Which kinds it lets own which.
    edges: BTreeSet<Edge>,
    /// The kinds of its CRDs.
    defines: BTreeSet<Kind>,
}

impl Requirements {
    fn of(plugin: &Plugin) -> Self {
        let serving = plugin.active.as_ref().map(|active| &active.manifest);
        let coming = plugin.candidate.as_ref().and_then(|candidate| Stage::manifest(&candidate.stage));
        let (mut claims, mut all_edges) = (BTreeMap::new(), BTreeSet::new());
        for controller in serving.into_iter().chain(coming).flat_map(|manifest| &manifest.controllers) {
            for claim in Claim::all_of(controller) {
                claims.entry(claim).or_insert_with(|| controller.primary.clone());
            }
            all_edges.extend(edges(controller));
        }
        let registered = plugin.registered().into_iter().flat_map(|(manifest, _)| &manifest.custom_resources);
        let offered = plugin.offer.iter().map(|offer| &offer.digest);
        let serving = plugin.active.iter().map(|active| &active.version.digest);
        Self {
            kinds: plugin.kinds().collect(),
            digests: offered.chain(serving).cloned().collect(),
            claims,
            edges: all_edges,
            defines: registered.flat_map(|crd| crd.kinds.iter().cloned()).collect(),
        }
    }
}

impl Lifecycle {
    /// Updates informers, components and claims to the current requirements of a plugin.
    pub(super) fn require(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let after = Requirements::of(plugin);
        if plugin.requirements != after {
            let before = std::mem::replace(&mut plugin.requirements, after.clone());
            self.exchange(name, &before, &after, cx);
        }
    }

    pub(super) fn exchange(
        &mut self,
        name: &Arc<str>,
        before: &Requirements,
        after: &Requirements,
        cx: &mut Context<'_>,
    ) {
        for kind in before.kinds.difference(&after.kinds) {
            self.stop_informer(name, kind, cx);
        }
        for kind in after.kinds.difference(&before.kinds) {
            self.start_informer(name, kind, cx);
        }
        for digest in before.digests.difference(&after.digests) {
            let Some(component) = self.components.get_mut(digest) else { continue };
            component.users.remove(name);
            if component.users.is_empty() {
                self.components.remove(digest);
                cx.effects.push(Effect::Unload(digest.clone()));
            }
        }
        for digest in after.digests.difference(&before.digests) {
            if let Some(component) = self.components.get_mut(digest) {
                component.users.insert(Arc::clone(name));
            }
        }
        for kind in before.defines.difference(&after.defines) {
            remove_member(&mut self.definitions, kind, name);
        }
        for kind in after.defines.difference(&before.defines) {
            self.definitions.entry(kind.clone()).or_default().insert(Arc::clone(name));
        }
        let are_free = self.kind_owners.exchange(name, &before.claims, &after.claims);
        if self.kind_owners.exchange_edges(name, &before.edges, &after.edges) | are_free {
            cx.notify_lifecycle(ToLifecycle::KindsReleased);
        }
    }

    pub(super) fn start_informer(&mut self, reader: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) {
        let informer = self.informers.entry(kind.clone()).or_insert_with(|| {
            cx.effects.push(Effect::StartWatch(kind.clone()));
            self.audits.begin(cx.now.mono_ms, kind);
            Informer::default()
        });
        informer.readers.insert(Arc::clone(reader));
    }

    fn stop_informer(&mut self, reader: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) {
        let Some(informer) = self.informers.get_mut(kind) else { return };
        informer.readers.remove(reader);
        if informer.readers.is_empty() {
            self.informers.remove(kind);
            self.audits.end(kind);
            cx.messages.push_back(Message::Forget(kind.clone()));
            cx.effects.push(Effect::StopWatch(kind.clone()));
        }
    }
}
