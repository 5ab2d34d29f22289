//! A loaded plugin and one call of it, bounded, in a fresh store and instance (G1, G2). An object's JSON and a view go
//! in, or a request of the API server; a [`Completion`] in mortise-core's types comes out. A call runs on the caller's
//! thread; nothing here schedules it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_core::admission::{AdmissionRequest, Verdict};
use mortise_core::contract::{CallResult, GuestFault};
use mortise_core::conversion::{Conversion, ConversionRequest};
use mortise_core::dependencies::Dependencies;
use mortise_core::digest::Digest;
use mortise_core::limits::{CallLimits, MAX_MANIFEST_BYTES, MAX_MEMORY_BYTES};
use mortise_core::manifest::Exports;
use mortise_core::refusal::Refusal;
use mortise_core::view::View;
use wasmtime::{Store, UpdateDeadline};

use crate::bindings;
use crate::compile::{self, CompileError, Trial};
use crate::deadline::{Clocks, Deadline, Look, Starved};
use crate::engine::Engine;
use crate::engine::ticker::Ticker;
use crate::fault;
use crate::log::{LogLevel, LogLine};
use crate::state::{CallState, Inputs, WaitsForKind};

use self::linked::{Artifact, LinkError, Linked};
use self::request::WebhookRequest;

pub(crate) mod linked;
pub(crate) mod request;
#[cfg(test)]
mod tests;

/// Processor time in which a component must return its manifest. Longer than a call's deadline: its code is mapped from disk
/// for the first time.
const MANIFEST_DEADLINE_MS: u64 = 5_000;

/// A component that linked, instantiated and returned its manifest. It takes memory only while it is called: its code
/// is mapped from a file.
pub struct Plugin {
    engine: Engine,
    digest: Digest,
    manifest: Arc<str>,
    exports: Exports,
    artifact: Artifact,
}

/// How one call ended.
#[derive(Debug)]
pub struct Completion<R> {
    /// What the guest returned, or its fault, or the host's.
    pub result: R,
    /// What it read of its view; a request of the API server has none.
    pub reads: Dependencies,
    /// What it logged, then what it wrote to stdout and stderr.
    pub logs: Vec<LogLine>,
    /// Log lines over the bound.
    pub dropped_logs: u64,
    /// What it used.
    pub stats: CallStats,
}

/// How one reconcile ended.
pub type CallCompletion = Completion<CallResult>;

impl<R> Completion<R> {
    /// Of a call that the host could not make.
    pub(crate) fn without_call(result: R) -> Self {
        Self { result, reads: Dependencies::default(), logs: Vec::new(), dropped_logs: 0, stats: CallStats::default() }
    }
}

/// What one call used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallStats {
    /// Wall time, instantiation included.
    pub elapsed: Duration,
    /// What of it its thread waited for a processor, if the call was long enough to be seen at it.
    pub waited: Duration,
    /// Fuel, when the engine counts it.
    pub fuel_used: Option<u64>,
    /// The size that its memories reached together.
    pub memory_bytes: u64,
    /// Calls into the host.
    pub host_calls: u32,
}

impl Engine {
    /// Links an artifact, instantiates it once and reads its manifest (G7): types that do not match show only then.
    ///
    /// # Errors
    /// [`CompileError::Refused`] when it does not link, does not instantiate or does not return its manifest within the bounds.
    pub fn load(&self, artifact: compile::Artifact) -> Result<Plugin, CompileError> {
        let (digest, artifact) = (artifact.digest, Artifact::new(artifact.file));
        let linked = artifact.linked(self).map_err(|error| match error {
            LinkError::Artifact(error) => Refusal::new(
                "ArtifactUnusable",
                format!("the compiled component of {digest} cannot be loaded: {error:#}"),
            ),
            LinkError::Contract(message) => Refusal::new("ContractMismatch", message),
        })?;
        let exports = Exports { admission: linked.admission.is_some(), conversion: linked.conversion.is_some() };
        let mut plugin = Plugin { engine: self.clone(), digest, manifest: Arc::from(""), exports, artifact };
        let until = Deadline::latest(&manifest_limits(), Instant::now());
        plugin.manifest = plugin.read_manifest(&linked, until)?.into();
        // Many plugins have no object to reconcile, so the component is linked again at its first call.
        plugin.release(Duration::ZERO);
        Ok(plugin)
    }

