//! The owner of each kind (L2): the first plugin that claims it, until it is removed.
//!
//! A kind whose status a plugin writes has one plugin. A built-in kind, whose status plugins do not write, may have
//! several, but its children of one kind have one, because each plugin would prune the other's. Predicates make no
//! difference: two that select different objects today may select the same one after a change of its labels.
//!
//! No kind may own itself, directly or through others: each object would cause another one, without end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::claims::{Claim, Edge, Resource, edges};
use super::plugin::RefusedBy;
use crate::engine::context::{Context, remove_member};
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::refusal::Refusal;

#[derive(Debug, Default)]
pub(super) struct KindOwners {
    by_claim: BTreeMap<Claim, (Arc<str>, Kind)>,
    /// The plugins that declare each edge.
    by_edge: BTreeMap<Edge, BTreeSet<Arc<str>>>,
}

impl KindOwners {
    /// The plugin that has a claim.
    pub fn owner(&self, claim: &Claim) -> Option<&Arc<str>> {
        self.by_claim.get(claim).map(|(plugin, _)| plugin)
    }

    /// Replaces the claims of a plugin. Returns whether it released one.
    pub fn exchange(&mut self, name: &Arc<str>, before: &BTreeMap<Claim, Kind>, after: &BTreeMap<Claim, Kind>) -> bool {
        let released: Vec<&Claim> = before.keys().filter(|claim| !after.contains_key(*claim)).collect();
        for claim in &released {
            self.by_claim.remove(*claim);
        }
        for (claim, kind) in after {
            self.by_claim.insert(claim.clone(), (Arc::clone(name), kind.clone()));
        }
        !released.is_empty()
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
        let claims: BTreeSet<Claim> = manifest.controllers.iter().flat_map(Claim::all_of).collect();
        self.owned_by_another(name, &claims).or_else(|| self.owned_elsewhere(name, &claims, cx)).or_else(|| {
            let path = self.kind_owners.cycle(&manifest.controllers.iter().flat_map(edges).collect())?;
            let path = path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" owns ");
            let message = format!(
                "{path}: a kind that owns itself, directly or through other plugins, would have objects created without end. \
                 Let one of them own another kind, or remove one of the plugins"
            );
            Some(Refusal::new("OwnershipCycle", message))
        })
    }

    fn owned_by_another(&self, name: &Arc<str>, claims: &BTreeSet<Claim>) -> Option<Refusal> {
        let mut held = claims.iter().filter_map(|claim| Some((self.kind_owners.by_claim.get(claim)?, claim)));
        let ((other, theirs), claim) = held.find(|((other, _), _)| other != name)?;
        let message = match &claim.children {
            None => format!(
                "{theirs} is reconciled by the plugin {other:?} already; a kind has one plugin. Remove one of the two"
            ),
            Some(children) => format!(
                "the plugin {other:?} owns {} of {theirs} already; each would delete what the other wants. Remove one of \
                 the two, or let one of them own another kind",
                children.kind
            ),
        };
        Some(Refusal::new("KindClaimed", message))
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
    fn claims_are_read_as_they_are_shown() {
        for text in ["PodSet.app.example.com", "Node", "Deployment.apps/ConfigMap", "Node/Lease.coordination.k8s.io"] {
            assert_eq!(Claim::parse(text).to_string(), text);
        }
    }
}
