//! `where`: an object that a controller does not select has no key.

use super::*;

/// Offers a plugin for Deployments with this `where`. The guest wants one ConfigMap for each.
fn offer(host: &mut Host, version: usize, selection: &Value) {
    let manifest = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "web",
        "controllers": [{
            "for": {"apiVersion": "apps/v1", "kind": "Deployment"}, "where": selection,
            "owns": [{"apiVersion": "v1", "kind": "ConfigMap", "update": "recreate"}],
        }],
    });
    host.offer_manifest(0, version, &manifest);
}

/// Another client writes a Deployment with these labels and annotations.
fn write(host: &mut Host, name: &str, labels: &Value, annotations: &Value) {
    let target = ObjectRef { kind: Kind::new("apps/v1", "Deployment"), name: Name::new("default", name) };
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
            "labels": labels, "annotations": annotations},
    });
    host.store(&target, object);
}

/// How often a key was taken from the queue, and how many keys there are.
fn work(host: &Host) -> (usize, usize) {
    (host.taken(), host.engine.reconciler.key_count())
}

#[test]
fn an_object_costs_nothing_until_it_is_selected() {
    let mut host = Host::started();
    offer(&mut host, 1, &json!({"labels": "tier=web", "annotations": {"example.com/on": "true"}}));
    let (web, on, none) = (json!({"tier": "web"}), json!({"example.com/on": "true"}), json!({}));
    write(&mut host, "a", &none, &on);
    write(&mut host, "b", &web, &json!({"example.com/on": "false"}));
    write(&mut host, "b", &web, &none);
    assert_eq!((work(&host), host.creates.len()), ((0, 0), 0));
    write(&mut host, "b", &web, &on);
    assert_eq!((work(&host), host.creates.len()), ((1, 1), 1));
}

#[test]
fn an_object_that_is_no_longer_selected_loses_its_key_and_keeps_its_children() {
    let mut host = Host::started();
    offer(&mut host, 1, &json!({"labels": "tier=web"}));
    let (web, none) = (json!({"tier": "web"}), json!({}));
    write(&mut host, "a", &web, &none);
    // It stops matching while its child is being created: the create ends, and nothing follows.
    write(&mut host, "a", &none, &none);
    assert_eq!(work(&host), (1, 1));
    host.end_creates();
    assert_eq!((work(&host), host.creates.len(), host.deletes.len()), ((1, 0), 0, 0));
    assert_eq!(host.engine.queue_depths().iter().map(|(_, depth)| depth).sum::<usize>(), 0);
    // It stops matching while its key is idle: the key is dropped at once.
    write(&mut host, "a", &web, &none);
    host.end_creates();
    host.pass(10_000);
    assert_eq!(work(&host).1, 1);
    write(&mut host, "a", &none, &none);
    assert_eq!((work(&host).1, host.deletes.len()), (0, 0));
}

#[test]
fn w1_a_version_with_another_predicate_reconciles_only_what_it_selects() {
    let mut host = Host::started();
    offer(&mut host, 1, &json!({}));
    let none = json!({});
    for (name, tier) in [("a", "web"), ("b", "db"), ("c", "db")] {
        write(&mut host, name, &json!({"tier": tier}), &none);
    }
    assert_eq!(work(&host).1, 3);
    host.end_creates();
    offer(&mut host, 2, &json!({"labels": "tier=web"}));
    host.end_creates();
    assert_eq!((work(&host).1, host.deletes.len()), (1, 0));
    offer(&mut host, 3, &json!({"labels": "tier=db"}));
    assert_eq!((work(&host).1, host.deletes.len()), (2, 0));
}
