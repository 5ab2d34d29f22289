//! Metrics: controller-runtime's and client-go's own series, so that existing dashboards work with
//! `controller=<plugin>/<kind>`, and mortise's series beside them.
//!
//! Observations, calls and writes come in; the text of `/metrics` comes out. No label has an object's name: the number
//! of series grows with plugins, never with objects, and shrinks when plugins are removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use mortise_core::admission::review::Answer;
use mortise_core::call::{CallDone, Conclusion};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::review::Failure;
use mortise_core::http::Sent;
use mortise_core::manifest::Manifest;
use mortise_core::object::Kind;
use mortise_core::observation::{Observation, ReconcileResult};
use mortise_core::watch::WatchError;
use mortise_core::webhook::{Purpose, at_path};
use mortise_core::write::{Write, WriteError, WriteErrorClass};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;

use self::families::{
    CallLabels, CodeLabels, ControllerLabels, Families, FaultLabels, HttpLabels, KindLabels, LagLabels, LeaseLabels,
    PluginLabels, QueueLabels, ReasonLabels, RequestLabels, ResultLabels, ReviewLabels, StepLabels, WebhookCodeLabels,
    WebhookLabels, WriteLabels,
};
use self::machine::{Machine, MachineState};
use self::series::{AllSeries, Labels, Series};
use crate::memory::Measured;

mod families;
pub(crate) mod machine;
mod series;
#[cfg(test)]
mod tests;

/// Reconciles in progress of one controller whose start is remembered for `longest_running_processor_seconds`. Four
/// times the highest concurrency of a manifest; beyond it the oldest is dropped, and a graph is less exact.
const MAX_RUNNING: usize = 1_024;

/// Every series of the process. Cheap to share; all methods are callable from any thread.
#[derive(Debug)]
pub(crate) struct Metrics {
    all: AllSeries,
    families: Families,
    leads: Series<LeaseLabels, Gauge>,
    machine: Machine,
    /// The last measurement of the host's memory.
    pub(crate) memory: Arc<Measured>,
    /// The starts of reconciles in progress, by controller. A scrape computes series from them, so an idle host needs
    /// no timer.
    running: Mutex<BTreeMap<Arc<str>, VecDeque<Instant>>>,
}

/// A webhook request in progress. One that is dropped, because its client went away, is not counted otherwise.
#[derive(Debug)]
pub(crate) struct WebhookRequest {
    metrics: Arc<Metrics>,
    labels: WebhookLabels,
    in_flight: Gauge,
}

impl WebhookRequest {
    pub(crate) fn ends(self, code: u16, elapsed: Duration) {
        let families = &self.metrics.families;
        let labels = WebhookCodeLabels { webhook: self.labels.webhook.clone(), code: code.to_string() };
        families.webhooks.requests.of(&labels).inc();
        families.webhooks.seconds.of(&self.labels).observe(elapsed.as_secs_f64());
    }
}

impl Drop for WebhookRequest {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

/// A plugin at a scrape.
pub(crate) struct PluginState {
    pub(crate) plugin: Arc<str>,
    /// The digest that serves; empty when none does.
    pub(crate) digest: Arc<str>,
    pub(crate) ready: bool,
}

/// A kind in the cache at a scrape.
pub(crate) struct CacheState {
    pub(crate) kind: String,
    pub(crate) objects: u64,
    /// Of their JSON text.
    pub(crate) bytes: u64,
}

/// The client's own count of requests.
pub(crate) struct RequestState {
    /// The HTTP status; "<error>" without a response, as in client-go.
    pub(crate) code: String,
    pub(crate) method: String,
    /// The API server's host and port.
    pub(crate) host: String,
    pub(crate) count: u64,
}

/// State that a scrape reads; everything else is counted when it happens.
#[derive(Default)]
pub(crate) struct Scraped {
    pub(crate) plugins: Vec<PluginState>,
    /// Waiting keys, by controller.
    pub(crate) queue_depths: Vec<(Arc<str>, usize)>,
    pub(crate) cache: Vec<CacheState>,
    pub(crate) requests: Vec<RequestState>,
    /// The highest lag of the event loop in the last minute or two.
    pub(crate) most_lag_ms: u64,
    pub(crate) machine: MachineState,
}

impl Metrics {
    /// All families, without series.
    pub(crate) fn new() -> Self {
        let mut all = AllSeries::default();
        let families = Families::register(&mut all);
        let leads = families::leads(&mut all);
        let machine = Machine::register(&mut all);
        Self { all, families, leads, machine, memory: Arc::default(), running: Mutex::default() }
    }

