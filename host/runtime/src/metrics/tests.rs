//! The text of a scrape.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_core::audit::{Difference, Listed, What};
use mortise_core::call::{CallDone, Conclusion};
use mortise_core::contract::{Failure, GuestFault};
use mortise_core::dependencies::Dependencies;
use mortise_core::digest::Digest;
use mortise_core::http::{Response, Sent};
use mortise_core::kube_event::LeftOut;
use mortise_core::manifest::Manifest;
use mortise_core::object::{Kind, Name, ObjectRef, ResourceVersion};
use mortise_core::observation::{Observation, ReconcileResult};
use mortise_core::refusal::Refusal;
use mortise_core::watch::WatchError;
use mortise_core::write::{Cause, Write, WriteError, WriteErrorClass, WriteId, WriteOp};
use serde_json::json;

use super::series::MAX_SERIES;
use super::{CacheState, MachineState, Metrics, PluginState, RequestState, Scraped};
use crate::allocations::counted;
use crate::log::budget::Dropped;
use crate::memory::MemoryState;
use crate::testing::check_counted;

const CONTROLLER: &str = "podset/PodSet";

fn controller() -> Arc<str> {
    CONTROLLER.into()
}

fn object() -> ObjectRef {
    ObjectRef { kind: Kind::new("app.example.com/v1alpha1", "PodSet"), name: Name::new("default", "a") }
}

fn cause() -> Cause {
    Cause { controller: controller(), object: object(), digest: Digest("sha256:00".into()) }
}

fn reconciled(result: ReconcileResult, elapsed_ms: u64) -> Observation {
    Observation::Reconciled { cause: cause(), result, elapsed_ms, writes: 2, skipped: false }
}

fn write(class: Option<WriteErrorClass>) -> (Write, Result<(), WriteError>) {
    let target = ObjectRef { kind: Kind::new("v1", "Pod"), name: Name::new("default", "a-0") };
    let op = WriteOp::Create { target, body: "{}".into() };
    let error = class.map(|class| WriteError { class, message: "no".to_owned() });
    (
        Write {
            id: WriteId(1),
            plugin: Some("podset".into()),
            cause: None,
            service_account: None,
            op,
            not_after_ms: None,
        },
        error.map_or(Ok(()), Err),
    )
}

fn difference() -> Difference {
    let object = Listed { name: Name::new("default", "a-0"), uid: "u".into(), version: ResourceVersion(1) };
    Difference { object, what: What::Missing }
}

/// Every observation once.
fn everything(metrics: &Metrics, at: Instant) {
    let faults = [
        GuestFault::Trap { message: "boom".to_owned(), detail: String::new() },
        GuestFault::Deadline { limit_ms: 1_000 },
    ];
    let mut observations = vec![
        Observation::Enqueued { controller: controller(), retry: false },
        Observation::Enqueued { controller: controller(), retry: true },
        Observation::Taken { controller: controller(), queued_ms: 3 },
        reconciled(ReconcileResult::Success, 12),
        reconciled(ReconcileResult::Terminal, 1),
        Observation::Activated {
            plugin: "podset".into(),
            digest: Digest("sha256:00".into()),
            manifest: Arc::new(manifest("PodSet", "Pod")),
            reload: true,
        },
        Observation::Refused { plugin: "bad".into(), refusal: Refusal::new("InvalidManifest", "no") },
        Observation::EventLeftOut { share: "podset".into(), why: LeftOut::Budget },
        Observation::EventLeftOut { share: "podset".into(), why: LeftOut::Waiting },
        Observation::EventLeftOut { share: "team-a.*".into(), why: LeftOut::Burst },
        Observation::CacheLagging { object: object() },
        Observation::Throttled { plugin: "podset".into(), message: "over".to_owned() },
        Observation::BreakerOpened { cause: cause(), message: "two managers".to_owned() },
        Observation::WatchFailed { kind: Kind::new("v1", "Pod"), error: WatchError::Denied("no".to_owned()) },
        Observation::Undecodable { kind: Kind::new("v1", "Pod"), message: "no".to_owned() },
        Observation::Audited { kind: Kind::new("v1", "Pod"), differences: vec![difference()] },
        Observation::Audited { kind: Kind::new("v1", "Pod"), differences: Vec::new() },
        Observation::Restored { kind: Kind::new("v1", "Pod"), message: "no".to_owned() },
    ];
    let fault = |fault| Observation::Fault { cause: cause(), fault };
    observations.extend(faults.map(fault));
    for observation in &observations {
        metrics.observe(at, observation);
    }
    let done = CallDone {
        conclusion: Conclusion::Failed(Failure::Retry("not now".to_owned())),
        reads: Dependencies::default(),
        elapsed_us: 30,
    };
    metrics.called(&controller(), &done);
    metrics.called(&controller(), &CallDone { conclusion: Conclusion::HostFault("no room".to_owned()), ..done });
    metrics.compiled(200, false);
    for class in [None, Some(WriteErrorClass::Conflict)] {
        let (write, result) = write(class);
        metrics.wrote(&write, result.as_ref().map(|_| ()));
    }
    metrics.requested(&controller(), &Sent::NotSent);
    for status in [404, 799, 999] {
        metrics
            .requested(&controller(), &Sent::Response(Response { status, headers: Vec::new(), body: Arc::default() }));
    }
}

