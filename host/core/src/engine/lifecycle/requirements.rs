//! What each plugin requires of shared things: informers, components, owned kinds (L2). Requirements are stored by
//! plugin, so that a change of one plugin costs nothing for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::kind_ownership::{Edge, KindOwnership};
use crate::digest::Digest;
use crate::engine::context::{Context, remove_member};
use crate::engine::message::ToLifecycle;
use crate::event::Effect;
use crate::object::Kind;
use crate::scope::Scope;
use crate::tenant;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Requirements {
    /// The kinds that it reads, and what of each.
    pub kinds: BTreeMap<Kind, Scope>,
    /// The components of its offered and serving versions.
    pub digests: BTreeSet<Digest>,
    /// What it owns.
    pub owned_kinds: BTreeSet<KindOwnership>,
    /// Which kinds it lets own which.
    pub edges: BTreeSet<Edge>,
    /// The kinds of its CRDs.
    pub defines: BTreeSet<Kind>,
}

impl Lifecycle {
    /// Updates informers, components and owned kinds to the current requirements of a plugin.
    pub(super) fn require(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let after = plugin.requires();
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
        for kind in before.kinds.keys().filter(|kind| !after.kinds.contains_key(kind)) {
            self.stop_informer(name, kind, cx);
        }
        for (kind, scope) in after.kinds.iter().filter(|(kind, scope)| before.kinds.get(kind) != Some(scope)) {
            self.start_informer(name, kind, scope.clone(), cx);
        }
        for digest in before.digests.difference(&after.digests) {
            if let Some(component) = self.components.get_mut(digest) {
                component.users.remove(name);
            }
            self.unload(digest, cx);
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
        let are_free = self.kind_owners.exchange(name, &before.owned_kinds, &after.owned_kinds);
        let has_labels = |(_, scope): &(&Kind, &Scope)| !scope.labels.is_everything();
        let ends = |(kind, scope): (&Kind, &Scope)| after.kinds.get(kind).is_none_or(|now| now.labels != scope.labels);
        let labels_end = tenant::of_plugin(name).is_none() && before.kinds.iter().filter(has_labels).any(ends);
        if self.kind_owners.exchange_edges(name, &before.edges, &after.edges) | are_free | labels_end {
            cx.notify_lifecycle(ToLifecycle::KindsReleased);
        }
    }

    /// Forgets a component that no source offers and no plugin requires.
    pub(super) fn unload(&mut self, digest: &Digest, cx: &mut Context<'_>) {
        if !self.is_required(digest) && !self.sources.offers(digest) {
            self.components.remove(digest);
            cx.effects.push(Effect::Unload(digest.clone()));
        }
    }

    pub(super) fn is_required(&self, digest: &Digest) -> bool {
        self.components.get(digest).is_some_and(|component| !component.users.is_empty())
            || self.plugins.values().any(|plugin| plugin.requirements.digests.contains(digest))
    }
}
