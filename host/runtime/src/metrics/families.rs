//! The names, labels and buckets of every series. Those of controller-runtime and client-go are exactly theirs (without
//! the `priority` of `workqueue_depth`, whose empty value is the same series to Prometheus).
//!
//! prometheus-client appends `_total` to counters, so no name here ends in it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Metric;

use super::series::{AllSeries, LabelSet, Labels, Series};

/// controller-runtime's own 40 buckets of `controller_runtime_reconcile_time_seconds`.
const RECONCILE_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
        pub(super) struct $name { $(pub(super) $field: $type),+ }

        impl Labels for $name {
            fn value(&self, label: &str) -> Option<&str> {
                match label {
                    $(stringify!($field) => Some(self.$field.as_ref()),)+
                    _ => None,
                }
            }
        }
    )+};
}

labels! {
    /// controller-runtime's label.
    ControllerLabels { controller: Arc<str> }
    /// controller-runtime's labels of `reconcile_total`.
    ResultLabels { controller: Arc<str>, result: &'static str }
    /// The workqueue's labels: both name the controller.
    QueueLabels { name: Arc<str>, controller: Arc<str> }
    /// client-go's labels.
    RequestLabels { code: String, method: String, host: String }
    /// client-go's label: the Lease's name.
    LeaseLabels { name: Arc<str> }
    /// The status, or the class of a failure.
    HttpLabels { controller: Arc<str>, code: String }
    CallLabels { controller: Arc<str>, result: &'static str }
    FaultLabels { controller: Arc<str>, reason: &'static str }
    PluginLabels { plugin: Arc<str> }
    InfoLabels { plugin: Arc<str>, digest: Arc<str> }
    ReasonLabels { plugin: Arc<str>, reason: &'static str }
    KindLabels { kind: String }
    CodeLabels { kind: String, reason: &'static str }
    WriteLabels { plugin: Arc<str>, verb: &'static str, kind: String, result: &'static str }
    /// controller-runtime's label of webhooks: the path.
    WebhookLabels { webhook: String }
    WebhookCodeLabels { webhook: String, code: String }
    ReviewLabels { controller: Arc<str>, operation: &'static str, result: &'static str }
    CompileLabels { cached: &'static str }
    LagLabels { what: &'static str }
    StepLabels { event: &'static str }
    MemoryLabels { of: &'static str }
    PressureLabels { level: &'static str }
    /// A plugin, a tenant, or "mortise".
    DroppedLabels { share: Arc<str>, reason: &'static str }
}

pub(super) type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug)]
pub(super) struct Families {
    pub(super) reconciles: Series<ResultLabels, Counter>,
    pub(super) errors: Series<ControllerLabels, Counter>,
    pub(super) terminal_errors: Series<ControllerLabels, Counter>,
    pub(super) panics: Series<ControllerLabels, Counter>,
    pub(super) timeouts: Series<ControllerLabels, Counter>,
    pub(super) reconcile_seconds: Series<ControllerLabels, Histogram>,
    pub(super) max_concurrent: Series<ControllerLabels, Gauge>,
    pub(super) active_workers: Series<ControllerLabels, Gauge>,
    pub(super) depth: Series<QueueLabels, Gauge>,
    pub(super) adds: Series<QueueLabels, Counter>,
    pub(super) queue_seconds: Series<QueueLabels, Histogram>,
    pub(super) work_seconds: Series<QueueLabels, Histogram>,
    pub(super) unfinished_seconds: Series<QueueLabels, Seconds>,
    pub(super) longest_seconds: Series<QueueLabels, Seconds>,
    pub(super) retries: Series<QueueLabels, Counter>,
    pub(super) requests: Series<RequestLabels, Counter>,
    pub(super) webhooks: Webhooks,
    pub(super) guest_calls: Series<CallLabels, Counter>,
    pub(super) guest_seconds: Series<ControllerLabels, Histogram>,
    pub(super) skipped: Series<ControllerLabels, Counter>,
    pub(super) faults: Series<FaultLabels, Counter>,
    pub(super) host_faults: Series<ControllerLabels, Counter>,
    pub(super) breaker_openings: Series<ControllerLabels, Counter>,
    pub(super) throttled: Series<PluginLabels, Counter>,
    pub(super) plugin_info: Series<InfoLabels, Gauge>,
    pub(super) plugin_ready: Series<PluginLabels, Gauge>,
    pub(super) reloads: Series<PluginLabels, Counter>,
    pub(super) refusals: Series<ReasonLabels, Counter>,
    pub(super) events_left_out: Series<ReasonLabels, Counter>,
    pub(super) compile_seconds: Series<CompileLabels, Histogram>,
    pub(super) cache: Cache,
    pub(super) event_loop: EventLoop,
    pub(super) watch_failures: Series<CodeLabels, Counter>,
    pub(super) writes: Series<WriteLabels, Counter>,
    pub(super) http_requests: Series<HttpLabels, Counter>,
}

#[derive(Debug)]
pub(super) struct Cache {
    pub(super) objects: Series<KindLabels, Gauge>,
    pub(super) bytes: Series<KindLabels, Gauge>,
    pub(super) lagging: Series<KindLabels, Counter>,
    pub(super) audits: Series<KindLabels, Counter>,
    pub(super) audit_differences: Series<KindLabels, Counter>,
    pub(super) restores: Series<KindLabels, Counter>,
    pub(super) undecodable: Series<KindLabels, Counter>,
}

impl Cache {
    fn register(r: &mut AllSeries) -> Self {
        Self {
            objects: gauge(r, "mortise_cache_objects", "Objects in the cache"),
            bytes: gauge(r, "mortise_cache_bytes", "Bytes of the cached objects' JSON"),
            lagging: counter(r, "mortise_cache_lagging", "Own writes that the watch did not show in time"),
            audits: counter(r, "mortise_cache_audits", "Comparisons of the cache with a live list"),
            audit_differences: counter(
                r,
                "mortise_cache_differences",
                "Objects in which an audit found the cache to differ from the API server",
            ),
            restores: counter(
                r,
                "mortise_etcd_restores",
                "Times that the API server's versions went backwards, by the kind that showed it",
            ),
            undecodable: counter(r, "mortise_undecodable_objects", "Objects that could not be decoded"),
        }
    }
}

#[derive(Debug)]
pub(super) struct EventLoop {
    pub(super) lag: Series<LagLabels, Histogram>,
    pub(super) most_lag: Seconds,
    pub(super) long_steps: Series<StepLabels, Histogram>,
}

impl EventLoop {
    fn register(r: &mut AllSeries) -> Self {
        let most_lag = Seconds::default();
        r.registry.register(
            "mortise_loop_lag_max_seconds",
            "The longest time that an input or a timer waited for the event loop in the last minute or two",
            most_lag.clone(),
        );
        Self {
            lag: histogram(
                r,
                "mortise_loop_lag_seconds",
                "How long an input or a timer waited until the event loop had handled it",
                loop_buckets,
            ),
            most_lag,
            long_steps: histogram(
                r,
                "mortise_loop_long_step_seconds",
                "Steps of the event loop that took a millisecond or longer, by their event",
                loop_buckets,
            ),
        }
    }
}

#[derive(Debug)]
pub(super) struct Webhooks {
    pub(super) requests: Series<WebhookCodeLabels, Counter>,
    pub(super) seconds: Series<WebhookLabels, Histogram>,
    pub(super) in_flight: Series<WebhookLabels, Gauge>,
    pub(super) reviews: Series<ReviewLabels, Counter>,
    pub(super) conversions: Series<CallLabels, Counter>,
}

impl Webhooks {
    fn register(r: &mut AllSeries) -> Self {
        Self {
            requests: counter(r, "controller_runtime_webhook_requests", "Webhook requests by HTTP status"),
            seconds: histogram(
                r,
                "controller_runtime_webhook_latency_seconds",
                "From a webhook request to its response",
                webhook_buckets,
            ),
            in_flight: gauge(r, "controller_runtime_webhook_requests_in_flight", "Webhook requests in progress"),
            reviews: counter(r, "mortise_admission_reviews", "Admission reviews by result"),
            conversions: counter(r, "mortise_conversions", "Conversions of objects by result"),
        }
    }
}

impl Families {
    pub(super) fn register(r: &mut AllSeries) -> Self {
        Self {
            reconciles: counter(r, "controller_runtime_reconcile", "Reconciles by result"),
            errors: counter(r, "controller_runtime_reconcile_errors", "Reconciles that failed"),
            terminal_errors: counter(
                r,
                "controller_runtime_terminal_reconcile_errors",
                "Reconciles that failed and are not repeated until something changes",
            ),
            panics: counter(r, "controller_runtime_reconcile_panics", "Reconciles in which the guest trapped"),
            timeouts: counter(r, "controller_runtime_reconcile_timeouts", "Reconciles past their processor time"),
            reconcile_seconds: histogram(
                r,
                "controller_runtime_reconcile_time_seconds",
                "From a key being taken to its last write",
                || Histogram::new(RECONCILE_BUCKETS),
            ),
            max_concurrent: gauge(
                r,
                "controller_runtime_max_concurrent_reconciles",
                "Reconciles of a controller that may run at once",
            ),
            active_workers: gauge(r, "controller_runtime_active_workers", "Reconciles in progress"),
            depth: gauge(r, "workqueue_depth", "Keys that wait"),
            adds: counter(r, "workqueue_adds", "Keys that entered the queue"),
            queue_seconds: histogram(r, "workqueue_queue_duration_seconds", "How long keys waited", queue_buckets),
            work_seconds: histogram(r, "workqueue_work_duration_seconds", "How long reconciles took", queue_buckets),
            unfinished_seconds: gauge(
                r,
                "workqueue_unfinished_work_seconds",
                "Seconds of work that is in progress and not yet in work_duration",
            ),
            longest_seconds: gauge(
                r,
                "workqueue_longest_running_processor_seconds",
                "Age of the oldest reconcile in progress",
            ),
            retries: counter(r, "workqueue_retries", "Keys that came back after a failure"),
            requests: counter(r, "rest_client_requests", "Requests to the API server"),
            webhooks: Webhooks::register(r),
            guest_calls: counter(r, "mortise_guest_calls", "Calls of guests by result"),
            guest_seconds: histogram(r, "mortise_guest_call_seconds", "Time of one call on its worker", guest_buckets),
            skipped: counter(
                r,
                "mortise_guest_calls_skipped",
                "Reconciles without a call, because their inputs were those of the last one",
            ),
            faults: counter(r, "mortise_guest_faults", "Calls without a usable result, by reason"),
            host_faults: counter(r, "mortise_host_faults", "Calls that the host could not run"),
            breaker_openings: counter(r, "mortise_breaker_openings", "Keys whose writes were stopped as a fight"),
            throttled: counter(r, "mortise_plugin_throttled", "Times that a plugin exceeded its writes or requests"),
            plugin_info: gauge(r, "mortise_plugin_info", "1 for each plugin with the digest that serves"),
            plugin_ready: gauge(r, "mortise_plugin_ready", "1 when the plugin reconciles its kinds"),
            reloads: counter(r, "mortise_plugin_reloads", "Digests that took over from another"),
            refusals: counter(r, "mortise_plugin_refusals", "Plugins and versions that were refused, by reason"),
            events_left_out: counter(r, "mortise_events_left_out", "Events that were not sent, by share and reason"),
            compile_seconds: histogram(r, "mortise_plugin_compile_seconds", "Time to a loaded component", || {
                // From a cache hit of a millisecond to the quarter of a minute that the largest guests take.
                Histogram::new(exponential_buckets(0.001, 2.0, 16))
            }),
            cache: Cache::register(r),
            event_loop: EventLoop::register(r),
            watch_failures: counter(r, "mortise_watch_failures", "Watches that failed, by reason"),
            writes: counter(r, "mortise_writes", "Writes by verb, kind and result"),
            http_requests: counter(r, "mortise_http_requests", "HTTP requests of plugins, by status"),
        }
    }
}

/// client-go's series of leader election; a host without it has none.
pub(super) fn leads(all: &mut AllSeries) -> Series<LeaseLabels, Gauge> {
    gauge(all, "leader_election_master_status", "1 when this host leads by the Lease of this name, else 0")
}

/// client-go's buckets of both workqueue histograms: 10 ns to 1000 s by tens.
fn queue_buckets() -> Histogram {
    Histogram::new(exponential_buckets(10e-9, 10.0, 12))
}

/// From 10 us, a call of a small guest, to 10 s, the longest deadline.
fn guest_buckets() -> Histogram {
    Histogram::new([
        10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1.0, 10.0,
    ])
}

/// From 10 us, a small step, to 10 s, after which a step counts as stuck; 5 and 20 ms are the aim and the bound of a step.
fn loop_buckets() -> Histogram {
    Histogram::new([10e-6, 50e-6, 200e-6, 1e-3, 5e-3, 20e-3, 0.1, 0.5, 1.0, 5.0, 10.0])
}

/// From 100 us to 30 s, the longest timeout of a webhook. controller-runtime has the client's defaults, whose first
/// bucket is 5 ms, in which every healthy request would be.
fn webhook_buckets() -> Histogram {
    Histogram::new([
        1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ])
}

pub(super) fn counter<L: LabelSet>(all: &mut AllSeries, name: &str, help: &str) -> Series<L, Counter> {
    all.register(name, help, Counter::default)
}

pub(super) fn gauge<L, M>(all: &mut AllSeries, name: &str, help: &str) -> Series<L, M>
where
    L: LabelSet,
    M: Default + Clone + Debug + Send + Sync + 'static,
    Series<L, M>: Metric,
{
    all.register(name, help, M::default)
}

fn histogram<L: LabelSet>(all: &mut AllSeries, name: &str, help: &str, new: fn() -> Histogram) -> Series<L, Histogram> {
    all.register(name, help, new)
}
