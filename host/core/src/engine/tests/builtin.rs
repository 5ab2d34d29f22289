//! Built-in kinds: several plugins may reconcile one, with children of different kinds, and none writes its status.

use super::*;

fn deployment() -> Kind {
    Kind::new("apps/v1", "Deployment")
}

/// Offers a plugin that reconciles Deployments and owns these kinds of the core group.
fn offer(host: &mut Host, number: usize, owns: &[&str]) {
    let owns: Vec<Value> = owns.iter().map(|kind| json!({"apiVersion": "v1", "kind": kind})).collect();
    let manifest = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": &*plugin_name(number),
        "controllers": [{"for": {"apiVersion": "apps/v1", "kind": "Deployment"}, "owns": owns}],
    });
    host.offer_manifest(number, 1, &manifest);
}

fn writers(host: &Host) -> Vec<Arc<str>> {
    host.creates.iter().map(|(_, plugin)| Arc::clone(plugin)).collect()
}

#[test]
fn l2_plugins_share_a_built_in_kind_but_not_its_children_of_one_kind() {
    let mut host = Host::started();
    offer(&mut host, 0, &["ConfigMap"]);
    offer(&mut host, 1, &["ConfigMap", "Secret"]);
    offer(&mut host, 2, &[]);
    assert_eq!((host.why_unready(0), host.why_unready(2)), (None, None));
    let why = host.why_unready(1).expect("it owns the children's kind of the first");
    assert!(why.contains("\"plugin-0000\" owns ConfigMap of Deployment.apps;"), "{why}");
    host.create_objects_of(&deployment(), 1);
    assert_eq!(writers(&host), [plugin_name(0)], "the third does not own ConfigMaps");
    // The second serves when the first is removed, and does not need the third.
    host.withdraw(0);
    assert_eq!(host.why_unready(1), None);
    assert_eq!(writers(&host), [plugin_name(0), plugin_name(1)]);
    host.withdraw(2);
    assert_eq!(host.why_unready(1), None);
    assert_eq!(host.watched.len(), 4, "Deployments, ConfigMaps, Secrets and Plugins: {:?}", host.watched);
}

#[test]
fn a_fault_on_a_built_in_object_is_observed_and_recorded_as_an_event_but_not_written_to_its_status() {
    let mut host = Host::started();
    // The guest of these tests always wants a ConfigMap, which this plugin does not own.
    offer(&mut host, 0, &[]);
    host.create_objects_of(&deployment(), 1);
    assert_eq!(host.count_observed(|observation| matches!(observation, Observation::Fault { .. })), 1);
    let recorded = host.objects.values().filter(|object| object["reason"] == "BadOutcome").count();
    assert_eq!(recorded, 1, "{:#?}", host.objects);
    let deployment = host.objects.iter().find(|(target, _)| target.kind == deployment()).unwrap().1;
    assert!(deployment["status"].is_null(), "{deployment}");
}
