//! The one wasmtime engine of the host: a narrow profile of WebAssembly, memory pools where the machine allows them,
//! and a ticker that ends calls at their deadline. Compiled artifacts go in, [`Plugin`]s come out.
//!
//! The compile child builds an engine of the same [`Profile`] without pools, which do not affect the code, so its
//! artifacts load here. `plugin.rs` runs guest code; this file does not.

mod pool;
pub(crate) mod ticker;

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use tracing::warn;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, OptLevel, RegallocAlgorithm, Strategy, WasmBacktraceDetails};

use self::ticker::Ticker;
use crate::state::CallState;

/// Frames of a backtrace. A panic's own frames take about eight; the author's functions follow.
const BACKTRACE_FRAMES: NonZeroUsize = NonZeroUsize::new(24).expect("24 is not zero");
/// Stack of a guest, beside the one in its memory. Half of wasmtime's default, because worker threads have ordinary
/// stacks; deeper recursion is a bug. Code that was compiled quickly keeps more on it, and may have twice as much.
const STACK_BYTES: usize = 512 << 10;

/// Where instances live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pooling {
    /// Pools when they can be reserved, else on demand. Pools make a fresh instance several times cheaper.
    #[default]
    Probe,
    /// As [`Self::Probe`], with room for one instance: for a program that tries one component and must refuse what a
    /// host's pools refuse.
    ProbeForOne,
    /// No pools: each instance maps its own memory.
    OnDemand,
}

/// Options of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineOptions {
    /// Count fuel, which is deterministic and costs 30 to 40 per cent of speed: for tests and benchmarks.
    pub fuel: bool,
    /// Source lines in the backtraces of traps, for components of an author's own: the host keeps and parses their
    /// debugging information, which may be as large as their code several times over.
    pub lines: bool,
    /// Compile in two thirds of the time (0.25 s for 0.38 of a component of 4.6 MB, most of it debugging information),
    /// to larger and slower code: for a component that its author is writing.
    pub quick: bool,
    /// Where instances live.
    pub pooling: Pooling,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime does not support the profile on this machine.
    #[error("cannot set up the WebAssembly engine: {0:#}")]
    Setup(wasmtime::Error),
    /// The ticker's thread does not start.
    #[error("cannot start the thread that ends calls at their deadline")]
    Ticker(#[source] io::Error),
}

/// The engine. Clones share it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<CallState>,
    ticker: Ticker,
    profile: Profile,
    pooled: bool,
}

impl Engine {
    /// An engine with its ticker thread, which sleeps while no call runs.
    ///
    /// # Errors
    /// When the machine cannot run this profile at all. Without pools the engine maps instances on demand.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let pools = match options.pooling {
            Pooling::OnDemand => None,
            Pooling::Probe => Some(pool::config()),
            Pooling::ProbeForOne => Some(pool::config_for_one()),
        };
        let profile = Profile { fuel: options.fuel, lines: options.lines, quick: options.quick };
        let build_pooled = |pools| {
            let warn = |error: &EngineError| {
                warn!(%error, "no memory pools on this machine; instances are mapped on demand, which is slower");
            };
            build(profile, Some(pools)).inspect_err(warn).ok()
        };
        let (wasmtime, pooled) = match pools.and_then(build_pooled) {
            Some(engine) => (engine, true),
            None => (build(profile, None)?, false),
        };
        let linker = linker(&wasmtime).map_err(EngineError::Setup)?;
        let ticker = Ticker::start(&wasmtime).map_err(EngineError::Ticker)?;
        Ok(Self { inner: Arc::new(Inner { wasmtime, linker, ticker, profile, pooled }) })
    }

    /// True when instances come from pools.
    pub fn pooled(&self) -> bool {
        self.inner.pooled
    }

    /// True when this engine counts fuel.
    pub fn counts_fuel(&self) -> bool {
        self.inner.profile.fuel
    }

    /// Maps an artifact into memory.
    #[expect(unsafe_code, reason = "wasmtime cannot tell native code that its compiler wrote from other code")]
    pub(crate) fn component(&self, artifact: &File) -> wasmtime::Result<Component> {
        // The path of an open file of this process, also when its own path is gone.
        let path = format!("/dev/fd/{}", artifact.as_raw_fd());
        // SAFETY: the file is native code that will run, so it must be what wasmtime's compiler wrote. It is: only the
        // compile child of this binary makes artifacts, through a pipe into a directory that only this user can write,
        // or into memory that this process alone has, and `compile::Compiler` compares the sha256 of what lay in the
        // directory with what the child delivered before it hands them out. Files are replaced by rename and never changed
        // in place, so the mapping does not change.
        unsafe { Component::deserialize_file(&self.inner.wasmtime, path) }
    }

    /// What the code of this engine's artifacts depends on, beside the machine.
    pub(crate) fn profile(&self) -> Profile {
        self.inner.profile
    }

    /// Artifacts load in an engine exactly when this is the value that they were compiled for.
    pub(crate) fn compatibility(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner.wasmtime.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    pub(crate) fn linker(&self) -> &Linker<CallState> {
        &self.inner.linker
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.inner.ticker
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("profile", &self.inner.profile).field("pooled", &self.inner.pooled).finish()
    }
}

