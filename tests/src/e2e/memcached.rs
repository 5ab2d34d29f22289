//! memcached end to end: a Deployment by server-side apply, the names of its Pods, and a deletion that waits for them.

use serde_json::{Value, json};

use super::foo::field;
use super::quiet::{calls, wait_until_quiet};
use super::world::World;

const MEMCACHED: &str = "memcached/memcached-sample";

fn condition(world: &World, name: &str) -> String {
    field(world, MEMCACHED, &format!("{{.status.conditions[?(@.type==\"{name}\")].status}}"))
}

#[track_caller]
fn wait_available(world: &World, size: usize) {
    world.until(&format!("{size} servers are available"), || {
        let nodes: Value = serde_json::from_str(&field(world, MEMCACHED, "{.status.nodes}")).ok()?;
        let is_complete = nodes.as_array().is_some_and(|nodes| nodes.len() == size);
        (is_complete && condition(world, "Available") == "True").then_some(())
    });
}

#[test]
fn a_memcached_is_available_follows_its_size_and_is_drained_before_it_is_gone() {
    let mut world = World::with_plugin("memcached", "memcached");
    world.apply_sample("memcached");
    wait_available(&world, 2);
    assert_eq!(condition(&world, "Degraded"), "False");
    let pods = world.kubectl_here(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]);
    let nodes = field(&world, MEMCACHED, "{.status.nodes[*]}");
    assert_eq!(nodes, pods, "the status names the Pods");
    let manager = field(&world, "deployment/memcached-sample", "{.metadata.managedFields[*].manager}");
    assert!(manager.contains("mortise/memcached"), "{manager}");

    world.kubectl_here(&["scale", MEMCACHED, "--replicas=3"]);
    wait_available(&world, 3);
    wait_until_quiet(&world, "memcached");
    world.mark_audit();
    let before = calls(&world, "memcached");
    world.kubectl_here(&["annotate", MEMCACHED, "note=nothing"]);
    world.until("the plugin is called", || (calls(&world, "memcached") > before).then_some(()));
    wait_until_quiet(&world, "memcached");
    assert!(world.writes_by_host().is_empty(), "{:#?}", world.writes_by_host());

    world.kubectl_here(&["delete", MEMCACHED, "--wait=false"]);
    world.until("the Memcached is gone", || field(&world, MEMCACHED, "{.metadata.name}").is_empty().then_some(()));
    let selector = ["get", "pods", "-l", "app.kubernetes.io/name=memcached", "-o", "name"];
    assert_eq!(world.kubectl_here(&selector), "", "its Pods went first");
}

#[test]
fn a_quota_that_is_used_up_makes_a_memcached_degraded() {
    let world = World::with_plugin("memcached-quota", "memcached");
    world.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one", "namespace": world.namespace},
        "spec": {"hard": {"pods": "1"}},
    }));
    world.until("the quota is in force", || {
        (field(&world, "resourcequota/one", "{.status.hard.pods}") == "1").then_some(())
    });
    world.apply_sample("memcached");
    world.until("the Memcached is degraded", || (condition(&world, "Degraded") == "True").then_some(()));
    let why = field(&world, MEMCACHED, "{.status.conditions[?(@.type==\"Degraded\")].message}");
    assert!(why.contains("exceeded quota: one"), "{why}");
    assert_eq!(condition(&world, "Ready"), "False");
}
