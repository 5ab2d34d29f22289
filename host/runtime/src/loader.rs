//! From a digest to a component that can be called. A component that this host accepted before comes from the compile
//! cache, without a read of its bytes. Any other passes the scan, the compiler in its child process and the trial.
//! `mortise inspect` takes the same steps and refuses with the same messages.

use std::ffi::OsString;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use mortise_core::component::Compiled;
use mortise_core::digest::Digest;
use mortise_core::manifest::Manifest;
use mortise_core::refusal::Refusal;
use mortise_wasm::compile::{Artifact, CacheFolder, CompileError, Compiler, Trial};
use mortise_wasm::engine::{Engine, EngineOptions};
use mortise_wasm::plugin::Plugin;
use mortise_wasm::scan::prescan;

/// The subcommand of this binary that is the compiler's child process.
pub const COMPILE_SUBCOMMAND: &str = "compile-component";
/// Pauses before retries when the machine cannot run the compiler (no process, disk space or processor time). After the
/// last one the plugin is refused until it changes or the host restarts; the refusal is not cached.
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
    /// The loaded component.
    pub plugin: Plugin,
    /// The result for the engine.
    pub compiled: Compiled,
}

impl Loader {
    /// An engine with a compiler and its cache folder.
    ///
    /// # Errors
    /// When the machine cannot run the engine, others may write into the folder, or its key cannot be used.
    pub fn new<'a>(cache: impl Into<CacheFolder<'a>>, options: EngineOptions) -> anyhow::Result<Self> {
        let cache = cache.into();
        let engine = Engine::new(options)?;
        let program = std::env::current_exe().context("finding this program's file, which compiles plugins")?;
        let compiler = Compiler::new(program, vec![OsString::from(COMPILE_SUBCOMMAND)], cache, &engine)
            .with_context(|| format!("setting up the compiler with the cache folder {}", cache.path.display()))?;
        Ok(Self { engine, compiler })
    }

    /// Loads the component of a digest; calls `read` for its bytes unless the compile cache has its trial. Blocks while
    /// the compiler runs.
    ///
    /// # Errors
    /// The refusal that the Plugin object's conditions show, or the error of `read`.
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
        // The reader of the manifest refuses an invalid one.
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
                let message = format!("{error}; the component is not at fault: fix that, then restart the host");
                return Err(Refusal::new("CompilerUnavailable", message));
            };
            tracing::warn!(%digest, %error, pause_s = pause.as_secs(), "could not compile, will retry");
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
