//! MyDaemonSet as its users see it, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Json, Outcome, RawJson, Value, json};

use super::{MAX_CHILDREN, MyDaemonSet, PLUGIN};

fn sample() -> MyDaemonSet {
    with(json!({"image": "nginx:stable-alpine3.17"}))
}

fn with(spec: Value) -> MyDaemonSet {
    let mut set = MyDaemonSet::new("mydaemonset-sample", RawJson::new(&spec).unwrap().parse().unwrap());
    set.metadata.uid = "uid-of-the-sample".to_owned();
    set
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn tainted(name: &str, taints: &[(&str, &str, &str)]) -> Value {
    let mut node = node(name);
    let taint = |(key, value, effect): &(&str, &str, &str)| json!({"key": key, "value": value, "effect": effect});
    node["spec"]["taints"] = taints.iter().map(taint).collect();
    node
}

fn pod(phase: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    let conditions = json!([{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]);
    json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase, "conditions": conditions}})
}

fn cluster(nodes: &[Value]) -> Cluster {
    let mut cluster = Cluster::of(&PLUGIN);
    for node in nodes {
        cluster.add(node);
    }
    cluster
}

fn reason(outcome: &Outcome<Value>) -> &str {
    &outcome.condition_of("Ready").unwrap().reason
}

#[test]
fn every_node_gets_one_pod_whose_name_begins_with_the_nodes() {
    let outcome = cluster(&[node("node-1"), node("node-2")]).reconcile(&sample()).unwrap();
    assert_eq!(outcome.child_keys(), ["node-1", "node-2"]);
    let pod = outcome.child("node-2").unwrap();
    assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("node-2-"), "{pod}");
    assert_eq!(pod["spec"]["nodeName"], "node-2");
    assert_eq!(pod["spec"]["containers"], json!([{"name": "app", "image": "nginx:stable-alpine3.17"}]));
    assert_eq!(outcome.status_value(), json!({"availableReplicas": 0}));
    assert!(!outcome.is_ready());
}

#[test]
fn the_name_of_a_pod_is_stable_and_unique() {
    let name = |set: &MyDaemonSet, node_name: &str| {
        let outcome = cluster(&[node(node_name)]).reconcile(set).unwrap();
        outcome.child(node_name).unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(&sample(), "node-1"), name(&sample(), "node-1"), "so there can be no second one");
    assert_ne!(name(&sample(), "node-1"), name(&sample(), "node-1-2"));
    let mut other = sample();
    other.metadata.uid = "uid-of-another".to_owned();
    assert_ne!(name(&sample(), "node-1"), name(&other, "node-1"), "two sets have a Pod each on a node");

    let longest = [&*"a".repeat(63), &*"b".repeat(63), &*"c".repeat(63), &*"d".repeat(61)].join(".");
    let cut = name(&sample(), &longest);
    assert!(longest.len() == 253 && cut.len() <= 253 && cut.starts_with(&longest[..200]), "{cut}");
}

