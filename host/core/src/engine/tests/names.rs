//! Two hosts in one cluster: neither writes the other's Plugin objects, nor serves a plugin whose name the other has.

use super::*;

/// The host of another namespace creates a Plugin object.
fn create_others_object(host: &mut Host, number: usize) {
    let target = plugin_object(&plugin_name(number));
    let object = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin",
        "metadata": {
            "name": &*target.name.name, "uid": "uid-other",
            "labels": {"app.kubernetes.io/managed-by": "mortise", "mortise.dev/host-namespace": "other"},
        },
        "spec": {}, "status": {"message": "by the other host"},
    });
    host.store(&target, object);
}

fn object_of(host: &Host, number: usize) -> &Value {
    &host.objects[&plugin_object(&plugin_name(number))]
}

fn refusals(host: &Host) -> Vec<&str> {
    fn message(observed: &Observation) -> Option<&str> {
        let Observation::Refused { refusal, .. } = observed else { return None };
        Some(&refusal.message)
    }
    host.observed.iter().filter_map(message).collect()
}

fn is_ready(host: &Host) -> bool {
    host.engine.health().plugins.iter().all(|plugin| plugin.ready)
}

#[test]
fn another_hosts_plugin_object_is_neither_deleted_nor_changed() {
    let mut host = Host::serving(1);
    create_others_object(&mut host, 7);
    let before = object_of(&host, 7).clone();
    host.withdraw(0);
    host.step(Event::SourcesListed);
    host.pass(60_000);
    let deleted: Vec<&Name> = host.deletes.iter().map(|(_, target)| &target.name).collect();
    assert_eq!(deleted, [&plugin_object(&plugin_name(0)).name]);
    assert_eq!(*object_of(&host, 7), before);
}

#[test]
fn a_plugin_whose_name_another_host_has_is_refused_until_the_others_object_is_gone() {
    let mut host = Host::started();
    create_others_object(&mut host, 0);
    let before = object_of(&host, 0).clone();
    host.offer(0);
    host.pass(600_000);
    assert_eq!(*object_of(&host, 0), before);
    assert!(!host.watched.contains(&kind_of(0).into()) && !is_ready(&host));
    let refusal = "the Plugin object plugin-0000 belongs to the host of namespace other: rename this plugin, or remove that \
                   one; if that host is gone for good, kubectl delete plugin plugin-0000";
    assert_eq!(refusals(&host), [refusal], "it is observed once");
    host.show_gone(0);
    assert!(is_ready(&host), "at once");
    assert_eq!(object_of(&host, 0)["metadata"]["labels"]["mortise.dev/host-namespace"], "mortise-system");
    host.create_objects(0, 1);
    assert_eq!(host.calls, 1);
}

#[test]
fn a_serving_plugin_is_withdrawn_when_another_host_has_created_its_object_first() {
    let mut host = Host::serving(1);
    host.create_objects(0, 1);
    let calls = host.calls;
    create_others_object(&mut host, 0);
    host.pass(600_000);
    assert!(!is_ready(&host) && refusals(&host).len() == 1, "{:?}", refusals(&host));
    assert!(!host.watched.contains(&kind_of(0).into()));
    assert_eq!((host.calls, host.deletes.len()), (calls, 0));
    host.show_gone(0);
    assert!(is_ready(&host));
    host.create_objects(0, 3);
    assert_eq!(host.calls, calls + 3);
}

#[test]
fn a_plugin_object_that_another_client_keeps_deleting_is_created_every_ten_seconds_and_no_faster() {
    let mut host = Host::serving(1);
    host.pass(60_000);
    host.show_gone(0);
    assert!(host.has_plugin_object(0), "the first time at once");
    let mut creates = 0;
    for _ in 0..600 {
        if host.has_plugin_object(0) {
            host.show_gone(0);
            creates += 1;
        }
        host.pass(100);
    }
    assert_eq!(creates, 6, "in a minute");
}

#[test]
fn of_two_plugins_of_one_kind_that_wait_for_the_names_the_second_serves_when_the_first_is_removed() {
    let mut host = Host::new(config());
    host.held_lists = Some(Vec::new());
    host.step(Event::Started);
    host.step(Event::SourcesListed);
    host.manifests.insert(component(1, 1), manifest(&plugin_name(1), &kind_of(0), 1));
    (0..2).for_each(|number| host.offer(number));
    assert_eq!((host.compiled, host.crds.len()), (2, 1), "both are compiled, and only the host's CRD is registered");
    for kind in host.held_lists.take().unwrap() {
        host.step(Event::Watch(kind, WatchEvent::ListDone(ResourceVersion(host.version))));
    }
    let ready = |host: &Host| host.engine.health().plugins.iter().map(|plugin| plugin.ready).collect::<Vec<_>>();
    assert_eq!(ready(&host), [true, false]);
    host.withdraw(0);
    host.pass(0);
    assert_eq!(ready(&host), [true]);
}
