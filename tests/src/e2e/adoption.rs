//! Objects that exist already become children, with the real API server: the test guest `bundle`.

use serde_json::{Value, json};

use super::foo::field;
use super::world::{World, built};

fn world(name: &str) -> World {
    let mut world = World::new(name);
    world.start_host();
    world.offer("bundle", &built("test-guests/bundle.wasm"));
    world.wait_ready("bundle");
    world
}

fn apply(world: &World, items: &Value) {
    world.apply(&json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Bundle", "spec": {"groups": [items]},
        "metadata": {"name": "bundle", "namespace": world.namespace},
    }));
}

#[track_caller]
fn wait_field(world: &World, object: &str, path: &str, expected: &str) {
    world.until(&format!("{object} has {expected:?} at {path}, not {:?}", field(world, object, path)), || {
        (field(world, object, path) == expected).then_some(())
    });
}

const OWNER: &str = "{.metadata.ownerReferences[*].kind}";
const READY: &str = "{.status.conditions[?(@.type==\"Ready\")].status} \
                     {.status.conditions[?(@.type==\"Ready\")].reason}: {.status.conditions[?(@.type==\"Ready\")].message}";

#[test]
fn an_object_that_nothing_controls_becomes_a_child_and_is_deleted_with_its_owner() {
    let world = world("adoption");
    world.kubectl_here(&["create", "configmap", "old", "--from-literal=a=theirs", "--from-literal=b=theirs"]);
    let uid = field(&world, "configmap/old", "{.metadata.uid}");
    let item = |adopt: bool| json!([{"key": "0", "name": "old", "data": {"a": "ours"}, "adopt": adopt}]);
    apply(&world, &item(false));
    let taken = "False ChildExists: ConfigMap e2e-adoption/old exists already and is not controlled by this Bundle";
    wait_field(&world, "bundle/bundle", READY, taken);
    apply(&world, &item(true));
    wait_field(&world, "configmap/old", OWNER, "Bundle");
    wait_field(&world, "configmap/old", "{.data}", r#"{"a":"ours","b":"theirs"}"#);
    wait_field(&world, "bundle/bundle", READY, "True Bundled: ");
    assert_eq!(field(&world, "configmap/old", "{.metadata.uid}"), uid, "it is the same object");
    world.kubectl_here(&["delete", "bundle", "bundle"]);
    wait_field(&world, "configmap/old", "{.metadata.uid}", "");
}

#[test]
fn a_pod_that_is_as_wanted_is_adopted_as_it_is_and_another_is_replaced() {
    let world = world("adoption-pods");
    let pod = |name: &str, image: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": world.namespace},
            "spec": {"containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 1}})
    };
    world.apply(&pod("same", "busybox"));
    world.apply(&pod("other", "nginx"));
    let (same, other) = (field(&world, "pod/same", "{.metadata.uid}"), field(&world, "pod/other", "{.metadata.uid}"));
    apply(&world, &json!([{"key": "0", "name": "same", "adopt": true}, {"key": "1", "name": "other", "adopt": true}]));
    wait_field(&world, "pod/same", OWNER, "Bundle");
    wait_field(&world, "pod/other", "{.spec.containers[0].image}", "busybox");
    wait_field(&world, "pod/other", OWNER, "Bundle");
    assert_ne!(field(&world, "pod/other", "{.metadata.uid}"), other);
    assert_eq!(field(&world, "pod/same", "{.metadata.uid}"), same);
}

#[test]
fn x3_what_another_controls_is_never_adopted() {
    let world = world("adoption-taken");
    world.apply(&json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": world.namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}},
    }));
    let name = world.until("there is a Pod", || {
        Some(field(&world, "pods", "{.items[*].metadata.name}")).filter(|name| !name.is_empty())
    });
    apply(&world, &json!([{"key": "0", "name": name, "adopt": true}]));
    let taken = format!(
        "False ChildExists: Pod e2e-adoption-taken/{name} (of ReplicaSet web) exists already and is not controlled by this \
         Bundle"
    );
    wait_field(&world, "bundle/bundle", READY, &taken);
    assert_eq!(field(&world, &format!("pod/{name}"), OWNER), "ReplicaSet");
}
