//! Performs the engine's effects: starts and stops watches, submits calls to the workers, sends writes to the API
//! server, and counts and logs observations. Every result comes back as an input of the event loop.
//!
//! Nothing here waits: writes and live reads wait for their permits in tasks of their own. The engine bounds what is in
//! flight: one call for each key, as many calls as it has slots, its plans' writes, and HTTP requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use mortise_core::call::{Call, CallDone, Conclusion};
use mortise_core::dependencies::Dependencies;
use mortise_core::digest::Digest;
use mortise_core::event::{Effect, Event, LiveTarget, Sending};
use mortise_core::object::Kind;
use mortise_core::observation::Observation;
use mortise_core::rights::{IdentityReview, Review};
use mortise_core::scope::Slice;
use mortise_core::write::Write;
use mortise_kube::audit;
use mortise_kube::client::ApiServer;
use mortise_kube::watch;
use mortise_wasm::workers::{Job, QueueFull, Work, Workers};
use tokio::task::{AbortHandle, spawn_blocking};
use tracing::Instrument as _;

use crate::components::Components;
use crate::http_client::HttpClient;
use crate::input::Input;
use crate::inputs::Inputs;
use crate::log::{self, Observations};
use crate::metrics::Metrics;
use crate::observer::Observer;
use crate::sources::TenantSources;
use crate::supervise::Supervisor;
use crate::webhooks::{Route, Webhooks};

pub(crate) struct Performer {
    pub(crate) api: ApiServer,
    pub(crate) inputs: Inputs,
    pub(crate) supervisor: Supervisor,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) workers: Workers,
    /// Calls that are not submitted yet.
    pub(crate) jobs: Vec<Job>,
    pub(crate) components: Components,
    pub(crate) watches: BTreeMap<Slice, AbortHandle>,
    pub(crate) tenants: TenantSources,
    pub(crate) audit: Option<AbortHandle>,
    pub(crate) observations: Observations,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) webhooks: Webhooks,
    pub(crate) http: HttpClient,
}

impl Performer {
    /// Begins one effect; returns its result if there is one at once.
    pub(crate) fn perform(&mut self, effect: Effect) -> Option<Event> {
        if let Some(observer) = &self.observer {
            observer.effect(&effect);
        }
        match effect {
            Effect::StartWatch(slice) | Effect::Relist(slice) => self.start_watch(slice),
            Effect::StopWatch(slice) => {
                if let Some(watch) = self.watches.remove(&slice) {
                    watch.abort();
                }
                if !self.watches.keys().any(|other| other.kind == slice.kind) {
                    self.metrics.unwatched(&slice.kind);
                }
            }
            Effect::WatchTenant(namespace) => self.tenants.watch(namespace),
            Effect::StopTenant(namespace) => self.tenants.stop(&namespace),
            Effect::Compile(digest) => return self.components.compile(&digest),
            Effect::Unload(digest) => self.components.unload(&digest),
            Effect::RegisterCrd { plugin, crd, body, not_after_ms } => {
                self.register_crd(plugin, crd, body, not_after_ms);
            }
            Effect::ServeAdmission { plugin, backend: Some(backend) } => {
                if let Some(route) = self.route(&plugin, &backend.digest.clone(), backend) {
                    self.webhooks.serve(&plugin, route);
                }
            }
            Effect::ServeAdmission { plugin, backend: None } => self.webhooks.end(&plugin),
            Effect::ServeConversion { plugin, backend: Some(backend) } => {
                if let Some(route) = self.route(&plugin, &backend.digest.clone(), backend) {
                    self.webhooks.convert(&plugin, route);
                }
            }
            Effect::ServeConversion { plugin, backend: None } => self.webhooks.end_conversion(&plugin),
            Effect::Call(call) => return self.prepare(call),
            Effect::Write(write) => self.write(write),
            Effect::Http(sending) => self.request(sending),
            Effect::ReadLive(target) => self.read_live(target),
            Effect::Review(review) => self.review(review),
            Effect::ReviewIdentity(review) => self.review_identity(review),
            Effect::Audit(slice) => self.audit(slice),
            Effect::Observe(observation) => self.observe(&observation),
            Effect::Discard(garbage) => self.discard(garbage),
            // The event loop has the timer.
            Effect::WakeAt(_) => {}
        }
        None
    }

    /// Frees memory where no input waits for that.
    pub(crate) fn discard(&self, it: impl Send + 'static) {
        self.supervisor.spawn("freeing memory", async move {
            spawn_blocking(move || drop(it)).await.expect("to free memory does not panic");
        });
    }

    pub(crate) fn watched(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.watches.keys().map(|slice| slice.kind.clone()).collect();
        // Sorted, so that the slices of a kind follow each other.
        kinds.dedup();
        kinds
    }

