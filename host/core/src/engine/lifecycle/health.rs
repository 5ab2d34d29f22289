//! The host's health, for its probes: plugins and informers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Lifecycle;
use super::conditions::{Conditions, Readiness};
use super::plugin::Plugin;
use crate::contract::ConditionStatus;
use crate::engine::health::{Health, PluginHealth};
use crate::plugin_object;
use crate::scope::{Scope, Slice};
use crate::store::Store;
use crate::tenant;
use crate::watch::WatchError;

impl Lifecycle {
    pub fn health(&self, store: &Store, leads: Option<bool>) -> Health {
        Health {
            sources_listed: self.sources_listed,
            unlisted: self.unlisted(store),
            leads,
            plugins: self.plugins.iter().map(|(name, plugin)| self.health_of(name, plugin)).collect(),
        }
    }

    /// Of one plugin: computed anew when it has changed, since there may be thousands.
    fn health_of(&self, name: &Arc<str>, plugin: &Plugin) -> PluginHealth {
        let known = plugin.health.get_or_init(|| self.health_now(name, plugin)).clone();
        debug_assert_eq!(known, self.health_now(name, plugin), "what changes a plugin's conditions marks it dirty");
        known
    }

    fn health_now(&self, name: &Arc<str>, plugin: &Plugin) -> PluginHealth {
        let Conditions { ready, readiness, .. } = self.conditions(name, plugin, false);
        let loading = plugin.candidate.is_some();
        // The host is ready without what a tenant brings.
        let is_waited_for = tenant::of_plugin(name).is_none();
        PluginHealth {
            name: name.clone(),
            digest: plugin.active.as_ref().map(|active| active.version.digest.clone()),
            ready: ready.status == ConditionStatus::True,
            loading,
            starting: loading && is_waited_for && readiness == Readiness::Starting,
            reason: ready.reason,
            message: ready.message,
        }
    }

    /// What serving plugins of the host's namespace declare and the host itself reads that the cache does not show.
    /// What only a version that is coming up declares, or what an object names, is missing to nobody who serves.
    fn unlisted(&self, store: &Store) -> Vec<(Slice, Option<String>)> {
        let of_host = self.plugins.iter().filter(|(name, _)| tenant::of_plugin(name).is_none());
        // What a ready plugin declares is listed.
        let active = of_host.filter_map(|(_, plugin)| plugin.active.as_ref()).filter(|active| !active.is_ready());
        let scopes = active.flat_map(|active| active.manifest.scopes());
        let mut unlisted = BTreeMap::new();
        for (kind, scope) in scopes.chain([(plugin_object::kind(), Scope::default())]) {
            let labels = scope.labels_text();
            for namespace in self.unreadable(&kind, &scope, store) {
                let informer = self.informers.get(&kind);
                let error = informer.and_then(|informer| informer.error_in(&namespace));
                if !error.is_some_and(WatchError::is_denied_or_gone) {
                    let slice = Slice { kind: kind.clone(), namespace, labels: labels.clone() };
                    unlisted.insert(slice, error.map(ToString::to_string));
                }
            }
        }
        if !self.host_crd.established {
            unlisted.insert(plugin_object::kind().into(), self.host_crd.error.clone());
        }
        unlisted.into_iter().collect()
    }
}
