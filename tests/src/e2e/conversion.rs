//! A kind with two versions end to end: written in one, read in the other and back; the CRD has its webhook and follows
//! its certificates; and the errors when an object cannot be converted, or no host runs.

use std::time::Duration;

use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Error};
use mortise_core::certificates::AUTHORITY_MS;
use serde_json::{Value, json};

use super::admission::{authority_secret, forget_authority, kept};
use super::reload::append_custom_section;
use super::world::{World, built};

const DEFINITION: &str = "gauges.test.mortise.dev";
pub(super) const V1: &str = "test.mortise.dev/v1";
pub(super) const V1ALPHA1: &str = "test.mortise.dev/v1alpha1";

fn component() -> Vec<u8> {
    std::fs::read(built("test-guests/converting.wasm")).unwrap()
}

/// A world in which the plugin converts.
fn world(name: &str) -> World {
    let mut world = World::new(name);
    world.start_host();
    world.offer_bytes("converting", &component());
    world.wait_ready("converting");
    world
}

fn gauges(world: &World, api_version: &str) -> Api<DynamicObject> {
    world.api(api_version, "Gauge", Some(&world.namespace))
}

pub(super) fn create(world: &World, api_version: &str, name: &str, spec: &Value) -> Result<DynamicObject, Error> {
    let object = json!({"apiVersion": api_version, "kind": "Gauge", "metadata": {"name": name}, "spec": spec});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    world.block_on(gauges(world, api_version).create(&PostParams::default(), &object))
}

pub(super) fn get(world: &World, api_version: &str, name: &str) -> Result<DynamicObject, Error> {
    world.block_on(gauges(world, api_version).get(name))
}

/// The message of an API error.
#[track_caller]
fn message<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Api(status)) => status.message.clone(),
        Err(error) => panic!("no response of the API server: {error}"),
        Ok(_) => panic!("it was converted"),
    }
}

fn definition(world: &World) -> Option<Value> {
    let definitions = world.api("apiextensions.k8s.io/v1", "CustomResourceDefinition", None);
    let found: Option<DynamicObject> = world.block_on(definitions.get_opt(DEFINITION)).unwrap();
    found.map(|found| serde_json::to_value(found).unwrap())
}

fn ca_bundle(definition: &Value) -> String {
    let bundle = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
    let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle.clone()).unwrap();
    String::from_utf8(bundle.0).unwrap()
}

