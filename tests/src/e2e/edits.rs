//! Plugin objects that somebody edits or deletes by hand while their plugins serve: the plugins serve on, and the objects show
//! it.

use serde_json::{Value, json};

use super::foo::field;
use super::world::{HOST_NAMESPACE, World};

const MADE_BY_HOST: &str = "mortise.dev/host-namespace";

fn label(world: &World) -> String {
    world.of_plugin("podset", &format!(".metadata.labels.{}", MADE_BY_HOST.replace('.', "\\.")))
}

/// One more Pod comes, by the version that served before.
fn serves_on(world: &World, edit: &str) {
    let replicas: usize = field(world, "podset/kept", "{.spec.replicas}").parse().unwrap();
    let wanted = (replicas + 1).to_string();
    world.kubectl_here(&["scale", "podset/kept", &format!("--replicas={wanted}")]);
    world.until(&format!("a Pod comes after this: {edit}"), || {
        (field(world, "podset/kept", "{.status.replicas}") == wanted).then_some(())
    });
    let log = world.log_since_start();
    assert!(!log.contains("the plugin is withdrawn"), "{edit}:\n{log}");
    assert_eq!(log.matches("the plugin serves").count(), 1, "{edit}:\n{log}");
}

/// What the object shows of the version that serves, without times.
fn shown(world: &World) -> Value {
    let text = world.of_plugin("podset", ".status");
    let mut status: Value = serde_json::from_str(&text).unwrap_or_default();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    status
}

/// Edits the status, and waits until the host has written it back.
fn is_written_back(world: &World, edit: &Value) {
    let before = shown(world);
    let patch = json!({"status": edit}).to_string();
    world.kubectl(&["patch", "plugin", "podset", "--subresource=status", "--type=merge", "-p", &patch]);
    world.until(&format!("the host writes the status back after {edit}"), || (shown(world) == before).then_some(()));
}

#[test]
fn l2_l3_a_plugin_serves_on_whatever_is_done_by_hand_to_the_object_that_the_host_made() {
    let world = World::with_podset("edits");
    world.apply(&world.podset("kept", 1));
    serves_on(&world, "nothing");

    let forged =
        json!({"host": "elsewhere", "digest": "forged", "ownedKinds": ["Other.example.com"], "conditions": []});
    is_written_back(&world, &forged);
    serves_on(&world, "its status was edited");
    is_written_back(&world, &json!({"host": null, "conditions": null}));
    serves_on(&world, "parts of its status were removed");

    let (before, uid) = (shown(&world), world.of_plugin("podset", ".metadata.uid"));
    world.kubectl(&["delete", "plugin", "podset"]);
    serves_on(&world, "it was deleted");
    world.until("the host makes it again", || (shown(&world) == before).then_some(()));
    assert_eq!(label(&world), HOST_NAMESPACE);
    assert_ne!(world.of_plugin("podset", ".metadata.uid"), uid);

    world.kubectl(&["label", "plugin", "podset", &format!("{MADE_BY_HOST}-"), "app.kubernetes.io/managed-by-"]);
    serves_on(&world, "it lost the host's labels");
    assert_eq!((label(&world), shown(&world)), (String::new(), before));
    is_written_back(&world, &forged);
    serves_on(&world, "its status was edited without the labels");
    world.withdraw("podset");
    world.until("it is a person's: it stays, without its source", || {
        (shown(&world)["conditions"].to_string().contains("SourceNotFound")).then_some(())
    });
}

#[test]
fn l2_a_persons_plugin_serves_on_when_its_status_names_another_host_and_leaves_when_it_is_deleted() {
    let mut world = World::new("edits-person");
    world.start_host();
    world.wait_plugins_served();
    let spec = json!({"source": {"configMap": "podset"}});
    world.apply(&json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "podset"}, "spec": spec,
    }));
    world.offer("podset", &super::world::built("plugins/podset.wasm"));
    world.wait_ready("podset");
    world.apply(&world.podset("kept", 1));
    serves_on(&world, "nothing");
    is_written_back(&world, &json!({"host": "elsewhere"}));
    serves_on(&world, "its status named another host");
    assert_eq!(world.of_plugin("podset", ".status.host"), HOST_NAMESPACE);

    world.kubectl(&["delete", "plugin", "podset"]);
    world.until("its ConfigMap is a plugin of its own name", || (label(&world) == HOST_NAMESPACE).then_some(()));
    world.wait_ready("podset");
}
