//! What the engine reports of itself to probes and people.

use std::sync::Arc;

use crate::digest::Digest;
use crate::object::Kind;

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