#[test]
fn ready_pods_that_are_not_being_deleted_count_as_available() {
    let (mut leaving, set) = (pod("Running", true), sample());
    leaving["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let mut cluster = cluster(&["a", "b", "c"].map(node));
    cluster.add_child(&set, "a", &pod("Running", true)).add_child(&set, "b", &pod("Running", false));
    cluster.add_child(&set, "c", &leaving);
    let outcome = cluster.reconcile(&set).unwrap();
    assert_eq!(outcome.status_value(), json!({"availableReplicas": 1}));
    assert_eq!(outcome.condition_of("Ready").unwrap().message, "1 of 3 Nodes have a ready Pod");
    assert_eq!(outcome.child_keys(), ["a", "b", "c"], "the successor of c is wanted; the host waits until c is gone");

    cluster.add_child(&set, "b", &pod("Running", true)).add_child(&set, "c", &pod("Running", true));
    assert!(cluster.reconcile(&set).unwrap().is_ready());
}

#[test]
fn a_pod_that_has_ended_is_replaced() {
    for phase in ["Failed", "Succeeded"] {
        let mut cluster = cluster(&[node("a"), node("b")]);
        cluster.add_child(&sample(), "a", &pod("Running", true)).add_child(&sample(), "b", &pod(phase, false));
        assert_eq!(cluster.reconcile(&sample()).unwrap().child_keys(), ["a"], "{phase}: the host deletes the other");
        let mut deleted = pod(phase, false);
        deleted["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        cluster.add_child(&sample(), "b", &deleted);
        assert_eq!(cluster.reconcile(&sample()).unwrap().child_keys(), ["a", "b"], "{phase}: it is being deleted");
    }
}

#[test]
fn unhealthy_nodes_keep_their_pods_and_nodes_with_other_taints_get_none() {
    const OF_DAEMONS: [&str; 6] =
        ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"];
    for taint in OF_DAEMONS {
        let key = format!("node.kubernetes.io/{taint}");
        let both = tainted("a", &[(&key, "", "NoSchedule"), (&key, "", "NoExecute")]);
        let outcome = cluster(&[both]).reconcile(&sample()).unwrap();
        assert_eq!(outcome.child_keys(), ["a"], "{taint}");
        let tolerations = outcome.child("a").unwrap()["spec"]["tolerations"].clone();
        assert!(tolerations.as_array().unwrap().contains(&json!({"key": key, "operator": "Exists"})), "{tolerations}");
    }
    for (key, effect, expected) in [
        ("dedicated", "NoSchedule", 0),
        ("dedicated", "NoExecute", 0),
        ("dedicated", "PreferNoSchedule", 1),
        ("node.kubernetes.io/network-unavailable", "NoSchedule", 0),
    ] {
        let outcome = cluster(&[tainted("a", &[(key, "db", effect)])]).reconcile(&sample()).unwrap();
        assert_eq!(outcome.child_keys().len(), expected, "{key}:{effect}");
        assert_eq!(outcome.is_ready(), expected == 0, "0 of 0 Nodes have a Pod");
    }
}

#[test]
fn tolerations_of_the_spec_match_by_kubernetes_rules_and_are_copied_to_the_pods() {
    let dedicated = ("dedicated", "db", "NoExecute");
    for (toleration, matches) in [
        (json!({"key": "dedicated", "value": "db"}), true),
        (json!({"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoExecute"}), true),
        (json!({"key": "dedicated", "operator": "Exists"}), true),
        (json!({"operator": "Exists"}), true),
        (json!({"operator": "Exists", "effect": "NoSchedule"}), false),
        (json!({"key": "dedicated", "value": "web"}), false),
        (json!({"key": "dedicated"}), false),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"value": "db"}), false),
    ] {
        let set = with(json!({"image": "nginx", "tolerations": [toleration]}));
        let outcome = cluster(&[tainted("a", &[dedicated])]).reconcile(&set).unwrap();
        assert_eq!(outcome.child_keys().len(), usize::from(matches), "{toleration}");
        if let Some(pod) = outcome.child("a") {
            assert_eq!(pod["spec"]["tolerations"][6], toleration, "as it was written");
        }
    }
}

#[test]
fn a_node_selector_selects_nodes_by_all_of_its_labels() {
    let mut labelled = node("a");
    labelled["metadata"]["labels"] = json!({"disk": "ssd", "example.com/zone": "a", "gpu": ""});
    let cluster = cluster(&[labelled, node("b")]);
    for (selector, expected) in [
        (json!({}), &["a", "b"][..]),
        (json!({"disk": "ssd", "example.com/zone": "a"}), &["a"]),
        (json!({"disk": "ssd", "example.com/zone": "b"}), &[]),
        (json!({"gpu": ""}), &["a"]),
    ] {
        let set = with(json!({"image": "nginx", "nodeSelector": selector}));
        assert_eq!(cluster.reconcile(&set).unwrap().child_keys(), expected, "{selector}");
    }
    for wrong in [json!({"disk": "ssd,gpu"}), json!({"!disk": ""}), json!({"disk in (ssd)": ""}), json!({"": "a"})] {
        let outcome = cluster.reconcile(&with(json!({"image": "nginx", "nodeSelector": wrong}))).unwrap();
        assert_eq!((&outcome.children, reason(&outcome)), (&None, "InvalidNodeSelector"), "{wrong}");
    }
}

