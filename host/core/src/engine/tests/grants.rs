//! Grants: what a Plugin object gives beside the rights of a ServiceAccount, taken away while the plugin serves, and at the
//! bound and one beyond it.

use super::identity::write_spec;
use super::*;
use crate::contract::{Action, PatchKind};

/// Grants everything that the plugin of this number asks for from [`ADMITTING`] on, but these.
fn granted(number: usize, without: &str) -> Value {
    let crd = format!("kind{number:04}s.example.com");
    let mut grants = json!({"customResources": [crd], "admission": [format!("Kind{number:04}.example.com")]});
    grants.as_object_mut().unwrap().remove(without);
    json!({"serviceAccountName": "zero", "grants": grants})
}

/// The notes of the Events with a reason.
pub(super) fn notes(host: &Host, reason: &str) -> Vec<String> {
    let events = host.objects.values().filter(|object| object["kind"] == "Event" && object["reason"] == reason);
    events.map(|event| event["note"].as_str().unwrap().to_owned()).collect()
}

fn status(host: &Host, condition: &str) -> String {
    let [status, reason, _] = host.condition(0, condition).unwrap_or_default();
    format!("{status} {reason}")
}

#[test]
fn g10_a_plugin_serves_with_its_grants_alone_and_stops_when_one_is_taken_away() {
    let mut host = Host::started_as(Config { require_service_account: true, ..config() });
    let digest = component(0, ADMITTING);
    host.offer_component(0, digest.clone());
    for without in ["customResources", "admission"] {
        write_spec(&mut host, 0, granted(0, without));
        host.pass(1_000);
        assert_eq!((status(&host, "Ready"), host.registered), ("False NotGranted".to_owned(), 1), "the host's own CRD");
        let [_, _, message] = host.condition(0, "Permitted").unwrap();
        assert!(message.contains(without) && message.contains("example.com"), "{message}");
    }
    write_spec(&mut host, 0, granted(0, ""));
    let served = |host: &mut Host| {
        host.step(Event::AdmissionServed { plugin: plugin_name(0), digest: digest.clone(), result: Ok(()) });
        host.pass(1_000);
        assert_eq!(status(host, "Ready"), "True Serving");
    };
    served(&mut host);
    host.create_objects(0, 1);
    host.end_creates();

    write_spec(&mut host, 0, granted(0, "admission"));
    host.pass(1_000);
    assert_eq!(
        (status(&host, "Ready"), status(&host, "Stalled")),
        ("False NotGranted".into(), "True NotGranted".into())
    );
    assert!(host.admission.pop().unwrap().1.is_none(), "the API server calls it no more");
    let calls = host.calls;
    host.create_objects(0, 3);
    host.pass(60_000);
    assert_eq!((host.calls, host.creates.len()), (calls, 0), "nor does the host");
    write_spec(&mut host, 0, granted(0, ""));
    served(&mut host);
    host.create_objects(0, 1);
    assert_eq!((host.calls, host.compiled), (calls + 1, 1));
}

#[test]
fn g10_a_newer_version_that_asks_for_more_than_is_granted_leaves_the_one_before_it_serving() {
    let mut host = Host::started_as(Config { require_service_account: true, ..config() });
    host.offer(0);
    write_spec(&mut host, 0, granted(0, "admission"));
    assert_eq!(status(&host, "Ready"), "True Serving");
    host.offer_component(0, component(0, ADMITTING));
    host.pass(1_000);
    assert_eq!(
        (status(&host, "Ready"), status(&host, "Permitted")),
        ("True ServingPrevious".to_owned(), "False NotGranted".to_owned())
    );
}

#[test]
fn g10_what_is_taken_away_counts_also_while_the_source_offers_what_cannot_serve() {
    let mut host = Host::started_as(Config { require_service_account: true, ..config() });
    host.offer_component(0, component(0, ADMITTING));
    write_spec(&mut host, 0, granted(0, ""));
    host.create_objects(0, 1);
    host.end_creates();
    host.offer_manifest(0, ADMITTING + 1, &json!({"kind": "no manifest"}));
    host.pass(1_000);
    assert_eq!(status(&host, "Ready"), "True ServingPrevious");
    write_spec(&mut host, 0, granted(0, "admission"));
    host.pass(1_000);
    assert!(host.admission.pop().unwrap().1.is_none(), "its webhooks end");
    let calls = host.calls;
    host.create_objects(0, 2);
    host.pass(60_000);
    assert_eq!((host.calls, &*status(&host, "Ready")), (calls, "False InvalidManifest"));
}

