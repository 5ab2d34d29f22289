//! Kinds of plugins across the hosts of a cluster (L2). `status.ownedKinds` of a Plugin object lists the kinds that it owns
//! exclusively. Of two hosts' plugins that own the same, the one whose Plugin object is older keeps it: both hosts compare the
//! same two objects, so one of them serves, and it is the same one after a restart. A plugin that does not own a kind yet never
//! takes it from one that does, however old its object is.
//!
//! This host's own objects are read here too; `kind_owners.rs` decides what they mean after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::kind_ownership::KindOwnership;
use super::plugin::{Plugin, RefusedBy};
use crate::engine::context::Context;
use crate::engine::message::ToLifecycle;
use crate::object::Object;
use crate::plugin_object;
use crate::refusal::Refusal;
use crate::store::Change;

/// When a Plugin object was created, to the second, and its name: the order of those that own the same.
type Age = (String, Arc<str>);

/// What plugins own, as their Plugin objects show it.
#[derive(Debug, Default)]
pub(super) struct ShownKinds {
    by_kind: BTreeMap<KindOwnership, BTreeSet<Age>>,
    by_plugin: BTreeMap<Arc<str>, OwnedKinds>,
}

/// The owned kinds that one Plugin object shows.
#[derive(Clone, Debug)]
struct OwnedKinds {
    age: Age,
    host: Box<str>,
    kinds: BTreeSet<KindOwnership>,
}

impl OwnedKinds {
    fn of(object: &Object, host: &str) -> Self {
        let shown = plugin_object::shown(object);
        let kinds = shown.owned_kinds.iter().map(|text| KindOwnership::parse(text, &object.name.name)).collect();
        Self { age: (shown.created, Arc::clone(&object.name.name)), host: host.into(), kinds }
    }
}

impl ShownKinds {
    /// Replaces what is known of a Plugin object. Returns the kinds that it owned.
    fn replace(&mut self, name: &Arc<str>, after: Option<OwnedKinds>) -> BTreeSet<KindOwnership> {
        let before = self.by_plugin.remove(name);
        for kind in before.iter().flat_map(|before| &before.kinds) {
            if let Some(ages) = self.by_kind.get_mut(kind) {
                ages.retain(|(_, plugin)| plugin != name);
                if ages.is_empty() {
                    self.by_kind.remove(kind);
                }
            }
        }
        if let Some(after) = after {
            for kind in &after.kinds {
                self.by_kind.entry(kind.clone()).or_default().insert(after.age.clone());
            }
            self.by_plugin.insert(Arc::clone(name), after);
        }
        before.map(|before| before.kinds).unwrap_or_default()
    }

    /// What the Plugin object of this name shows.
    pub fn of(&self, name: &str) -> Option<&BTreeSet<KindOwnership>> {
        self.by_plugin.get(name).map(|shown| &shown.kinds)
    }

    /// The plugins whose objects show this, the oldest one first.
    pub fn plugins(&self, kind: &KindOwnership) -> impl Iterator<Item = &Arc<str>> {
        self.by_kind.get(kind).into_iter().flatten().map(|(_, plugin)| plugin)
    }
}

impl Lifecycle {
    /// A Plugin object has changed: plugins of this host that own the same may have to give way, or may serve now.
    pub(super) fn on_owned_kinds_changed(&mut self, name: &Arc<str>, change: &Change, cx: &mut Context<'_>) {
        let host_of = |object: &Object| match self.claims.holds(object) {
            true => Some(Arc::clone(&self.namespace)),
            false => Some(plugin_object::claim(object)?.host),
        };
        let of_host = |object: &Arc<Object>| Some(OwnedKinds::of(object, &host_of(object)?));
        let shown = change.after.as_ref().and_then(of_host);
        let kinds = |shown: &Option<OwnedKinds>| shown.as_ref().map(|it| it.kinds.clone()).unwrap_or_default();
        let (own, others) = if shown.as_ref().is_some_and(|shown| *shown.host == *self.namespace) {
            (shown, None)
        } else {
            (None, shown)
        };
        let (own_after, after) = (kinds(&own), kinds(&others));
        let own_before = self.this_host.replace(name, own);
        let before = self.other_hosts.replace(name, others);
        if !before.is_subset(&after) || (!own_before.is_subset(&own_after) && self.is_coming_up(name)) {
            cx.notify_lifecycle(ToLifecycle::KindsReleased);
        }
        for kind in after {
            for owner in self.kind_owners.excluding(&kind) {
                self.give_up_kinds(&owner, cx);
            }
        }
    }

    /// Withdraws a plugin, or refuses the version that comes up, when an older plugin of another host owns one of its kinds.
    fn give_up_kinds(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get(name).filter(|_| !cx.draining) else { return };
        if self.owned_elsewhere(name, &kinds_of_serving(plugin), cx).is_some() {
            return self.give_way(name, cx);
        }
        if let Some(refusal) = self.owned_elsewhere(name, &plugin.requirements.owned_kinds, cx) {
            self.refuse(name, RefusedBy::KindOwner, refusal, cx);
        }
    }

    /// Why a plugin may not own these, if another host's plugin owns one of them.
    pub(super) fn owned_elsewhere(
        &self,
        name: &Arc<str>,
        wanted: &BTreeSet<KindOwnership>,
        cx: &Context<'_>,
    ) -> Option<Refusal> {
        let oldest = |kind: KindOwnership| Some((self.other_hosts.by_kind.get(&kind)?.first()?, kind));
        let contested = wanted.iter().flat_map(KindOwnership::excluded).filter_map(oldest);
        let mut contested = contested.map(|(oldest, kind)| (kind, oldest)).peekable();
        contested.peek()?;
        let target = plugin_object::of(name);
        let snapshot = cx.store.snapshot();
        let live = snapshot.get(&target.kind, &target.name).filter(|live| !self.is_of_another_host(live));
        let own = live.map(|live| OwnedKinds::of(live, &self.namespace));
        let serving = self.plugins.get(name).map(kinds_of_serving).unwrap_or_default();
        let is_ours = |kind: &KindOwnership, oldest: &Age| {
            let own = own.as_ref().filter(|own| own.kinds.contains(kind) || serving.contains(kind));
            own.is_some_and(|own| own.age < *oldest)
        };
        let (owned, (_, other)) = contested.find(|(owned, oldest)| !is_ours(owned, oldest))?;
        let host = &self.other_hosts.by_plugin.get(other)?.host;
        let conflict = owned.conflict(name, other, Some(host));
        let message = format!("{conflict}; if that host is gone for good, kubectl delete plugin {other}");
        Some(Refusal::new("KindOwnedElsewhere", message))
    }
}

/// What the version that serves owns.
fn kinds_of_serving(plugin: &Plugin) -> BTreeSet<KindOwnership> {
    let controllers = plugin.active.iter().flat_map(|active| &active.manifest.controllers);
    controllers.flat_map(KindOwnership::all_of).collect()
}
