//! A loaded plugin, and one call of it: a fresh store and instance, the bounds around it, and what came of it (G1, G2).
//! An object's JSON and a view go in, or a question about an object of the API server's; a [`CallCompletion`] or a [`Completion`]
//! in the core's types comes out. Calls are synchronous and run on the caller's thread; nothing here schedules them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_core::contract::{CallResult, GuestFault};
use mortise_core::dependencies::Dependencies;
use mortise_core::digest::Digest;
use mortise_core::limits::{CallLimits, MAX_MANIFEST_BYTES, MAX_MEMORY_BYTES};
use mortise_core::manifest::Exports;
use mortise_core::refusal::Refusal;
use mortise_core::view::View;
use wasmtime::Store;

use crate::bindings::{self, Snapshot};
use crate::compile::{self, Trial};
use crate::engine::Engine;
use crate::fault;
use crate::log::{LogLevel, LogLine};
use crate::outcome::{Reconcile, call_result};
use crate::state::{CallState, Inputs};

use self::linked::{Artifact, LinkError, Linked};
use self::request::WebhookRequest;

pub(crate) mod linked;
pub(crate) mod request;
#[cfg(test)]
mod tests;

/// Wall time that a component has to tell its manifest. Longer than a call's deadline: its code is mapped from disk for
/// the first time, perhaps on a machine that is busy compiling others.
const MANIFEST_DEADLINE_MS: u64 = 5_000;

/// A component that linked, instantiated and told its manifest. Cheap to keep: what calls need is in memory only while
/// there are calls, and code is mapped from a file.
pub struct Plugin {
    engine: Engine,
    digest: Digest,
    manifest: Arc<str>,
    exports: Exports,
    artifact: Artifact,
}

/// What came of one question of the API server.
#[derive(Debug)]
pub struct Completion<A> {
    /// Its answer or its fault.
    pub answer: A,
    /// What it logged, then what it wrote to stdout and stderr.
    pub logs: Vec<LogLine>,
    /// Log lines that were not kept because there were too many.
    pub dropped_logs: u64,
    /// What it used.
    pub stats: CallStats,
}

/// What came of one call.
#[derive(Debug)]
pub struct CallCompletion {
    /// Its answer or its fault.
    pub result: CallResult,
    /// Every question it asked of its view.
    pub reads: Dependencies,
    /// What it logged, then what it wrote to stdout and stderr.
    pub logs: Vec<LogLine>,
    /// Log lines that were not kept because there were too many.
    pub dropped_logs: u64,
    /// What it used.
    pub stats: CallStats,
}

/// What one call used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallStats {
    /// Wall time, instantiation included.
    pub elapsed: Duration,
    /// Fuel, when the engine counts it.
    pub fuel_used: Option<u64>,
    /// The size that its memories reached together.
    pub memory_bytes: u64,
    /// Calls into the host.
    pub host_calls: u32,
}

/// What a call leaves behind, beside its answer.
struct Leftovers {
    view: Option<View>,
    logs: Vec<LogLine>,
    dropped_logs: u64,
    stats: CallStats,
}

impl Engine {
    /// Links an artifact, tries it in an instance and asks for its manifest (G7).
    ///
    /// # Errors
    /// A [`Refusal`] when it does not link, does not instantiate or does not tell its manifest within the bounds.
    pub fn load(&self, artifact: compile::Artifact) -> Result<Plugin, Refusal> {
        Plugin::try_out(self, artifact)
    }

    /// A component that was tried before; see [`compile::Compiler::tried`]. Nothing of it is in memory until it is called.
    pub fn load_tried(&self, artifact: compile::Artifact, trial: &Trial) -> Plugin {
        let (digest, artifact) = (artifact.digest, Artifact::new(artifact.file));
        let manifest = Arc::clone(&trial.manifest);
        Plugin { engine: self.clone(), digest, manifest, exports: trial.exports, artifact }
    }
}

