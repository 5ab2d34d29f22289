//! mydaemonset end to end, with Nodes that are created, changed and deleted. `node_storm` does all of it at random.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{World, built};

const IMAGE: &str = "nginx:stable-alpine3.17";

pub fn set(world: &World, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
        "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
    })
}

fn list(world: &World, what: &str) -> Vec<Value> {
    let text = world.kubectl_here(&["get", what, "-o", "json"]);
    let mut list: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(list["items"].take()).unwrap()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn node_names(world: &World) -> Vec<String> {
    list(world, "nodes").iter().map(|node| text(node, "/metadata/name").to_owned()).collect()
}

/// The Pods that are not being deleted, by the Node that each is bound to.
fn pods(world: &World) -> BTreeMap<String, Value> {
    let pods = list(world, "pods").into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods.map(|pod| (text(&pod, "/spec/nodeName").to_owned(), pod)).collect()
}

/// Waits until exactly these Nodes have a Pod, all ready and counted in the status.
#[track_caller]
fn wait_on<T: AsRef<str>>(world: &World, nodes: &[T]) -> BTreeMap<String, Value> {
    let mut wanted: Vec<&str> = nodes.iter().map(AsRef::as_ref).collect();
    wanted.sort_unstable();
    world.until(&format!("there is a ready Pod on each of {wanted:?} and no other"), || {
        let pods = pods(world);
        let is_ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|each| each["type"] == "Ready" && each["status"] == "True")
        };
        let format = "jsonpath={.status.availableReplicas} {.status.conditions[?(@.type==\"Ready\")].status}";
        let status = world.kubectl_here(&["get", "mydaemonset/mydaemonset-sample", "-o", format]);
        let converged = pods.keys().eq(wanted.iter()) && pods.values().all(is_ready);
        (converged && status == format!("{} True", wanted.len())).then_some(pods)
    })
}

/// A world with the sample, converged, and its Nodes.
fn with_sample(name: &str) -> (World, Vec<String>) {
    let world = World::with_plugin(name, "mydaemonset");
    world.apply_sample("mydaemonset");
    let nodes = node_names(&world);
    assert!(nodes.len() >= 2, "{nodes:?}");
    wait_on(&world, &nodes);
    (world, nodes)
}

fn taint(world: &World, taint: &str) {
    world.kubectl(&["taint", "node", "extra", taint]);
}

#[test]
fn every_node_has_one_pod_that_is_bound_to_it_and_has_its_name_as_prefix() {
    let (world, nodes) = with_sample("mds");
    for (node, pod) in wait_on(&world, &nodes) {
        assert!(text(&pod, "/metadata/name").starts_with(&format!("{node}-")), "{pod}");
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(
            (containers.len(), &containers[0]["name"], &containers[0]["image"]),
            (1, &json!("app"), &json!(IMAGE))
        );
        assert_eq!(text(&pod, "/metadata/ownerReferences/0/name"), "mydaemonset-sample");
        let tolerates = |key: &str| {
            let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
            tolerations
                .iter()
                .any(|each| each["key"] == key && each["operator"] == "Exists" && each["tolerationSeconds"].is_null())
        };
        for key in ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"] {
            assert!(tolerates(&format!("node.kubernetes.io/{key}")), "{key}: {pod}");
        }
    }
    world.kubectl_here(&["delete", "mydaemonset", "mydaemonset-sample"]);
    world.until("the Pods are deleted with their owner", || list(&world, "pods").is_empty().then_some(()));
}