    fn start_watch(&mut self, slice: Slice) {
        let wrapped = slice.clone();
        let wrap = move |event| Input::Event(Event::Watch(wrapped.clone(), event));
        let watch = watch::run(self.api.clone(), slice.clone().into(), self.inputs.clone(), wrap);
        let task = self.supervisor.task(format!("the watch of {slice}"), async {
            watch.await;
            Ok(())
        });
        if let Some(earlier) = self.watches.insert(slice, task) {
            earlier.abort();
        }
    }

    fn register_crd(&self, plugin: Arc<str>, crd: Arc<str>, body: Arc<str>, not_after_ms: Option<u64>) {
        let api = self.api.clone();
        self.send("the registration of a CRD", async move {
            let result = api.register_crd(&body, not_after_ms).await;
            Event::CrdRegistered { plugin, crd, result }
        });
    }

    fn route<B>(&self, name: &Arc<str>, digest: &Digest, backend: Arc<B>) -> Option<Route<B>> {
        let plugin = self.components.get(digest).map(Arc::clone);
        if plugin.is_none() {
            tracing::error!(plugin = %name, %digest, "the engine serves webhooks of a component that is not loaded");
        }
        Some(Route { plugin: plugin?, backend })
    }

    fn write(&self, write: Box<Write>) {
        let (api, metrics, span) = (self.api.clone(), Arc::clone(&self.metrics), log::span_of(&write));
        let task = async move {
            let result = api.execute(&write).await;
            metrics.wrote(&write, result.as_ref().map(|_| ()));
            log::wrote(&write, &result);
            Event::Wrote(write.id, result)
        };
        self.send("a write", task.instrument(span));
    }

    fn request(&self, sending: Box<Sending>) {
        let (client, api, metrics) = (self.http.clone(), self.api.clone(), Arc::clone(&self.metrics));
        let throttle = self.observations.throttle.clone();
        self.send("an HTTP request", async move {
            let sent = client.send(&sending, &api).await;
            metrics.requested(&sending.cause.controller, &sent);
            log::requested(&throttle, &sending, &sent);
            Event::HttpDone(sending.id, sent)
        });
    }

    fn read_live(&self, target: LiveTarget) {
        let api = self.api.clone();
        self.send("a live read", async move {
            let result = api.read_live(&target).await;
            Event::LiveRead(target, result)
        });
    }

    fn review(&self, review: Box<Review>) {
        let api = self.api.clone();
        self.send("a review of rights", async move {
            let result = api.review(&review).await;
            Event::Reviewed(*review, result)
        });
    }

    fn review_identity(&self, review: IdentityReview) {
        let api = self.api.clone();
        self.send("a review of an identity", async move {
            let result = api.review_identity(&review).await;
            Event::IdentityReviewed(review, result)
        });
    }

    fn audit(&mut self, slice: Slice) {
        let of = slice.clone();
        let wrap = move |event| Input::Event(Event::Audit(of.clone(), event));
        let audit = audit::run(self.api.clone(), slice, self.inputs.clone(), wrap);
        if let Some(earlier) = self.audit.replace(self.supervisor.spawn("an audit", audit)) {
            earlier.abort();
        }
    }

    /// Sends the result of a task to the engine.
    fn send(&self, name: &'static str, task: impl Future<Output = Event> + Send + 'static) {
        let inputs = self.inputs.clone();
        self.supervisor.spawn(name, async move {
            // An error means that the loop has ended.
            let _ = inputs.send(Input::Event(task.await)).await;
        });
    }

    /// Adds a call to those of the next [`Self::submit`].
    fn prepare(&mut self, call: Box<Call>) -> Option<Event> {
        let Some(plugin) = self.components.get(&call.cause.digest).map(Arc::clone) else {
            tracing::error!(controller = %call.cause.controller, digest = %call.cause.digest, "the engine calls a component that is not loaded");
            return Some(self.not_run(&call, format!("{} is not loaded", call.cause.digest)));
        };
        self.jobs.push(Job { plugin, work: Work::Reconcile(call) });
        None
    }

    /// Submits the calls since the last time. Returns the results of those that cannot run.
    pub(crate) fn submit(&mut self) -> Vec<Event> {
        let jobs = std::mem::take(&mut self.jobs);
        let not_run = |full: QueueFull| {
            let why = full.to_string();
            let Work::Reconcile(call) = full.0.work else { unreachable!("the error has the submitted job") };
            tracing::error!(controller = %call.cause.controller, "the engine makes more calls than the queue takes");
            self.not_run(&call, why)
        };
        self.workers.submitter().submit_reconciles(jobs).into_iter().map(not_run).collect()
    }

    fn observe(&self, observation: &Observation) {
        self.metrics.observe(Instant::now(), observation);
        self.observations.log(observation);
    }

    /// The end of a call that did not begin: a host fault, which the key's backoff bounds.
    fn not_run(&self, call: &Call, why: String) -> Event {
        self.metrics.host_fault(&call.cause.controller);
        let conclusion =
            Conclusion::HostFault(format!("mortise could not run the call: {why}; the plugin is not at fault"));
        Event::CallDone(call.id, CallDone { conclusion, reads: Dependencies::default(), elapsed_us: 0 })
    }
}
