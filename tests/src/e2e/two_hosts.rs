//! Two hosts in one cluster, each with a namespace of its own for its plugins: neither changes the other's Plugin
//! objects.

use mortise_control_plane::ADMIN;

use super::world::{Host, World, built};

/// Puts a plugin into another host's namespace, as in the README.
fn offer_to(world: &World, namespace: &str, plugin: &str) {
    let file = format!("--from-file=plugin.wasm={}", built(&format!("plugins/{plugin}.wasm")).display());
    world.kubectl(&["create", "configmap", plugin, "-n", namespace, &file]);
    world.kubectl(&["label", "configmap", plugin, "-n", namespace, "mortise.dev/plugin=true"]);
}

fn wait_for_log(world: &World, host: &Host, text: &str) {
    world.until(&format!("the second host logs {text:?}"), || {
        std::fs::read_to_string(host.process.log()).unwrap().contains(text).then_some(())
    });
}

fn plugins(world: &World) -> String {
    world.kubectl(&["get", "plugins.mortise.dev", "-o", "name"])
}

#[test]
fn hosts_of_two_namespaces_leave_each_others_plugins_alone() {
    let mut world = World::with_podset("two-hosts");
    let namespace = format!("{}-host", world.namespace);
    let (kubeconfig, cache) = (world.plane.kubeconfig(ADMIN).unwrap(), tempfile::tempdir().unwrap());
    let mut second = world.spawn_host_in(&namespace, "second", &kubeconfig, cache.path(), &[]);
    wait_for_log(&world, &second, &format!("create it with: kubectl create namespace {namespace}"));
    world.kubectl(&["create", "namespace", &namespace]);

    offer_to(&world, &namespace, "crontab");
    world.wait_ready("crontab");
    offer_to(&world, &namespace, "podset");
    wait_for_log(&world, &second, "the Plugin object podset belongs to the host of namespace mortise-system");

    // Both have written their Plugin objects.
    world.mark_audit();
    world.apply(&world.podset("shared", 3));
    world.until("there are three Pods", || {
        let pods = world.kubectl_here(&["get", "pods", "-o", "name"]);
        (pods.lines().count() == 3).then_some(())
    });
    let writes: Vec<_> = world.writes_by_host().into_iter().filter(|write| write.resource == "plugins").collect();
    assert!(writes.is_empty(), "{writes:#?}");
    let creates = world.writes_by_host().into_iter().filter(|write| write.verb == "create" && write.resource == "pods");
    assert_eq!(creates.count(), 3, "one of them serves podset");

    world.kubectl(&["delete", "configmap", "crontab", "-n", &namespace]);
    world.until("the second host deletes its own Plugin object", || {
        (plugins(&world) == "plugin.mortise.dev/podset\n").then_some(())
    });
    world.withdraw("podset");
    world.until("the second host serves podset, now that the name is free", || {
        let owner = "jsonpath={.metadata.labels.mortise\\.dev/host-namespace} {.status.source}";
        let found = world.plane.kubectl_output(&["get", "plugin", "podset", "-o", owner]).ok()?;
        (found == format!("{namespace} ConfigMap {namespace}/podset")).then_some(())
    });
    second.process.kill().unwrap();
    world.kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
}
