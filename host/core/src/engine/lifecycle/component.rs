//! A component, by the digest of its bytes. It is compiled once for all plugins.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::manifest::Manifest;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Component {
    pub state: ComponentState,
    /// Plugins whose offered or serving version it is.
    pub users: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
pub(super) enum ComponentState {
    /// With what delays it.
    Compiling(Option<Arc<str>>),
    Accepted(Accepted),
    /// Kept, so that the same bytes are not compiled again (G3).
    Refused(Refusal),
}

/// A compiled component with its parsed manifest.
#[derive(Debug)]
pub(super) struct Accepted {
    pub manifest: Arc<Manifest>,
    pub component_bytes: u64,
}
