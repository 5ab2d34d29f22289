//! Children in other namespaces, with the real API server and kubectl: the plugin replicator.

use serde_json::json;

use super::world::{HOST_NAMESPACE, OF_A_TEST, World};

/// The Namespaces with a copy, sorted.
fn copies(world: &World) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.metadata.namespace} {end}";
    let text = world.kubectl(&["get", "configmaps", "-A", "-l", "mortise.dev/owner-uid", "-o", path]);
    text.split_whitespace().map(|name| name.trim_start_matches("e2e-tracked-").to_owned()).collect()
}

#[track_caller]
fn wait_copies(world: &World, expected: &[&str]) {
    world.until(&format!("the copies are in {expected:?}, not in {:?}", copies(world)), || {
        (copies(world) == expected).then_some(())
    });
}

fn namespace(world: &World, name: &str, tier: &str) {
    let name = format!("e2e-tracked-{name}");
    // One of an earlier run may still be terminating.
    world.until(&format!("the namespace {name} is free"), || {
        world.plane.kubectl_output(&["create", "namespace", &name]).ok()
    });
    world.kubectl(&["label", "namespace", &name, OF_A_TEST, &format!("tier={tier}")]);
}

fn ready(world: &World) -> String {
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} \
                {.status.conditions[?(@.type==\"Ready\")].reason}: {.status.conditions[?(@.type==\"Ready\")].message}";
    world.kubectl_here(&["get", "configmapreplica", "ca", "-o", path])
}

#[track_caller]
fn wait_ready(world: &World, expected: &str) {
    world.until(&format!("the replica is {expected:?}, not {:?}", ready(world)), || {
        ready(world).starts_with(expected).then_some(())
    });
}

fn world_with_replica(name: &str) -> World {
    let world = World::with_plugin(name, "replicator");
    for (name, tier) in [("north", "web"), ("south", "web"), ("west", "data")] {
        namespace(&world, name, tier);
    }
    let metadata = json!({"name": "ca", "namespace": world.namespace});
    world.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": "1"}}));
    world.apply(&json!({
        "apiVersion": "replication.mortise.dev/v1alpha1", "kind": "ConfigMapReplica", "metadata": metadata,
        "spec": {"source": "ca", "namespaces": {"matchLabels": {"tier": "web"}}},
    }));
    wait_copies(&world, &["north", "south"]);
    world
}

#[test]
fn a_config_map_is_copied_into_the_namespaces_that_match_and_nowhere_else() {
    let world = world_with_replica("tracked");
    wait_ready(&world, "True Copied: 2 of 2");
    let uid = world.kubectl_here(&["get", "configmapreplica", "ca", "-o", "jsonpath={.metadata.uid}"]);
    let metadata = "jsonpath={.metadata.labels.mortise\\.dev/owner-uid} {.metadata.ownerReferences} \
                    {.metadata.annotations.mortise\\.dev/owner}";
    let marks = world.kubectl(&["get", "configmap", "ca", "-n", "e2e-tracked-north", "-o", metadata]);
    let owner = format!("replication.mortise.dev/v1alpha1/ConfigMapReplica {}/ca", world.namespace);
    assert_eq!(marks, format!("{uid}  {owner} owns ConfigMap e2e-tracked-north/ca"));

    // Somebody gives an object of his own the marks of a copy: it is none, and stays.
    world.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "forged", "namespace": "e2e-tracked-west", "labels": {"mortise.dev/owner-uid": uid}, "annotations": {
            "mortise.dev/owner": format!("{owner} owns ConfigMap e2e-tracked-west/forged"),
            "mortise.dev/child": "e2e-tracked-west"}}}));
    world.kubectl_here(&["annotate", "configmapreplica", "ca", "again=yes"]);
    world.kubectl(&["label", "namespace", "e2e-tracked-west", "tier=web", "--overwrite"]);
    wait_ready(&world, "True Copied: 3 of 3");
    world.kubectl(&["label", "namespace", "e2e-tracked-west", "tier=data", "--overwrite"]);
    wait_ready(&world, "True Copied: 2 of 2");
    world.kubectl(&["delete", "configmap", "forged", "-n", "e2e-tracked-west"]);

    world.kubectl(&["label", "namespace", HOST_NAMESPACE, "tier=web"]);
    wait_ready(
        &world,
        "False ReservedNamespace: ConfigMap mortise-system/ca is not created: it is the host's namespace",
    );
    assert_eq!(copies(&world), ["north", "south"], "a ConfigMap beside the host could be a plugin");
    world.kubectl(&["label", "namespace", HOST_NAMESPACE, "tier-"]);
    wait_ready(&world, "True Copied: 2 of 2");

    world.kubectl(&["label", "namespace", "e2e-tracked-west", "tier=web", "--overwrite"]);
    wait_copies(&world, &["north", "south", "west"]);
    world.kubectl(&["label", "namespace", "e2e-tracked-north", "tier-"]);
    wait_copies(&world, &["south", "west"]);
    namespace(&world, "east", "web");
    wait_copies(&world, &["east", "south", "west"]);
    world.kubectl_here(&["patch", "configmap", "ca", "--type=merge", "-p", r#"{"data":{"ca.crt":"2"}}"#]);
    let theirs = r#"{"data":{"theirs":"x"}}"#;
    world.kubectl(&["patch", "configmap", "ca", "-n", "e2e-tracked-east", "--type=merge", "-p", theirs]);
    world.until("the copy follows its source, and a change of it is undone", || {
        let data = world.kubectl(&["get", "configmap", "ca", "-n", "e2e-tracked-east", "-o", "jsonpath={.data}"]);
        (data == r#"{"ca.crt":"2"}"#).then_some(())
    });
    world.kubectl(&["delete", "namespace", "e2e-tracked-east"]);
    wait_copies(&world, &["south", "west"]);
    wait_ready(&world, "True Copied: 2 of 2");
    world.kubectl_here(&["delete", "configmapreplica", "ca", "--timeout=60s"]);
    wait_copies(&world, &[]);
    assert!(world.kubectl_here(&["get", "configmap", "ca", "-o", "name"]).contains("configmap/ca"), "the source stays");
}

#[test]
fn x1_tracked_children_go_before_their_owner_also_when_no_host_saw_the_deletion() {
    let mut world = world_with_replica("tracked-gone");
    // One that somebody has, and a copy of a copy: nobody may lose them.
    let theirs = ["create", "configmap", "ca", "-n", "e2e-tracked-west", "--from-literal=theirs=yes"];
    world.kubectl(&theirs);
    let text = world.kubectl(&["get", "configmap", "ca", "-n", "e2e-tracked-north", "-o", "json"]);
    let mut copy: serde_json::Value = serde_json::from_str(&text).unwrap();
    copy["metadata"] = json!({"name": "mine", "namespace": "e2e-tracked-north",
        "labels": copy["metadata"]["labels"], "annotations": copy["metadata"]["annotations"]});
    world.apply(&copy);
    world.kubectl(&["label", "namespace", "e2e-tracked-west", "tier=web", "--overwrite"]);
    wait_ready(&world, "False ChildExists: ConfigMap e2e-tracked-west/ca exists already and is not controlled by this");

    world.kill_host();
    world.kubectl_here(&["delete", "configmapreplica", "ca", "--wait=false"]);
    let finalizers = ["get", "configmapreplica", "ca", "-o", "jsonpath={.metadata.finalizers[*]}"];
    assert_eq!(world.kubectl_here(&finalizers), "mortise.dev/replicator");
    world.start_host();
    world.until("the owner is gone", || {
        world.kubectl_here(&["get", "configmapreplicas", "-o", "name"]).is_empty().then_some(())
    });
    // It is deleted last, so nothing is left at this moment.
    assert_eq!(copies(&world), ["north"], "the copy that somebody made of a child has its labels");
    let left = world.kubectl(&[
        "get",
        "configmaps",
        "-A",
        "--no-headers",
        "-o",
        "custom-columns=:.metadata.namespace,:.metadata.name",
    ]);
    let is_left = |namespace: &str, name: &str| {
        left.lines().any(|line| line.split_whitespace().eq([format!("e2e-tracked-{namespace}").as_str(), name]))
    };
    assert!(is_left("west", "ca") && is_left("north", "mine"), "{left}");
    assert!(!is_left("north", "ca") && !is_left("south", "ca"), "{left}");
}
