//! Plugin names across the hosts of a cluster. A Plugin object belongs to the host whose namespace its label names, or its
//! status where a person made it (`claims.rs`), and no other host writes it. A plugin whose name belongs to another
//! host is refused: both would write the same objects.

use std::sync::Arc;

use super::Lifecycle;
use super::informer::Watch;
use super::plugin::{Plugin, RefusedBy};
use crate::engine::context::Context;
use crate::object::Object;
use crate::plugin_object;
use crate::refusal::Refusal;

impl Lifecycle {
    /// Whether the names of other hosts' plugins are known. If Plugin objects cannot be read at all, there are none.
    pub(super) fn knows_names(&self, cx: &Context<'_>) -> bool {
        let kind = plugin_object::kind();
        let watches = self.informers.get(&kind).into_iter().flat_map(|informer| informer.watches.values());
        let is_denied_or_gone = watches.into_iter().any(Watch::is_denied_or_gone);
        cx.store.synced(&kind) || is_denied_or_gone || self.host_crd.error.is_some()
    }

    /// Advances the plugins that waited for the names.
    pub(super) fn names_are_known(&mut self, cx: &mut Context<'_>) {
        for name in self.plugins.keys().cloned().collect::<Vec<_>>() {
            self.advance(&name, cx);
        }
    }

    /// Whether a Plugin object belongs to another host. What a person made belongs to the host that writes its status, unless that
    /// lacks the source and this one has it: of two that lack it, one writes.
    pub(super) fn is_of_another_host(&self, live: &Object) -> bool {
        let Some(claim) = plugin_object::claim(live).filter(|claim| claim.host != self.namespace) else { return false };
        let may_take = claim.lacks_source && self.has_source(&plugin_object::spec(live).source);
        !may_take && !self.claims.holds(live)
    }

    /// The refusal of a plugin whose name belongs to another host.
    pub(super) fn named_elsewhere(&self, name: &Arc<str>, cx: &Context<'_>) -> Option<Refusal> {
        let target = plugin_object::of(name);
        let snapshot = cx.store.snapshot();
        let live = snapshot.get(&target.kind, &target.name).filter(|live| self.is_of_another_host(live))?;
        let namespace = plugin_object::claim(live)?.host;
        let message = format!(
            "the Plugin object {name} belongs to the host of namespace {namespace}: rename this plugin, or remove that one; \
             if that host is gone for good, kubectl delete plugin {name}"
        );
        Some(Refusal::new("NamedElsewhere", message))
    }

    /// Another host created the Plugin object first: withdraws the serving version, and loads the offer again to refuse
    /// it.
    pub(super) fn give_way(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.remove(name) else { return };
        let Plugin { offer, read, unreadable, tenant, suspended, .. } = &plugin;
        let known = Plugin {
            offer: offer.clone(),
            read: read.clone(),
            unreadable: unreadable.clone(),
            tenant: tenant.clone(),
            suspended: *suspended,
            ..Plugin::default()
        };
        self.withdraw(name, plugin, cx);
        self.plugins.insert(Arc::clone(name), known);
        self.load(name, cx);
    }

    /// Retries a plugin when the other host's object is gone.
    pub(super) fn retry_name(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let refused = self.plugins.get(name).and_then(|plugin| plugin.refused.as_ref());
        let was_taken = refused.is_some_and(|refused| refused.by == RefusedBy::NameOwner);
        if was_taken && self.named_elsewhere(name, cx).is_none() {
            self.retry_refused(name, cx);
        }
    }
}