/// The options that affect compiled code. Engines of one profile run each other's artifacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Profile {
    pub(crate) fuel: bool,
    pub(crate) lines: bool,
    pub(crate) quick: bool,
}

/// An engine that compiles for a profile and runs nothing.
pub(crate) fn compiling(profile: Profile) -> Result<wasmtime::Engine, EngineError> {
    build(profile, None)
}

fn build(profile: Profile, pools: Option<wasmtime::PoolingAllocationConfig>) -> Result<wasmtime::Engine, EngineError> {
    let mut config = profile_config(profile);
    if let Some(pools) = pools {
        config.allocation_strategy(pools);
    }
    wasmtime::Engine::new(&config).map_err(EngineError::Setup)
}

/// The narrow profile: every proposal that guests in Rust, JavaScript, Go and Python do not need is off, because most
/// of wasmtime's past advisories were in those.
fn profile_config(profile: Profile) -> Config {
    let (optimisation, registers, stack) = if profile.quick {
        (OptLevel::None, RegallocAlgorithm::SinglePass, 2 * STACK_BYTES)
    } else {
        (OptLevel::Speed, RegallocAlgorithm::Backtracking, STACK_BYTES)
    };
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(optimisation)
        .cranelift_regalloc_algorithm(registers)
        .cranelift_nan_canonicalization(true)
        .wasm_component_model(true)
        .wasm_simd(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false)
        .gc_support(false)
        .shared_memory(false)
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(profile.fuel)
        .max_wasm_stack(stack)
        .wasm_backtrace_max_frames(Some(BACKTRACE_FRAMES))
        .wasm_backtrace_details(if profile.lines {
            WasmBacktraceDetails::Enable
        } else {
            WasmBacktraceDetails::Disable
        });
    config
}

/// One linker for every plugin: the contract and the virtual WASI.
fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    crate::host::add_to_linker(&mut linker)?;
    crate::wasi::add_to_linker(&mut linker)?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_with_and_without_pools_run_the_same_artifacts() {
        let pooled = Engine::new(EngineOptions::default()).unwrap();
        let on_demand = Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap();
        assert!(!on_demand.pooled());
        assert_eq!(pooled.compatibility(), on_demand.compatibility());
        let fuel = EngineOptions { fuel: true, pooling: Pooling::OnDemand, ..EngineOptions::default() };
        let fuel = Engine::new(fuel).unwrap();
        assert_ne!(fuel.compatibility(), on_demand.compatibility());
        let quick = EngineOptions { quick: true, pooling: Pooling::OnDemand, ..EngineOptions::default() };
        assert_ne!(Engine::new(quick).unwrap().compatibility(), on_demand.compatibility());
    }
}
