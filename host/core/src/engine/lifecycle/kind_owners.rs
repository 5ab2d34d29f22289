//! The owner of each kind (L2): the first plugin that needs it, until it is removed. After a restart of the host it is the
//! same one, whichever component is compiled first: a kind waits for the plugin whose Plugin object shows it.
//!
//! A kind whose status a plugin writes has one plugin. A built-in kind, whose status plugins do not write, may have
//! several, but its children of one kind have one, because each plugin would prune the other's. Predicates make no
//! difference: two that select different objects today may select the same one after a change of its labels.
//!
//! A tenant's plugin has a kind for its namespace, and a plugin of the host's namespace for all: it takes the kind from tenants,
//! who could keep it from everybody otherwise.
//!
//! No kind may own itself, directly or through others: each object would cause another one, without end.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::kind_ownership::{Edge, KindOwnership, Resource, edges};
use super::plugin::{Plugin, RefusedBy};
use super::tenants::manifest_of;
use crate::engine::context::{Context, remove_member};
use crate::engine::message::ToLifecycle;
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::tenant;

#[derive(Debug, Default)]
pub(super) struct KindOwners {
    owners: BTreeMap<KindOwnership, Arc<str>>,
    /// The plugins that declare each edge.
    by_edge: BTreeMap<Edge, BTreeSet<Arc<str>>>,
}

impl KindOwners {
    /// The plugins that have what this excludes.
    pub fn excluded_by(&self, owned: &KindOwnership) -> impl Iterator<Item = &Arc<str>> {
        owned.excluded().filter_map(|excluded| self.owners.get(&excluded))
    }

    /// The plugins that have what excludes this: of the whole, also tenants'.
    pub fn excluding(&self, owned: &KindOwnership) -> Vec<Arc<str>> {
        let same = |other: &KindOwnership| (&other.primary, &other.children) == (&owned.primary, &owned.children);
        let all =
            self.owners.range(KindOwnership { tenant: None, ..owned.clone() }..).take_while(|(other, _)| same(other));
        let excludes = |other: &KindOwnership| owned.tenant.is_none() || other.tenant == owned.tenant;
        all.filter(|(other, _)| excludes(other)).map(|(_, plugin)| Arc::clone(plugin)).collect()
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

    /// A path on which a kind would own itself if these edges were added. Those of a tenant concern its namespace alone.
    fn cycle(&self, added: &BTreeSet<Edge>, tenant: Option<&str>) -> Option<Vec<Resource>> {
        let children = |owner: &Resource| {
            let first = (owner.clone(), Resource { group: "".into(), kind: "".into() }, None);
            let known = self.by_edge.range(first.clone()..).map(|(edge, _)| edge);
            let owned = known.take_while(|(of, ..)| of == owner);
            let owned = owned.filter(|(.., of)| of.is_none() || of.as_deref() == tenant);
            let added = added.range(first..).take_while(|(of, ..)| of == owner);
            owned.chain(added).map(|(_, child, _)| child.clone()).collect::<Vec<_>>()
        };
        let starts: BTreeSet<&Resource> = added.iter().map(|(start, ..)| start).collect();
        starts.into_iter().find_map(|start| {
            // The owner by which each kind was found.
            let (mut found, mut open) = (BTreeMap::new(), vec![start.clone()]);
            while let Some(owner) = open.pop() {
                for child in children(&owner) {
                    if child == *start {
                        return Some(path(&found, start, owner));
                    }
                    if let Entry::Vacant(new) = found.entry(child) {
                        open.push(new.key().clone());
                        new.insert(owner.clone());
                    }
                }
            }
            None
        })
    }
}

/// From a kind to an owner of it.
fn path(found: &BTreeMap<Resource, Resource>, start: &Resource, owner: Resource) -> Vec<Resource> {
    let mut path = vec![start.clone()];
    let mut next = Some(owner);
    while let Some(kind) = next.filter(|kind| kind != start) {
        next = found.get(&kind).cloned();
        path.push(kind);
    }
    path.push(start.clone());
    path.reverse();
    path
}

impl Lifecycle {
    pub(super) fn cannot_own(&self, name: &Arc<str>, manifest: &Manifest, cx: &Context<'_>) -> Option<Refusal> {
        let wanted: BTreeSet<KindOwnership> = manifest.controllers.iter().flat_map(KindOwnership::all_of).collect();
        let owned = self.owned_by_another(name, &wanted).or_else(|| self.owned_before(name, &wanted));
        owned.or_else(|| self.owned_elsewhere(name, &wanted, cx)).or_else(|| {
            let added = manifest.controllers.iter().flat_map(edges).collect();
            let path = self.kind_owners.cycle(&added, tenant::of_plugin(name))?;
            let path = path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" owns ");
            let message = format!(
                "{path}: a kind that owns itself, directly or through other plugins, would have objects created without end. \
                 Let one of them own another kind, or remove one of the plugins"
            );
            Some(Refusal::new("OwnershipCycle", message))
        })
    }

