//! A plugin in a ConfigMap creates an API, and podset's objects live.

use super::world::{HOST_NAMESPACE, World, built};

/// Names of the running Pods that are not being deleted.
fn pods(world: &World) -> Vec<String> {
    let template = "{range .items[*]}{.metadata.name} {.metadata.deletionTimestamp} {.status.phase}{\"\\n\"}{end}";
    let text = world.kubectl_here(&["get", "pods", "-o", &format!("jsonpath={template}")]);
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.split(' ');
        let (name, deleted, phase) = (parts.next()?, parts.next()?, parts.next()?);
        (deleted.is_empty() && phase == "Running").then(|| name.to_owned())
    });
    let mut names: Vec<String> = lines.collect();
    names.sort();
    names
}

fn pod_names(world: &World) -> Vec<String> {
    let text = world.kubectl_here(&["get", "podset/example-podset", "-o", "jsonpath={.status.podNames}"]);
    serde_json::from_str(&text).unwrap_or_default()
}

fn wait_for(world: &World, count: usize) -> Vec<String> {
    world.until(&format!("{count} Pods run and are in the status"), || {
        let (running, named) = (pods(world), pod_names(world));
        (running.len() == count && running == named).then_some(running)
    })
}

/// Ends a Pod as a kubelet would, and waits until another one runs in its place.
fn end_pod(world: &World, phase: &str) {
    let before = wait_for(world, 3);
    let uids = || world.kubectl_here(&["get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]);
    let uid = world.kubectl_here(&["get", "pod", &before[1], "-o", "jsonpath={.metadata.uid}"]);
    let status = format!(r#"{{"status":{{"phase":"{phase}"}}}}"#);
    world.kubectl_here(&["patch", "pod", &before[1], "--subresource=status", "--type=merge", "-p", &status]);
    world.until(&format!("the Pod that is {phase} is gone"), || (!uids().contains(&uid)).then_some(()));
}

#[test]
fn a_configmap_with_a_label_becomes_an_api_whose_objects_live() {
    let mut world = World::new("lifecycle");
    world.start_host();
    let component = built("plugins/podset.wasm");
    let from_file = format!("--from-file=plugin.wasm={}", component.display());
    world.kubectl(&["create", "configmap", "podset", "-n", HOST_NAMESPACE, &from_file]);
    world.kubectl(&["label", "configmap", "podset", "-n", HOST_NAMESPACE, "mortise.dev/plugin=true"]);
    world.kubectl(&["wait", "--for=create", "crd/podsets.app.example.com", "--timeout=60s"]);
    world.wait_ready("podset");

    world.mark_audit();
    world.apply_sample("podset");
    wait_for(&world, 3);
    world.kubectl_here(&["wait", "--for=condition=Ready", "podset/example-podset", "--timeout=60s"]);
    let path = "jsonpath={.status.replicas} {.status.conditions[?(@.type=='Ready')].observedGeneration}";
    assert_eq!(world.kubectl_here(&["get", "podset/example-podset", "-o", path]), "3 1");
    let containers = "jsonpath={.items[0].spec.containers[*].image} {.items[0].spec.containers[*].command}";
    let containers = world.kubectl_here(&["get", "pods", "-o", containers]);
    assert_eq!(containers, r#"busybox ["sleep","3600"]"#, "the default template");
    let requests = |world: &World| world.writes_by_host().len();
    assert_eq!(requests(&world), 4, "three creates and a status: {:#?}", world.writes_by_host());

    for (replicas, expected) in [("5", 5), ("2", 2), ("0", 0), ("3", 3)] {
        world.kubectl_here(&["scale", "podset/example-podset", "--replicas", replicas]);
        wait_for(&world, expected);
    }

    let before = wait_for(&world, 3);
    world.mark_audit();
    world.kubectl_here(&["delete", "pod", &before[0], "--wait=false"]);
    let after = world.until("the deleted Pod is replaced", || {
        let creates = world.writes_by_host().iter().filter(|write| write.verb == "create").count();
        (creates == 1).then(|| wait_for(&world, 3))
    });
    assert!(!after.contains(&before[0]) && after.contains(&before[2]), "{before:?} -> {after:?}");

    for phase in ["Failed", "Succeeded"] {
        end_pod(&world, phase);
        wait_for(&world, 3);
    }

    world.kubectl_here(&["delete", "podset/example-podset"]);
    world.until("the Pods are deleted with their owner", || pods(&world).is_empty().then_some(()));
}

#[test]
fn a_changed_template_replaces_the_pods_and_an_unchanged_one_does_not() {
    let world = World::with_podset("template");
    let mut set = world.podset("example-podset", 2);
    world.apply(&set);
    wait_for(&world, 2);
    set["spec"]["template"] = serde_json::json!({"spec": {"containers": [{"name": "main", "image": "nginx:1"}]}});
    world.apply(&set);
    world.until("every Pod runs the new image", || {
        let images = world.kubectl_here(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}"]);
        (images == "nginx:1 nginx:1").then_some(())
    });
    wait_for(&world, 2);
    let uids = |world: &World| world.kubectl_here(&["get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]);
    let settled = uids(&world);
    set["metadata"]["labels"] = serde_json::json!({"touched": "true"});
    world.apply(&set);
    wait_for(&world, 2);
    assert_eq!(uids(&world), settled);
}

#[test]
fn l3_removing_a_plugin_leaves_its_crd_objects_and_children() {
    let world = World::with_podset("removal");
    world.apply(&world.podset("example-podset", 2));
    wait_for(&world, 2);
    world.withdraw("podset");
    world.kubectl(&["wait", "--for=delete", "plugin/podset", "--timeout=60s"]);
    assert_eq!(pods(&world).len(), 2);
    world.kubectl_here(&["scale", "podset/example-podset", "--replicas", "4"]);
    world.offer("podset", &built("plugins/podset.wasm"));
    wait_for(&world, 4);
}

#[test]
fn x3_a_pod_of_another_owner_with_a_childs_name_is_reported_and_left_alone() {
    let mut world = World::with_podset("adoption");
    world.apply(&world.podset("example-podset", 2));
    let name = wait_for(&world, 2).remove(0);
    world.kill_host();
    world.kubectl_here(&["delete", "pod", &name]);
    world.apply(&serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"containers": [{"name": "theirs", "image": "nginx"}]},
    }));
    world.start_host();
    let message = "jsonpath={.status.conditions[?(@.type=='Stalled')].message}";
    world.until("the PodSet has a condition with the name", || {
        world.kubectl_here(&["get", "podset/example-podset", "-o", message]).contains(&name).then_some(())
    });
    let theirs = "jsonpath={.spec.containers[*].name} {.metadata.ownerReferences}";
    assert_eq!(world.kubectl_here(&["get", "pod", &name, "-o", theirs]), "theirs ");
    world.kubectl_here(&["delete", "pod", &name]);
    assert!(wait_for(&world, 2).contains(&name));
    world.until("the condition is removed", || {
        world.kubectl_here(&["get", "podset/example-podset", "-o", message]).is_empty().then_some(())
    });
}
