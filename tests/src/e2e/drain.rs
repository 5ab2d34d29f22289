//! Node drains end to end, and an object whose plugin was removed. The Nodes are kwok's, budgets and evictions are
//! real.

use std::process::Command;

use mortise_control_plane::ADMIN;
use serde_json::{Value, json};

use super::rights;
use super::world::{World, built};

const NODE: &str = "node-1";

/// A world with drain and a host that has only the rights that `mortise rbac` prints.
fn with_drain(name: &str) -> World {
    let mut world = World::new(name);
    rights::start_restricted(&mut world);
    rights::give(&world, "drain");
    world.offer("drain", &built("plugins/drain.wasm"));
    world.wait_ready("drain");
    // Those of a test that has ended, whose namespace is being deleted, cannot be evicted.
    let on_node = format!("--field-selector=spec.nodeName={NODE}");
    let pods = || world.kubectl(&["get", "pods", "-A", &on_node, "-o", "name"]);
    world.until("no Pod is on the node", || pods().is_empty().then_some(()));
    world
}

fn maintenance(name: &str) -> Value {
    maintenance_of(name, NODE)
}

fn maintenance_of(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "maintenance.mortise.dev/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"nodeName": node, "reason": "a new kernel"},
    })
}

fn pod(world: &World, name: &str, metadata: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox"}]},
    });
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["namespace"] = world.namespace.as_str().into();
    pod
}

fn field(world: &World, object: &str, path: &str) -> String {
    world.kubectl_here(&["get", object, "-o", &format!("jsonpath={{{path}}}")])
}

#[track_caller]
fn wait_field(world: &World, object: &str, path: &str, holds: impl Fn(&str) -> bool) -> String {
    world.until(&format!("{object} is as expected at {path}"), || {
        Some(field(world, object, path)).filter(|found| holds(found))
    })
}

fn pods(world: &World) -> Vec<String> {
    let names = world.kubectl_here(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]);
    names.split_whitespace().filter(|name| !name.starts_with("daemon-")).map(str::to_owned).collect()
}

/// Runs `mortise finalizers release drain` as administrator. Returns success and output.
fn release(world: &World, more: &[&str]) -> (bool, String) {
    let mut command = Command::new(built("debug/mortise"));
    command.args(["finalizers", "release", "drain", "--kubeconfig"]).arg(world.plane.kubeconfig(ADMIN).unwrap());
    let output = command.args(more).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_node_is_drained_within_its_budgets_and_uncordoned_when_its_maintenance_is_deleted() {
    let mut world = with_drain("drain");
    let web = json!({"labels": {"app": "web"}});
    for pod in [
        pod(&world, "web-0", &web),
        pod(&world, "web-1", &web),
        pod(&world, "free", &json!({})),
        pod(&world, "static", &json!({"annotations": {"kubernetes.io/config.mirror": "a-hash"}})),
    ] {
        world.apply(&pod);
    }
    let labels = json!({"app": "daemon"});
    world.apply(&json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "daemon", "namespace": world.namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]}}},
    }));
    world.apply(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web-budget", "namespace": world.namespace},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }));
    wait_field(&world, "daemonset/daemon", ".status.numberReady", |ready| ready == "2");
    wait_field(&world, "pdb/web-budget", ".status.currentHealthy", |healthy| healthy == "2");
    world.mark_audit();

    world.apply(&maintenance("kernel"));
    let object = "nodemaintenance/kernel";
    let evicting = ".status.conditions[?(@.type==\"Evicting\")]";
    let message = wait_field(&world, object, &format!("{evicting}.message"), |message| message.contains("and 1 more"));
    assert!(message.contains("web-budget needs 2 healthy pods"), "the budget is not named: {message}");
    assert_eq!(field(&world, object, &format!("{evicting}.reason")), "DisruptionBudget");
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    wait_field(&world, object, &format!("{ready}.reason"), |reason| reason == "WaitingForBudget");
    let message = field(&world, object, &format!("{ready}.message"));
    assert!(message.contains(&format!("the PodDisruptionBudget {}/web-budget", world.namespace)), "{message}");
    wait_field(&world, object, ".status.podsLeft", |left| left == "2");
    assert_eq!(pods(&world), ["static", "web-0", "web-1"], "Pods without a budget are gone");
    assert_eq!(field(&world, object, ".metadata.finalizers[*]"), "mortise.dev/drain");
    assert_eq!(field(&world, object, ".status.cordoned"), "true");
    assert_eq!(field(&world, "node/node-1", ".spec.unschedulable"), "true");
    assert_eq!(field(&world, "node/node-2", ".spec.unschedulable"), "");

    world.kubectl_here(&["delete", "pdb", "web-budget"]);
    world.kubectl(&["wait", object, "--for=condition=Ready", "--timeout=60s"]);
    assert_eq!(pods(&world), ["static"]);
    wait_field(&world, object, &format!("{evicting}.status"), str::is_empty);
    assert_eq!(field(&world, "daemonset/daemon", ".status.numberReady"), "2", "daemons are left alone");

    world.kubectl(&["delete", object, "--timeout=60s"]);
    assert_eq!(field(&world, "node/node-1", ".spec.unschedulable"), "");
    let patches = world.writes_by_host().into_iter().filter(|write| write.resource.starts_with("nodes")).count();
    assert_eq!(patches, 2, "one write cordons, one uncordons");
    let failures = world.metric("mortise_guest_faults_total", "");
    assert_eq!(failures, 0.0, "{}", world.metrics_text());
    world.stop_host();
}

