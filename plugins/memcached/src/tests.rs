//! Memcached as its users see it, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{ConditionStatus, Outcome, Value, json};

use super::{Memcached, MemcachedSpec, PLUGIN};

fn example(size: i32) -> Memcached {
    let mut memcached =
        Memcached::new("cache", MemcachedSpec { size, image: super::image(), container_port: super::port() });
    memcached.metadata.uid = "1234".to_owned();
    memcached
}

/// A cluster in which the Deployment of `example` has this status, and so many Pods.
fn cluster(memcached: &Memcached, status: Value, pods: usize) -> Cluster {
    let mut cluster = Cluster::of(&PLUGIN);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": status});
    cluster.add_child(memcached, "deployment", &deployment);
    for pod in 0..pods {
        add_pod(&mut cluster, &format!("cache-{pod}"), "1234");
    }
    cluster
}

fn add_pod(cluster: &mut Cluster, name: &str, instance: &str) {
    let labels = json!({"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": instance});
    let metadata = json!({"name": name, "namespace": "default", "labels": labels});
    cluster.add(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
}

fn condition(outcome: &Outcome<Value>, name: &str) -> (ConditionStatus, String) {
    let found = outcome.condition_of(name).unwrap();
    (found.status, found.message.clone())
}

#[test]
fn a_new_memcached_wants_a_deployment_and_is_not_available() {
    let outcome = Cluster::of(&PLUGIN).reconcile(&example(3)).unwrap();
    let deployment = outcome.child("deployment").unwrap();
    let (spec, container) = (&deployment["spec"], &deployment["spec"]["template"]["spec"]["containers"][0]);
    assert_eq!((&deployment["metadata"]["name"], &spec["replicas"]), (&json!("cache"), &json!(3)));
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
    assert_eq!(
        (&container["image"], &container["ports"][0]["containerPort"]),
        (&json!("memcached:1.6-alpine"), &json!(11211))
    );
    assert_eq!(outcome.status_value(), json!({"size": 0, "nodes": []}));
    let waiting = (ConditionStatus::False, "0 of 3 servers are available".to_owned());
    assert_eq!(condition(&outcome, "Available"), waiting);
    assert!(!outcome.is_ready());
}

#[test]
fn the_status_names_the_pods_and_not_those_of_another_memcached() {
    let mut cluster = cluster(&example(2), json!({"availableReplicas": 2, "updatedReplicas": 2}), 2);
    add_pod(&mut cluster, "other", "5678");
    let outcome = cluster.reconcile(&example(2)).unwrap();
    assert_eq!(outcome.status_value(), json!({"size": 2, "nodes": ["cache-0", "cache-1"]}));
    assert_eq!(condition(&outcome, "Available").0, ConditionStatus::True);
    assert_eq!(condition(&outcome, "Degraded").0, ConditionStatus::False);
    assert!(outcome.is_ready());
}

#[test]
fn it_is_not_ready_before_the_newest_servers_are() {
    for (observed, updated, ready) in [(1, 2, false), (2, 1, false), (2, 2, true)] {
        let status = json!({"availableReplicas": 2, "updatedReplicas": updated, "observedGeneration": observed});
        let mut cluster = cluster(&example(2), json!({}), 2);
        let metadata = json!({"generation": 2});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "status": status});
        let outcome = cluster.add_child(&example(2), "deployment", &deployment).reconcile(&example(2)).unwrap();
        assert_eq!(outcome.is_ready(), ready, "{observed} {updated}");
    }
}

#[test]
fn a_deployment_that_makes_no_progress_is_degraded_with_its_message() {
    for (name, status) in [("Progressing", "False"), ("ReplicaFailure", "True")] {
        let conditions = json!([{"type": name, "status": status, "message": "the quota is used up"}]);
        let status = json!({"availableReplicas": 1, "conditions": conditions});
        let outcome = cluster(&example(1), status, 1).reconcile(&example(1)).unwrap();
        let expected = (ConditionStatus::True, "the quota is used up".to_owned());
        assert_eq!(condition(&outcome, "Degraded"), expected, "{name}");
        assert!(!outcome.is_ready(), "{name}");
    }
}

#[test]
fn a_deleted_memcached_is_drained_before_it_is_gone() {
    let mut deleted = example(2);
    deleted.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    let draining = cluster(&deleted, json!({}), 1).reconcile(&deleted).unwrap();
    assert_eq!(draining.child("deployment").unwrap()["spec"]["replicas"], 0);
    assert!(!draining.finalized);
    let drained = cluster(&deleted, json!({}), 0).reconcile(&deleted).unwrap();
    assert!(drained.finalized);
    assert_eq!(drained.events[0].reason, "Drained");
}
