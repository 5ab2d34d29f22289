//! The host's health, for its probes: plugins and informers.

use std::collections::BTreeSet;

use super::Lifecycle;
use super::conditions::{Conditions, Readiness};
use crate::contract::ConditionStatus;
use crate::engine::health::{Health, PluginHealth};
use crate::object::Kind;
use crate::plugin_object;
use crate::store::Store;

impl Lifecycle {
    pub fn health(&self, store: &Store, leads: Option<bool>) -> Health {
        let active = self.plugins.values().filter_map(|plugin| plugin.active.as_ref());
        let controllers = active.flat_map(|active| &active.manifest.controllers);
        let serving: BTreeSet<Kind> =
            controllers.flat_map(|controller| controller.readable()).chain([plugin_object::kind()]).collect();
        let serving = self.informers.iter().filter(|(kind, _)| serving.contains(*kind));
        let watches = serving.flat_map(|(kind, informer)| informer.slices(kind).zip(informer.watches.values()));
        let unlisted = watches.filter(|(slice, watch)| !store.synced(slice) && !watch.is_denied_or_gone());
        let unestablished = (!self.host_crd.established).then(|| (plugin_object::kind(), self.host_crd.error.clone()));
        Health {
            sources_listed: self.sources_listed,
            unlisted: unlisted
                .map(|(slice, watch)| (slice.kind, watch.error.as_ref().map(ToString::to_string)))
                .chain(unestablished)
                .collect(),
            leads,
            plugins: self
                .plugins
                .iter()
                .map(|(name, plugin)| {
                    let Conditions { ready, readiness, .. } = self.conditions(plugin);
                    let loading = plugin.candidate.is_some();
                    PluginHealth {
                        name: name.clone(),
                        digest: plugin.active.as_ref().map(|active| active.version.digest.clone()),
                        ready: ready.status == ConditionStatus::True,
                        loading,
                        starting: loading && readiness == Readiness::Starting,
                        reason: ready.reason,
                        message: ready.message,
                    }
                })
                .collect(),
        }
    }
}
