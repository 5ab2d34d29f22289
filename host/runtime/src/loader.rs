//! From a digest to a component that can be called. What this host has accepted before comes from the compile cache, and
//! nobody reads the component; any other goes the way on which the host trusts its bytes more and more: the scan, the compiler
//! in its child process, the trial. `mortise inspect` goes the same way, so it refuses with the same words.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use mortise_core::component::Compiled;
use mortise_core::digest::Digest;
use mortise_core::manifest::Manifest;
use mortise_core::refusal::Refusal;
use mortise_wasm::compile::{Artifact, CompileError, Compiler, Trial};
use mortise_wasm::engine::{Engine, EngineOptions, Pooling};
use mortise_wasm::plugin::Plugin;
use mortise_wasm::scan::prescan;

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

    /// Loads the component of a digest, which `read` brings if it has to be scanned, compiled or tried. Blocks for as long as
    /// the compiler runs.
    ///
    /// # Errors
    /// The refusal that the Plugin object's conditions show, or what kept the component from being read.
    pub fn load<B: AsRef<[u8]>, E: From<Refusal>>(
        &self,
        digest: &Digest,
        read: impl FnOnce() -> Result<B, E>,
    ) -> Result<Component, E> {
        if let Some((artifact, trial)) = self.compiler.tried(digest)? {
            return Ok(Component::of(self.engine.load_tried(artifact, &trial), &trial, Duration::ZERO, true));
        }
        let wasm = read()?;
        prescan(wasm.as_ref())?;
        let artifact = self.compile(wasm.as_ref(), digest)?;
        let (elapsed, cached) = (artifact.elapsed, artifact.cached);
        let plugin = self.engine.load(artifact)?;
        // A manifest that is not valid is refused by whoever reads it, in the words for that.
        if let Ok(manifest) = Manifest::parse(plugin.manifest()) {
            manifest.check_exports(plugin.exports())?;
        }
        let component_bytes = wasm.as_ref().len() as u64;
        let trial = Trial { component_bytes, exports: plugin.exports(), manifest: Arc::clone(plugin.manifest()) };
        self.compiler.accept(digest, &trial);
        Ok(Component::of(plugin, &trial, elapsed, cached))
    }

    fn compile(&self, wasm: &[u8], digest: &Digest) -> Result<Artifact, Refusal> {
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

impl Component {
    fn of(plugin: Plugin, trial: &Trial, compiling: Duration, cached: bool) -> Self {
        let compiled = Compiled {
            manifest: Arc::clone(&trial.manifest),
            component_bytes: trial.component_bytes,
            compile_ms: u64::try_from(compiling.as_millis()).unwrap_or(u64::MAX),
            cached,
        };
        Self { plugin, compiled }
    }
}
