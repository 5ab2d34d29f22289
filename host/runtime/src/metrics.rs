//! What operators graph and alert on: controller-runtime's and client-go's own series, so that existing dashboards
//! work with `controller=<plugin>/<kind>`, and mortise's series beside them.
//!
//! Observations, calls and writes flow in; the text of `/metrics` flows out. Nothing here decides anything, and no label
//! carries an object's name: the number of series grows with plugins, never with objects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_core::admission::review::Answer;
use mortise_core::call::{CallDone, Conclusion};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::review::Failure;
use mortise_core::observation::{Observation, ReconcileResult};
use mortise_core::watch::WatchError;
use mortise_core::webhook::Purpose;
use mortise_core::write::{Write, WriteError, WriteErrorClass};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::families::{
    CallLabels, CodeLabels, ControllerLabels, Families, FaultLabels, KindLabels, LeaseLabels, PluginLabels,
    QueueLabels, ReasonLabels, RequestLabels, ResultLabels, ReviewLabels, WebhookCodeLabels, WebhookLabels,
    WriteLabels,
};

mod families;
#[cfg(test)]
mod tests;

/// Reconciles of one controller whose start is remembered for `longest_running_processor_seconds`. Four times the
/// highest concurrency a manifest may ask for; beyond it the oldest is forgotten and only a graph is less exact.
const MAX_RUNNING: usize = 1_024;

/// Every series of the process. Cheap to share; all methods are callable from any thread.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    leads: Family<LeaseLabels, Gauge>,
    /// When each reconcile in work began, by controller; the series made of it are computed at a scrape, so that an
    /// idle host has no timer for them.
    running: Mutex<BTreeMap<Arc<str>, VecDeque<Instant>>>,
}

/// A request to a webhook that is being answered. One that is dropped unanswered, because its client went away, is no
/// longer in work and is not counted otherwise.
#[derive(Debug)]
pub struct WebhookRequest {
    metrics: Arc<Metrics>,
    labels: WebhookLabels,
}

impl WebhookRequest {
    /// It was answered.
    pub fn ends(self, code: u16, elapsed: Duration) {
        let families = &self.metrics.families;
        let labels = WebhookCodeLabels { webhook: self.labels.webhook.clone(), code };
        families.webhooks.requests.get_or_create(&labels).inc();
        families.webhooks.seconds.get_or_create(&self.labels).observe(elapsed.as_secs_f64());
    }
}

impl Drop for WebhookRequest {
    fn drop(&mut self) {
        self.metrics.families.webhooks.in_flight.get_or_create(&self.labels).dec();
    }
}

/// What is known of one plugin at a scrape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginState {
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// The digest that serves; empty when none does.
    pub digest: Arc<str>,
    /// Whether it reconciles its kinds.
    pub ready: bool,
}

/// What one kind costs in the cache at a scrape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheState {
    /// "v1/Pod".
    pub kind: String,
    /// Objects held.
    pub objects: u64,
    /// Bytes of their JSON text.
    pub bytes: u64,
}

/// One row of the client's own request counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestState {
    /// The HTTP status, "<error>" when there was no answer, as client-go labels it.
    pub code: String,
    /// The HTTP method.
    pub method: String,
    /// The API server's host and port.
    pub host: String,
    /// Requests since the start.
    pub count: u64,
}

