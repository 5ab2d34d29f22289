//! NodeMaintenance as its users see it, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Action, Json, ObjectKey, Outcome, Value, json};

use super::{NodeMaintenance, NodeMaintenanceSpec, PLUGIN};

fn maintenance(name: &str) -> NodeMaintenance {
    NodeMaintenance::new(name, NodeMaintenanceSpec { node_name: "worker".into(), reason: None })
}

fn deleted(name: &str) -> NodeMaintenance {
    let mut maintenance = maintenance(name);
    maintenance.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".into());
    maintenance
}

fn node(spec: Value, cordoned_by: Option<&str>) -> Value {
    let mut annotations = json!({"theirs": "x"});
    if let Some(by) = cordoned_by {
        annotations["maintenance.mortise.dev/cordoned-by"] = by.into();
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker", "annotations": annotations}, "spec": spec})
}

fn pod(name: &str, node: &str, metadata: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}});
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["namespace"] = "default".into();
    pod
}

/// A node with two Pods that have to be evicted, and others.
fn cluster() -> Cluster {
    let owned_by =
        |kind: &str| json!({"ownerReferences": [{"kind": kind, "controller": true}], "labels": {"app": "web"}});
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add(&node(json!({}), None));
    cluster.add(&pod("web-0", "worker", owned_by("ReplicaSet")));
    cluster.add(&pod("alone", "worker", json!({})));
    cluster.add(&pod("daemon", "worker", owned_by("DaemonSet")));
    cluster.add(&pod("daemon-of-ours", "worker", owned_by("MyDaemonSet")));
    cluster.add(&pod("static", "worker", json!({"annotations": {"kubernetes.io/config.mirror": "a hash"}})));
    cluster.add(&pod("elsewhere", "other", json!({})));
    cluster.add(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pending", "namespace": "default"}}));
    cluster
}

fn budget(selector: Value, allowed: i32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}})
}

fn evicted(outcome: &Outcome<Value>) -> Vec<&str> {
    let pods = outcome.actions.iter().filter_map(|action| action.target()).filter(|target| target.kind == "Pod");
    pods.map(|target| target.name.as_str()).collect()
}

