//! From a digest to a component that can be called. A component that this host accepted before comes from the compile
//! cache, without a read of its bytes. Any other passes the scan, the compiler in its child process and the trial.
//! `mortise inspect` takes the same steps and refuses with the same messages.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use mortise_core::component::Compiled;
use mortise_core::digest::Digest;
use mortise_core::manifest::Manifest;
use mortise_core::refusal::Refusal;
use mortise_wasm::compile::{CacheFolder, CompileError, Compiler, Trial};
use mortise_wasm::engine::{Engine, EngineOptions};
use mortise_wasm::plugin::Plugin;
use mortise_wasm::scan::prescan;

/// The subcommand of this binary that is the compiler's child process.
pub const COMPILE_SUBCOMMAND: &str = "compile-component";
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
    /// When the machine cannot run the engine, others may write into the folder, or the file of its key cannot be used.
    pub fn new<'a>(cache: impl Into<CacheFolder<'a>>, options: EngineOptions) -> anyhow::Result<Self> {
        let cache = cache.into();
        let engine = Engine::new(options)?;
        let program = std::env::current_exe().context("finding this program's file, which compiles plugins")?;
        let compiler = Compiler::new(program, vec![OsString::from(COMPILE_SUBCOMMAND)], cache, &engine)
            .with_context(|| format!("setting up the compiler with the cache folder {}", cache.path.display()))?;
        Ok(Self { engine, compiler })
    }

    /// Whether the folder of the compile cache could be used last.
    pub fn cache_is_usable(&self) -> Arc<AtomicBool> {
        self.compiler.cache_is_usable()
    }

    /// Ends the compilers, and lets none begin until it is called with false.
    pub(crate) fn halt_compilers(&self, halted: bool) {
        self.compiler.halt(halted);
    }

    /// Bytes of memory that the compilers have.
    pub(crate) fn compiler_bytes(&self) -> u64 {
        self.compiler.resident_bytes()
    }

    /// The process ends in order: what is being compiled does not count as what has ended it.
    pub fn withdraw(&self) {
        self.compiler.withdraw();
    }

    /// Loads the component of a digest; calls `read` for its bytes unless the compile cache has its trial. Blocks while
    /// the compiler runs.
    ///
    /// # Errors
    /// The refusal that the Plugin object's conditions show, a fault of the machine, or the error of `read`.
    pub fn load<B: AsRef<[u8]>, E: From<Refusal> + From<CompileError>>(
        &self,
        digest: &Digest,
        read: impl FnOnce() -> Result<B, E>,
    ) -> Result<Component, E> {
        if let Some((artifact, trial)) = self.compiler.tried(digest)? {
            return Ok(Component::of(self.engine.load_tried(artifact, &trial), &trial, Duration::ZERO, true));
        }
        let wasm = read()?;
        prescan(wasm.as_ref())?;
        let artifact = self.compiler.compile(wasm.as_ref())?;
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
