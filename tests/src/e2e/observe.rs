//! Probes, metrics under the names of existing dashboards, logs, and a folder as a second source.

use mortise_control_plane::ADMIN;
use serde_json::{Value, json};

use super::world::{World, built};

#[test]
fn probes_and_metrics_have_the_names_of_controller_runtime() {
    let world = World::with_podset("observe");
    world.apply(&world.podset("one", 1));
    world.until("the set is served", || {
        (world.kubectl_here(&["get", "podset/one", "-o", "jsonpath={.status.replicas}"]) == "1").then_some(())
    });
    assert_eq!(world.probe("/healthz").0, 200);
    // The event loop publishes its state a few times a second.
    world.until("the probe shows the plugin", || {
        let (status, text) = world.probe("/readyz?verbose");
        (status == 200 && text.contains("[+]plugin/podset ok")).then_some(())
    });
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
fn json_logs_have_the_reconcile_in_every_line_of_a_guest_and_of_its_writes() {
    let mut world = World::new("logs");
    world.start_host_as(ADMIN, &["--log-format", "json", "--log-level", "debug"]);
    world.offer("hostile", &built("test-guests/hostile.wasm"));
    world.wait_ready("hostile");
    let digest = world.plugin_digest("hostile").unwrap();
    for mode in ["log-flood", "ok"] {
        world.apply(&json!({
            "apiVersion": "test.mortise.dev/v1", "kind": "Hostile",
            "metadata": {"name": mode, "namespace": world.namespace}, "spec": {"mode": mode},
        }));
    }
    let has = |line: &Value, field: &str, part: &str| line[field].as_str().is_some_and(|text| text.contains(part));
    let find = |what: &str, is: &dyn Fn(&Value) -> bool| {
        world.until(what, || world.json_log().into_iter().find(|line| is(line)))
    };
    let span = |name: &str| {
        let object = format!("Hostile {}/{name}", world.namespace);
        json!({"name": "reconcile", "controller": "hostile/Hostile", "object": object, "digest": digest})
    };
    let guest = find("a line of the guest is logged", &|line| has(line, "message", "line 7 of a flood"));
    assert_eq!(guest["target"], "guest", "{guest}");
    assert_eq!(guest["span"], span("log-flood"), "{guest}");
    let fault = find("its fault is logged", &|line| line["reason"] == "TooManyHostCalls");
    assert_eq!((&fault["level"], &fault["span"]), (&json!("WARN"), &span("log-flood")), "{fault}");

    let child = format!("ConfigMap {}/", world.namespace);
    let write =
        find("the write of a child is logged", &|line| line["message"] == "write" && has(line, "written", &child));
    assert_eq!(write["span"], span("ok"), "{write}");
    assert_eq!((&write["level"], &write["manager"]), (&json!("DEBUG"), &json!("mortise/hostile")), "{write}");
    for line in world.json_log() {
        assert!(["timestamp", "level", "target"].iter().all(|field| line[field].is_string()), "{line}");
    }
}

#[test]
fn a_folder_is_a_second_source_that_notices_saved_files() {
    let mut world = World::new("folder");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    world.start_host_as(ADMIN, &["--plugin-dir", &path]);
    let file = folder.path().join("podset.wasm");
    std::fs::copy(built("plugins/podset.wasm"), &file).unwrap();
    world.wait_ready("podset");
    let before = world.plugin_digest("podset");
    // As editors and linkers save: a rename over the file.
    let beside = folder.path().join(".podset.wasm.tmp");
    std::fs::copy(built("test-guests/podset-next.wasm"), &beside).unwrap();
    std::fs::rename(&beside, &file).unwrap();
    world.until("the saved build serves", || (world.plugin_digest("podset") != before).then_some(()));
    std::fs::remove_file(&file).unwrap();
    world.kubectl(&["wait", "--for=delete", "plugin/podset", "--timeout=60s"]);
}
