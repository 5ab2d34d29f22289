//! A component file, taken through everything that the host does before it calls one: the scan, the compiler, the trial,
//! the manifest. What the host would refuse is refused here, in the same words.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use mortise_core::limits::MAX_COMPONENT_BYTES;
use mortise_core::manifest::Manifest;
use mortise_core::refusal::Refusal;
use mortise_runtime::loader::Loader;
use mortise_wasm::engine::Pooling;
use mortise_wasm::scan::{Scan, prescan};

/// How compressed files begin, and what prints what is in them. A ConfigMap may hold a component in these forms.
const COMPRESSED: [(&[u8], &str); 2] = [(&[0x1f, 0x8b], "gunzip -c"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd -dc")];

/// A component that the host would accept.
#[derive(Debug)]
pub struct Component {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// What the scan found.
    pub scan: Scan,
    /// The manifest as the component told it.
    pub text: String,
    /// The manifest.
    pub manifest: Manifest,
}

/// Reads a file.
///
/// # Errors
/// When it cannot be read, or is larger than any component may be.
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

/// Loads a file as the host would.
///
/// # Errors
/// The host's refusal, with its reason.
pub fn load(path: &Path, cache_dir: Option<PathBuf>) -> anyhow::Result<Component> {
    let bytes = read(path)?;
    let refused = |refusal: Refusal| anyhow::anyhow!("{}: {}", refusal.reason, refusal.message);
    let name = path.display();
    // One trial needs room for one instance, but where the host would have it: pools refuse more than memory on demand.
    let loader = Loader::new(&crate::cache::folder(cache_dir)?, Pooling::ProbeForOne)?;
    let loaded = prescan(&bytes).and_then(|scan| Ok((loader.load(&scan.digest, || Ok::<_, Refusal>(&bytes))?, scan)));
    let (loaded, scan) = loaded.map_err(refused).with_context(|| format!("the host would refuse {name}"))?;
    let text = loaded.compiled.manifest.to_string();
    let manifest = Manifest::parse(&text).map_err(refused).with_context(|| format!("the host would refuse {name}"))?;
    Ok(Component { bytes, scan, text, manifest })
}