    pub(crate) fn observe(&self, at: Instant, observation: &Observation) {
        match observation {
            Observation::Enqueued { controller, retry } => self.enqueued(controller, *retry),
            Observation::Taken { controller, queued_ms } => self.taken(at, controller, *queued_ms),
            Observation::Reconciled { cause, result, elapsed_ms, skipped, .. } => {
                self.reconciled(at, &cause.controller, *result, *elapsed_ms, *skipped);
            }
            Observation::TurnEnded { cause } => self.ended(at, &cause.controller, None),
            Observation::Fault { cause, fault } => self.fault(&cause.controller, fault),
            Observation::Activated { plugin, manifest, reload, .. } => {
                if *reload {
                    self.families.reloads.of(&PluginLabels { plugin: plugin.clone() }).inc();
                }
                self.serves(plugin, manifest, *reload);
            }
            Observation::Refused { plugin, refusal } => {
                let labels = ReasonLabels { plugin: plugin.clone(), reason: refusal.reason };
                self.families.refusals.of(&labels).inc();
            }
            Observation::EventLeftOut { share, why } => {
                let labels = ReasonLabels { plugin: share.clone(), reason: why.as_str() };
                self.families.events_left_out.of(&labels).inc();
            }
            Observation::CacheLagging { object } => {
                self.families.cache.lagging.of(&KindLabels { kind: object.kind.to_string() }).inc();
            }
            Observation::Throttled { plugin, .. } => {
                self.families.throttled.of(&PluginLabels { plugin: plugin.clone() }).inc();
            }
            Observation::BreakerOpened { cause, .. } => {
                self.families.breaker_openings.of(&controller_labels(&cause.controller)).inc();
            }
            Observation::WatchFailed { kind, error } => {
                // Objects may name kinds that nobody serves, as many as they like, by what their plugin has read.
                let is_served = !matches!(error, WatchError::NotServed(_));
                let kind = if is_served { kind.to_string() } else { String::new() };
                let labels = CodeLabels { kind, reason: watch_reason(error) };
                self.families.watch_failures.of(&labels).inc();
            }
            Observation::Audited { kind, differences } => {
                let labels = KindLabels { kind: kind.to_string() };
                self.families.cache.audits.of(&labels).inc();
                self.families.cache.audit_differences.of(&labels).inc_by(differences.len() as u64);
            }
            Observation::Restored { kind, .. } => {
                self.families.cache.restores.of(&KindLabels { kind: kind.to_string() }).inc();
            }
            Observation::Undecodable { kind, .. } => {
                self.families.cache.undecodable.of(&KindLabels { kind: kind.to_string() }).inc();
            }
            // Calls in progress may create a few series again; `series::MAX_SERIES` bounds them.
            Observation::Withdrawn { plugin } => self.retain(|labels| plugin_of(labels) != Some(plugin)),
            // `wrote` counts writes by their class; the log has the others.
            Observation::WriteFailed { .. }
            | Observation::EventFailed { .. }
            | Observation::Withheld { .. }
            | Observation::FinalizersLeft { .. }
            | Observation::ConversionLeft { .. } => {}
        }
    }

    /// Counts one guest call.
    pub(crate) fn called(&self, controller: &Arc<str>, done: &CallDone) {
        let result = match done.conclusion {
            Conclusion::Wants(_) => "done",
            Conclusion::Failed(_) => "failed",
            Conclusion::Fault(_) => "fault",
            Conclusion::Waits(_) => "waits",
            Conclusion::HostFault(_) => {
                self.host_fault(controller);
                "host_fault"
            }
        };
        let labels = CallLabels { controller: controller.clone(), result };
        self.families.guest_calls.of(&labels).inc();
        self.families.guest_seconds.of(&controller_labels(controller)).observe(done.elapsed_us as f64 / 1e6);
    }

    /// Counts a call that the host could not run.
    pub(crate) fn host_fault(&self, controller: &Arc<str>) {
        self.families.host_faults.of(&controller_labels(controller)).inc();
    }