fn scraped() -> Scraped {
    Scraped {
        plugins: vec![PluginState { plugin: "podset".into(), digest: "sha256:00".into(), ready: true }],
        queue_depths: vec![(controller(), 2)],
        cache: vec![CacheState { kind: "v1/Pod".to_owned(), objects: 3, bytes: 6_900 }],
        most_lag_ms: 12,
        requests: vec![RequestState {
            code: "200".to_owned(),
            method: "GET".to_owned(),
            host: "127.0.0.1:6443".to_owned(),
            count: 7,
        }],
        machine: MachineState {
            memory: Some(MemoryState { used_bytes: 900, limit_bytes: 1_000, compiler_bytes: 100, level: 1 }),
            cache_is_usable: true,
            over_budget: vec![("team-a".into(), Dropped { lines: 3, bytes: 300 })],
            unwritten: Dropped { lines: 2, bytes: 20 },
        },
    }
}

#[test]
fn f32_memory_the_cache_and_lost_lines_are_shown() {
    let metrics = Metrics::new();
    for _ in 0..2 {
        let text = metrics.encode(Instant::now(), &scraped()).unwrap();
        for line in [
            r#"mortise_memory_bytes{of="used"} 900"#,
            r#"mortise_memory_bytes{of="compilers"} 100"#,
            r#"mortise_memory_bytes{of="limit"} 1000"#,
            r#"mortise_memory_pressure{level="ample"} 0"#,
            r#"mortise_memory_pressure{level="short"} 1"#,
            r#"mortise_memory_pressure{level="scarce"} 0"#,
            "mortise_compile_cache_usable 1",
            r#"mortise_log_dropped_lines_total{share="team-a",reason="budget"} 3"#,
            r#"mortise_log_dropped_lines_total{share="mortise",reason="unwritten"} 2"#,
        ] {
            has(&text, line);
        }
    }
    let text = metrics.encode(Instant::now(), &Scraped::default()).unwrap();
    has(&text, "mortise_compile_cache_usable 0");
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
}

