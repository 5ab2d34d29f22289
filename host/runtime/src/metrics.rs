//! What operators graph and alert on: controller-runtime's and client-go's own series, so that existing dashboards
//! work with `controller=<plugin>/<kind>`, and mortise's series beside them.
//!
//! Observations, calls and writes flow in; the text of `/metrics` flows out. Nothing here decides anything, and no label
//! carries an object's name: the number of series grows with plugins, never with objects, and shrinks when they go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_core::admission::review::Answer;
use mortise_core::call::{CallDone, Conclusion};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::review::Failure;
use mortise_core::manifest::Manifest;
use mortise_core::object::Kind;
use mortise_core::observation::{Observation, ReconcileResult};
use mortise_core::watch::WatchError;
use mortise_core::webhook::{Purpose, at_path};
use mortise_core::write::{Write, WriteError, WriteErrorClass};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;

use self::families::{
    CallLabels, CodeLabels, ControllerLabels, Families, FaultLabels, KindLabels, LeaseLabels, PluginLabels,
    QueueLabels, ReasonLabels, RequestLabels, ResultLabels, ReviewLabels, WebhookCodeLabels, WebhookLabels,
    WriteLabels,
};
use self::series::{AllSeries, Labels, Series};

mod families;
mod series;
#[cfg(test)]
mod tests;

/// Reconciles of one controller whose start is remembered for `longest_running_processor_seconds`. Four times the
/// highest concurrency a manifest may ask for; beyond it the oldest is forgotten and only a graph is less exact.
const MAX_RUNNING: usize = 1_024;

/// Every series of the process. Cheap to share; all methods are callable from any thread.
#[derive(Debug)]
pub struct Metrics {
    all: AllSeries,
    families: Families,
    leads: Series<LeaseLabels, Gauge>,
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
    in_flight: Gauge,
}

impl WebhookRequest {
    /// It was answered.
    pub fn ends(self, code: u16, elapsed: Duration) {
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
        let mut all = AllSeries::default();
        let families = Families::register(&mut all);
        let leads = families::leads(&mut all);
        Self { all, families, leads, running: Mutex::default() }
    }