    /// A component that was tried before; see [`compile::Compiler::tried`]. Nothing of it is in memory until it is
    /// called.
    pub fn load_tried(&self, artifact: compile::Artifact, trial: &Trial) -> Plugin {
        let (digest, artifact) = (artifact.digest, Artifact::new(artifact.file));
        let manifest = Arc::clone(&trial.manifest);
        Plugin { engine: self.clone(), digest, manifest, exports: trial.exports, artifact }
    }
}

impl Plugin {
    /// Frees the memory that calls need, if the last call is at least this long ago. The next call takes a millisecond
    /// more.
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

    fn read_manifest(&self, linked: &Linked, until: Instant) -> Result<String, CompileError> {
        let limits = manifest_limits();
        let mut store = self.store(Inputs::None, &limits, Instant::now(), until);
        let running = self.engine.ticker().run();
        let instance = linked.pre.instance_pre().instantiate(&mut store);
        let (instance, exports) = match instance.and_then(|it| Ok((it, bindings::Plugin::new(&mut store, &it)?))) {
            Ok(instance) => instance,
            Err(error) => {
                return Err(not_loaded(&error, store.data(), &limits, |fault| match fault {
                    GuestFault::BadOutcome { message } => {
                        Refusal::new("ContractMismatch", format!("the component does not instantiate: {message}"))
                    }
                    fault => faulted("InstantiationFailed", "the component does not instantiate", &fault),
                }));
            }
        };
        linked.check_optional(&mut store, &instance).map_err(|message| Refusal::new("ContractMismatch", message))?;
        let manifest = exports.mortise_plugin_reconciler().call_manifest(&mut store);
        drop(running);
        manifest.map_err(|error| {
            not_loaded(&error, store.data(), &limits, |fault| {
                faulted("ManifestFailed", "the component did not return its manifest", &fault)
            })
        })
    }

    /// Reconciles one object, given as JSON text, in a fresh instance.
    pub fn call(&self, object: &str, view: View, limits: &CallLimits) -> CallCompletion {
        self.call_until(object, view, limits, Deadline::latest(limits, Instant::now()))
    }

    /// The same; the machine is at fault for a call that has not ended at this instant.
    pub(crate) fn call_until(&self, object: &str, view: View, limits: &CallLimits, until: Instant) -> CallCompletion {
        let bounds = (limits, until);
        self.run(Inputs::View(view), bounds, CallResult::Fault, CallResult::HostFault, |linked, store| {
            let called = linked.reconcile.call(linked.pre.instance_pre(), store, object);
            called.or_else(|error| error.downcast().map(|WaitsForKind(kind)| CallResult::Waits(kind)))
        })
    }

    /// Answers an admission request, in a fresh instance.
    pub fn admit(&self, request: &AdmissionRequest, limits: &CallLimits) -> Verdict {
        let until = Deadline::latest(limits, Instant::now());
        self.review(request, limits, until).result.unwrap_or_else(Verdict::Fault)
    }

    /// Converts an object, in a fresh instance.
    pub fn convert(&self, request: &ConversionRequest, limits: &CallLimits) -> Conversion {
        let until = Deadline::latest(limits, Instant::now());
        self.review(request, limits, until).result.unwrap_or_else(Conversion::Fault)
    }

    /// Answers a request of the API server, in a fresh instance, until an instant after which nobody waits for it.
    pub(crate) fn review<Q: WebhookRequest>(
        &self,
        request: &Q,
        limits: &CallLimits,
        until: Instant,
    ) -> Completion<Result<Q::Response, GuestFault>> {
        let host_fault = |message| Ok(Q::host_fault(message));
        let bounds = (limits, until);
        self.run(request.inputs(), bounds, Err, host_fault, |linked, store| request.call(linked, store).map(Ok))
    }

