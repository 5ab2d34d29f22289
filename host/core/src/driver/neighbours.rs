//! Other hosts of the cluster. A Plugin object is its host's, whose namespace it names, and nobody else writes it; a plugin
//! whose name another host's plugin has is not served, for both would write the same objects.

use std::sync::Arc;

use super::Driver;
use super::plugins::PluginState;
use super::report::plugin_object_of;
use crate::event::Effect;
use crate::object::Object;
use crate::plugin_object;
use crate::refusal::Refusal;
use crate::watch::WatchError;
use crate::well_known::HOST_NAMESPACE_LABEL;

/// Why such a plugin is refused.
const NAMED_ELSEWHERE: &str = "NamedElsewhere";

impl Driver {
    /// Whether it is known which names other hosts have. Where Plugin objects cannot be had at all, nobody has any.
    pub(super) fn knows_names(&self) -> bool {
        let kind = plugin_object::kind();
        let error = self.kinds.get(&kind).and_then(|state| state.error.as_ref());
        let cannot = matches!(error, Some(WatchError::Denied(_) | WatchError::NotServed(_)));
        self.store.synced(&kind) || cannot || self.host_crd_error.is_some()
    }

    /// What waited for the names goes on.
    pub(super) fn names_are_known(&mut self, effects: &mut Vec<Effect>) {
        for name in self.plugins.keys().cloned().collect::<Vec<_>>() {
            self.advance(&name, effects);
            self.report(&name, effects);
        }
    }

    /// Whether a Plugin object is not this host's to write.
    pub(super) fn is_of_another_host(&self, live: &Object) -> bool {
        live.label(HOST_NAMESPACE_LABEL) != Some(&*self.config.namespace)
    }

    /// Why a plugin of this name is not this host's to serve.
    pub(super) fn named_elsewhere(&self, name: &Arc<str>) -> Option<Refusal> {
        let target = plugin_object_of(name);
        let snapshot = self.store.snapshot();
        let live = snapshot.get(&target.kind, &target.name).filter(|live| self.is_of_another_host(live))?;
        let message = match live.label(HOST_NAMESPACE_LABEL) {
            Some(namespace) => format!(
                "the Plugin object {name} belongs to the host of namespace {namespace}: rename this plugin, or remove that \
                 one; if that host is gone for good, kubectl delete plugin {name}"
            ),
            None => format!(
                "the Plugin object {name} was not made by a host, which labels it {HOST_NAMESPACE_LABEL}: kubectl delete \
                 plugin {name}"
            ),
        };
        Some(Refusal::new(NAMED_ELSEWHERE, message))
    }

    /// Two hosts have begun with plugins of one name, and the other's came first. What is offered is loaded anew, and refused.
    pub(super) fn give_way(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        if self.plugins.get(name).is_none_or(|plugin| plugin.active.is_none()) || self.named_elsewhere(name).is_none() {
            return;
        }
        let Some(plugin) = self.plugins.remove(name) else { return };
        let (offer, unreadable) = (plugin.offer.clone(), plugin.unreadable.clone());
        self.withdraw(name, plugin, effects);
        self.plugins.insert(Arc::clone(name), PluginState { offer, unreadable, ..PluginState::default() });
        self.load(name, effects);
    }

    /// The other host's object may have gone.
    pub(super) fn retry_name(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let refused = self.plugins.get(name).and_then(|plugin| plugin.refused.as_ref());
        let was_taken = refused.is_some_and(|(_, refusal)| refusal.reason == NAMED_ELSEWHERE);
        if was_taken && self.named_elsewhere(name).is_none() {
            self.retry_refused(name, effects);
        }
    }
}
