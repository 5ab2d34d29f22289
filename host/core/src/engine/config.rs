//! The settings of an engine.

use std::sync::Arc;

use super::outbox::WriteBudget;
use crate::selector::Selector;

/// What the engine needs to know about its host.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reporting instance of the host's Events: its Pod's name.
    pub instance: Arc<str>,
    /// The namespace of its plugins, which distinguishes it from the cluster's other hosts.
    pub namespace: Arc<str>,
    /// Guest calls in flight at once while they are quick: several for each worker.
    pub call_slots: usize,
    /// With leader election, nothing is written before [`Event::LeaseChanged`] grants a claim. Without, this host
    /// always may.
    pub leader_election: bool,
    /// The write budget of each plugin.
    pub write_budget: WriteBudget,
    /// HTTP requests that each plugin may send in a minute; None: plugins that declare any are refused.
    pub http_requests_per_minute: Option<u32>,
    /// Plugins serve only as a ServiceAccount that their Plugin object names. Without, one that has none is the host's own
    /// user.
    pub require_service_account: bool,
    /// Which namespaces bring plugins of their own; None: none does.
    pub tenants: Option<Selector>,
    /// How often each kind is audited; 0 disables audits.
    pub audit_interval_ms: u64,
}
