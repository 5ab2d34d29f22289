//! What an annotated Deployment gets, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Outcome, Value, json};

use super::PLUGIN;

fn of(annotations: Value) -> Outcome<Value> {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    });
    Cluster::of(&PLUGIN).reconcile(&deployment).unwrap()
}

#[test]
fn a_port_brings_a_service_and_a_host_an_ingress() {
    let outcome = of(json!({"expose.example.com/port": "8080"}));
    assert_eq!(outcome.child_keys(), ["service"]);
    let spec = outcome.child("service").unwrap()["spec"].clone();
    assert_eq!(spec["selector"], json!({"app": "web"}));
    assert_eq!(spec["ports"], json!([{"name": "http", "port": 80, "targetPort": 8080}]));

    let outcome = of(json!({"expose.example.com/port": "8080", "expose.example.com/host": "web.example.com"}));
    assert_eq!(outcome.child_keys(), ["service", "ingress"]);
    let rule = outcome.child("ingress").unwrap()["spec"]["rules"][0].clone();
    assert_eq!(rule["host"], "web.example.com");
    assert_eq!(rule["http"]["paths"][0]["backend"]["service"]["name"], "web");
}

#[test]
fn without_the_annotation_there_is_nothing() {
    assert_eq!(of(json!({})).children, Some(vec![]));
    assert_eq!(of(json!({"expose.example.com/host": "web.example.com"})).children, Some(vec![]));
}

#[test]
fn an_invalid_port_changes_nothing_and_is_an_event() {
    for port in ["http", "0", "65536", ""] {
        let outcome = of(json!({"expose.example.com/port": port}));
        assert_eq!(outcome.children, None, "{port}");
        let expected = format!("the annotation expose.example.com/port is {port:?}; it is a number from 1 to 65535");
        assert_eq!(outcome.events[0].message, expected);
    }
}
