//! Plugins that declare a part of a kind, on the real API server: a host with rights in one namespace alone, one watch
//! there, a plugin that widens it, and what each plugin sees. The plugins are `tests/guests/shelf` and `library`.

use serde_json::{Value, json};

use super::rights;
use super::world::{RESTRICTED, World, built};

/// The namespace in the manifest of shelf.
const SHARED: &str = "e2e-scopes-a";

pub fn secret(world: &World, namespace: &str, name: &str) {
    world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"shelf": "yes"}},
    }));
}

fn object(world: &World, kind: &str, spec: &Value) {
    world.apply(&json!({
        "apiVersion": "test.mortise.dev/v1", "kind": kind,
        "metadata": {"name": "only", "namespace": world.namespace}, "spec": spec,
    }));
}

/// Waits until a field of the object's status is this.
#[track_caller]
fn wait_status(world: &World, resource: &str, field: &str, expected: &Value) {
    world.until(&format!("{field} of {resource} is {expected}"), || {
        let text = world.kubectl_here(&["get", resource, "only", "-o", "json"]);
        let found: Value = serde_json::from_str(&text).unwrap();
        (found["status"][field] == *expected).then_some(())
    });
}

/// Open watches of Secrets, in single namespaces or of all. No other client watches single namespaces.
pub fn open_watches(world: &World, scope: &str) -> u64 {
    let metrics = world.kubectl(&["get", "--raw", "/metrics"]);
    let of_secrets = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && [r#"resource="secrets""#, r#"verb="WATCH""#, &format!("scope=\"{scope}\"")]
                .iter()
                .all(|label| line.contains(*label))
    });
    of_secrets.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn wait_watches(world: &World, of_namespaces: u64) {
    world.until(&format!("{of_namespaces} watches of Secrets of a namespace are open"), || {
        (open_watches(world, "namespace") == of_namespaces).then_some(())
    });
}

/// The requests of the host for all Secrets since the mark.
fn of_all_secrets(world: &World) -> Vec<String> {
    let of_secrets = world.requests_by(RESTRICTED).into_iter().filter(|record| record.resource == "secrets");
    of_secrets.filter(|record| record.namespace.is_empty()).map(|record| record.uri).collect()
}

/// Gives the host the Role that `mortise rbac` has printed for the namespace, as a user and not as a ServiceAccount.
fn bind_here(world: &World) {
    let binding = ["create", "rolebinding", "e2e-shelf", "-n", SHARED, "--role=mortise-plugin-shelf"];
    world.kubectl(&[&binding[..], &[&format!("--user={RESTRICTED}")]].concat());
}

fn shelf_world() -> World {
    let mut world = World::new("scopes");
    world.until("the other namespace is free", || world.plane.kubectl_output(&["create", "namespace", SHARED]).ok());
    world.kubectl(&["label", "namespace", SHARED, super::world::OF_A_TEST]);
    rights::start_restricted(&mut world);
    world.mark_audit();
    world.offer("shelf", &built("test-guests/shelf.wasm"));
    rights::give_component(&world, "shelf", "test-guests/shelf.wasm");
    world
}

#[test]
fn g4_r5_a_plugin_of_one_namespace_needs_rights_there_alone_and_sees_no_more_when_another_reads_all() {
    let mut world = shelf_world();
    let denied = world.until("the condition names the namespace", || {
        let message = world.condition("shelf", "Permitted")?["message"].as_str()?.to_owned();
        message.contains("in the namespace \"e2e-scopes-a\"").then_some(message)
    });
    assert!(denied.contains("a Role of the namespace e2e-scopes-a") && denied.contains("[\"secrets\"]"), "{denied}");
    bind_here(&world);
    world.wait_ready("shelf");
    secret(&world, SHARED, "x");
    secret(&world, &world.namespace.clone(), "hidden");
    object(&world, "Shelf", &json!({"elsewhere": world.namespace}));
    wait_status(&world, "shelf", "secrets", &json!(["e2e-scopes-a/x"]));
    let text = world.kubectl_here(&["get", "shelf", "only", "-o", "jsonpath={.status.elsewhere}"]);
    assert!(text.contains("declares v1/Secret in the namespace e2e-scopes-a, and not in \"e2e-scopes\""), "{text}");
    wait_watches(&world, 1);
    assert_eq!(of_all_secrets(&world), [""; 0], "the host asks for no other Secrets");

    // Another plugin declares all Secrets, which the host may not read.
    world.offer("library", &built("test-guests/library.wasm"));
    world.wait_condition("library", "Permitted", "False", "Forbidden");
    assert_ne!(of_all_secrets(&world), [""; 0]);
    secret(&world, SHARED, "y");
    wait_status(&world, "shelf", "secrets", &json!(["e2e-scopes-a/x", "e2e-scopes-a/y"]));
    rights::give_component(&world, "library", "test-guests/library.wasm");
    world.wait_ready("library");
    object(&world, "Library", &json!({"labels": "shelf=yes"}));
    let all = json!(["e2e-scopes/hidden", "e2e-scopes-a/x", "e2e-scopes-a/y"]);
    wait_status(&world, "library", "secrets", &all);
    wait_watches(&world, 0);
    let calls = world.metric("mortise_guest_calls_total", "shelf/Shelf");
    secret(&world, &world.namespace.clone(), "hidden-too");
    let all = json!(["e2e-scopes/hidden", "e2e-scopes/hidden-too", "e2e-scopes-a/x", "e2e-scopes-a/y"]);
    wait_status(&world, "library", "secrets", &all);
    assert_eq!(world.metric("mortise_guest_calls_total", "shelf/Shelf") - calls, 0.0, "W1: it woke nobody else");
    wait_status(&world, "shelf", "secrets", &json!(["e2e-scopes-a/x", "e2e-scopes-a/y"]));

    // It leaves again: the host reads one namespace.
    world.withdraw("library");
    wait_watches(&world, 1);
    world.kubectl(&["delete", "secret", "x", "-n", SHARED]);
    wait_status(&world, "shelf", "secrets", &json!(["e2e-scopes-a/y"]));
    world.until("the other Secrets have left the cache", || {
        (world.metric("mortise_cache_objects", "kind=\"v1/Secret\"") as u64 == 1).then_some(())
    });
}

#[test]
fn r6_to_a_watch_by_labels_an_object_is_deleted_when_it_loses_the_label_and_comes_back_with_it() {
    let mut world = shelf_world();
    bind_here(&world);
    world.wait_ready("shelf");
    object(&world, "Shelf", &json!({"elsewhere": world.namespace}));
    world.kubectl_here(&["create", "configmap", "book"]);
    world.kubectl_here(&["create", "configmap", "stone"]);
    let label = |to: &str| world.kubectl_here(&["label", "configmap", "book", &format!("test.mortise.dev/shelf{to}")]);
    label("=yes");
    wait_status(&world, "shelf", "configMaps", &json!(["e2e-scopes/book"]));
    world.until("the cache has one ConfigMap", || {
        (world.metric("mortise_cache_objects", "kind=\"v1/ConfigMap\"") as u64 == 1).then_some(())
    });
    label("-");
    wait_status(&world, "shelf", "configMaps", &json!([]));
    label("=yes");
    wait_status(&world, "shelf", "configMaps", &json!(["e2e-scopes/book"]));
    world.kubectl_here(&["delete", "configmap", "book"]);
    wait_status(&world, "shelf", "configMaps", &json!([]));
}
