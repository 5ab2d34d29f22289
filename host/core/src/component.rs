//! A component on its way into the host: as a source offers it, and as the compiler returns it. The bytes stay with the
//! shell, under their digest.

use std::sync::Arc;

use crate::digest::Digest;

/// A plugin as a source offers it. The bytes stay with the shell, under their digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The plugin's name: the ConfigMap's name, or the file's stem.
    pub name: Arc<str>,
    /// Where it comes from, for people: "ConfigMap mortise-system/podset", "file plugins/podset.wasm".
    pub source: Arc<str>,
    /// What the bytes hash to.
    pub digest: Digest,
    /// The plugin's configuration as a JSON object, "{}" when none was given.
    pub config: Arc<str>,
}

impl Offer {
    /// What would serve.
    pub fn version(&self) -> Version {
        Version { digest: self.digest.clone(), config: Arc::clone(&self.config) }
    }
}

/// One version of a plugin: the component with its configuration. Two calls of one version with the same inputs have the
/// same outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The component.
    pub digest: Digest,
    /// The configuration as a JSON object.
    pub config: Arc<str>,
}

/// A component that compiled, instantiated and told its manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The manifest as the guest returned it.
    pub manifest: Arc<str>,
    /// Size of the component in bytes.
    pub component_bytes: u64,
    /// How long compiling took; 0 when the result was cached.
    pub compile_ms: u64,
    /// True when no compiler ran.
    pub cached: bool,
}