/// Everything that is read at a scrape instead of being counted as it happens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scraped {
    /// Plugins, by name.
    pub plugins: Vec<PluginState>,
    /// Keys that wait, by controller.
    pub queue_depths: Vec<(Arc<str>, usize)>,
    /// Kinds in the cache.
    pub cache: Vec<CacheState>,
    /// The client's requests.
    pub requests: Vec<RequestState>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All families, registered, without any series yet.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let families = Families::register(&mut registry);
        let leads = families::leads(&mut registry);
        Self { registry, families, leads, running: Mutex::default() }
    }

    /// Counts what the driver reports.
    pub fn observe(&self, at: Instant, observation: &Observation) {
        match observation {
            Observation::Enqueued { controller, retry } => self.enqueued(controller, *retry),
            Observation::Taken { controller, queued_ms } => self.taken(at, controller, *queued_ms),
            Observation::Reconciled { controller, result, elapsed_ms, skipped, .. } => {
                self.reconciled(at, controller, *result, *elapsed_ms, *skipped);
            }
            Observation::TurnEnded { controller, .. } => {
                self.families.active_workers.get_or_create(&controller_labels(controller)).dec();
                self.ended(at, controller, None);
            }
            Observation::Fault { controller, fault, .. } => self.fault(controller, fault),
            Observation::Activated { plugin, reload, .. } => {
                if *reload {
                    self.families.reloads.get_or_create(&PluginLabels { plugin: plugin.clone() }).inc();
                }
            }
            Observation::Refused { plugin, refusal } => {
                let labels = ReasonLabels { plugin: plugin.clone(), reason: refusal.reason };
                self.families.refusals.get_or_create(&labels).inc();
            }
            Observation::CacheLagging { object } => {
                self.families.cache_lagging.get_or_create(&KindLabels { kind: object.kind.to_string() }).inc();
            }
            Observation::Throttled { plugin, .. } => {
                self.families.throttled.get_or_create(&PluginLabels { plugin: plugin.clone() }).inc();
            }
            Observation::BreakerOpened { controller, .. } => {
                self.families.breaker_openings.get_or_create(&controller_labels(controller)).inc();
            }
            Observation::WatchFailed { kind, error } => {
                let labels = CodeLabels { kind: kind.to_string(), reason: watch_reason(error) };
                self.families.watch_failures.get_or_create(&labels).inc();
            }
            Observation::Audited { kind, differences } => {
                let labels = KindLabels { kind: kind.to_string() };
                self.families.audits.get_or_create(&labels).inc();
                self.families.audit_differences.get_or_create(&labels).inc_by(differences.len() as u64);
            }
            Observation::Restored { kind, .. } => {
                self.families.restores.get_or_create(&KindLabels { kind: kind.to_string() }).inc();
            }
            Observation::Undecodable { kind, .. } => {
                self.families.undecodable.get_or_create(&KindLabels { kind: kind.to_string() }).inc();
            }
            // Counted with every other write in `wrote`, by its class.
            Observation::WriteFailed { .. } => {}
            // The plugin's own series tell of it.
            Observation::Withdrawn { .. } | Observation::FinalizersLeft { .. } | Observation::ConversionLeft { .. } => {
            }
        }
    }

    /// Counts one guest call.
    pub fn called(&self, controller: &Arc<str>, done: &CallDone) {
        let result = match done.conclusion {
            Conclusion::Wants(_) => "done",
            Conclusion::Failed(_) => "failed",
            Conclusion::Fault(_) => "fault",
            Conclusion::HostFault(_) => {
                self.host_fault(controller);
                "host_fault"
            }
        };
        let labels = CallLabels { controller: controller.clone(), result };
        self.families.guest_calls.get_or_create(&labels).inc();
        self.families.guest_seconds.get_or_create(&controller_labels(controller)).observe(done.elapsed_us as f64 / 1e6);
    }

    /// Counts a call that the host could not run, whether it began or not.
    pub fn host_fault(&self, controller: &Arc<str>) {
        self.families.host_faults.get_or_create(&controller_labels(controller)).inc();
    }

    /// Counts a request to a webhook, at this path, from now on.
    pub fn webhook_begins(self: &Arc<Self>, path: &str) -> WebhookRequest {
        let labels = WebhookLabels { webhook: path.to_owned() };
        self.families.webhooks.in_flight.get_or_create(&labels).inc();
        WebhookRequest { metrics: Arc::clone(self), labels }
    }

    /// Counts what a question about an object that is not stored yet was answered.
    pub fn reviewed(&self, controller: &Arc<str>, purpose: Purpose, answer: &Answer) {
        let result = match (&answer.fault, answer.code) {
            (Some(_), _) => "fault",
            (None, 200) => "allowed",
            (None, 403 | 422) => "refused",
            (None, _) => "unavailable",
        };
        let labels = ReviewLabels { controller: controller.clone(), operation: purpose.as_str(), result };
        self.families.webhooks.reviews.get_or_create(&labels).inc();
        if let Some(fault) = &answer.fault {
            self.fault(controller, fault);
        }
    }

    /// Counts an object that was wanted in another version.
    pub fn converted(&self, controller: &Arc<str>, result: Result<(), &Failure>) {
        let word = match result {
            Ok(()) => "ok",
            Err(Failure { fault: Some(_), .. }) => "fault",
            Err(_) => "refused",
        };
        let labels = CallLabels { controller: controller.clone(), result: word };
        self.families.webhooks.conversions.get_or_create(&labels).inc();
        if let Err(Failure { fault: Some(fault), .. }) = result {
            self.fault(controller, fault);
        }
    }

    /// Counts one write and how the API server answered it.
    pub fn wrote(&self, write: &Write, result: Result<(), &WriteError>) {
        let labels = WriteLabels {
            plugin: write.plugin.clone().unwrap_or_else(|| "mortise".into()),
            verb: write.op.verb(),
            kind: write.op.target().kind.to_string(),
            result: result.map_or_else(|error| write_reason(error.class), |()| "ok"),
        };
        self.families.writes.get_or_create(&labels).inc();
    }

    /// Notes how long a component took to compile.
    pub fn compiled(&self, compile_ms: u64, cached: bool) {
        let labels = families::CompileLabels { cached };
        self.families.compile_seconds.get_or_create(&labels).observe(compile_ms as f64 / 1e3);
    }

    /// Notes whether this host leads.
    pub fn leads(&self, lease: &Arc<str>, leads: bool) {
        let labels = LeaseLabels { name: lease.clone() };
        self.leads.get_or_create(&labels).set(i64::from(leads));
    }

    /// Notes how many calls of a controller may run at once.
    pub fn concurrency(&self, controller: &Arc<str>, most: u32) {
        self.families.max_concurrent.get_or_create(&controller_labels(controller)).set(i64::from(most));
    }

    /// The text of `/metrics`, in the OpenMetrics format.
    ///
    /// # Errors
    /// Only the formatter's own, which a `String` does not have.
    pub fn encode(&self, now: Instant, scraped: &Scraped) -> Result<String, std::fmt::Error> {
        self.scrape(now, scraped);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn enqueued(&self, controller: &Arc<str>, retry: bool) {
        let labels = queue_labels(controller);
        self.families.adds.get_or_create(&labels).inc();
        if retry {
            self.families.retries.get_or_create(&labels).inc();
        }
    }

    fn taken(&self, at: Instant, controller: &Arc<str>, queued_ms: u64) {
        let labels = queue_labels(controller);
        self.families.queue_seconds.get_or_create(&labels).observe(queued_ms as f64 / 1e3);
        self.families.active_workers.get_or_create(&controller_labels(controller)).inc();
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
        families.active_workers.get_or_create(&labels).dec();
        families.reconcile_seconds.get_or_create(&labels).observe(seconds);
        families.work_seconds.get_or_create(&queue_labels(controller)).observe(seconds);
        let word = match result {
            ReconcileResult::Success => "success",
            ReconcileResult::RequeueAfter => "requeue_after",
            // controller-runtime counts a terminal error as an error too.
            ReconcileResult::Error | ReconcileResult::Terminal => "error",
        };
        let results = ResultLabels { controller: controller.clone(), result: word };
        families.reconciles.get_or_create(&results).inc();
        if word == "error" {
            families.errors.get_or_create(&labels).inc();
        }
        if result == ReconcileResult::Terminal {
            families.terminal_errors.get_or_create(&labels).inc();
        }
        if skipped {
            families.skipped.get_or_create(&labels).inc();
        }
        self.ended(at, controller, Some(elapsed_ms));
    }

    /// Forgets the start of the reconcile that ended. Observations carry no identity, so it is the one whose age comes
    /// nearest to the time that the reconcile says it took, or the oldest when it says none.
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
        self.families.faults.get_or_create(&labels).inc();
        match fault {
            GuestFault::Trap { .. } => {
                self.families.panics.get_or_create(&controller_labels(controller)).inc();
            }
            GuestFault::Deadline { .. } => {
                self.families.timeouts.get_or_create(&controller_labels(controller)).inc();
            }
            _ => {}
        }
    }

    /// Sets what is a state and not a count. Families are cleared first, so that what is gone leaves no series.
    fn scrape(&self, now: Instant, scraped: &Scraped) {
        self.scrape_work(now, scraped);
        self.scrape_plugins(scraped);
        let families = &self.families;
        families.cache_objects.clear();
        families.cache_bytes.clear();
        for state in &scraped.cache {
            let labels = KindLabels { kind: state.kind.clone() };
            families.cache_objects.get_or_create(&labels).set(gauge(state.objects));
            families.cache_bytes.get_or_create(&labels).set(gauge(state.bytes));
        }
        for state in &scraped.requests {
            let labels =
                RequestLabels { code: state.code.clone(), method: state.method.clone(), host: state.host.clone() };
            let counter = families.requests.get_or_create(&labels);
            counter.inc_by(state.count.saturating_sub(counter.get()));
        }
    }

    fn scrape_work(&self, now: Instant, scraped: &Scraped) {
        let families = &self.families;
        for (controller, starts) in &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            let ages = starts.iter().map(|start| now.saturating_duration_since(*start).as_secs_f64());
            let labels = queue_labels(controller);
            // Not `sum`, which makes -0 of nothing.
            let unfinished = ages.clone().fold(0.0, |sum, age| sum + age);
            families.unfinished_seconds.get_or_create(&labels).set(unfinished);
            families.longest_seconds.get_or_create(&labels).set(ages.fold(0.0, f64::max));
        }
        families.depth.clear();
        for (controller, waiting) in &scraped.queue_depths {
            families.depth.get_or_create(&queue_labels(controller)).set(gauge(*waiting as u64));
        }
    }

    fn scrape_plugins(&self, scraped: &Scraped) {
        let families = &self.families;
        families.plugin_info.clear();
        families.plugin_ready.clear();
        for state in &scraped.plugins {
            let info = families::InfoLabels { plugin: state.plugin.clone(), digest: state.digest.clone() };
            families.plugin_info.get_or_create(&info).set(1);
            let labels = PluginLabels { plugin: state.plugin.clone() };
            families.plugin_ready.get_or_create(&labels).set(i64::from(state.ready));
        }
    }
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