impl Plugin {
    /// Links an artifact, instantiates it once and asks for its manifest (G7): types that do not fit show only then.
    fn try_out(engine: &Engine, artifact: compile::Artifact) -> Result<Self, Refusal> {
        let (digest, artifact) = (artifact.digest, Artifact::new(artifact.file));
        let linked = artifact.linked(engine).map_err(|error| match error {
            LinkError::Artifact(error) => Refusal::new(
                "ArtifactUnusable",
                format!("the compiled component of {digest} cannot be loaded: {error:#}"),
            ),
            LinkError::Contract(message) => Refusal::new("ContractMismatch", message),
        })?;
        let exports = Exports { admission: linked.admission.is_some(), conversion: linked.conversion.is_some() };
        let mut plugin = Self { engine: engine.clone(), digest, manifest: Arc::from(""), exports, artifact };
        plugin.manifest = plugin.ask_manifest(&linked)?.into();
        // Many plugins have no object to reconcile: what has been tried waits in its file for the first call.
        plugin.release(Duration::ZERO);
        Ok(plugin)
    }

    /// Gives back the memory that calls need, if none was made for as long as this. The next call takes a millisecond more.
    pub fn release(&self, unused_for: Duration) {
        self.artifact.release(unused_for);
    }

    /// The sha256 of the component's bytes.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The manifest, as the component returned it.
    pub fn manifest(&self) -> &Arc<str> {
        &self.manifest
    }

    /// Which of the contract's optional interfaces it exports.
    pub fn exports(&self) -> Exports {
        self.exports
    }

    fn ask_manifest(&self, linked: &Linked) -> Result<String, Refusal> {
        // The manifest says how much memory a call may have, so asking for it gets what any manifest may say.
        let limits = CallLimits {
            memory_bytes: MAX_MEMORY_BYTES,
            deadline_ms: MANIFEST_DEADLINE_MS,
            output_bytes: MAX_MANIFEST_BYTES as u64,
            ..CallLimits::default()
        };
        let mut store = self.store(Inputs::None, &limits, 0);
        let running = self.engine.ticker().run();
        let instance = linked.pre.instance_pre().instantiate(&mut store);
        let (instance, exports) = match instance.and_then(|it| Ok((it, bindings::Plugin::new(&mut store, &it)?))) {
            Ok(instance) => instance,
            Err(error) => {
                let (reason, why) = match fault::of(&error, store.data(), &limits) {
                    GuestFault::BadOutcome { message } => ("ContractMismatch", message),
                    fault => ("InstantiationFailed", explain(&fault)),
                };
                return Err(Refusal::new(reason, format!("the component does not instantiate: {why}")));
            }
        };
        linked.check_optional(&mut store, &instance).map_err(|message| Refusal::new("ContractMismatch", message))?;
        let answer = exports.mortise_plugin_reconciler().call_manifest(&mut store);
        drop(running);
        answer.map_err(|error| {
            let fault = fault::of(&error, store.data(), &limits);
            Refusal::new("ManifestFailed", format!("the component did not tell its manifest: {}", explain(&fault)))
        })
    }

    /// Reconciles one object, given as JSON text, in a fresh instance.
    pub fn call(&self, object: &str, view: View, limits: &CallLimits) -> CallCompletion {
        let begin = Instant::now();
        let linked = match self.artifact.linked(&self.engine) {
            Ok(linked) => linked,
            Err(error) => {
                return CallCompletion {
                    result: CallResult::HostFault(self.not_callable(&error)),
                    reads: Dependencies::default(),
                    logs: Vec::new(),
                    dropped_logs: 0,
                    stats: CallStats { elapsed: begin.elapsed(), ..CallStats::default() },
                };
            }
        };
        let mut store = self.store(Inputs::View(view), limits, seed(object));
        let running = self.engine.ticker().run();
        let result = match reconcile(&linked, &mut store, object) {
            Ok(result) => result,
            Err(error) => CallResult::Fault(fault::of(&error, store.data(), limits)),
        };
        drop(running);
        let is_trap = matches!(result, CallResult::Fault(GuestFault::Trap { .. }));
        let Leftovers { view, logs, dropped_logs, stats } = self.leftovers(store, limits, is_trap, begin);
        CallCompletion {
            result,
            reads: view.map(View::into_dependencies).unwrap_or_default(),
            logs,
            dropped_logs,
            stats,
        }
    }

