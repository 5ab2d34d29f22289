//! How a cluster is set up. It must not know what reads it.

use crate::user::User;

/// The kubelet's own choice.
pub(crate) const NODE_LEASE_SECONDS: u32 = 40;

/// How a cluster is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How many nodes it starts with.
    pub nodes: u32,
    /// Which controllers run, as kube-controller-manager's `--controllers`: `*`, a name, or `-` and a name. `scheduler` and
    /// `kubelet` are among them.
    pub controllers: Vec<String>,
    /// How long a node's lease lasts, as the kubelet's `nodeLeaseDurationSeconds`: it is renewed at every quarter of it. One
    /// that lasts long leaves a cluster at rest, in which virtual time passes quickly.
    pub node_lease_seconds: u32,
    /// Whether RBAC decides who may do what; without it everybody may do everything.
    pub rbac: bool,
    /// Static bearer tokens and their users.
    pub tokens: Vec<(String, User)>,
    /// The authority of the API server's certificate, in PEM, which each namespace's `kube-root-ca.crt` shows.
    pub root_ca: String,
    /// What UIDs and random names follow from. A saved cluster comes back with another one, so that it makes no UID that it
    /// had made after it was saved.
    pub seed: u64,
    /// What tokens of ServiceAccounts are signed with: as long as it stays, they are accepted.
    pub token_key: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 1,
            controllers: vec!["*".to_owned()],
            node_lease_seconds: NODE_LEASE_SECONDS,
            rbac: false,
            tokens: Vec::new(),
            root_ca: String::new(),
            seed: 0,
            token_key: 0,
        }
    }
}

impl Options {
    /// Whether a controller runs: the last entry that names it decides, and `*` names all.
    pub(crate) fn runs(&self, controller: &str) -> bool {
        let named = |entry: &&String| entry.trim_start_matches('-') == controller;
        match self.controllers.iter().rfind(named) {
            Some(entry) => !entry.starts_with('-'),
            None => self.controllers.iter().any(|entry| entry == "*"),
        }
    }
}