#[test]
fn a_new_node_gets_a_pod_and_the_pod_of_a_removed_one_is_deleted() {
    let (world, nodes) = with_sample("mds-nodes");
    // The longest name of a Node, which does not fit into its Pod's.
    let long = [&*"a".repeat(63), &*"b".repeat(63), &*"c".repeat(63), &*"d".repeat(61)].join(".");
    world.apply(&world.node("extra.example.com"));
    let mut node = world.node(&long);
    // It does not fit into a label either; kubelets shorten it too.
    node["metadata"]["labels"]["kubernetes.io/hostname"] = "long".into();
    world.apply(&node);
    let more = [&nodes[..], &["extra.example.com".to_owned(), long.clone()]].concat();
    let pods = wait_on(&world, &more);
    assert!(text(&pods["extra.example.com"], "/metadata/name").starts_with("extra.example.com-"));
    world.kubectl(&["delete", "node", "extra.example.com", &long]);
    let after = wait_on(&world, &nodes);
    for node in &nodes {
        assert_eq!(after[node]["metadata"]["uid"], pods[node]["metadata"]["uid"], "the others are unchanged");
    }
}

#[test]
fn a_node_that_is_deleted_while_its_pod_is_created_leaves_no_pod() {
    let (world, nodes) = with_sample("mds-race");
    for round in 0..5 {
        world.apply(&world.node("extra"));
        // Before, during and after the creation of the Pod.
        std::thread::sleep(std::time::Duration::from_millis(round * 15));
        world.kubectl(&["delete", "node", "extra", "--wait=false"]);
    }
    wait_on(&world, &nodes);
    world.apply(&world.node("extra"));
    wait_on(&world, &[&nodes[..], &["extra".to_owned()]].concat());
}