    fn run<R>(
        &self,
        inputs: Inputs,
        (limits, until): (&CallLimits, Instant),
        fault: impl FnOnce(GuestFault) -> R,
        host_fault: impl FnOnce(String) -> R,
        call: impl FnOnce(&Linked, &mut Store<CallState>) -> wasmtime::Result<R>,
    ) -> Completion<R> {
        let begin = Instant::now();
        let linked = match self.artifact.linked(&self.engine) {
            Ok(linked) => linked,
            Err(error) => return Completion::without_call(host_fault(self.not_callable(&error))),
        };
        let mut store = self.store(inputs, limits, begin, until);
        let running = self.engine.ticker().run();
        let result = call(&linked, &mut store).or_else(|error| match error.downcast_ref::<Starved>() {
            Some(starved) => Ok(host_fault(starved.to_string())),
            None => Err(fault::of(&error, store.data(), limits)),
        });
        drop(running);
        let fuel_used = self.engine.counts_fuel().then(|| fuel_of(limits) - store.get_fuel().unwrap_or_default());
        let mut state = store.into_data();
        // A trap's detail carries stderr already.
        if !matches!(result, Err(GuestFault::Trap { .. })) {
            let (stdout, stderr) = (state.wasi.stdout(), state.wasi.stderr());
            state.log.add_text(LogLevel::Info, &stdout);
            state.log.add_text(LogLevel::Warn, &stderr);
        }
        let (memory_bytes, waited) = (state.limiter.memory_bytes, state.deadline.waited(Clocks::now));
        let (view, log, host_calls) = state.into_parts();
        let (logs, dropped_logs) = log.into_parts();
        let stats = CallStats { elapsed: begin.elapsed(), waited, fuel_used, memory_bytes, host_calls };
        let reads = view.map(View::into_dependencies).unwrap_or_default();
        Completion { result: result.unwrap_or_else(fault), reads, logs, dropped_logs, stats }
    }

    /// The artifact was usable when it was tried, so this machine has changed; a retry may succeed.
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

    /// A store with its bounds.
    fn store(&self, inputs: Inputs, limits: &CallLimits, began: Instant, until: Instant) -> Store<CallState> {
        let mut store = Store::new(self.engine.wasmtime(), CallState::new(inputs, limits, began, until));
        store.limiter(|state| &mut state.limiter);
        // The first look is at the next epoch.
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| match store.data_mut().deadline.look(Clocks::now()) {
            Look::Again(time) => Ok(UpdateDeadline::Continue(Ticker::ticks(time))),
            Look::Exceeded => Ok(UpdateDeadline::Interrupt),
            Look::Starved(starved) => Err(starved.into()),
        });
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

/// The manifest sets the memory of a call, so reading it gets the most that a manifest can set.
fn manifest_limits() -> CallLimits {
    CallLimits {
        memory_bytes: MAX_MEMORY_BYTES,
        deadline_ms: MANIFEST_DEADLINE_MS,
        output_bytes: MAX_MANIFEST_BYTES as u64,
        ..CallLimits::default()
    }
}

/// Fuel of a call on an engine that counts it; without a limit, more than any deadline lets a guest burn.
fn fuel_of(limits: &CallLimits) -> u64 {
    limits.fuel.unwrap_or(u64::MAX >> 1)
}

/// A component that was not tried to the end: by the machine's fault, or its own.
fn not_loaded(
    error: &wasmtime::Error,
    state: &CallState,
    limits: &CallLimits,
    refuse: impl FnOnce(GuestFault) -> Refusal,
) -> CompileError {
    match error.downcast_ref::<Starved>() {
        Some(starved) => CompileError::Host {
            doing: "read the manifest of a component".to_owned(),
            source: io::Error::new(io::ErrorKind::TimedOut, *starved),
        },
        None => refuse(fault::of(error, state, limits)).into(),
    }
}

/// A refusal for a fault. What the component said is not in its message.
fn faulted(reason: &'static str, what: &str, fault: &GuestFault) -> Refusal {
    let why = fault.without_words();
    match fault {
        GuestFault::Trap { message, detail } => {
            Refusal::new(reason, format!("{what}: {why}; `mortise inspect FILE.wasm` shows what it said"))
                .with_words(format!("{message}\n{detail}").trim_end())
        }
        _ => Refusal::new(reason, format!("{what}: {why}")),
    }
}
