//! What the driver says of itself to probes and to people. Reading it changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Driver, KindState};
use crate::digest::Digest;
use crate::object::Kind;
use crate::plugin_object;
use crate::watch::WatchError;

/// The state of the host's own work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Every source has told once what it has.
    pub sources_listed: bool,
    /// Kinds of plugins that serve, and the host's own, that are not listed yet, with the reason where there is one. Kinds
    /// that may not be read, or do not exist, are not among them: that is their plugins' trouble and not the host's.
    pub unlisted: Vec<(Kind, Option<String>)>,
    /// Whether this host leads or stands by; None when it takes part in no election.
    pub leads: Option<bool>,
    /// One entry per plugin, by name.
    pub plugins: Vec<PluginHealth>,
}

/// The state of one plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginHealth {
    /// Its name.
    pub name: Arc<str>,
    /// What serves now.
    pub digest: Option<Digest>,
    /// It serves, and nothing keeps its controllers from being called.
    pub ready: bool,
    /// A newer version of it is on its way.
    pub loading: bool,
    /// The Ready condition's reason.
    pub reason: String,
    /// The Ready condition's message.
    pub message: String,
}

impl Driver {
    /// How things stand.
    pub fn health(&self) -> Health {
        let snapshot = self.store.snapshot();
        let is_blocked =
            |state: &KindState| matches!(state.error, Some(WatchError::Denied(_) | WatchError::NotServed(_)));
        let serving: BTreeSet<Kind> = self
            .controllers
            .values()
            .flat_map(|controller| controller.access.readable.iter().cloned())
            .chain([plugin_object::kind()])
            .collect();
        let unlisted = self
            .kinds
            .iter()
            .filter(|(kind, state)| serving.contains(*kind) && !snapshot.synced(kind) && !is_blocked(state));
        let unestablished = (!self.host_crd_established).then(|| (plugin_object::kind(), self.host_crd_error.clone()));
        Health {
            sources_listed: self.sources_listed,
            unlisted: unlisted
                .map(|(kind, state)| (kind.clone(), state.error.as_ref().map(|error| error.to_string())))
                .chain(unestablished)
                .collect(),
            leads: self.leads(),
            plugins: self.plugins.iter().map(|(name, plugin)| self.plugin_health(name, plugin)).collect(),
        }
    }
}
