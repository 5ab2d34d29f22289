//! What an administrator grants a plugin beside rights, on a real API server: its definitions and webhooks, and nobody else's.

use serde_json::{Value, json};

use super::rights::{bind, bind_here, grant, start_restricted_with};
use super::world::{HOST_NAMESPACE, OF_A_TEST, World, built};

fn plugin(world: &World, name: &str, spec: &Value) {
    world.apply(&json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name}, "spec": spec,
    }));
}

/// A picture that the plugin "admitting" refuses, since it has no image.
fn is_refused(world: &World) -> bool {
    let picture = json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Picture", "metadata": {"name": "a", "namespace": world.namespace}, "spec": {},
    });
    let refused = world.plane.apply(&picture.to_string()).is_err();
    if !refused {
        world.kubectl_here(&["delete", "picture", "a"]);
    }
    refused
}

/// The definition of Pictures as somebody else has it.
fn define_pictures(world: &World) {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (key, value) = OF_A_TEST.split_once('=').unwrap();
    world.apply(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pictures.test.mortise.dev", "labels": {key: value}},
        "spec": {
            "group": "test.mortise.dev", "scope": "Namespaced", "names": {"kind": "Picture", "plural": "pictures"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": open},
            }],
        },
    }));
    world.kubectl(&["wait", "crd/pictures.test.mortise.dev", "--for=create", "--timeout=20s"]);
    world.kubectl(&["wait", "crd/pictures.test.mortise.dev", "--for=condition=Established", "--timeout=20s"]);
}

#[test]
fn g10_a_copy_of_somebodys_definition_gives_no_webhook_for_its_objects_without_a_grant() {
    let mut world = World::new("copy");
    define_pictures(&world);
    world.start_host();
    world.offer("admitting", &built("test-guests/admitting.wasm"));
    world.wait_condition("admitting", "Ready", "False", "NotGranted");
    let why = world.message("admitting", "Permitted");
    println!("{why}");
    assert!(why.contains(r#"{"admission":["Picture.test.mortise.dev"]}"#), "{why}");
    assert!(!is_refused(&world), "nobody reviews it");
    plugin(&world, "admitting", &json!({"grants": {"admission": ["Picture.test.mortise.dev"]}}));
    world.wait_ready("admitting");
    world.until("the API server calls the webhook", || is_refused(&world).then_some(()));
    plugin(&world, "admitting", &json!({"grants": {"admission": []}}));
    world.wait_condition("admitting", "Ready", "False", "NotGranted");
    world.until("what is taken away counts while it serves", || (!is_refused(&world)).then_some(()));
}

#[test]
fn g10_a_plugin_with_an_identity_serves_with_the_grants_that_are_printed_for_it() {
    let mut world = World::new("grants");
    start_restricted_with(&mut world, &["--require-service-account"]);
    world.offer("podset", &built("plugins/podset.wasm"));
    world.kubectl(&["create", "serviceaccount", "podset", "-n", HOST_NAMESPACE]);
    world.wait_condition("podset", "Ready", "False", "NoServiceAccount");
    plugin(&world, "podset", &json!({"serviceAccountName": "podset"}));
    world.wait_condition("podset", "Ready", "False", "NotGranted");
    let why = world.message("podset", "Permitted");
    println!("{why}");
    assert!(why.contains(r#""customResources":["podsets.app.example.com"]"#), "{why}");
    assert!(why.contains("mortise rbac FILE.wasm --name podset --service-account podset"), "{why}");
    grant(&world, &[built("plugins/podset.wasm").to_str().unwrap(), "--service-account", "podset"]);
    bind(&world, "podset", "mortise-plugin-podset-watch");
    bind_here(&world, "podset", "mortise-plugin-podset-identity");
    world.wait_ready("podset");
}

#[test]
fn g10_an_object_of_the_api_server_never_gets_a_bound_that_its_schema_refuses() {
    let mut world = World::new("grant-schema");
    world.start_host();
    world.kubectl(&["wait", "crd/plugins.mortise.dev", "--for=create", "--timeout=20s"]);
    world.kubectl(&["wait", "crd/plugins.mortise.dev", "--for=condition=Established", "--timeout=20s"]);
    let refused = |grants: Value| {
        let plugin = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "bounds"}, "spec": {"grants": grants},
        });
        world.plane.apply(&plugin.to_string()).expect_err("the schema refuses it").to_string()
    };
    for (grants, part) in [
        (json!({"maxObjects": -1}), "maxObjects"),
        (json!({"writesPerMinute": 0}), "writesPerMinute"),
        (json!({"admission": ["*"]}), "admission"),
        (json!({"customResources": ["a", "a"]}), "customResources"),
        (json!({"deadlineMs": 0}), "deadlineMs"),
    ] {
        let error = refused(grants);
        assert!(error.contains(part), "{part}: {error}");
    }
}
