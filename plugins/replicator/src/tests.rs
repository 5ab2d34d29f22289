//! The function, one call at a time.

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

/// Adds the copies in these Namespaces.
fn add_copies(cluster: &mut Cluster, namespaces: &[&str]) {
    for namespace in namespaces {
        let metadata = json!({"name": "ca", "namespace": namespace});
        let copy = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        cluster.add_child(&replica(), namespace, &copy);
    }
}

#[test]
fn every_selected_namespace_gets_a_copy_but_the_sources_own_and_those_that_end() {
    let mut cluster = cluster(&[("shop", "web"), ("ledger", "data"), ("blog", "web"), ("default", "web")]);
    let ending = json!({"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Terminating"},
        "metadata": {"name": "old", "labels": {"tier": "web"}}});
    cluster.add(&ending);
    let outcome = cluster.reconcile(&replica()).unwrap();
    assert_eq!(outcome.child_keys(), ["blog", "shop"]);
    let copy = outcome.child("shop").unwrap();
    assert_eq!(
        (&copy["metadata"], &copy["data"]),
        (&json!({"name": "ca", "namespace": "shop"}), &json!({"ca.crt": "abc"}))
    );
    assert!(!outcome.is_ready());

    add_copies(&mut cluster, &["blog", "shop"]);
    let outcome = cluster.reconcile(&replica()).unwrap();
    assert_eq!(outcome.status_value()["copies"], 2);
    assert!(outcome.is_ready());
}

#[test]
fn a_namespace_that_does_not_match_any_more_loses_its_copy() {
    let mut cluster = cluster(&[("shop", "data"), ("blog", "web")]);
    add_copies(&mut cluster, &["blog", "shop"]);
    let outcome = cluster.reconcile(&replica()).unwrap();
    assert_eq!(outcome.child_keys(), ["blog"], "the host deletes the other");
    assert!(!outcome.is_ready(), "it is there still");
}

#[test]
fn without_a_source_the_copies_stay_and_the_condition_says_so() {
    let mut cluster = cluster(&[("shop", "web")]);
    add_copies(&mut cluster, &["shop"]);
    cluster.remove(&ObjectKey::new("v1", "ConfigMap", Some("default"), "ca"));
    let outcome = cluster.reconcile(&replica()).unwrap();
    assert_eq!(outcome.children, None);
    assert_eq!(outcome.condition_of("Ready").unwrap().reason, "SourceNotFound");
}
