//! What operators look at: probes, metrics under the names that dashboards know, logs, and an orderly end.

use super::world::{World, built};

#[test]
fn probes_and_metrics_speak_the_words_that_operators_know() {
    let world = World::with_podset("observe");
    world.apply(&world.podset("one", 1));
    world.until("the set is served", || {
        (world.kubectl_here(&["get", "podset/one", "-o", "jsonpath={.status.replicas}"]) == "1").then_some(())
    });
    assert_eq!(world.probe("/healthz").0, 200);
    let (status, text) = world.probe("/readyz?verbose");
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("[+]") && text.contains("podset"), "{text}");
    let text = world.metrics_text();
    for series in [
        "controller_runtime_reconcile_total{controller=\"podset/PodSet\",result=\"success\"}",
        "controller_runtime_reconcile_time_seconds_bucket{",
        "controller_runtime_max_concurrent_reconciles{",
        "controller_runtime_active_workers{",
        "workqueue_depth{",
        "workqueue_adds_total{",
        "workqueue_queue_duration_seconds_bucket{",
        "rest_client_requests_total{",
        "mortise_guest_calls_total{",
        "mortise_plugin_ready{plugin=\"podset\"} 1",
    ] {
        assert!(text.contains(series), "{series} is missing from:\n{text}");
    }
}

#[test]
fn a_host_that_is_told_to_end_ends_well() {
    let mut world = World::with_podset("shutdown");
    world.apply(&world.podset("one", 5));
    world.stop_host();
}

#[test]
fn a_folder_is_a_second_source_that_notices_what_is_saved_into_it() {
    let mut world = World::new("folder");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    world.start_host_as(mortise_control_plane::ADMIN, &["--plugin-dir", &path]);
    let file = folder.path().join("podset.wasm");
    std::fs::copy(built("plugins/podset.wasm"), &file).unwrap();
    world.wait_ready("podset");
    let before = world.plugin_digest("podset");
    // As editors and linkers save: written beside, then renamed over.
    let beside = folder.path().join(".podset.wasm.tmp");
    std::fs::copy(built("test-guests/podset-next.wasm"), &beside).unwrap();
    std::fs::rename(&beside, &file).unwrap();
    world.until("the saved build serves", || (world.plugin_digest("podset") != before).then_some(()));
    std::fs::remove_file(&file).unwrap();
    world.kubectl(&["wait", "--for=delete", "plugin/podset", "--timeout=60s"]);
}
