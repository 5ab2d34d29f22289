//! What a Namespace of a tier gets, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Outcome, Value, json};

use super::PLUGIN;

fn namespace(labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": labels}})
}

fn of(labels: Value) -> Outcome<Value> {
    let tier =
        |open| json!({"cpu": "4", "memory": "8Gi", "defaultCpu": "100m", "defaultMemory": "128Mi", "open": open});
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.set_config(json!({"tiers": {"small": tier(false), "shared": tier(true)}}));
    cluster.reconcile(&namespace(labels)).unwrap()
}

fn kinds(outcome: &Outcome<Value>) -> Vec<String> {
    let kind = |value: Value| value["kind"].as_str().unwrap_or_default().to_owned();
    outcome.children.iter().flatten().map(|child| kind(child.object.value().unwrap())).collect()
}

#[test]
fn a_namespace_of_a_tier_has_a_quota_limits_and_a_network_policy() {
    let outcome = of(json!({"tenancy.example.com/tier": "small"}));
    assert_eq!(kinds(&outcome), ["ResourceQuota", "LimitRange", "NetworkPolicy"]);
    let quota = outcome.child("tenancy").unwrap();
    assert_eq!(quota["metadata"], json!({"name": "tenancy", "namespace": "team-a"}));
    assert_eq!(quota["spec"]["hard"], json!({"requests.cpu": "4", "requests.memory": "8Gi"}));
    assert_eq!(kinds(&of(json!({"tenancy.example.com/tier": "shared"}))), ["ResourceQuota", "LimitRange"]);
}

#[test]
fn a_namespace_that_loses_its_label_loses_its_children() {
    assert_eq!(of(json!({})).children, Some(vec![]), "an empty set deletes what there was");
}

#[test]
fn an_unknown_tier_changes_nothing_and_is_an_event() {
    let outcome = of(json!({"tenancy.example.com/tier": "smal"}));
    assert_eq!(outcome.children, None);
    assert_eq!(outcome.events[0].message, "there is no tier \"smal\"; the configuration has: shared, small");
}

#[test]
fn a_mistake_in_the_configuration_is_a_failure_that_names_it() {
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.set_config(json!({"tiers": {"small": {"cpu": "four"}}}));
    let failure = cluster.reconcile(&namespace(json!({"tenancy.example.com/tier": "small"}))).unwrap_err();
    assert!(failure.message().starts_with("the plugin's configuration is not valid: "), "{failure}");
}
