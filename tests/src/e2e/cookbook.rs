//! The small examples of the cookbook end to end: janitor, tenancy and expose, whose objects are of built-in kinds, and
//! password.

use serde_json::json;

use super::foo::field;
use super::world::{HOST_NAMESPACE, World};
use crate::checkout::root;

#[test]
fn the_janitor_deletes_a_job_after_its_time_and_says_so() {
    let world = World::with_plugin("janitor", "janitor");
    world.apply_sample("janitor");
    world.kubectl_here(&["create", "job", "stays", "--image=busybox"]);
    world.until("the Job is deleted", || field(&world, "job/once", "{.metadata.name}").is_empty().then_some(()));
    let selector = "involvedObject.name=once,reason=Expired";
    let events =
        world.kubectl_here(&["get", "events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}"]);
    assert_eq!(events, "Job once is deleted after its time to live");
    assert_eq!(field(&world, "job/stays", "{.metadata.name}"), "stays");
}

#[test]
fn a_namespace_has_what_its_tier_needs_as_long_as_it_has_the_label() {
    let mut world = World::with_plugin("tenancy", "tenancy");
    let config = std::fs::read_to_string(root().join("plugins/tenancy/config.yaml")).unwrap();
    let data = json!({"data": {"config.yaml": config}}).to_string();
    world.kubectl(&["patch", "configmap", "tenancy", "-n", HOST_NAMESPACE, "--type=merge", "-p", &data]);
    world.wait_ready("tenancy");
    let namespace = world.namespace.clone();
    let all = ["get", "resourcequotas,limitranges,networkpolicies", "-o", "name"];
    world.kubectl(&["label", "namespace", &namespace, "tenancy.example.com/tier=small"]);
    world.until("the Namespace has all three", || (world.kubectl_here(&all).lines().count() == 3).then_some(()));
    assert_eq!(field(&world, "resourcequota/tenancy", "{.spec.hard.requests\\.memory}"), "8Gi");
    world.kubectl(&["label", "namespace", &namespace, "--overwrite", "tenancy.example.com/tier=shared"]);
    world.until("an open tier has no NetworkPolicy", || (world.kubectl_here(&all).lines().count() == 2).then_some(()));
    world.kubectl(&["label", "namespace", &namespace, "tenancy.example.com/tier-"]);
    world.until("nothing is left", || world.kubectl_here(&all).is_empty().then_some(()));
}

#[test]
fn an_annotated_deployment_has_a_service_and_an_ingress_until_the_annotation_is_removed() {
    let world = World::with_plugin("expose", "expose");
    world.apply_sample("expose");
    world.until("the Ingress leads to the Service", || {
        let backend = field(&world, "ingress/web", "{.spec.rules[0].http.paths[0].backend.service.name}");
        (backend == "web" && field(&world, "service/web", "{.spec.ports[0].targetPort}") == "8080").then_some(())
    });
    world.kubectl_here(&["annotate", "deployment/web", "expose.example.com/host-"]);
    world.until("the Ingress is gone", || field(&world, "ingress/web", "{.metadata.name}").is_empty().then_some(()));
    assert_eq!(field(&world, "service/web", "{.metadata.name}"), "web");
    world.kubectl_here(&["annotate", "deployment/web", "expose.example.com/port-"]);
    world.until("the Service is gone", || field(&world, "service/web", "{.metadata.name}").is_empty().then_some(()));
}

#[test]
fn a_password_is_made_and_made_anew_when_its_rotation_changes() {
    let world = World::with_plugin("password", "password");
    world.apply_sample("password");
    world.kubectl_here(&["wait", "--for=condition=Ready", "password/database", "--timeout=60s"]);
    // 24 characters in base64.
    let made = || Some(field(&world, "secret/database-login", "{.data.password}")).filter(|text| text.len() == 32);
    let first = made().expect("the sample's length");
    world.kubectl_here(&["patch", "password/database", "--type=merge", "-p", r#"{"spec":{"rotation":"2"}}"#]);
    world.until("another password", || made().filter(|text| *text != first));
}