#[test]
fn an_empty_image_is_reported_and_there_are_no_pods() {
    for spec in [json!({}), json!({"image": ""}), json!({"image": "  "})] {
        let outcome = cluster(&[node("a")]).reconcile(&with(spec.clone())).unwrap();
        assert_eq!((&outcome.children, reason(&outcome)), (&None, "ImageMissing"), "{spec}");
        assert_eq!(outcome.status_value(), json!({"availableReplicas": 0}));
    }
}

#[test]
fn pods_have_the_image_and_the_pull_policy_of_the_spec() {
    let cluster = cluster(&[node("a")]);
    let container = |spec| cluster.reconcile(&with(spec)).unwrap().child("a").unwrap()["spec"]["containers"][0].clone();
    let given = json!({"image": "nginx:1", "imagePullPolicy": "IfNotPresent"});
    assert_eq!(container(given), json!({"name": "app", "image": "nginx:1", "imagePullPolicy": "IfNotPresent"}));
    assert_eq!(container(json!({"image": "nginx:2"})), json!({"name": "app", "image": "nginx:2"}));
}

#[test]
fn more_nodes_than_children_are_allowed_are_reported_and_change_no_pod() {
    let nodes: Vec<Value> = (0..=MAX_CHILDREN).map(|n| node(&format!("node-{n}"))).collect();
    let outcome = cluster(&nodes).reconcile(&sample()).unwrap();
    assert_eq!((&outcome.children, reason(&outcome)), (&None, "TooManyNodes"));
    assert_eq!(cluster(&nodes[..MAX_CHILDREN]).reconcile(&sample()).unwrap().child_keys().len(), MAX_CHILDREN);
}

#[test]
fn the_custom_resource_is_what_the_tutorial_has() {
    let manifest: Value = Json::raw(PLUGIN.manifest()).value().unwrap();
    let resource = &manifest["customResources"][0];
    assert_eq!(resource["metadata"]["name"], "mydaemonsets.apps.zhongmingmao.io");
    assert_eq!(resource["spec"]["scope"], "Namespaced");
    let version = &resource["spec"]["versions"][0];
    assert_eq!((&version["name"], &version["subresources"]), (&json!("v1beta1"), &json!({"status": {}})));
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(schema["spec"]["required"], Value::Null, "the plugin itself requires an image");
    let policies = json!(["Always", "IfNotPresent", "Never"]);
    assert_eq!(schema["spec"]["properties"]["imagePullPolicy"]["enum"], policies);
    assert_eq!(schema["status"]["properties"]["availableReplicas"]["type"], "integer");
    assert_eq!(manifest["controllers"][0]["owns"], json!([{"apiVersion": "v1", "kind": "Pod", "update": "recreate"}]));
    assert_eq!(manifest["controllers"][0]["reads"], json!([{"apiVersion": "v1", "kind": "Node"}]));
}

#[test]
fn an_object_without_an_image_is_refused() {
    for spec in [json!({}), json!({"image": ""}), json!({"image": " "})] {
        let refused = cluster(&[]).create(&with(spec)).unwrap_err().to_string();
        assert_eq!(refused, "spec.image: Required value: image is required");
    }
    assert!(cluster(&[]).update(&sample(), &with(json!({"image": ""}))).is_err());
}

#[test]
fn the_pull_policy_defaults_by_the_images_tag() {
    let policy = |spec: Value| cluster(&[]).create(&with(spec)).unwrap().object["spec"]["imagePullPolicy"].clone();
    for (image, expected) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:stable-alpine3.17", "IfNotPresent"),
        ("registry.example.com:5000/team/nginx", "Always"),
        ("registry.example.com:5000/team/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("nginx:latest@sha256:0123", "Always"),
    ] {
        assert_eq!(policy(json!({"image": image})), expected, "{image}");
    }
    assert_eq!(policy(json!({"image": "nginx", "imagePullPolicy": "Never"})), "Never");
}
