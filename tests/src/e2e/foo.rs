//! foo end to end: the behaviour of the sample-controller, with the real Deployment controller and kubectl.
#![allow(clippy::disallowed_names, reason = "the kind is called Foo")]

use std::time::Duration;

use serde_json::{Value, json};

use super::quiet::{calls, wait_until_quiet};
use super::world::World;

/// Time without calls and writes where a loop would show.
const NO_LOOP: Duration = Duration::from_secs(3);

fn example(world: &World, deployment: &str, replicas: i64) -> Value {
    named(world, "example-foo", deployment, replicas)
}

fn named(world: &World, name: &str, deployment: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"deploymentName": deployment, "replicas": replicas},
    })
}

/// A field of an object; empty while the object does not exist.
pub fn field(world: &World, object: &str, path: &str) -> String {
    let output =
        world.plane.kubectl_output(&["-n", &world.namespace, "get", object, "-o", &format!("jsonpath={path}")]);
    output.unwrap_or_default()
}

/// Waits until a Foo's Deployment has these replicas, all of them available, and the Foo's status counts them.
#[track_caller]
fn wait_available(world: &World, foo: &str, deployment: &str, replicas: usize) {
    let foo = format!("foo/{foo}");
    world.until(&format!("{foo} has {replicas} available replicas"), || {
        let status =
            field(world, &foo, "{.status.availableReplicas} {.status.conditions[?(@.type==\"Ready\")].status}");
        let found = field(world, &format!("deployment/{deployment}"), "{.spec.replicas} {.status.availableReplicas}");
        (status == format!("{replicas} True") && found == format!("{replicas} {replicas}")).then_some(())
    });
}

/// The messages of a Foo's Events with this reason.
fn events(world: &World, foo: &str, reason: &str) -> Vec<String> {
    let selector = format!("involvedObject.kind=Foo,involvedObject.name={foo},reason={reason}");
    let format = "jsonpath={range .items[*]}{.type}: {.message}{\"\\n\"}{end}";
    let text = world.kubectl_here(&["get", "events", "--field-selector", &selector, "-o", format]);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_foo_has_one_deployment_of_nginx_and_shows_its_available_replicas() {
    let world = World::with_plugin("foo", "foo");
    let crd = world.kubectl(&["get", "crd", "foos.samplecontroller.k8s.io", "-o", "jsonpath={.spec.scope}"]);
    assert_eq!(crd, "Namespaced");
    world.apply_sample("foo");
    wait_available(&world, "example-foo", "example-foo", 1);
    let deployment = field(&world, "deployment/example-foo", "{}");
    let deployment: Value = serde_json::from_str(&deployment).unwrap();
    let labels = json!({"app": "nginx", "controller": "example-foo"});
    assert_eq!(deployment["spec"]["selector"], json!({"matchLabels": labels}));
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], labels);
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    assert_eq!((&containers[0]["name"], &containers[0]["image"]), (&json!("nginx"), &json!("nginx:latest")));
    let owner = &deployment["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["controller"]),
        (&json!("Foo"), &json!("example-foo"), &json!(true))
    );

    world.until("the Foo has its Event", || {
        let events = events(&world, "example-foo", "Synced");
        (events == ["Normal: Foo synced successfully"]).then_some(())
    });
    let described = world.kubectl_here(&["describe", "foo", "example-foo"]);
    assert!(described.contains("Synced") && described.contains("Foo synced successfully"), "{described}");

    world.kubectl_here(&["delete", "foo", "example-foo"]);
    world.until("the Deployment is deleted with its Foo", || {
        field(&world, "deployment/example-foo", "{.metadata.name}").is_empty().then_some(())
    });
}

#[test]
fn the_deployment_follows_its_foo_and_changes_of_others_are_reverted() {
    let world = World::with_plugin("foo-follows", "foo");
    world.apply(&example(&world, "web", 1));
    wait_available(&world, "example-foo", "web", 1);
    let uid = field(&world, "deployment/web", "{.metadata.uid}");
    world.apply(&example(&world, "web", 3));
    wait_available(&world, "example-foo", "web", 3);
    assert_eq!(field(&world, "deployment/web", "{.metadata.uid}"), uid, "it is updated in place");

    world.kubectl_here(&["scale", "deployment/web", "--replicas=7"]);
    world.kubectl_here(&["set", "image", "deployment/web", "nginx=nginx:1.0"]);
    world.until("the image is reverted", || {
        let image = field(&world, "deployment/web", "{.spec.template.spec.containers[*].image}");
        (image == "nginx:latest").then_some(())
    });
    wait_available(&world, "example-foo", "web", 3);

    world.kubectl_here(&["delete", "deployment", "web"]);
    wait_available(&world, "example-foo", "web", 3);
    assert_ne!(field(&world, "deployment/web", "{.metadata.uid}"), uid, "a deleted one is created again");

    world.apply(&example(&world, "site", 3));
    wait_available(&world, "example-foo", "site", 3);
    world.until("the Deployment of the old name is gone", || {
        field(&world, "deployment/web", "{.metadata.name}").is_empty().then_some(())
    });
    assert!(events(&world, "example-foo", "ErrResourceExists").is_empty());
}

