//! The engine's health, for probes and people.

use std::sync::Arc;

use crate::digest::Digest;
use crate::scope::Slice;

/// The health of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Every source has listed its plugins once.
    pub sources_listed: bool,
    /// What serving plugins declare, and the host itself reads, whose first list is not complete, with the error where
    /// there is one. What RBAC denies or does not exist is left out: it concerns the health of its plugins, not of the
    /// host.
    pub unlisted: Vec<(Slice, Option<String>)>,
    /// Whether this host leads; None without leader election.
    pub leads: Option<bool>,
    /// One entry per plugin, by name.
    pub plugins: Vec<PluginHealth>,
}

/// The state of one plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginHealth {
    /// Its name.
    pub name: Arc<str>,
    /// The digest of the serving version.
    pub digest: Option<Digest>,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// Whether another version is coming up.
    pub loading: bool,
    /// Whether that is the first one, which is compiled, registered or listed for, and not blocked.
    pub starting: bool,
    /// The Ready condition's reason.
    pub reason: String,
    /// The Ready condition's message.
    pub message: String,
}
