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
        let are_free = self.kind_owners.exchange(name, &before.owned_kinds, &after.owned_kinds);
        if self.kind_owners.exchange_edges(name, &before.edges, &after.edges) | are_free {
            cx.notify_lifecycle(ToLifecycle::KindsReleased);
        }
    }
}