#[test]
fn invalid_replicas_and_names_are_refused_by_the_api_server() {
    let world = World::with_plugin("foo-refused", "foo");
    for (spec, field) in [
        (json!({"deploymentName": "web", "replicas": 0}), "spec.replicas"),
        (json!({"deploymentName": "web", "replicas": -1}), "spec.replicas"),
        (json!({"deploymentName": "web", "replicas": 11}), "spec.replicas"),
        (json!({"deploymentName": "web", "replicas": 1_000_000_000_000_i64}), "spec.replicas"),
        (json!({"deploymentName": "web", "replicas": "three"}), "spec.replicas"),
        (json!({"deploymentName": "web", "replicas": 1.5}), "spec.replicas"),
        (json!({"deploymentName": "", "replicas": 1}), "spec.deploymentName"),
        (json!({"deploymentName": "No Name", "replicas": 1}), "spec.deploymentName"),
        (json!({"deploymentName": "a".repeat(254), "replicas": 1}), "spec.deploymentName"),
        (json!({"replicas": 1}), "spec.deploymentName"),
    ] {
        let mut foo = example(&world, "web", 1);
        foo["spec"] = spec.clone();
        let refusal = world.plane.apply(&foo.to_string()).unwrap_err();
        assert!(format!("{refusal:#}").contains(field), "{spec}: {refusal:#}");
    }
    let mut foo = example(&world, "web", 1);
    foo["spec"] = json!({"deploymentName": "web"});
    world.apply(&foo);
    wait_available(&world, "example-foo", "web", 1);
}

#[test]
fn a_deployment_of_another_owner_is_left_alone_until_the_name_is_free() {
    let mut world = World::with_plugin("foo-taken", "foo");
    world.kubectl_here(&["create", "deployment", "web", "--image=busybox", "--replicas=2"]);
    world.until("the other Deployment is available", || {
        (field(&world, "deployment/web", "{.status.availableReplicas}") == "2").then_some(())
    });
    let before = field(&world, "deployment/web", "{.metadata.resourceVersion} {.metadata.uid}");
    world.apply(&example(&world, "web", 1));
    let message = "Resource \"web\" already exists and is not managed by Foo";
    let warning = [format!("Warning: {message}")];
    world.until("an Event says that the name is in use", || {
        (events(&world, "example-foo", "ErrResourceExists") == warning).then_some(())
    });
    world.until("so does its condition", || {
        let ready = field(&world, "foo/example-foo", "{.status.conditions[?(@.type==\"Ready\")].message}");
        (ready == message).then_some(())
    });
    assert_eq!(
        field(&world, "foo/example-foo", "{.status.availableReplicas}"),
        "0",
        "the other Deployment's 2 do not count"
    );

    wait_until_quiet(&world, "foo");
    world.mark_audit();
    let called = calls(&world, "foo");
    // There is nothing to wait for: the test is that nothing happens.
    std::thread::sleep(NO_LOOP);
    assert_eq!(calls(&world, "foo"), called, "the plugin is called in a loop");
    assert!(world.writes_by_host().is_empty(), "{:#?}", world.writes_by_host());
    assert_eq!(events(&world, "example-foo", "ErrResourceExists"), warning);
    assert_eq!(field(&world, "deployment/web", "{.metadata.resourceVersion} {.metadata.uid}"), before);

    world.kubectl_here(&["delete", "deployment", "web"]);
    wait_available(&world, "example-foo", "web", 1);
    assert_eq!(field(&world, "deployment/web", "{.metadata.ownerReferences[*].name}"), "example-foo");
}

#[test]
fn of_two_foos_with_one_deployment_name_the_first_keeps_it() {
    let world = World::with_plugin("foo-two", "foo");
    world.apply(&named(&world, "first", "web", 1));
    wait_available(&world, "first", "web", 1);
    world.apply(&named(&world, "second", "web", 5));
    world.until("an Event tells the second that the name is in use", || {
        (events(&world, "second", "ErrResourceExists").len() == 1).then_some(())
    });
    wait_until_quiet(&world, "foo");
    wait_available(&world, "first", "web", 1);
    world.kubectl_here(&["delete", "foo", "first"]);
    wait_available(&world, "second", "web", 5);
}
