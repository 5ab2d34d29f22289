//! Loads a component file as the host does: scan, compilation, trial instantiation, manifest. It refuses what the host
//! would refuse, with the same message.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use mortise_core::limits::MAX_COMPONENT_BYTES;
use mortise_core::manifest::Manifest;
use mortise_core::refusal::Refusal;
use mortise_runtime::loader::Loader;
use mortise_wasm::compile::CompileError;
use mortise_wasm::engine::{EngineOptions, Pooling};
use mortise_wasm::scan::{Scan, prescan};

/// Magic numbers of compressed files, and the command that unpacks each. A ConfigMap may hold a component in these
/// forms.
const COMPRESSED: [(&[u8], &str); 2] = [(&[0x1f, 0x8b], "gunzip -c"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd -dc")];

#[derive(Debug)]
pub struct Component {
    pub bytes: Vec<u8>,
    pub scan: Scan,
    /// The manifest's JSON as the component returned it.
    pub text: String,
    pub manifest: Manifest,
}

/// Reads a component's file, within the size limit of components.
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let name = path.display();
    let length = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?.len();
    if length > MAX_COMPONENT_BYTES as u64 {
        bail!("{name} has {length} bytes; a component has at most {MAX_COMPONENT_BYTES}");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    for (magic, unpack) in COMPRESSED {
        if bytes.starts_with(magic) {
            bail!("{name} is compressed; this takes the component itself: {unpack} {name} > plugin.wasm");
        }
    }
    Ok(bytes)
}

/// The host's refusal of a file, as an error.
pub fn refused(refusal: Refusal, path: &Path) -> anyhow::Error {
    anyhow::anyhow!("{}: {refusal}", refusal.reason).context(format!("the host would refuse {}", path.display()))
}

/// Why a file is not loaded: the host would refuse it, or the machine cannot compile it.
pub fn not_loaded(error: CompileError, path: &Path) -> anyhow::Error {
    match error {
        CompileError::Refused(refusal) => refused(refusal, path),
        error => error.into(),
    }
}

/// Loads a file as the host would.
pub fn load(path: &Path, cache_dir: Option<PathBuf>) -> anyhow::Result<Component> {
    let bytes = read(path)?;
    let refused = |refusal| refused(refusal, path);
    // The same allocation strategy as the host's: pooling refuses components that on-demand allocation accepts.
    let loader = Loader::new(
        &crate::cache::folder(cache_dir)?,
        EngineOptions { pooling: Pooling::ProbeForOne, ..EngineOptions::default() },
    )?;
    let scan = prescan(&bytes).map_err(refused)?;
    let loaded =
        loader.load(&scan.digest, || Ok::<_, CompileError>(&bytes)).map_err(|error| not_loaded(error, path))?;
    let text = loaded.compiled.manifest.to_string();
    let manifest = Manifest::parse(&text).map_err(refused)?;
    Ok(Component { bytes, scan, text, manifest })
}
