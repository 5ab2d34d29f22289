//! A component by the digest of its bytes: compiled once, whoever is offered as it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::manifest::Manifest;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Component {
    pub state: ComponentState,
    /// Plugins that are offered as it, or serve it.
    pub users: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
pub(super) enum ComponentState {
    Compiling,
    Accepted(Accepted),
    /// Remembered, so that the same bytes are not compiled again (G3).
    Refused(Refusal),
}

/// A component that compiled, with its manifest, which is parsed once.
#[derive(Debug)]
pub(super) struct Accepted {
    pub manifest: Arc<Manifest>,
    pub component_bytes: u64,
}
