//! Dynamic kinds: those that a plugin's calls name at run time, within the patterns of its manifest. The host begins to
//! list a kind when a call first names it, and ends that call. The Lifecycle decides a kind's state, the Reconciler keeps
//! those of each plugin, and a view answers by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::Kind;

/// Dynamic kinds of one plugin at once: each is a watch and a cache of all its objects, and objects name them, not the
/// plugin's author. An autoscaler of everything that has replicas needs some ten.
pub const MAX_DYNAMIC_KINDS: usize = 16;

/// What the host knows of a dynamic kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum KindState {
    /// It is not listed completely yet.
    #[default]
    Unlisted,
    /// The cache shows it (R4).
    Current,
    /// The API server does not serve it; its message.
    NotServed(String),
    /// The host may not read it; the API server's message.
    Denied(String),
    /// It cannot be listed for another reason, and the host tries again; the message.
    Failing(String),
}

impl KindState {
    /// What a call sees of it, so that one which saw the same is not repeated (W2).
    pub(crate) fn hash(&self) -> u64 {
        match self {
            // It ends at each of them.
            Self::Unlisted | Self::Denied(_) | Self::Failing(_) => 2,
            Self::Current => 3,
            Self::NotServed(_) => 4,
        }
    }
}

/// The states of a plugin's dynamic kinds, frozen for a call.
pub type KindStates = Arc<BTreeMap<Kind, KindState>>;
