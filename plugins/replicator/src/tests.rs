//! The function on clusters in memory.

use mortise_sdk::testing::Cluster;

use super::*;

fn cluster(namespaces: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::of(&PLUGIN);
    for (name, tier) in namespaces {
        cluster.add(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"tier": tier}}}),
        );
    }
    let metadata = json!({"name": "ca", "namespace": "default"});
    cluster.add(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": "abc"}}));
    cluster
}

fn replica() -> ConfigMapReplica {
    let namespaces =
        LabelSelector { match_labels: [("tier".to_owned(), "web".to_owned())].into(), ..Default::default() };
    ConfigMapReplica::new("ca", ConfigMapReplicaSpec { source: "ca".into(), namespaces })
}

/// The namespaces of the copies.
fn copies(cluster: &Cluster) -> Vec<&str> {
    let all = cluster.objects("ConfigMap").into_iter();
    all.filter_map(|found| found["metadata"]["namespace"].as_str())
        .filter(|namespace| *namespace != "default")
        .collect()
}

#[test]
fn every_selected_namespace_has_a_copy_but_the_sources_own_and_those_that_end() {
    let mut cluster = cluster(&[("shop", "web"), ("ledger", "data"), ("blog", "web"), ("default", "web")]);
    let ending = json!({"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Terminating"},
        "metadata": {"name": "old", "labels": {"tier": "web"}}});
    cluster.add(&ending);
    let outcome = cluster.settle(&replica()).unwrap();
    assert_eq!(copies(&cluster), ["blog", "shop"]);
    assert_eq!(outcome.status_value()["copies"], 2);
    assert!(outcome.is_ready());
    assert_eq!(outcome.child("shop").unwrap()["data"], json!({"ca.crt": "abc"}));
}

#[test]
fn a_namespace_that_does_not_match_any_more_loses_its_copy() {
    let mut cluster = cluster(&[("shop", "web"), ("blog", "web")]);
    cluster.settle(&replica()).unwrap();
    cluster.add(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {}}}));
    cluster.settle(&replica()).unwrap();
    assert_eq!(copies(&cluster), ["blog"]);
}

#[test]
fn without_a_source_the_copies_stay_and_the_condition_says_so() {
    let mut cluster = cluster(&[("shop", "web")]);
    cluster.settle(&replica()).unwrap();
    cluster.remove(&ObjectKey::new("v1", "ConfigMap", Some("default"), "ca"));
    let outcome = cluster.settle(&replica()).unwrap();
    assert_eq!(copies(&cluster), ["shop"]);
    assert_eq!(outcome.condition_of("Ready").unwrap().reason, "SourceNotFound");
}