    /// Asks what the API server wants to know of an object, in a fresh instance.
    pub(crate) fn ask<Q: WebhookRequest>(
        &self,
        question: &Q,
        limits: &CallLimits,
    ) -> Completion<Result<Q::Answer, GuestFault>> {
        let begin = Instant::now();
        let linked = match self.artifact.linked(&self.engine) {
            Ok(linked) => linked,
            Err(error) => {
                let stats = CallStats { elapsed: begin.elapsed(), ..CallStats::default() };
                let answer = Ok(Q::host_fault(self.not_callable(&error)));
                return Completion { answer, logs: Vec::new(), dropped_logs: 0, stats };
            }
        };
        let mut store = self.store(question.inputs(), limits, seed(question.object()));
        let running = self.engine.ticker().run();
        let answer = question.ask(&linked, &mut store).map_err(|error| fault::of(&error, store.data(), limits));
        drop(running);
        let is_trap = matches!(answer, Err(GuestFault::Trap { .. }));
        let Leftovers { logs, dropped_logs, stats, .. } = self.leftovers(store, limits, is_trap, begin);
        Completion { answer, logs, dropped_logs, stats }
    }

    /// What is left of a call when it has ended. A trap's detail carries stderr already.
    fn leftovers(&self, store: Store<CallState>, limits: &CallLimits, is_trap: bool, begin: Instant) -> Leftovers {
        let fuel_used = self.engine.counts_fuel().then(|| fuel_of(limits) - store.get_fuel().unwrap_or_default());
        let mut state = store.into_data();
        if !is_trap {
            let (stdout, stderr) = (state.wasi.stdout(), state.wasi.stderr());
            state.log.add_text(LogLevel::Info, &stdout);
            state.log.add_text(LogLevel::Warn, &stderr);
        }
        let memory_bytes = state.limiter.memory_bytes;
        let (view, log, host_calls) = state.into_parts();
        let (logs, dropped_logs) = log.into_parts();
        let stats = CallStats { elapsed: begin.elapsed(), fuel_used, memory_bytes, host_calls };
        Leftovers { view, logs, dropped_logs, stats }
    }

    /// The artifact was usable when it was tried: this machine has changed, and the next try may find it mended.
    fn not_callable(&self, error: &LinkError) -> String {
        let why = match error {
            LinkError::Artifact(error) => format!("{error:#}"),
            LinkError::Contract(message) => message.clone(),
        };
        format!(
            "mortise could not load the compiled component of {} again: {why}; the plugin is not at fault",
            self.digest
        )
    }

    /// A store with its bounds set; the deadline begins now.
    fn store(&self, inputs: Inputs, limits: &CallLimits, seed: u64) -> Store<CallState> {
        let mut store = Store::new(self.engine.wasmtime(), CallState::new(inputs, limits, seed));
        store.limiter(|state| &mut state.limiter);
        store.set_epoch_deadline(crate::engine::ticks(limits.deadline_ms));
        store.set_hostcall_fuel(usize::try_from(limits.output_bytes).unwrap_or(usize::MAX));
        if self.engine.counts_fuel() {
            store.set_fuel(fuel_of(limits)).expect("the engine counts fuel");
        }
        store
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("digest", &self.digest).finish_non_exhaustive()
    }
}

fn reconcile(linked: &Linked, store: &mut Store<CallState>, object: &str) -> wasmtime::Result<CallResult> {
    let instance = linked.pre.instance_pre().instantiate(&mut *store)?;
    let reconcile: Reconcile<'_> = instance.get_typed_func(&mut *store, linked.reconcile)?;
    let snapshot = store.data_mut().table.push(Snapshot)?;
    let (answer,) = reconcile.call(store, (object, snapshot))?;
    Ok(call_result(answer))
}

/// Fuel of a call on an engine that counts it; without a limit there is more than any deadline lets burn.
fn fuel_of(limits: &CallLimits) -> u64 {
    limits.fuel.unwrap_or(u64::MAX >> 1)
}

/// A fault in full, for the one place where a person reads it.
fn explain(fault: &GuestFault) -> String {
    match fault {
        GuestFault::Trap { message, detail } if !detail.is_empty() => format!("it trapped: {message}\n{detail}"),
        GuestFault::Trap { message, .. } => format!("it trapped: {message}"),
        fault => fault.message(),
    }
}

/// Seeds a call's randomness from its object, so that two objects draw different numbers and one object the same. A
/// plain multiply-and-fold: it runs in every call and must cost nothing beside it.
fn seed(object: &str) -> u64 {
    let (words, rest) = object.as_bytes().as_chunks::<8>();
    let fold = |seed: u64, word: u64| (seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let seed = words.iter().fold(object.len() as u64, |seed, word| fold(seed, u64::from_le_bytes(*word)));
    rest.iter().fold(seed, |seed, byte| fold(seed, u64::from(*byte)))
}
