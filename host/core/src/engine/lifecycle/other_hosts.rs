//! Kinds of plugins across the hosts of a cluster (L2). `status.claims` of a Plugin object lists what its plugin has for itself.
//! Of two hosts' plugins with the same claim the one whose Plugin object is older keeps it: both hosts compare the same two
//! objects, so one of them serves, and it is the same one after a restart. A plugin that does not have the claim yet never takes
//! it from one that has, however old its object is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::claims::Claim;
use super::plugin::{Plugin, RefusedBy};
use crate::engine::context::Context;
use crate::engine::message::ToLifecycle;
use crate::object::Object;
use crate::plugin_object;
use crate::refusal::Refusal;
use crate::store::Change;
use crate::well_known::HOST_NAMESPACE_LABEL;

/// When a Plugin object was created, to the second, and its name: the order of those that claim the same.
type Age = (String, Arc<str>);

/// What the plugins of other hosts have for themselves, as their Plugin objects show it.
#[derive(Debug, Default)]
pub(super) struct OtherHosts {
    by_claim: BTreeMap<Claim, BTreeSet<Age>>,
    by_plugin: BTreeMap<Arc<str>, Claims>,
}

/// The claims that one Plugin object shows.
#[derive(Clone, Debug)]
struct Claims {
    age: Age,
    host: Box<str>,
    claims: BTreeSet<Claim>,
}

impl Claims {
    fn of(object: &Object, host: &str) -> Self {
        let shown = plugin_object::shown(object);
        let claims = shown.claims.iter().map(|text| Claim::parse(text)).collect();
        Self { age: (shown.created, Arc::clone(&object.name.name)), host: host.into(), claims }
    }
}

impl OtherHosts {
    /// Replaces what is known of a Plugin object. Returns the claims that it had.
    fn replace(&mut self, name: &Arc<str>, after: Option<Claims>) -> BTreeSet<Claim> {
        let before = self.by_plugin.remove(name);
        for claim in before.iter().flat_map(|before| &before.claims) {
            if let Some(ages) = self.by_claim.get_mut(claim) {
                ages.retain(|(_, plugin)| plugin != name);
                if ages.is_empty() {
                    self.by_claim.remove(claim);
                }
            }
        }
        if let Some(after) = after {
            for claim in &after.claims {
                self.by_claim.entry(claim.clone()).or_default().insert(after.age.clone());
            }
            self.by_plugin.insert(Arc::clone(name), after);
        }
        before.map(|before| before.claims).unwrap_or_default()
    }
}

impl Lifecycle {
    /// A Plugin object has changed: plugins of this host that claim the same may have to give way, or may serve now.
    pub(super) fn on_claims_changed(&mut self, name: &Arc<str>, change: &Change, cx: &mut Context<'_>) {
        let claims = change.after.as_ref().and_then(|object| {
            let host = object.label(HOST_NAMESPACE_LABEL).filter(|host| *host != &*self.namespace)?;
            Some(Claims::of(object, host))
        });
        let after = claims.as_ref().map(|claims| claims.claims.clone()).unwrap_or_default();
        let before = self.other_hosts.replace(name, claims);
        if !before.is_subset(&after) {
            cx.notify_lifecycle(ToLifecycle::KindsReleased);
        }
        for claim in after {
            if let Some(owner) = self.kind_owners.owner(&claim).cloned() {
                self.give_up_claims(&owner, cx);
            }
        }
    }

    /// Withdraws a plugin, or refuses the version that comes up, when an older plugin of another host has one of its claims.
    fn give_up_claims(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get(name).filter(|_| !cx.draining) else { return };
        if self.owned_elsewhere(name, &serving_claims(plugin), cx).is_some() {
            return self.give_way(name, cx);
        }
        let all = plugin.requirements.claims.keys().cloned().collect();
        if let Some(refusal) = self.owned_elsewhere(name, &all, cx) {
            self.refuse(name, RefusedBy::KindOwner, refusal, cx);
        }
    }

    /// Why a plugin may not have these claims, if another host's plugin has one of them.
    pub(super) fn owned_elsewhere(
        &self,
        name: &Arc<str>,
        claims: &BTreeSet<Claim>,
        cx: &Context<'_>,
    ) -> Option<Refusal> {
        let mut contested =
            claims.iter().filter_map(|claim| Some((claim, self.other_hosts.by_claim.get(claim)?.first()?))).peekable();
        contested.peek()?;
        let target = plugin_object::of(name);
        let snapshot = cx.store.snapshot();
        let live = snapshot.get(&target.kind, &target.name).filter(|live| !self.is_of_another_host(live));
        let own = live.map(|live| Claims::of(live, &self.namespace));
        let serving = self.plugins.get(name).map(serving_claims).unwrap_or_default();
        let is_ours = |claim: &Claim, oldest: &Age| {
            let own = own.as_ref().filter(|own| own.claims.contains(claim) || serving.contains(claim));
            own.is_some_and(|own| own.age < *oldest)
        };
        let (Claim { primary, children }, (_, other)) = contested.find(|(claim, oldest)| !is_ours(claim, oldest))?;
        let host = &self.other_hosts.by_plugin.get(other)?.host;
        let plugin = format!("the plugin {other:?} of the host of namespace {host}");
        let conflict = match children {
            None => format!(
                "{primary} is reconciled by {plugin}; a kind has one plugin in a cluster. Remove one of the two"
            ),
            Some(children) => format!(
                "{plugin} owns {children} of {primary}; each would delete what the other wants. Remove one of the two, or \
                 let one of them own another kind"
            ),
        };
        let message = format!("{conflict}; if that host is gone for good, kubectl delete plugin {other}");
        Some(Refusal::new("KindClaimedElsewhere", message))
    }
}

/// What the version that serves has for itself.
fn serving_claims(plugin: &Plugin) -> BTreeSet<Claim> {
    let controllers = plugin.active.iter().flat_map(|active| &active.manifest.controllers);
    controllers.flat_map(Claim::all_of).collect()
}