#[test]
fn the_series_of_controller_runtime_and_client_go_have_their_names_and_labels() {
    let (metrics, now) = (Metrics::new(), Instant::now());
    everything(&metrics, now);
    metrics.serves(&"podset".into(), &manifest("PodSet", "Pod"), false);
    metrics.leads(&"mortise".into(), false);
    metrics.leads(&"mortise".into(), true);
    let text = metrics.encode(now, &scraped()).unwrap();
    for line in [
        r#"controller_runtime_reconcile_total{controller="podset/PodSet",result="success"} 1"#,
        r#"controller_runtime_reconcile_total{controller="podset/PodSet",result="error"} 1"#,
        r#"controller_runtime_reconcile_errors_total{controller="podset/PodSet"} 1"#,
        r#"controller_runtime_terminal_reconcile_errors_total{controller="podset/PodSet"} 1"#,
        r#"controller_runtime_reconcile_panics_total{controller="podset/PodSet"} 1"#,
        r#"controller_runtime_reconcile_timeouts_total{controller="podset/PodSet"} 1"#,
        r#"controller_runtime_reconcile_time_seconds_count{controller="podset/PodSet"} 2"#,
        r#"controller_runtime_reconcile_time_seconds_bucket{le="0.005",controller="podset/PodSet"} 1"#,
        r#"controller_runtime_reconcile_time_seconds_bucket{le="60.0",controller="podset/PodSet"} 2"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="podset/PodSet"} 8"#,
        r#"workqueue_depth{name="podset/PodSet",controller="podset/PodSet"} 2"#,
        r#"workqueue_adds_total{name="podset/PodSet",controller="podset/PodSet"} 2"#,
        r#"workqueue_retries_total{name="podset/PodSet",controller="podset/PodSet"} 1"#,
        r#"workqueue_queue_duration_seconds_count{name="podset/PodSet",controller="podset/PodSet"} 1"#,
        r#"workqueue_work_duration_seconds_count{name="podset/PodSet",controller="podset/PodSet"} 2"#,
        r#"rest_client_requests_total{code="200",method="GET",host="127.0.0.1:6443"} 7"#,
        r#"leader_election_master_status{name="mortise"} 1"#,
    ] {
        has(&text, line);
    }
    assert_eq!(text.matches("controller_runtime_reconcile_time_seconds_bucket").count(), 41, "40 buckets and +Inf");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn mortises_own_series_show_guests_plugins_cache_and_writes() {
    let (metrics, now) = (Metrics::new(), Instant::now());
    everything(&metrics, now);
    metrics.late("input", Duration::from_millis(3));
    metrics.long_step("watch", Duration::from_millis(2));
    let text = metrics.encode(now, &scraped()).unwrap();
    for line in [
        r#"mortise_guest_calls_total{controller="podset/PodSet",result="failed"} 1"#,
        r#"mortise_guest_calls_total{controller="podset/PodSet",result="host_fault"} 1"#,
        r#"mortise_guest_call_seconds_count{controller="podset/PodSet"} 2"#,
        r#"mortise_host_faults_total{controller="podset/PodSet"} 1"#,
        r#"mortise_guest_faults_total{controller="podset/PodSet",reason="Trap"} 1"#,
        r#"mortise_guest_faults_total{controller="podset/PodSet",reason="DeadlineExceeded"} 1"#,
        r#"mortise_breaker_openings_total{controller="podset/PodSet"} 1"#,
        r#"mortise_plugin_throttled_total{plugin="podset"} 1"#,
        r#"mortise_plugin_info{plugin="podset",digest="sha256:00"} 1"#,
        r#"mortise_plugin_ready{plugin="podset"} 1"#,
        r#"mortise_plugin_reloads_total{plugin="podset"} 1"#,
        r#"mortise_plugin_refusals_total{plugin="bad",reason="InvalidManifest"} 1"#,
        r#"mortise_events_left_out_total{plugin="podset",reason="budget"} 1"#,
        r#"mortise_events_left_out_total{plugin="podset",reason="waiting"} 1"#,
        r#"mortise_events_left_out_total{plugin="team-a.*",reason="burst"} 1"#,
        r#"mortise_plugin_compile_seconds_count{cached="false"} 1"#,
        r#"mortise_loop_lag_seconds_bucket{le="0.005",what="input"} 1"#,
        r#"mortise_loop_lag_seconds_count{what="input"} 1"#,
        "mortise_loop_lag_max_seconds 0.012",
        r#"mortise_loop_long_step_seconds_count{event="watch"} 1"#,
        r#"mortise_cache_objects{kind="v1/Pod"} 3"#,
        r#"mortise_cache_bytes{kind="v1/Pod"} 6900"#,
        r#"mortise_cache_lagging_total{kind="app.example.com/v1alpha1/PodSet"} 1"#,
        r#"mortise_undecodable_objects_total{kind="v1/Pod"} 1"#,
        r#"mortise_cache_audits_total{kind="v1/Pod"} 2"#,
        r#"mortise_cache_differences_total{kind="v1/Pod"} 1"#,
        r#"mortise_etcd_restores_total{kind="v1/Pod"} 1"#,
        r#"mortise_watch_failures_total{kind="v1/Pod",reason="denied"} 1"#,
        r#"mortise_writes_total{plugin="podset",verb="create",kind="v1/Pod",result="ok"} 1"#,
        r#"mortise_writes_total{plugin="podset",verb="create",kind="v1/Pod",result="conflict"} 1"#,
        r#"mortise_http_requests_total{controller="podset/PodSet",code="not_sent"} 1"#,
        r#"mortise_http_requests_total{controller="podset/PodSet",code="404"} 1"#,
        r#"mortise_http_requests_total{controller="podset/PodSet",code="other"} 2"#,
    ] {
        has(&text, line);
    }
}

#[test]
fn a_scrape_shows_the_age_of_reconciles_in_progress() {
    let (metrics, start) = (Metrics::new(), Instant::now());
    let taken = Observation::Taken { controller: controller(), queued_ms: 0 };
    metrics.observe(start, &taken);
    metrics.observe(start + Duration::from_secs(6), &taken);
    let text = metrics.encode(start + Duration::from_secs(10), &Scraped::default()).unwrap();
    let labels = r#"{name="podset/PodSet",controller="podset/PodSet"}"#;
    has(&text, &format!("workqueue_unfinished_work_seconds{labels} 14.0"));
    has(&text, &format!("workqueue_longest_running_processor_seconds{labels} 10.0"));
    has(&text, r#"controller_runtime_active_workers{controller="podset/PodSet"} 2"#);
    // The older one ends.
    metrics.observe(start + Duration::from_secs(10), &reconciled(ReconcileResult::Success, 10_000));
    let text = metrics.encode(start + Duration::from_secs(10), &Scraped::default()).unwrap();
    has(&text, &format!("workqueue_longest_running_processor_seconds{labels} 4.0"));
    has(&text, r#"controller_runtime_active_workers{controller="podset/PodSet"} 1"#);
}

#[test]
fn a_turn_that_ends_without_a_result_counts_as_no_reconcile() {
    let (metrics, start) = (Metrics::new(), Instant::now());
    for _ in 0..2 {
        metrics.observe(start, &Observation::Taken { controller: controller(), queued_ms: 0 });
        metrics.observe(start, &Observation::TurnEnded { cause: cause() });
    }
    let text = metrics.encode(start + Duration::from_secs(10), &Scraped::default()).unwrap();
    let labels = r#"{name="podset/PodSet",controller="podset/PodSet"}"#;
    has(&text, &format!("workqueue_unfinished_work_seconds{labels} 0.0"));
    has(&text, r#"controller_runtime_active_workers{controller="podset/PodSet"} 0"#);
    assert!(!text.contains("controller_runtime_reconcile_total{"), "{text}");
}

#[test]
fn removed_plugins_and_kinds_leave_no_series_and_counts_never_decrease() {
    let (metrics, now) = (Metrics::new(), Instant::now());
    metrics.encode(now, &scraped()).unwrap();
    let mut less = scraped();
    less.plugins.clear();
    less.cache.clear();
    less.requests[0].count = 9;
    let text = metrics.encode(now, &less).unwrap();
    assert!(!text.contains("mortise_plugin_ready{") && !text.contains("mortise_cache_objects{"), "{text}");
    has(&text, r#"rest_client_requests_total{code="200",method="GET",host="127.0.0.1:6443"} 9"#);
}

/// A plugin that reconciles a kind and owns another.
fn manifest(kind: &str, child: &str) -> Manifest {
    let controller = json!({
        "for": {"apiVersion": "app.example.com/v1alpha1", "kind": kind}, "concurrency": 8,
        "owns": [{"apiVersion": "v1", "kind": child}],
    });
    let manifest = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "podset", "controllers": [controller],
    });
    Manifest::parse(&manifest.to_string()).unwrap()
}

#[test]
fn a_withdrawn_plugin_leaves_no_series() {
    let (metrics, now) = (Arc::new(Metrics::new()), Instant::now());
    everything(&metrics, now);
    metrics.serves(&"podset".into(), &manifest("PodSet", "Pod"), false);
    metrics.webhook_begins("/validate/podset").ends(200, Duration::ZERO);
    let in_flight = metrics.webhook_begins("/validate/podset");
    for plugin in ["podset", "bad"] {
        metrics.observe(now, &Observation::Withdrawn { plugin: plugin.into() });
    }
    // The end of a turn in progress.
    metrics.observe(now, &Observation::TurnEnded { cause: cause() });
    drop(in_flight);
    let text = metrics.encode(now, &Scraped::default()).unwrap();
    for gone in ["controller=", "plugin=\"podset\"", "plugin=\"bad\"", "webhook="] {
        assert!(!text.contains(gone), "{gone} in\n{text}");
    }
    has(&text, r#"mortise_plugin_compile_seconds_count{cached="false"} 1"#);
}

#[test]
fn a_controller_that_the_next_version_lacks_leaves_no_series() {
    let (metrics, now) = (Metrics::new(), Instant::now());
    everything(&metrics, now);
    metrics.serves(&"podset".into(), &manifest("PodSet", "Pod"), true);
    let text = metrics.encode(now, &Scraped::default()).unwrap();
    has(&text, r#"controller_runtime_reconcile_total{controller="podset/PodSet",result="success"} 1"#);
    has(&text, r#"controller_runtime_max_concurrent_reconciles{controller="podset/PodSet"} 8"#);
    has(&text, r#"mortise_writes_total{plugin="podset",verb="create",kind="v1/Pod",result="ok"} 1"#);
    metrics.serves(&"podset".into(), &manifest("Other", "Secret"), true);
    let text = metrics.encode(now, &Scraped::default()).unwrap();
    assert!(!text.contains("podset/PodSet") && !text.contains("mortise_writes_total{"), "{text}");
    has(&text, r#"controller_runtime_max_concurrent_reconciles{controller="podset/Other"} 8"#);
    has(&text, r#"mortise_plugin_reloads_total{plugin="podset"} 1"#);
}

#[test]
fn the_series_of_a_plugin_whose_kinds_change_with_each_version_are_bounded() {
    let (metrics, now) = (Metrics::new(), Instant::now());
    let mut known = Vec::new();
    for version in 0..50 {
        let (kind, child) = (format!("Kind{version}"), Kind::new("v1", &format!("Child{version}")));
        let controller: Arc<str> = format!("podset/{kind}").into();
        metrics.serves(&"podset".into(), &manifest(&kind, &child.kind), version > 0);
        metrics.observe(now, &Observation::Enqueued { controller: controller.clone(), retry: false });
        metrics.observe(now, &Observation::Taken { controller, queued_ms: 1 });
        let unwatchable = |kind| Observation::WatchFailed { kind, error: WatchError::Denied("no".to_owned()) };
        metrics.observe(now, &unwatchable(child.clone()));
        let (mut write, _) = write(None);
        write.op = WriteOp::Create {
            target: ObjectRef { kind: child.clone(), ..write.op.target().clone() },
            body: "{}".into(),
        };
        metrics.wrote(&write, Ok(()));
        metrics.encode(now, &Scraped::default()).unwrap();
        if version > 0 {
            known.push(metrics.all.len());
        }
        metrics.unwatched(&child);
    }
    assert!(known.iter().all(|series| *series == known[0]), "{known:?}");
}

/// A label set, its metric, and their place in a table that is half empty; of histograms with their buckets.
const SERIES_BYTES: usize = 768;

#[test]
fn as_many_series_as_there_may_be_have_so_many_bytes() {
    let (metrics, now) = (Metrics::new(), Instant::now());
    let (count, ()) = counted(|| {
        let mut number = 0;
        while metrics.all.len() + 100 < MAX_SERIES {
            let controller = format!("{}{number}/{}", "p".repeat(120), "K".repeat(63)).into();
            let (cause, result) = (Cause { controller, ..cause() }, ReconcileResult::Success);
            let reconciled = Observation::Reconciled { cause, result, elapsed_ms: 1, writes: 2, skipped: false };
            metrics.observe(now, &reconciled);
            number += 1;
        }
    });
    check_counted("series of metrics: of controllers", metrics.all.len() * SERIES_BYTES, &count);
}

#[test]
fn the_number_of_series_is_bounded_and_the_growing_family_is_reset() {
    let (metrics, now) = (Metrics::new(), Instant::now());
    everything(&metrics, now);
    let refuse = |number: usize| {
        let refusal = Refusal::new("InvalidManifest", "no");
        metrics.observe(now, &Observation::Refused { plugin: format!("bad-{number}").into(), refusal });
    };
    (0..MAX_SERIES + 1_000).for_each(refuse);
    assert!(metrics.all.len() <= MAX_SERIES, "{}", metrics.all.len());
    let text = metrics.encode(now, &Scraped::default()).unwrap();
    has(&text, r#"controller_runtime_reconcile_total{controller="podset/PodSet",result="success"} 1"#);
    has(
        &text,
        &format!(r#"mortise_plugin_refusals_total{{plugin="bad-{}",reason="InvalidManifest"}} 1"#, MAX_SERIES + 999),
    );
}

#[test]
fn a_kind_that_is_not_served_is_in_no_label() {
    let metrics = Metrics::new();
    let unserved = WatchError::NotServed("no such kind".to_owned());
    metrics.observe(
        Instant::now(),
        &Observation::WatchFailed { kind: Kind::new("acme.com/v1", "Hunter2"), error: unserved },
    );
    let text = metrics.encode(Instant::now(), &Scraped::default()).unwrap();
    has(&text, r#"mortise_watch_failures_total{kind="",reason="not_served"} 1"#);
    assert!(!text.contains("Hunter2"), "an object named it, by what its plugin has read");
}
