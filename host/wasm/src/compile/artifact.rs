//! What compiling and trying a component leave: its native code, and what the trial has shown.

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
    /// The native code. Open, so that it can be loaded whatever becomes of its name, and kept in the cache as long as it is.
    pub file: Arc<File>,
    /// True when no compiler ran.
    pub cached: bool,
    /// How long the compiler ran; zero when none did.
    pub elapsed: Duration,
}

/// What the trial of a component has shown (G7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// The size of the component, which needs not be read to know it.
    pub component_bytes: u64,
    /// Which of the contract's optional interfaces it exports.
    pub exports: Exports,
    /// The manifest that it told.
    pub manifest: Arc<str>,
}