    /// Counts a webhook request while it is in progress.
    pub(crate) fn webhook_begins(self: &Arc<Self>, path: &str) -> WebhookRequest {
        let labels = WebhookLabels { webhook: path.to_owned() };
        let in_flight = self.families.webhooks.in_flight.of(&labels);
        in_flight.inc();
        WebhookRequest { metrics: Arc::clone(self), labels, in_flight }
    }

    /// Counts an admission review.
    pub(crate) fn reviewed(&self, controller: &Arc<str>, purpose: Purpose, response: &Answer) {
        let result = match (&response.fault, response.code) {
            (Some(_), _) => "fault",
            (None, 200) => "allowed",
            (None, 403 | 422) => "refused",
            (None, _) => "unavailable",
        };
        let labels = ReviewLabels { controller: controller.clone(), operation: purpose.as_str(), result };
        self.families.webhooks.reviews.of(&labels).inc();
        if let Some(fault) = &response.fault {
            self.fault(controller, fault);
        }
    }

    /// Counts the conversion of an object.
    pub(crate) fn converted(&self, controller: &Arc<str>, result: Result<(), &Failure>) {
        let word = match result {
            Ok(()) => "ok",
            Err(Failure { fault: Some(_), .. }) => "fault",
            Err(_) => "refused",
        };
        let labels = CallLabels { controller: controller.clone(), result: word };
        self.families.webhooks.conversions.of(&labels).inc();
        if let Err(Failure { fault: Some(fault), .. }) = result {
            self.fault(controller, fault);
        }
    }

    /// Counts a write and its result.
    pub(crate) fn wrote(&self, write: &Write, result: Result<(), &WriteError>) {
        let labels = WriteLabels {
            plugin: write.plugin.clone().unwrap_or_else(|| "mortise".into()),
            verb: write.op.verb(),
            kind: write.op.target().kind.to_string(),
            result: result.map_or_else(|error| write_reason(error.class), |()| "ok"),
        };
        self.families.writes.of(&labels).inc();
    }

    /// Counts an HTTP request by its status, or by why it has none. A server chooses the status, so one without a name is
    /// "other".
    pub(crate) fn requested(&self, controller: &Arc<str>, sent: &Sent) {
        let code = match sent {
            Sent::Response(response) => match StatusCode::from_u16(response.status) {
                Ok(status) if status.canonical_reason().is_some() => response.status.to_string(),
                _ => "other".to_owned(),
            },
            Sent::Failed(failure) => failure.class.as_str().to_owned(),
            Sent::NotGranted(_) => "not_granted".to_owned(),
            Sent::NotSent => "not_sent".to_owned(),
        };
        self.families.http_requests.of(&HttpLabels { controller: controller.clone(), code }).inc();
    }

    /// Observes how late the event loop handled an input or a timer.
    pub(crate) fn late(&self, what: &'static str, lag: Duration) {
        self.families.event_loop.lag.of(&LagLabels { what }).observe(lag.as_secs_f64());
    }

    /// Observes a step of the event loop that took long.
    pub(crate) fn long_step(&self, event: &'static str, elapsed: Duration) {
        self.families.event_loop.long_steps.of(&StepLabels { event }).observe(elapsed.as_secs_f64());
    }

    pub(crate) fn compiled(&self, compile_ms: u64, cached: bool) {
        let labels = families::CompileLabels { cached: if cached { "true" } else { "false" } };
        self.families.compile_seconds.of(&labels).observe(compile_ms as f64 / 1e3);
    }

    pub(crate) fn leads(&self, lease: &Arc<str>, leads: bool) {
        let labels = LeaseLabels { name: lease.clone() };
        self.leads.of(&labels).set(i64::from(leads));
    }

    fn serves(&self, plugin: &Arc<str>, manifest: &Manifest, reload: bool) {
        if reload {
            self.replaced(plugin, manifest);
        }
        for controller in &manifest.controllers {
            let label = format!("{plugin}/{}", controller.primary.kind).into();
            self.families.max_concurrent.of(&controller_labels(&label)).set(i64::from(controller.concurrency));
        }
    }

    pub(crate) fn unwatched(&self, kind: &Kind) {
        let kind = kind.to_string();
        self.all.retain(|labels| plugin_of(labels).is_some() || labels.value("kind") != Some(&kind));
    }