    /// Counts what the driver reports.
    pub fn observe(&self, at: Instant, observation: &Observation) {
        match observation {
            Observation::Enqueued { controller, retry } => self.enqueued(controller, *retry),
            Observation::Taken { controller, queued_ms } => self.taken(at, controller, *queued_ms),
            Observation::Reconciled { controller, result, elapsed_ms, skipped, .. } => {
                self.reconciled(at, controller, *result, *elapsed_ms, *skipped);
            }
            Observation::TurnEnded { controller, .. } => self.ended(at, controller, None),
            Observation::Fault { controller, fault, .. } => self.fault(controller, fault),
            Observation::Activated { plugin, reload, .. } => {
                if *reload {
                    self.families.reloads.of(&PluginLabels { plugin: plugin.clone() }).inc();
                }
            }
            Observation::Refused { plugin, refusal } => {
                let labels = ReasonLabels { plugin: plugin.clone(), reason: refusal.reason };
                self.families.refusals.of(&labels).inc();
            }
            Observation::CacheLagging { object } => {
                self.families.cache.lagging.of(&KindLabels { kind: object.kind.to_string() }).inc();
            }
            Observation::Throttled { plugin, .. } => {
                self.families.throttled.of(&PluginLabels { plugin: plugin.clone() }).inc();
            }
            Observation::BreakerOpened { controller, .. } => {
                self.families.breaker_openings.of(&controller_labels(controller)).inc();
            }
            Observation::WatchFailed { kind, error } => {
                let labels = CodeLabels { kind: kind.to_string(), reason: watch_reason(error) };
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
            Observation::Withdrawn { plugin } => self.withdrawn(plugin),
            // Writes are counted in `wrote`, by their class; what a plugin leaves behind is for the log.
            Observation::WriteFailed { .. }
            | Observation::FinalizersLeft { .. }
            | Observation::ConversionLeft { .. } => {}
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
        self.families.guest_calls.of(&labels).inc();
        self.families.guest_seconds.of(&controller_labels(controller)).observe(done.elapsed_us as f64 / 1e6);
    }

    /// Counts a call that the host could not run, whether it began or not.
    pub fn host_fault(&self, controller: &Arc<str>) {
        self.families.host_faults.of(&controller_labels(controller)).inc();
    }

    /// Counts a request to a webhook, at this path, from now on.
    pub fn webhook_begins(self: &Arc<Self>, path: &str) -> WebhookRequest {
        let labels = WebhookLabels { webhook: path.to_owned() };
        let in_flight = self.families.webhooks.in_flight.of(&labels);
        in_flight.inc();
        WebhookRequest { metrics: Arc::clone(self), labels, in_flight }
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
        self.families.webhooks.reviews.of(&labels).inc();
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
        self.families.webhooks.conversions.of(&labels).inc();
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
        self.families.writes.of(&labels).inc();
    }

    /// Notes how long a component took to compile.
    pub fn compiled(&self, compile_ms: u64, cached: bool) {
        let labels = families::CompileLabels { cached: if cached { "true" } else { "false" } };
        self.families.compile_seconds.of(&labels).observe(compile_ms as f64 / 1e3);
    }

    /// Notes whether this host leads.
    pub fn leads(&self, lease: &Arc<str>, leads: bool) {
        let labels = LeaseLabels { name: lease.clone() };
        self.leads.of(&labels).set(i64::from(leads));
    }

    /// A version of a plugin begins to serve.
    pub fn serves(&self, plugin: &Arc<str>, manifest: &Manifest, reload: bool) {
        if reload {
            self.replaced(plugin, manifest);
        }
        for controller in &manifest.controllers {
            let label = format!("{plugin}/{}", controller.primary.kind).into();
            self.families.max_concurrent.of(&controller_labels(&label)).set(i64::from(controller.concurrency));
        }
    }

    /// A kind is read no longer.
    pub fn unwatched(&self, kind: &Kind) {
        let kind = kind.to_string();
        self.all.retain(|labels| plugin_of(labels).is_some() || labels.value("kind") != Some(&kind));
    }

    /// The text of `/metrics`, in the OpenMetrics format.
    ///
    /// # Errors
    /// Only the formatter's own, which a `String` does not have.
    pub fn encode(&self, now: Instant, scraped: &Scraped) -> Result<String, std::fmt::Error> {
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
        self.families.faults.of(&labels).inc();
        match fault {
            GuestFault::Trap { .. } => {
                self.families.panics.of(&controller_labels(controller)).inc();
            }
            GuestFault::Deadline { .. } => {
                self.families.timeouts.of(&controller_labels(controller)).inc();
            }
            _ => {}
        }
    }

    /// Ends the series of a plugin that is gone. What was under way may begin a few again; [`series::MAX_SERIES`] bounds them.
    fn withdrawn(&self, plugin: &Arc<str>) {
        self.retain(|labels| plugin_of(labels) != Some(plugin));
    }

    /// Ends the series of controllers and kinds that this version no longer has.
    fn replaced(&self, plugin: &Arc<str>, manifest: &Manifest) {
        let controllers = manifest.controllers.iter();
        let asked = manifest.admission.iter().map(|spec| &spec.kind);
        let asked = asked.chain(manifest.conversion.iter().map(|spec| &spec.kind));
        let labelled = controllers.clone().map(|controller| &controller.primary).chain(asked);
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

    /// Sets what is a state and not a count. Families are cleared first, so that what is gone leaves no series.
    fn scrape(&self, now: Instant, scraped: &Scraped) {
        self.scrape_work(now, scraped);
        self.scrape_plugins(scraped);
        let families = &self.families;
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
            // Not `sum`, which makes -0 of nothing.
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

/// Whose series it is; None for the host's own.
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