#[test]
fn a_pod_that_was_deleted_or_has_failed_is_replaced_and_a_new_image_replaces_all() {
    let (world, nodes) = with_sample("mds-heal");
    let before = wait_on(&world, &nodes);
    let (first, second) = (&before[&nodes[0]], &before[&nodes[1]]);
    world.kubectl_here(&["delete", "pod", text(first, "/metadata/name")]);
    let (second, failed) = (text(second, "/metadata/name"), r#"{"status":{"phase":"Failed"}}"#);
    world.kubectl_here(&["patch", "pod", second, "--subresource=status", "--type=merge", "-p", failed]);
    let replaced = |before: &BTreeMap<String, Value>| {
        world.until("every Pod is replaced", || {
            let after = wait_on(&world, &nodes);
            let other = |node| after[node]["metadata"]["uid"] != before[node]["metadata"]["uid"];
            nodes.iter().all(other).then_some(after)
        })
    };
    let healed = replaced(&before);
    let patch = r#"{"spec":{"image":"nginx:1.31","imagePullPolicy":"Never"}}"#;
    world.kubectl_here(&["patch", "mydaemonset", "mydaemonset-sample", "--type=merge", "-p", patch]);
    for pod in replaced(&healed).values() {
        assert_eq!(text(pod, "/spec/containers/0/image"), "nginx:1.31");
        assert_eq!(text(pod, "/spec/containers/0/imagePullPolicy"), "Never");
    }
}

#[test]
fn nodes_with_failing_conditions_keep_their_pods_and_nodes_with_other_taints_get_none() {
    let (world, nodes) = with_sample("mds-taints");
    world.apply(&world.node("extra"));
    let all = [&nodes[..], &["extra".to_owned()]].concat();
    let uid = |pods: BTreeMap<String, Value>| text(&pods["extra"], "/metadata/uid").to_owned();
    let before = uid(wait_on(&world, &all));
    world.kubectl(&["cordon", "extra"]);
    for condition in ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure"] {
        // The node controller removes taints without a matching condition; until then the Pod has to stay.
        taint(&world, &format!("node.kubernetes.io/{condition}=:NoExecute"));
    }
    taint(&world, "dedicated=db:PreferNoSchedule");
    // A later Node gets its Pod after the plugin has seen the taints.
    world.apply(&world.node("later"));
    let with_later = [&all[..], &["later".to_owned()]].concat();
    assert_eq!(uid(wait_on(&world, &with_later)), before, "the Pod has stayed");
    world.kubectl(&["delete", "node", "later"]);
    world.kubectl(&["uncordon", "extra"]);

    for effect in ["NoSchedule", "NoExecute"] {
        taint(&world, &format!("dedicated=db:{effect}"));
        wait_on(&world, &nodes);
        taint(&world, &format!("dedicated:{effect}-"));
        wait_on(&world, &all);
    }
    taint(&world, "dedicated=db:NoSchedule");
    wait_on(&world, &nodes);
    let tolerant = json!({"image": IMAGE, "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "db"}]});
    world.apply(&set(&world, "mydaemonset-sample", tolerant));
    wait_on(&world, &all);
}

#[test]
fn a_node_selector_follows_the_labels_of_the_nodes() {
    let (world, nodes) = with_sample("mds-selector");
    let selective = json!({"image": IMAGE, "nodeSelector": {"disk": "ssd"}});
    world.apply(&set(&world, "mydaemonset-sample", selective));
    wait_on(&world, &[""; 0]);
    world.apply(&world.node("extra"));
    world.kubectl(&["label", "node", "extra", "disk=ssd"]);
    wait_on(&world, &["extra"]);
    world.kubectl(&["label", "node", "extra", "disk=hdd", "--overwrite"]);
    wait_on(&world, &[""; 0]);
    world.apply(&set(&world, "mydaemonset-sample", json!({"image": IMAGE})));
    wait_on(&world, &[&nodes[..], &["extra".to_owned()]].concat());
}

#[test]
fn a_stored_object_without_an_image_has_a_condition_and_no_pods() {
    let world = World::with_plugin("mds-no-image", "mydaemonset");
    // Without the plugin's webhooks the API server stores it.
    world.withdraw("mydaemonset");
    let unchecked = set(&world, "mydaemonset-sample", json!({}));
    world.until("it is stored unvalidated", || world.plane.apply(&unchecked.to_string()).ok());
    world.offer("mydaemonset", &built("plugins/mydaemonset.wasm"));
    world.until("the condition has the reason", || {
        let format = "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}";
        (world.kubectl_here(&["get", "mydaemonset/mydaemonset-sample", "-o", format]) == "ImageMissing").then_some(())
    });
    assert!(list(&world, "pods").is_empty());
}

#[test]
fn an_image_is_required_and_its_pull_policy_follows_from_it() {
    let world = World::with_plugin("mds-image", "mydaemonset");
    world.until("admission refuses it", || {
        let none = set(&world, "none", json!({}));
        let refusal = format!("{:#}", world.plane.apply(&none.to_string()).err()?);
        refusal.contains("spec.image: Required value: image is required").then_some(())
    });
    let empty = world.plane.apply(&set(&world, "mydaemonset-sample", json!({"image": ""})).to_string()).unwrap_err();
    assert!(format!("{empty:#}").contains("image is required"), "{empty:#}");

    world.apply(&set(&world, "mydaemonset-sample", json!({"image": "nginx"})));
    let policy =
        || world.kubectl_here(&["get", "mydaemonset/mydaemonset-sample", "-o", "jsonpath={.spec.imagePullPolicy}"]);
    assert_eq!(policy(), "Always");
    let pods = wait_on(&world, &node_names(&world));
    assert!(pods.values().all(|pod| pod["spec"]["containers"][0]["imagePullPolicy"] == "Always"), "{pods:#?}");
    world.kubectl_here(&["delete", "mydaemonset", "mydaemonset-sample"]);
    world.apply(&set(&world, "mydaemonset-sample", json!({"image": IMAGE})));
    assert_eq!(policy(), "IfNotPresent");
    wait_on(&world, &node_names(&world));
    for (spec, field) in [
        (json!({"image": 7}), "spec.image"),
        (json!({"image": ["nginx"]}), "spec.image"),
        (json!({"image": IMAGE, "imagePullPolicy": "Sometimes"}), "spec.imagePullPolicy"),
        (json!({"image": IMAGE, "tolerations": [{"operator": "Near"}]}), "spec.tolerations[0].operator"),
        (json!({"image": IMAGE, "nodeSelector": {"disk": 1}}), "spec.nodeSelector.disk"),
    ] {
        let refusal = world.plane.apply(&set(&world, "mydaemonset-sample", spec.clone()).to_string()).unwrap_err();
        assert!(format!("{refusal:#}").contains(field), "{spec}: {refusal:#}");
    }
}
