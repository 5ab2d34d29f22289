//! From bytes to a component that can be called, in the order in which the host trusts them more and more: the scan,
//! the compiler in its child process, the trial. `mortise inspect` goes the same way, so it refuses with the same words.

use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use mortise_core::component::Compiled;
use mortise_core::digest::Digest;
use mortise_core::manifest::Manifest;
use mortise_core::refusal::Refusal;
use mortise_wasm::compile::{CompileError, Compiler};
use mortise_wasm::engine::{Engine, EngineOptions, Pooling};
use mortise_wasm::plugin::Plugin;
use mortise_wasm::scan::{Scan, prescan};

/// The subcommand of this very binary that is the compiler's child process.
pub const COMPILE_SUBCOMMAND: &str = "compile-component";
/// Pauses before the compiler is tried again when the machine could not run it (no process, no space, no processor
/// time). After the last one the plugin is refused, until it changes or the host restarts; nothing of that is stored.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The engine, and the compiler for it.
#[derive(Debug)]
pub struct Loader {
    engine: Engine,
    compiler: Compiler,
}

/// A component that can be called.
#[derive(Debug)]
pub struct Component {
    /// What to call.
    pub plugin: Plugin,
    /// What the scan found.
    pub scan: Scan,
    /// What the driver is told.
    pub compiled: Compiled,
}

impl Loader {
    /// An engine of the host's profile, with a compiler that keeps its results in a folder.
    ///
    /// # Errors
    /// When the machine cannot run the engine, or the folder is not this user's alone.
    pub fn new(cache_dir: &Path, pooling: Pooling) -> anyhow::Result<Self> {
        let engine = Engine::new(EngineOptions { pooling, ..EngineOptions::default() })?;
        let program = std::env::current_exe().context("finding this program's own file, which compiles plugins")?;
        let compiler = Compiler::new(program, vec![OsString::from(COMPILE_SUBCOMMAND)], cache_dir, &engine)
            .with_context(|| format!("setting up the compiler with the cache folder {}", cache_dir.display()))?;
        Ok(Self { engine, compiler })
    }

    /// Scans, compiles and tries a component. Blocks for as long as the compiler runs.
    ///
    /// # Errors
    /// The refusal that the Plugin object's conditions show.
    pub fn load(&self, wasm: &[u8]) -> Result<Component, Refusal> {
        let scan = prescan(wasm)?;
        let artifact = self.compile(wasm, &scan.digest)?;
        let plugin = self.engine.load(&artifact.path, scan.digest.clone())?;
        // A manifest that is not valid is refused by whoever reads it, in the words for that.
        if let Ok(manifest) = Manifest::parse(plugin.manifest()) {
            manifest.check_exports(plugin.exports())?;
        }
        let compiled = Compiled {
            manifest: plugin.manifest().clone(),
            component_bytes: wasm.len() as u64,
            compile_ms: u64::try_from(artifact.elapsed.as_millis()).unwrap_or(u64::MAX),
            cached: artifact.cached,
        };
        Ok(Component { plugin, scan, compiled })
    }

    fn compile(&self, wasm: &[u8], digest: &Digest) -> Result<mortise_wasm::compile::Artifact, Refusal> {
        let mut pauses = PAUSES.iter();
        loop {
            let error = match self.compiler.compile(wasm) {
                Ok(artifact) => return Ok(artifact),
                Err(CompileError::Refused(refusal)) => return Err(refusal),
                Err(error) => error,
            };
            let Some(pause) = pauses.next() else {
                let message = format!("{error}; the component is not at fault: mend that, then restart the host");
                return Err(Refusal::new("CompilerUnavailable", message));
            };
            tracing::warn!(%digest, %error, pause_s = pause.as_secs(), "could not compile, trying again");
            thread::sleep(*pause);
        }
    }
}
