//! Two hosts in one cluster, each with a namespace of its own for its plugins: neither touches what the other tells.

use mortise_control_plane::ADMIN;

use super::world::{Host, World, built};

/// Puts a plugin into the neighbour's namespace, as the README tells people to.
fn offer_to(world: &World, namespace: &str, plugin: &str) {
    let file = format!("--from-file=plugin.wasm={}", built(&format!("plugins/{plugin}.wasm")).display());
    world.kubectl(&["create", "configmap", plugin, "-n", namespace, &file]);
    world.kubectl(&["label", "configmap", plugin, "-n", namespace, "mortise.dev/plugin=true"]);
}

fn until_it_says(world: &World, host: &Host, words: &str) {
    world.until(&format!("the neighbour says {words:?}"), || {
        std::fs::read_to_string(host.process.log()).unwrap().contains(words).then_some(())
    });
}

fn plugins(world: &World) -> String {
    world.kubectl(&["get", "plugins.mortise.dev", "-o", "name"])
}

#[test]
fn hosts_of_two_namespaces_leave_each_others_plugins_alone() {
    let mut world = World::with_podset("neighbours");
    let namespace = format!("{}-host", world.namespace);
    let (kubeconfig, cache) = (world.plane.kubeconfig(ADMIN).unwrap(), tempfile::tempdir().unwrap());
    let mut neighbour = world.spawn_host_in(&namespace, "neighbour", &kubeconfig, cache.path(), &[]);
    until_it_says(&world, &neighbour, &format!("create it with: kubectl create namespace {namespace}"));
    world.kubectl(&["create", "namespace", &namespace]);

    offer_to(&world, &namespace, "crontab");
    world.wait_ready("crontab");
    offer_to(&world, &namespace, "podset");
    until_it_says(&world, &neighbour, "the Plugin object podset belongs to the host of namespace mortise-system");

    // Both have said all that there is to say, and go on beside each other.
    world.mark_audit();
    world.apply(&world.podset("shared", 3));
    world.until("three Pods are there", || {
        let pods = world.kubectl_here(&["get", "pods", "-o", "name"]);
        (pods.lines().count() == 3).then_some(())
    });
    let told: Vec<_> = world.writes_by_host().into_iter().filter(|write| write.resource == "plugins").collect();
    assert!(told.is_empty(), "{told:#?}");
    let made = world.writes_by_host().into_iter().filter(|write| write.verb == "create" && write.resource == "pods");
    assert_eq!(made.count(), 3, "one of them serves podset");

    world.kubectl(&["delete", "configmap", "crontab", "-n", &namespace]);
    world.until("the neighbour takes its own Plugin object away", || {
        (plugins(&world) == "plugin.mortise.dev/podset\n").then_some(())
    });
    world.withdraw("podset");
    world.until("the neighbour serves podset, now that the name is free", || {
        let owner = "jsonpath={.metadata.labels.mortise\\.dev/host-namespace} {.status.source}";
        let told = world.plane.kubectl_output(&["get", "plugin", "podset", "-o", owner]).ok()?;
        (told == format!("{namespace} ConfigMap {namespace}/podset")).then_some(())
    });
    neighbour.process.kill().unwrap();
    world.kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
}
