//! One right that the API server checks for a request.

use std::sync::Arc;

use crate::object::Kind;

/// One right: what an API server asks for when something is written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Permission {
    /// Of which kind.
    pub kind: Kind,
    /// "create", "patch", "delete".
    pub verb: &'static str,
    /// "status", "eviction"; None is the object itself.
    pub subresource: Option<Arc<str>>,
}