/// In whose name an outcome cordons the node, with null for nobody's; None when it leaves the node as it is.
fn cordoned_by(outcome: &Outcome<Value>) -> Option<Value> {
    let patch = outcome.actions.iter().find_map(|action| match action {
        Action::Patch(patch) => patch.body.value().ok(),
        _ => None,
    })?;
    let by = patch["metadata"]["annotations"]["maintenance.mortise.dev/cordoned-by"].clone();
    let unschedulable = if by.is_null() { Value::Null } else { true.into() };
    let annotations = json!({"maintenance.mortise.dev/cordoned-by": by});
    assert_eq!(patch, json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": unschedulable}}));
    Some(by)
}

fn reason(outcome: &Outcome<Value>) -> &str {
    &outcome.condition_of("Ready").unwrap().reason
}

#[test]
fn a_node_is_cordoned_and_drained_of_all_but_daemons_and_static_pods() {
    let mut cluster = cluster();
    let first = cluster.reconcile(&maintenance("m")).unwrap();
    assert_eq!((evicted(&first), cordoned_by(&first)), (vec!["alone", "web-0"], Some(json!("m"))));
    assert_eq!((first.status_value(), reason(&first)), (json!({"cordoned": true, "podsLeft": 2}), "Draining"));

    cluster.add(&node(json!({"unschedulable": true}), Some("m")));
    for pod in ["alone", "web-0"] {
        assert!(cluster.remove(&ObjectKey::new("v1", "Pod", Some("default"), pod)));
    }
    let last = cluster.reconcile(&maintenance("m")).unwrap();
    assert!(last.is_ready() && last.actions.is_empty(), "{last:?}");
    assert_eq!(last.status_value(), json!({"cordoned": true, "podsLeft": 0}));
}

#[test]
fn the_budget_that_blocks_an_eviction_is_named() {
    let waiting = |selector: Value, allowed: i32| {
        let mut cluster = cluster();
        cluster.add(&budget(selector, allowed));
        let outcome = cluster.reconcile(&maintenance("m")).unwrap();
        assert_eq!(evicted(&outcome), ["alone", "web-0"], "the API server decides, not the plugin");
        let ready = outcome.condition_of("Ready").unwrap();
        (ready.reason == "WaitingForBudget").then(|| ready.message.clone())
    };
    let message = waiting(json!({"matchLabels": {"app": "web"}}), 0).unwrap();
    let expected = "2 Pods are left on worker; default/web-0 waits for the PodDisruptionBudget default/web, which allows no \
                    disruption now";
    assert_eq!(message, expected);
    assert!(waiting(json!({}), 0).unwrap().contains("default/alone waits"), "an empty selector selects all");
    let with = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
    assert!(waiting(with("In", json!(["web", "db"])), 0).unwrap().contains("default/web-0 waits"));
    assert!(waiting(with("NotIn", json!(["web"])), 0).unwrap().contains("default/alone waits"));
    assert!(waiting(with("Exists", json!([])), 0).unwrap().contains("default/web-0 waits"));
    assert!(waiting(with("DoesNotExist", json!([])), 0).unwrap().contains("default/alone waits"));
    for (selector, allowed) in [(json!({"matchLabels": {"app": "web"}}), 1), (json!({"matchLabels": {"app": "db"}}), 0)]
    {
        assert_eq!(waiting(selector, allowed), None);
    }
}

#[test]
fn a_node_is_uncordoned_by_the_maintenance_that_cordoned_it() {
    let mut cluster = cluster();
    cluster.add(&node(json!({"unschedulable": true}), Some("m")));
    let outcome = cluster.reconcile(&deleted("m")).unwrap();
    assert_eq!((outcome.finalized, cordoned_by(&outcome)), (true, Some(Value::Null)));
    assert_eq!(evicted(&outcome), [""; 0]);
}

#[test]
fn a_node_that_somebody_else_has_cordoned_stays_cordoned() {
    let mut cluster = cluster();
    cluster.add(&node(json!({"unschedulable": true}), None));
    let outcome = cluster.reconcile(&maintenance("m")).unwrap();
    assert_eq!((evicted(&outcome), cordoned_by(&outcome)), (vec!["alone", "web-0"], None));
    assert_eq!(outcome.status_value()["cordoned"], false);
    let outcome = cluster.reconcile(&deleted("m")).unwrap();
    assert!(outcome.finalized && outcome.actions.is_empty(), "{outcome:?}");
}

#[test]
fn of_two_maintenances_of_a_node_the_last_one_uncordons_it() {
    let mut cluster = cluster();
    cluster.add(&node(json!({"unschedulable": true}), Some("first")));
    cluster.add(&maintenance("first")).add(&maintenance("second"));
    let second = cluster.reconcile(&maintenance("second")).unwrap();
    assert_eq!((cordoned_by(&second), &second.status_value()["cordoned"]), (None, &json!(false)));
    let outcome = cluster.add(&deleted("first")).reconcile(&deleted("first")).unwrap();
    assert_eq!((outcome.finalized, cordoned_by(&outcome)), (true, Some(json!("second"))), "it is handed over");

    cluster.add(&node(json!({"unschedulable": true}), Some("second")));
    let outcome = cluster.add(&deleted("second")).reconcile(&deleted("second")).unwrap();
    assert_eq!((outcome.finalized, cordoned_by(&outcome)), (true, Some(Value::Null)));
}

#[test]
fn a_missing_node_is_reported_and_blocks_no_deletion() {
    let cluster = Cluster::of(&PLUGIN);
    let outcome = cluster.reconcile(&maintenance("m")).unwrap();
    assert_eq!((reason(&outcome), outcome.actions.len()), ("NodeNotFound", 0));
    assert!(cluster.reconcile(&deleted("m")).unwrap().finalized);
}

#[test]
fn the_manifest_declares_what_a_drain_needs_and_no_more() {
    let manifest: Value = Json::raw(PLUGIN.manifest()).value().unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "verbs": ["patch"]});
    assert_eq!(manifest["writes"], json!([node, {"apiVersion": "v1", "kind": "Pod", "verbs": ["evict"]}]));
    assert_eq!(manifest["controllers"][0]["finalize"], true);
    let resource = &manifest["customResources"][0];
    assert_eq!(resource["metadata"]["name"], "nodemaintenances.maintenance.mortise.dev");
    assert_eq!(resource["spec"]["scope"], "Cluster");
    let schema = &resource["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let rules = &schema["properties"]["spec"]["properties"]["nodeName"]["x-kubernetes-validations"];
    assert_eq!(rules[0]["rule"], "self == oldSelf", "{schema}");
}
