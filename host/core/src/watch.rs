//! The events of the watch of one kind: lists, changes, bookmarks and failures. `watch_stream.rs` decodes them from
//! bytes.

use thiserror::Error;

use crate::object::{Kind, Object, ResourceVersion};

/// An event of a watch. The first is always `Listing`, or `ClusterScoped` before it.
#[derive(Debug)]
pub enum WatchEvent {
    /// The kind has no namespaces. Before each `Listing` of such a kind.
    ClusterScoped,
    /// A list of the API server's newest state begins; the store merges it.
    Listing,
    /// The next objects of the list.
    Listed(Vec<Object>),
    /// The list is complete and shows everything up to this version.
    ListDone(ResourceVersion),
    /// An object was added or changed.
    Applied(Box<Object>),
    /// An object was deleted; its version is that of the deletion.
    Deleted(Box<Object>),
    /// A bookmark: every change up to this version was delivered.
    Progress(ResourceVersion),
    /// The API server's versions went backwards, because etcd was restored from a backup: earlier versions cannot be
    /// compared with later ones. A list follows.
    Restored {
        /// The highest version that was seen.
        before: ResourceVersion,
        /// The API server's newest version.
        now: ResourceVersion,
    },
    /// The watch failed; the host retries. The objects in the cache stay and age.
    Failed(WatchError),
    /// An object could not be decoded, so the cache does not have it.
    Undecodable {
        /// The object, if known, and the error.
        message: String,
    },
}

impl WatchEvent {
    /// Bytes in memory of its objects.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object.bytes(),
            Self::Listed(objects) => objects.iter().map(Object::bytes).sum(),
            _ => 0,
        }
    }
}

/// Why a kind cannot be watched.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub enum WatchError {
    /// RBAC denies it; the message is the API server's.
    Denied(String),
    /// The API server does not serve the kind.
    NotServed(String),
    /// A temporary error, such as a lost connection or an overload.
    Unavailable(String),
}

impl WatchError {
    /// Somebody declares namespaces of a kind that has none.
    pub fn no_namespaces(kind: &Kind) -> Self {
        Self::NotServed(format!("{kind} has no namespaces; declare it without"))
    }

    /// Whether a person has to change something.
    pub(crate) fn is_denied_or_gone(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::NotServed(_))
    }
}