    /// The text of `/metrics`, in the OpenMetrics format. Writing to a `String` has no errors.
    pub(crate) fn encode(&self, now: Instant, scraped: &Scraped) -> Result<String, std::fmt::Error> {
        self.scrape(now, scraped);
        let mut text = String::new();
        encode(&mut text, &self.all.registry)?;
        Ok(text)
    }

    fn enqueued(&self, controller: &Arc<str>, retry: bool) {
        let labels = queue_labels(controller);
        self.families.adds.of(&labels).inc();
        if retry {
            self.families.retries.of(&labels).inc();
        }
    }

    fn taken(&self, at: Instant, controller: &Arc<str>, queued_ms: u64) {
        let labels = queue_labels(controller);
        self.families.queue_seconds.of(&labels).observe(queued_ms as f64 / 1e3);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = running.entry(controller.clone()).or_default();
        if starts.len() == MAX_RUNNING {
            starts.pop_front();
        }
        starts.push_back(at);
    }

    fn reconciled(&self, at: Instant, controller: &Arc<str>, result: ReconcileResult, elapsed_ms: u64, skipped: bool) {
        let seconds = elapsed_ms as f64 / 1e3;
        let labels = controller_labels(controller);
        let families = &self.families;
        families.reconcile_seconds.of(&labels).observe(seconds);
        families.work_seconds.of(&queue_labels(controller)).observe(seconds);
        let word = match result {
            ReconcileResult::Success => "success",
            ReconcileResult::RequeueAfter => "requeue_after",
            // controller-runtime counts a terminal error as an error too.
            ReconcileResult::Error | ReconcileResult::Terminal => "error",
        };
        let results = ResultLabels { controller: controller.clone(), result: word };
        families.reconciles.of(&results).inc();
        if word == "error" {
            families.errors.of(&labels).inc();
        }
        if result == ReconcileResult::Terminal {
            families.terminal_errors.of(&labels).inc();
        }
        if skipped {
            families.skipped.of(&labels).inc();
        }
        self.ended(at, controller, Some(elapsed_ms));
    }

    /// Removes the start of the reconcile that ended. Observations have no identity, so it is the one whose age is
    /// closest to the reconcile's duration, or the oldest without one.
    fn ended(&self, at: Instant, controller: &Arc<str>, elapsed_ms: Option<u64>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(starts) = running.get_mut(controller) else { return };
        let distance = |start: &Instant| {
            let age_ms = u64::try_from(at.saturating_duration_since(*start).as_millis()).unwrap_or(u64::MAX);
            age_ms.abs_diff(elapsed_ms.unwrap_or(u64::MAX))
        };
        let nearest = starts.iter().enumerate().min_by_key(|(_, start)| distance(start)).map(|(index, _)| index);
        if let Some(index) = nearest {
            starts.remove(index);
        }
    }

    fn fault(&self, controller: &Arc<str>, fault: &GuestFault) {
        let labels = FaultLabels { controller: controller.clone(), reason: fault.reason() };
        self.families.faults.of(&labels).inc();
        match fault {
            GuestFault::Trap { .. } => _ = self.families.panics.of(&controller_labels(controller)).inc(),
            GuestFault::Deadline { .. } => _ = self.families.timeouts.of(&controller_labels(controller)).inc(),
            _ => {}
        }
    }

    /// Removes the series of controllers and kinds that this version no longer has.
    fn replaced(&self, plugin: &Arc<str>, manifest: &Manifest) {
        let controllers = manifest.controllers.iter();
        let reviewed = manifest.admission.iter().map(|spec| &spec.kind);
        let reviewed = reviewed.chain(manifest.conversion.iter().map(|spec| &spec.kind));
        let labelled = controllers.clone().map(|controller| &controller.primary).chain(reviewed);
        let labelled: BTreeSet<&str> = labelled.map(|kind| &*kind.kind).collect();
        let written = controllers.flat_map(|controller| controller.readable());
        let written: BTreeSet<String> =
            written.chain(manifest.writes.iter().map(|rule| rule.kind.clone())).map(|kind| kind.to_string()).collect();
        self.retain(|labels| {
            plugin_of(labels) != Some(plugin)
                || match (labels.value("controller").and_then(|label| label.split_once('/')), labels.value("kind")) {
                    (Some((_, kind)), _) => labelled.contains(kind),
                    (None, Some(kind)) => written.contains(kind),
                    (None, None) => true,
                }
        });
    }