#[test]
fn g10_a_plugin_that_is_not_granted_when_the_host_starts_loses_the_webhooks_that_it_had() {
    let mut host = Host::started_as(Config { require_service_account: true, ..config() });
    host.offer_component(0, component(0, ADMITTING));
    write_spec(&mut host, 0, granted(0, "admission"));
    let (name, backend) = host.admission.pop().expect("the host ends what another process may have registered");
    assert_eq!((name, backend.is_none()), (plugin_name(0), true));
}

#[test]
fn g10_an_object_without_room_keeps_no_other_from_what_it_has() {
    let mut host = Host::serving(1);
    write_spec(&mut host, 0, json!({"grants": {"maxObjects": 2}}));
    host.create_objects(0, 3);
    let children: Vec<ObjectRef> = host.bodies.values().map(|(target, _)| target.clone()).collect();
    host.end_creates();
    assert_eq!(children.len(), 2);
    host.show_object_gone(&children[0]);
    host.pass(1_000);
    let again: Vec<ObjectRef> = host.bodies.values().map(|(target, _)| target.clone()).collect();
    assert_eq!(again, children[..1], "a child that was deleted is created again");
    host.end_creates();
    host.pass(120_000);
    assert!(host.creates.is_empty(), "the third waits");
}

#[test]
fn g10_a_plugin_has_as_many_objects_as_it_is_granted_and_none_is_created_beyond_that() {
    let mut host = Host::serving(2);
    write_spec(&mut host, 0, json!({"grants": {"maxObjects": 3}}));
    host.create_objects(0, 3);
    assert_eq!(host.creates.len(), 3, "each object has one child");
    host.end_creates();
    host.create_objects(0, 4);
    host.create_objects(1, 4);
    host.pass(1_000);
    assert_eq!(host.creates.len(), 4, "another plugin has its own bound");
    host.end_creates();
    let stalled = notes(&host, "TooManyObjects");
    assert!(stalled.len() == 1 && stalled[0].contains("wants 1 objects beside 3 of others"), "{stalled:?}");
    write_spec(&mut host, 0, json!({"grants": {"maxObjects": 4}}));
    host.pass(1_000);
    assert_eq!(host.creates.len(), 1);
}

#[test]
fn g10_an_action_in_the_hosts_namespace_is_sent_with_a_grant_alone() {
    let mut host = Host::started();
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["writes"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "verbs": ["patch"]}]);
    host.offer_manifest(0, 1, &manifest);
    let another = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new("mortise-system", "another-plugin") };
    let body = json!({"binaryData": {"plugin.wasm": ""}}).to_string().into();
    host.store(
        &another,
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "another-plugin", "namespace": "mortise-system", "uid": "a"},
        }),
    );
    host.actions =
        vec![Action::Patch { target: another.clone(), patch_kind: PatchKind::Merge, body, subresource: None }];
    host.create_objects(0, 1);
    host.end_creates();
    host.pass(10_000);
    let patched = |host: &Host| host.patches.iter().filter(|(_, target, _)| *target == another).count();
    assert_eq!(patched(&host), 0);
    let refused = notes(&host, "ReservedNamespace");
    assert!(refused.len() == 1 && refused[0].contains("spec.grants.hostNamespace"), "{refused:?}");
    write_spec(&mut host, 0, json!({"grants": {"hostNamespace": true}}));
    host.pass(10_000);
    assert_eq!(patched(&host), 1);
}

#[test]
fn g10_g11_the_config_map_of_a_tenants_plugin_is_another_plugins_to_write_with_a_grant_alone() {
    let mut host = Host::started();
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["writes"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "verbs": ["patch"]}]);
    host.offer_manifest(0, 1, &manifest);
    let tenants = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new("team-a", "podset") };
    let body = json!({"binaryData": {"plugin.wasm": ""}}).to_string().into();
    let labels = json!({"mortise.dev/plugin": "true"});
    host.store(
        &tenants,
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "podset", "namespace": "team-a", "uid": "t", "labels": labels},
        }),
    );
    host.actions =
        vec![Action::Patch { target: tenants.clone(), patch_kind: PatchKind::Merge, body, subresource: None }];
    host.create_objects(0, 1);
    host.end_creates();
    host.pass(10_000);
    let patched = |host: &Host| host.patches.iter().filter(|(_, target, _)| *target == tenants).count();
    assert_eq!(patched(&host), 0);
    let refused = notes(&host, "ReservedConfigMap");
    let expected = "ConfigMap team-a/podset is not written: its label mortise.dev/plugin says that it brings a plugin, and a plugin \
                    writes such a ConfigMap only if spec.grants.hostNamespace of its Plugin is true";
    assert!(refused.len() == 1 && refused[0].contains(expected), "{refused:?}");
    write_spec(&mut host, 0, json!({"grants": {"hostNamespace": true}}));
    host.pass(10_000);
    assert_eq!(patched(&host), 1);
}
