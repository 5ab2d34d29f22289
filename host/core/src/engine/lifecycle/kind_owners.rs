//! The owner of each kind (L2): the first plugin that needs it, until it is removed. After a restart of the host it is the
//! same one, whichever component is compiled first: a kind waits for the plugin whose Plugin object shows it.
//!
//! A kind whose status a plugin writes has one plugin. A built-in kind, whose status plugins do not write, may have
//! several, but its children of one kind have one, because each plugin would prune the other's. Predicates make no
//! difference: two that select different objects today may select the same one after a change of its labels.
//!
//! No kind may own itself, directly or through others: each object would cause another one, without end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::kind_ownership::{Edge, KindOwnership, Resource, edges};
use super::plugin::{Plugin, RefusedBy};
use crate::engine::context::{Context, remove_member};
use crate::engine::message::ToLifecycle;
use crate::manifest::Manifest;
use crate::refusal::Refusal;

#[derive(Debug, Default)]
pub(super) struct KindOwners {
    owners: BTreeMap<KindOwnership, Arc<str>>,
    /// The plugins that declare each edge.
    by_edge: BTreeMap<Edge, BTreeSet<Arc<str>>>,
}

impl KindOwners {
    pub fn owner(&self, owned: &KindOwnership) -> Option<&Arc<str>> {
        self.owners.get(owned)
    }

    /// Replaces the kinds that a plugin owns. Returns whether it released one.
    pub fn exchange(
        &mut self,
        name: &Arc<str>,
        before: &BTreeSet<KindOwnership>,
        after: &BTreeSet<KindOwnership>,
    ) -> bool {
        for released in before.difference(after) {
            self.owners.remove(released);
        }
        for owned in after {
            self.owners.insert(owned.clone(), Arc::clone(name));
        }
        !before.is_subset(after)
    }

    /// As [`Self::exchange`], of edges.
    pub fn exchange_edges(&mut self, name: &Arc<str>, before: &BTreeSet<Edge>, after: &BTreeSet<Edge>) -> bool {
        for edge in before.difference(after) {
            remove_member(&mut self.by_edge, edge, name);
        }
        for edge in after.difference(before) {
            self.by_edge.entry(edge.clone()).or_default().insert(Arc::clone(name));
        }
        before.difference(after).next().is_some()
    }

    /// A path on which a kind would own itself if these edges were added.
    fn cycle(&self, added: &BTreeSet<Edge>) -> Option<Vec<Resource>> {
        let children = |owner: &Resource| {
            let first = (owner.clone(), Resource { group: "".into(), kind: "".into() });
            let known = self.by_edge.range(first.clone()..).map(|(edge, _)| edge);
            let owned = known.take_while(|(of, _)| of == owner);
            let added = added.range(first..).take_while(|(of, _)| of == owner);
            owned.chain(added).map(|(_, child)| child.clone()).collect::<Vec<_>>()
        };
        added.iter().find_map(|(start, _)| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![vec![start.clone()]]);
            while let Some(path) = open.pop() {
                for child in children(path.last()?) {
                    let mut longer = path.clone();
                    longer.push(child.clone());
                    if child == *start {
                        return Some(longer);
                    }
                    if seen.insert(child) {
                        open.push(longer);
                    }
                }
            }
            None
        })
    }
}

impl Lifecycle {
    pub(super) fn cannot_own(&self, name: &Arc<str>, manifest: &Manifest, cx: &Context<'_>) -> Option<Refusal> {
        let wanted: BTreeSet<KindOwnership> = manifest.controllers.iter().flat_map(KindOwnership::all_of).collect();
        let owned = self.owned_by_another(name, &wanted).or_else(|| self.owned_before(name, &wanted));
        owned.or_else(|| self.owned_elsewhere(name, &wanted, cx)).or_else(|| {
            let path = self.kind_owners.cycle(&manifest.controllers.iter().flat_map(edges).collect())?;
            let path = path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" owns ");
            let message = format!(
                "{path}: a kind that owns itself, directly or through other plugins, would have objects created without end. \
                 Let one of them own another kind, or remove one of the plugins"
            );
            Some(Refusal::new("OwnershipCycle", message))
        })
    }

    fn owned_by_another(&self, name: &Arc<str>, wanted: &BTreeSet<KindOwnership>) -> Option<Refusal> {
        let mut held = wanted.iter().filter_map(|wanted| Some((wanted, self.kind_owners.owner(wanted)?)));
        let (owned, other) = held.find(|(_, other)| *other != name)?;
        Some(Refusal::new("KindOwned", owned.conflict(&format!("the plugin {other:?}"))))
    }

    /// As [`Self::owned_by_another`], of a plugin that owned it before a restart and is not up again.
    fn owned_before(&self, name: &Arc<str>, wanted: &BTreeSet<KindOwnership>) -> Option<Refusal> {
        let older = |kind| self.this_host.plugins(kind).take_while(|other| *other != name);
        let owner = |kind| older(kind).find(|other| self.is_coming_up(other));
        let (owned, other) = wanted.iter().find_map(|kind| Some((kind, owner(kind)?)))?;
        Some(Refusal::new("KindOwned", owned.conflict(&format!("the plugin {other:?}"))))
    }

    /// Whether the kinds of a plugin's first version are not known yet.
    pub(super) fn is_coming_up(&self, name: &str) -> bool {
        self.plugins.get(name).map_or(!self.sources_listed, Plugin::is_compiling)
    }

    /// Retries the plugins that wait for a kind which this one owned before a restart, if its version does not need it.
    pub(super) fn release_shown_kinds(&self, name: &str, cx: &mut Context<'_>) {
        let needed = self.plugins.get(name).map(|plugin| &plugin.requirements.owned_kinds);
        let is_needed = |kind| needed.is_some_and(|needed| needed.contains(kind));
        if self.this_host.of(name).is_some_and(|shown| !shown.iter().all(is_needed)) {
            cx.notify_lifecycle(ToLifecycle::KindsReleased);
        }
    }

    /// Plugins that were refused because of a kind's owner, and would not be now.
    pub(super) fn may_own_now(&self, cx: &Context<'_>) -> Vec<Arc<str>> {
        let waits = |name: &Arc<str>| {
            let plugin = self.plugins.get(name)?;
            plugin.refused.as_ref().filter(|refused| refused.by == RefusedBy::KindOwner)?;
            let manifest = &self.accepted(&plugin.offer.as_ref()?.digest)?.manifest;
            self.cannot_own(name, manifest, cx).is_none().then_some(())
        };
        self.plugins.keys().filter(|name| waits(name).is_some()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_kinds_are_read_as_they_are_shown() {
        for text in ["PodSet.app.example.com", "Node", "Deployment.apps/ConfigMap", "Node/Lease.coordination.k8s.io"] {
            assert_eq!(KindOwnership::parse(text).to_string(), text);
        }
    }
}
