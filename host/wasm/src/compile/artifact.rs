//! What the compilation and the trial of a component leave.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::digest::Digest;
use mortise_core::manifest::Exports;

/// A compiled component.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The component that it was compiled from.
    pub digest: Digest,
    /// The native code. While it is open it can be loaded, also without its path, and stays in the cache.
    pub file: Arc<File>,
    /// True when no compiler ran.
    pub cached: bool,
    /// How long the compiler ran; zero when none did.
    pub elapsed: Duration,
}

/// What the trial of a component found (G7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// The size of the component.
    pub component_bytes: u64,
    /// Which of the contract's optional interfaces it exports.
    pub exports: Exports,
    /// The manifest that it returned.
    pub manifest: Arc<str>,
}