    fn retain(&self, keep: impl Fn(&dyn Labels) -> bool) {
        self.all.retain(&keep);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|controller, _| keep(&controller_labels(controller)));
    }

    /// Sets the gauges. Families are cleared first, so that removed plugins and kinds leave no series.
    fn scrape(&self, now: Instant, scraped: &Scraped) {
        self.scrape_work(now, scraped);
        self.scrape_plugins(scraped);
        self.machine.scrape(&scraped.machine);
        let families = &self.families;
        families.event_loop.most_lag.set(scraped.most_lag_ms as f64 / 1e3);
        families.cache.objects.clear();
        families.cache.bytes.clear();
        for state in &scraped.cache {
            let labels = KindLabels { kind: state.kind.clone() };
            families.cache.objects.of(&labels).set(gauge(state.objects));
            families.cache.bytes.of(&labels).set(gauge(state.bytes));
        }
        for state in &scraped.requests {
            let labels =
                RequestLabels { code: state.code.clone(), method: state.method.clone(), host: state.host.clone() };
            let counter = families.requests.of(&labels);
            counter.inc_by(state.count.saturating_sub(counter.get()));
        }
    }

    fn scrape_work(&self, now: Instant, scraped: &Scraped) {
        let families = &self.families;
        for series in [&families.unfinished_seconds, &families.longest_seconds] {
            series.clear();
        }
        families.active_workers.clear();
        for (controller, starts) in &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            let ages = starts.iter().map(|start| now.saturating_duration_since(*start).as_secs_f64());
            let labels = queue_labels(controller);
            // Not `sum`, which is -0 for an empty iterator.
            let unfinished = ages.clone().fold(0.0, |sum, age| sum + age);
            families.unfinished_seconds.of(&labels).set(unfinished);
            families.longest_seconds.of(&labels).set(ages.fold(0.0, f64::max));
            families.active_workers.of(&controller_labels(controller)).set(gauge(starts.len() as u64));
        }
        families.depth.clear();
        for (controller, waiting) in &scraped.queue_depths {
            families.depth.of(&queue_labels(controller)).set(gauge(*waiting as u64));
        }
    }

    fn scrape_plugins(&self, scraped: &Scraped) {
        let families = &self.families;
        families.plugin_info.clear();
        families.plugin_ready.clear();
        for state in &scraped.plugins {
            let info = families::InfoLabels { plugin: state.plugin.clone(), digest: state.digest.clone() };
            families.plugin_info.of(&info).set(1);
            let labels = PluginLabels { plugin: state.plugin.clone() };
            families.plugin_ready.of(&labels).set(i64::from(state.ready));
        }
    }
}

/// The plugin of a series; None for the host's own.
fn plugin_of(labels: &dyn Labels) -> Option<&str> {
    let by_controller = || labels.value("controller")?.split('/').next();
    let by_path = || at_path(labels.value("webhook")?).map(|(_, plugin)| plugin);
    labels.value("plugin").or_else(by_controller).or_else(by_path)
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn controller_labels(controller: &Arc<str>) -> ControllerLabels {
    ControllerLabels { controller: controller.clone() }
}

fn queue_labels(controller: &Arc<str>) -> QueueLabels {
    QueueLabels { name: controller.clone(), controller: controller.clone() }
}

fn watch_reason(error: &WatchError) -> &'static str {
    match error {
        WatchError::Denied(_) => "denied",
        WatchError::NotServed(_) => "not_served",
        WatchError::Unavailable(_) => "unavailable",
    }
}

fn write_reason(class: WriteErrorClass) -> &'static str {
    match class {
        WriteErrorClass::AlreadyExists => "already_exists",
        WriteErrorClass::Conflict => "conflict",
        WriteErrorClass::FieldConflict => "field_conflict",
        WriteErrorClass::NotFound => "not_found",
        WriteErrorClass::Invalid => "invalid",
        WriteErrorClass::Denied => "denied",
        WriteErrorClass::TooManyRequests { .. } => "too_many_requests",
        WriteErrorClass::Unknown => "unknown",
        WriteErrorClass::Blocked => "blocked",
        WriteErrorClass::Unavailable => "unavailable",
    }
}