#[test]
fn a_node_that_was_cordoned_before_stays_cordoned() {
    let world = with_drain("cordoned");
    world.kubectl(&["cordon", NODE]);
    world.apply(&maintenance("theirs"));
    world.kubectl(&["wait", "nodemaintenance/theirs", "--for=condition=Ready", "--timeout=60s"]);
    assert_eq!(field(&world, "nodemaintenance/theirs", ".status.cordoned"), "false");
    world.kubectl(&["delete", "nodemaintenance/theirs", "--timeout=60s"]);
    assert_eq!(field(&world, "node/node-1", ".spec.unschedulable"), "true");
}

#[test]
fn the_last_of_two_maintenances_of_a_node_uncordons_it() {
    let world = with_drain("two");
    let whose = ".metadata.annotations.maintenance\\.mortise\\.dev/cordoned-by";
    world.apply(&maintenance("first"));
    wait_field(&world, "nodemaintenance/first", ".status.cordoned", |cordoned| cordoned == "true");
    wait_field(&world, "node/node-1", whose, |by| by == "first");
    world.apply(&maintenance("second"));
    world.kubectl(&["wait", "nodemaintenance/second", "--for=condition=Ready", "--timeout=60s"]);
    assert_eq!(field(&world, "nodemaintenance/second", ".status.cordoned"), "false", "the first one cordoned it");

    world.kubectl(&["delete", "nodemaintenance/first", "--timeout=60s"]);
    assert_eq!(field(&world, "node/node-1", ".spec.unschedulable"), "true");
    assert_eq!(field(&world, "node/node-1", whose), "second");
    wait_field(&world, "nodemaintenance/second", ".status.cordoned", |cordoned| cordoned == "true");
    world.kubectl(&["delete", "nodemaintenance/second", "--timeout=60s"]);
    assert_eq!(
        (field(&world, "node/node-1", ".spec.unschedulable"), field(&world, "node/node-1", whose)),
        Default::default()
    );
    let patches = world.writes_by_host().into_iter().filter(|write| write.resource.starts_with("nodes")).count();
    assert_eq!(patches, 3, "one write cordons, one hands over, one uncordons");
}

#[test]
fn a_missing_node_is_reported_drained_when_it_is_created_and_blocks_no_deletion() {
    let world = with_drain("nowhere");
    let object = "nodemaintenance/early";
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    world.apply(&maintenance_of("early", "extra"));
    let reason_is = |reason: &str| wait_field(&world, object, &format!("{ready}.reason"), |found| found == reason);
    reason_is("NodeNotFound");
    assert_eq!(field(&world, object, &format!("{ready}.message")), "there is no node extra");
    let elsewhere = maintenance_of("early", NODE).to_string();
    let refusal = format!("{:#}", world.plane.apply(&elsewhere).unwrap_err());
    assert!(refusal.contains("spec.nodeName") && refusal.contains("it cannot be changed"), "{refusal}");

    world.apply(&world.node("extra"));
    reason_is("Drained");
    wait_field(&world, "node/extra", ".spec.unschedulable", |cordoned| cordoned == "true");
    world.kubectl(&["delete", "node", "extra"]);
    reason_is("NodeNotFound");
    world.kubectl(&["delete", object, "--timeout=60s"]);
}

#[test]
fn l3_objects_of_a_removed_plugin_are_logged_and_released_by_the_command() {
    let world = with_drain("release");
    world.apply(&maintenance("left"));
    let object = "nodemaintenance/left";
    wait_field(&world, object, ".metadata.finalizers[*]", |all| all == "mortise.dev/drain");
    let (done, text) = release(&world, &[]);
    assert!(!done && text.contains("the plugin is installed and cleans up by itself"), "{text}");

    world.withdraw("drain");
    world.until("the log has what is left and how to release it", || {
        let log = world.log_since_start();
        (log.contains("NodeMaintenance left") && log.contains("mortise finalizers release drain")).then_some(())
    });
    world.kubectl(&["delete", object, "--wait=false"]);
    world.until("the Plugin object is gone", || {
        world.kubectl(&["get", "plugins", "-o", "name"]).is_empty().then_some(())
    });
    let (done, text) = release(&world, &["--dry-run"]);
    assert!(done && text.contains("NodeMaintenance left has mortise.dev/drain"), "{text}");
    assert_eq!(field(&world, object, ".metadata.finalizers[*]"), "mortise.dev/drain", "a dry run changes nothing");
    let (done, text) = release(&world, &["--kind", "maintenance.mortise.dev/v1alpha1/NodeMaintenance"]);
    assert!(done && text.contains("NodeMaintenance left is released and deleted"), "{text}");
    assert_eq!(world.kubectl(&["get", "nodemaintenances", "-o", "name"]), "");
    assert_eq!(release(&world, &[]), (true, "no object has mortise.dev/drain\n".to_owned()));
}
