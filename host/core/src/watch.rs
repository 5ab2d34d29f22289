//! What the watch of one kind reports: lists, changes, progress and failures.

use std::fmt;

use crate::object::{Object, ResourceVersion};

/// What a watch reports. The first is always `Listing`.
#[derive(Debug)]
pub enum WatchEvent {
    /// A list, from the API server's newest state, begins; what stands in the store is merged with it.
    Listing,
    /// One object of the list.
    Listed(Box<Object>),
    /// The list is complete and shows everything up to this version.
    ListDone(ResourceVersion),
    /// An object was added or changed.
    Applied(Box<Object>),
    /// An object is gone; its version is that of the deletion.
    Deleted(Box<Object>),
    /// Nothing of this kind has changed up to this version (a bookmark).
    Progress(ResourceVersion),
    /// The API server's versions went backwards, because its etcd was restored from a backup: those that were seen compare with
    /// none that come. A list follows.
    Restored {
        /// The highest version that was seen.
        before: ResourceVersion,
        /// The API server's newest version.
        now: ResourceVersion,
    },
    /// The watch cannot be had for now; the shell keeps trying. What was listed before stays valid but ages.
    Failed(WatchError),
    /// One object could not be read and is not in the view.
    Undecodable {
        /// Which object, as far as that is known, and why.
        message: String,
    },
}

/// Why a kind cannot be watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchError {
    /// RBAC refuses; the message is the API server's.
    Denied(String),
    /// The API server serves no such kind.
    NotServed(String),
    /// Anything that should pass: the connection, an overload.
    Unavailable(String),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(message) | Self::NotServed(message) | Self::Unavailable(message) => f.write_str(message),
        }
    }
}