#[test]
fn an_object_round_trips_between_versions_and_the_controller_sees_its_own() {
    let world = world("conversion");
    let old = json!({"size": "10Mi", "color": "red"});
    create(&world, V1ALPHA1, "old", &old).unwrap();
    assert_eq!(get(&world, V1, "old").unwrap().data["spec"], json!({"size": {"value": 10, "unit": "Mi"}}));
    let again = get(&world, V1ALPHA1, "old").unwrap();
    assert_eq!(again.data["spec"], old, "with the color that v1 lacks");
    assert_eq!(again.metadata.annotations, None, "without the annotation that stored it");
    let shown = world.until("the controller has seen it as v1", || {
        let dial = world.kubectl_here(&["get", "configmaps", "-o", "jsonpath={.items[*].data.shown}"]);
        dial.contains(" Mi ").then_some(dial)
    });
    assert_eq!(shown.trim(), "10 Mi with 0 alarms");
    world.until("both versions show its status", || {
        let status = |version| get(&world, version, "old").unwrap().data["status"]["shown"].clone();
        (status(V1) == "10 Mi with 0 alarms" && status(V1ALPHA1) == "10 Mi with 0 alarms").then_some(())
    });

    let new = json!({"size": {"value": 5, "unit": "Gi"}, "alarms": [{"at": 4}]});
    create(&world, V1, "new", &new).unwrap();
    assert_eq!(get(&world, V1ALPHA1, "new").unwrap().data["spec"], json!({"size": "5Gi"}));
    // A client of the old version updates the object, once the controller has nothing left to write.
    let mut shown = world.until("the controller has written the status", || {
        get(&world, V1ALPHA1, "new").ok().filter(|new| new.data["status"]["shown"].is_string())
    });
    shown.data["spec"]["size"] = json!("6Gi");
    world.block_on(gauges(&world, V1ALPHA1).replace("new", &PostParams::default(), &shown)).unwrap();
    let changed = get(&world, V1, "new").unwrap();
    assert_eq!(changed.data["spec"], json!({"size": {"value": 6, "unit": "Gi"}, "alarms": [{"at": 4}]}));
    let merge = Patch::Merge(json!({"spec": {"color": "blue"}}));
    world.block_on(gauges(&world, V1ALPHA1).patch("old", &PatchParams::default(), &merge)).unwrap();
    assert_eq!(get(&world, V1ALPHA1, "old").unwrap().data["spec"], json!({"size": "10Mi", "color": "blue"}));

    let all = world.block_on(gauges(&world, V1ALPHA1).list(&ListParams::default())).unwrap();
    let sizes: Vec<&Value> = all.items.iter().map(|gauge| &gauge.data["spec"]["size"]).collect();
    assert_eq!(sizes, ["6Gi", "10Mi"]);
    assert!(world.metric("mortise_conversions_total", "result=\"ok\"") >= 8.0);
    assert!(world.metric("controller_runtime_webhook_requests_total", "webhook=\"/convert/converting\"") >= 8.0);
}

#[test]
fn a_crd_with_conversion_is_created_only_when_the_host_serves_its_webhook() {
    let mut world = World::new("conversion-waits");
    let nothing = tempfile::tempdir().unwrap();
    let kubeconfig = world.plane.kubeconfig(mortise_control_plane::ADMIN).unwrap();
    world.start_host_with(&kubeconfig, &["--webhook-cert-path", nothing.path().to_str().unwrap()]);
    world.offer_bytes("converting", &component());
    let message = world.wait_condition("converting", "Converting", "False", "CertificateUnreadable");
    assert!(message.contains("tls.crt"), "{message}");
    world.wait_condition("converting", "Ready", "False", "CertificateUnreadable");
    let waiting = world.wait_condition("converting", "Established", "Unknown", "Waiting");
    assert!(waiting.contains(DEFINITION) && waiting.contains("when the host converts"), "{waiting}");
    assert_eq!(definition(&world), None, "without its webhook conversion would drop fields");

    world.kill_host();
    world.start_host();
    world.wait_ready("converting");
    world.wait_condition("converting", "Converting", "True", "Served");
    let found = definition(&world).unwrap();
    assert_eq!(found["spec"]["conversion"]["strategy"], "Webhook");
    assert_eq!(found["spec"]["conversion"]["webhook"]["conversionReviewVersions"], json!(["v1"]));
    assert_eq!(found["metadata"]["generation"], 1, "it never existed without the webhook");
    create(&world, V1ALPHA1, "first", &json!({"size": "1Mi"})).unwrap();
}

#[test]
fn a_failed_conversion_has_the_plugins_message_and_a_fault_is_counted_once() {
    let world = world("conversion-faults");
    let manifest = json!({
        "apiVersion": V1ALPHA1, "kind": "Gauge", "metadata": {"name": "none", "namespace": world.namespace},
        "spec": {"size": "plenty"},
    });
    let error = world.plane.apply(&manifest.to_string()).unwrap_err().to_string();
    assert!(error.contains("spec.size: \"plenty\" is no amount such as \"10Mi\""), "{error}");
    assert_eq!(world.metric("mortise_guest_faults_total", "converting"), 0.0, "a refusal is not a fault");

    let error = message(create(&world, V1ALPHA1, "trap", &json!({"size": "trap"})));
    assert!(error.contains("the plugin \"converting\" could not convert Gauge"), "{error}");
    assert!(error.contains("it traps because spec.size is trap"), "{error}");
    assert_eq!(world.metric("mortise_guest_faults_total", "reason=\"Trap\""), 1.0, "counted once");
    let error = message(create(&world, V1ALPHA1, "loop", &json!({"size": "loop"})));
    assert!(error.contains("deadline of 1000 ms"), "{error}");
    create(&world, V1ALPHA1, "good", &json!({"size": "1Mi"})).unwrap();
}

