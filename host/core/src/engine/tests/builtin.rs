//! Kinds of Kubernetes itself under reconciliation: several plugins may have one, none of them writes its status, and their
//! children do not meet.

use super::*;

fn deployment() -> Kind {
    Kind::new("apps/v1", "Deployment")
}

/// A plugin that reconciles Deployments and owns these kinds of the core group.
fn offer(host: &mut Host, number: usize, owns: &[&str]) {
    let owns: Vec<Value> = owns.iter().map(|kind| json!({"apiVersion": "v1", "kind": kind})).collect();
    let manifest = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": &*plugin_name(number),
        "controllers": [{"for": {"apiVersion": "apps/v1", "kind": "Deployment"}, "owns": owns}],
    });
    let digest = component(number, 1);
    host.manifests.insert(digest.clone(), manifest.to_string().into());
    host.offer_component(number, digest);
}

fn refusal(host: &Host, number: usize) -> Option<String> {
    let health = host.engine.health();
    let plugin = health.plugins.into_iter().find(|plugin| plugin.name == plugin_name(number))?;
    (!plugin.ready).then_some(plugin.message)
}

fn writers(host: &Host) -> Vec<Arc<str>> {
    host.creates.iter().map(|(_, plugin)| Arc::clone(plugin)).collect()
}

#[test]
fn l2_plugins_share_a_kind_of_kubernetes_itself_but_not_the_children_of_one_kind() {
    let mut host = Host::started();
    offer(&mut host, 0, &["ConfigMap"]);
    offer(&mut host, 1, &["ConfigMap", "Secret"]);
    offer(&mut host, 2, &[]);
    assert_eq!((refusal(&host, 0), refusal(&host, 2)), (None, None));
    let why = refusal(&host, 1).expect("it owns what the first owns");
    assert!(why.contains("\"plugin-0000\" owns ConfigMap of apps/v1/Deployment already"), "{why}");
    host.create_objects_of(&deployment(), 1);
    assert_eq!(writers(&host), [plugin_name(0)], "the third may not own a ConfigMap, whatever it wants");
    // When the first goes, the one that waited gets what it has left, and what it does not claim goes on.
    host.withdraw(0);
    assert_eq!(refusal(&host, 1), None);
    assert_eq!(writers(&host), [plugin_name(0), plugin_name(1)]);
    host.withdraw(2);
    assert_eq!(refusal(&host, 1), None);
    assert_eq!(host.watched.len(), 4, "Deployments, ConfigMaps, Secrets and Plugins: {:?}", host.watched);
}

#[test]
fn a_fault_on_an_object_of_kubernetes_itself_is_told_by_an_event_and_a_count_alone() {
    let mut host = Host::started();
    // The guest of these tests always wants a ConfigMap, which this plugin must not own.
    offer(&mut host, 0, &[]);
    host.create_objects_of(&deployment(), 1);
    let faults = host.observed.iter().filter(|seen| matches!(seen, Observation::Fault { .. })).count();
    assert_eq!(faults, 1);
    let told = host.objects.values().filter(|object| object["reason"] == "BadOutcome").count();
    assert_eq!(told, 1, "{:#?}", host.objects);
    let deployment = host.objects.iter().find(|(target, _)| target.kind == deployment()).unwrap().1;
    assert!(deployment["status"].is_null(), "nothing is written to it: {deployment}");
}