    fn owned_by_another(&self, name: &Arc<str>, wanted: &BTreeSet<KindOwnership>) -> Option<Refusal> {
        let other = |wanted| self.kind_owners.excluded_by(wanted).find(|other| *other != name);
        let (owned, other) = wanted.iter().find_map(|wanted| Some((wanted, other(wanted)?)))?;
        Some(Refusal::new("KindOwned", owned.conflict(name, other, None)))
    }

    /// As [`Self::owned_by_another`], of a plugin that owned it before a restart and is not up again.
    fn owned_before(&self, name: &Arc<str>, wanted: &BTreeSet<KindOwnership>) -> Option<Refusal> {
        let older = |kind: &KindOwnership| {
            let of_kind =
                |kind| self.this_host.plugins(&kind).take_while(|other| *other != name).cloned().collect::<Vec<_>>();
            kind.excluded().flat_map(of_kind).collect::<Vec<_>>()
        };
        let owner = |kind| older(kind).into_iter().find(|other| self.is_coming_up(other));
        let (owned, other) = wanted.iter().find_map(|kind| Some((kind, owner(kind)?)))?;
        Some(Refusal::new("KindOwned", owned.conflict(name, &other, None)))
    }

    /// Whether the kinds of a plugin's first version are not known yet.
    pub(super) fn is_coming_up(&self, name: &str) -> bool {
        self.plugins.get(name).map_or(!self.has_listed(name), Plugin::is_compiling)
    }

    /// Retries the plugins that wait for a kind which this one owned before a restart, if its version does not need it.
    pub(super) fn release_shown_kinds(&self, name: &str, cx: &mut Context<'_>) {
        let needed = self.plugins.get(name).map(|plugin| &plugin.requirements.owned_kinds);
        let is_needed = |kind| needed.is_some_and(|needed| needed.contains(kind));
        if self.this_host.of(name).is_some_and(|shown| !shown.iter().all(is_needed)) {
            cx.notify_lifecycle(ToLifecycle::KindsReleased);
        }
    }

    /// A plugin of the host's namespace has its kinds: versions of tenants that may not have theirs beside it end.
    pub(super) fn take_from_tenants(&mut self, name: &str, cx: &mut Context<'_>) {
        if tenant::of_plugin(name).is_some() || cx.draining {
            return;
        }
        let lacks = |other: &Arc<str>, manifest: &Manifest| {
            self.cannot_own(other, manifest, cx).or_else(|| self.cannot_watch(other, manifest))
        };
        let of_tenants = self.plugins.iter().filter(|(other, _)| tenant::of_plugin(other).is_some());
        let lacking = of_tenants.filter_map(|(other, plugin)| {
            let serving = plugin.active.as_ref().and_then(|active| lacks(other, &active.manifest));
            let coming = plugin.candidate.as_ref().and_then(|coming| lacks(other, coming.stage.manifest()?));
            (serving.is_some() || coming.is_some()).then(|| (Arc::clone(other), serving.is_some(), coming))
        });
        for (other, ends, coming) in lacking.collect::<Vec<_>>() {
            if let Some(refusal) = coming {
                self.refuse(&other, RefusedBy::KindOwner, refusal, cx);
            }
            if ends {
                self.stop(&other, cx);
                // It is refused with the reason.
                self.load(&other, cx);
            }
        }
    }

    /// Labels narrow all watches of a kind, so a tenant that reads all of its namespace would widen those of a plugin of the host's
    /// namespace.
    pub(super) fn cannot_watch(&self, name: &str, manifest: &Manifest) -> Option<Refusal> {
        let tenant = tenant::of_plugin(name)?;
        let narrows =
            |(reader, scope): (&Arc<str>, &Scope)| tenant::of_plugin(reader).is_none() && !scope.labels.is_everything();
        let is_narrowed = |kind: &Kind| self.informers.get(kind).is_some_and(|it| it.readers.iter().any(narrows));
        let (kind, _) = manifest.scopes().find(|(kind, _)| is_narrowed(kind))?;
        let message = format!(
            "the host watches {kind} by labels, and the plugins of the tenant {tenant} would have it watch all of the namespace"
        );
        Some(Refusal::new("WatchedByLabels", message))
    }

    /// Plugins that were refused because of a kind's owner, and would not be now.
    pub(super) fn may_own_now(&self, cx: &Context<'_>) -> Vec<Arc<str>> {
        let waits = |name: &Arc<str>| {
            let plugin = self.plugins.get(name)?;
            plugin.refused.as_ref().filter(|refused| refused.by == RefusedBy::KindOwner)?;
            let manifest = &self.accepted(&plugin.offer.as_ref()?.digest)?.manifest;
            let manifest = manifest_of(name, manifest).ok()?;
            let refusal = self.cannot_own(name, &manifest, cx).or_else(|| self.cannot_watch(name, &manifest));
            refusal.is_none().then_some(())
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
            assert_eq!(KindOwnership::parse(text, "podset").to_string(), text);
            assert_eq!(KindOwnership::parse(text, "team-a.podset").tenant.as_deref(), Some("team-a"));
        }
    }
}