#[test]
fn l3_a_removed_plugin_converts_until_the_host_ends_and_then_only_the_stored_version_is_readable() {
    let mut world = world("conversion-away");
    create(&world, V1ALPHA1, "a", &json!({"size": "1Mi", "color": "red"})).unwrap();
    let mut other = component();
    append_custom_section(&mut other, b"again");
    let before = world.plugin_digest("converting");
    world.offer_bytes("converting", &other);
    world.until("the new version serves", || (world.plugin_digest("converting") != before).then_some(()));
    assert_eq!(get(&world, V1ALPHA1, "a").unwrap().data["spec"]["color"], "red");

    world.withdraw("converting");
    let plugins = world.api("mortise.dev/v1alpha1", "Plugin", None);
    world
        .until("the plugin is gone", || world.block_on(plugins.get_opt("converting")).unwrap().is_none().then_some(()));
    assert_eq!(get(&world, V1ALPHA1, "a").unwrap().data["spec"]["color"], "red");
    let log = world.log_since_start();
    assert!(
        log.contains("the API server still calls its conversion webhook for gauges.test.mortise.dev (v1, v1alpha1)"),
        "{log}"
    );

    world.kill_host();
    assert!(message(get(&world, V1ALPHA1, "a")).contains("conversion webhook for"));
    assert_eq!(get(&world, V1, "a").unwrap().data["spec"]["size"]["value"], 1);
    world.offer_bytes("converting", &component());
    world.start_host();
    world.until("it is converted again", || get(&world, V1ALPHA1, "a").ok());
    world.wait_ready("converting");
}

#[test]
fn a_crd_trusts_the_next_authority_before_it_issues_and_no_call_fails_meanwhile() {
    let mut world = World::new("conversion-rotation");
    forget_authority(&world);
    // Twenty seconds before a third of an authority's life is left.
    let left_ms = AUTHORITY_MS / 3 + 20_000;
    world.apply(&authority_secret(AUTHORITY_MS - left_ms, left_ms.cast_signed()));
    world.start_host();
    world.offer_bytes("converting", &component());
    world.wait_ready("converting");
    create(&world, V1ALPHA1, "a", &json!({"size": "1Mi"})).unwrap();
    let text = |pem: &Value| {
        let bytes: k8s_openapi::ByteString = serde_json::from_value(pem.clone()).unwrap();
        String::from_utf8(bytes.0).unwrap()
    };
    let trusted = || ca_bundle(&definition(&world).unwrap());
    let first = text(&kept(&world)["ca.crt"]);
    assert_eq!(trusted().trim(), first.trim());
    let next = world.until("the next authority exists", || {
        let next = kept(&world)["next.crt"].clone();
        next.is_string().then(|| text(&next))
    });
    world.until("the CRD trusts both", || {
        let trusted = trusted();
        (trusted.contains(next.trim()) && trusted.contains(first.trim())).then_some(())
    });
    assert_eq!(text(&kept(&world)["ca.crt"]), first, "the next one does not issue yet");
    world.until_within(Duration::from_secs(150), "the next authority issues", &mut || {
        assert_eq!(get(&world, V1ALPHA1, "a").unwrap().data["spec"]["size"], "1Mi");
        (text(&kept(&world)["ca.crt"]) == next).then_some(())
    });
    for _ in 0..20 {
        get(&world, V1ALPHA1, "a").unwrap();
    }
    forget_authority(&world);
}
