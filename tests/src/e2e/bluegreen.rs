//! bluegreen end to end: the Service selects the new ReplicaSet when all of its Pods are available, and not before.

use serde_json::{Value, json};

use super::foo::field;
use super::quiet::wait_until_quiet;
use super::world::World;

const OBJECT: &str = "bluegreendeployment/nginx-blue-green";
const COLOR: &str = "{.spec.selector.ctl\\.enisoc\\.com/color}";

/// Waits until a colour is in use with all Pods, beside one ReplicaSet.
#[track_caller]
fn wait_in_use(world: &World, color: &str) {
    world.until(&format!("{color} is in use"), || {
        let path = "{.status.activeColor} {.status.conditions[?(@.type==\"Ready\")].reason}";
        (field(world, OBJECT, path) == format!("{color} InUse") && replica_sets(world).len() == 1).then_some(())
    });
    assert_eq!(field(world, "service/nginx-blue-green", COLOR), color);
}

/// The colours of the ReplicaSets.
fn replica_sets(world: &World) -> Vec<String> {
    let list: Value = serde_json::from_str(&world.kubectl_here(&["get", "replicasets", "-o", "json"])).unwrap();
    let color = |set: &Value| set["spec"]["selector"]["matchLabels"]["ctl.enisoc.com/color"].to_string();
    list["items"].as_array().unwrap().iter().map(color).collect()
}

fn set_image(world: &World, image: &str) {
    let containers = json!([{"name": "nginx", "image": image, "ports": [{"name": "web", "containerPort": 80}]}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}}).to_string();
    world.kubectl_here(&["patch", OBJECT, "--type=merge", "-p", &patch]);
}

#[test]
fn a_new_template_is_in_use_when_its_pods_are_available() {
    let mut world = World::with_plugin("bluegreen", "bluegreen");
    world.apply_sample("bluegreen");
    wait_in_use(&world, "blue");
    set_image(&world, "nginx:1.28");
    wait_in_use(&world, "green");
    let images = world.kubectl_here(&[
        "get",
        "replicasets",
        "-o",
        "jsonpath={.items[*].spec.template.spec.containers[*].image}",
    ]);
    assert_eq!(images, "nginx:1.28");
    wait_until_quiet(&world, "bluegreen");
    world.mark_audit();
    world.kubectl_here(&["annotate", OBJECT, "note=nothing"]);
    wait_until_quiet(&world, "bluegreen");
    assert!(world.writes_by_host().is_empty(), "{:#?}", world.writes_by_host());
}

#[test]
fn the_old_color_stays_in_use_while_the_new_one_cannot_start() {
    let world = World::with_plugin("bluegreen-stuck", "bluegreen");
    world.apply_sample("bluegreen");
    wait_in_use(&world, "blue");
    world.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": world.namespace},
        "spec": {"hard": {"pods": "3"}},
    }));
    world.until("the quota is in force", || {
        (field(&world, "resourcequota/full", "{.status.used.pods}") == "3").then_some(())
    });
    set_image(&world, "nginx:1.28");
    world.until("green cannot start", || {
        (field(&world, OBJECT, "{.status.previewReplicas}") == "0" && replica_sets(&world).len() == 2).then_some(())
    });
    wait_until_quiet(&world, "bluegreen");
    assert_eq!(field(&world, "service/nginx-blue-green", COLOR), "blue");
    assert_eq!(field(&world, OBJECT, "{.status.availableReplicas}"), "3");
    set_image(&world, "nginx:1.27");
    wait_in_use(&world, "blue");
}
