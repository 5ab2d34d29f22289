//! PodSet as its users see it, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Json, Outcome, Value, json};

use super::{PLUGIN, PodSet, PodSetSpec};

fn example(replicas: i32) -> PodSet {
    let spec = PodSetSpec {
        replicas,
        template: None,
        #[cfg(feature = "next")]
        purpose: None,
    };
    PodSet::new("example-podset", spec)
}

fn pod(phase: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase}})
}

/// A cluster in which the set has Pods with these phases under the keys 0, 1, 2, ...
fn cluster(set: &PodSet, phases: &[&str]) -> Cluster {
    let mut cluster = Cluster::of(&PLUGIN);
    for (key, phase) in phases.iter().enumerate() {
        cluster.add_child(set, &key.to_string(), &pod(phase));
    }
    cluster
}

#[test]
fn a_new_set_wants_one_sleeping_pod_per_replica() {
    let outcome = cluster(&example(3), &[]).reconcile(&example(3)).unwrap();
    assert_eq!(outcome.child_keys(), ["0", "1", "2"]);
    let pod = outcome.child("2").unwrap();
    assert_eq!(pod["spec"]["containers"][0]["image"], "busybox");
    assert_eq!(pod["metadata"], Value::Null, "the host sets names and labels");
    assert_eq!(outcome.status_value(), json!({"replicas": 0, "podNames": []}));
    assert!(!outcome.is_ready());
}

#[test]
fn a_set_with_all_its_pods_is_ready() {
    let outcome = cluster(&example(3), &["Running", "Pending", "Running"]).reconcile(&example(3)).unwrap();
    let names = ["example-podset-0", "example-podset-1", "example-podset-2"];
    assert_eq!(outcome.status_value(), json!({"replicas": 3, "podNames": names}));
    assert!(outcome.is_ready());
}

#[test]
fn scaling_keeps_the_pods_with_lower_keys() {
    let cluster = cluster(&example(3), &["Running", "Running", "Running"]);
    for (replicas, keys) in [(5, &["0", "1", "2", "3", "4"][..]), (1, &["0"]), (0, &[])] {
        assert_eq!(cluster.reconcile(&example(replicas)).unwrap().child_keys(), keys, "{replicas}");
    }
}

#[test]
fn a_pod_that_has_ended_is_replaced() {
    for phase in ["Failed", "Succeeded"] {
        let set = example(3);
        let mut cluster = cluster(&set, &["Running", phase, "Running"]);
        let outcome = cluster.reconcile(&set).unwrap();
        assert_eq!(outcome.child_keys(), ["0", "2"], "{phase}: the host deletes what is not wanted");
        assert_eq!(outcome.status_value()["podNames"], json!(["example-podset-0", "example-podset-2"]));

        let mut deleted = pod(phase);
        deleted["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        cluster.add_child(&set, "1", &deleted);
        assert_eq!(cluster.reconcile(&set).unwrap().child_keys(), ["0", "1", "2"], "{phase}: it is being deleted");
    }
}

#[test]
fn a_pod_that_is_being_deleted_does_not_count() {
    let set = example(1);
    let mut cluster = Cluster::of(&PLUGIN);
    let mut running = pod("Running");
    running["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    cluster.add_child(&set, "0", &running);
    let outcome = cluster.reconcile(&set).unwrap();
    assert_eq!(outcome.status_value(), json!({"replicas": 0, "podNames": []}));
    assert_eq!(outcome.child_keys(), ["0"], "the host creates its successor at once");
}

#[test]
fn the_template_is_passed_on_unchanged() {
    let spec = json!({"replicas": 1, "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx", "resources": {"limits": {"cpu": "0.50"}}}]},
    }});
    let set =
        json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "web"}, "spec": spec});
    let outcome = Cluster::of(&PLUGIN).reconcile(&set).unwrap();
    let pod = outcome.child("0").unwrap();
    assert_eq!(pod["spec"], spec["template"]["spec"]);
    assert_eq!(pod["metadata"]["labels"]["app"], "web");
}

#[test]
fn an_invalid_count_is_reported_and_changes_no_pod() {
    for replicas in [-1, 5_001, 1_000_000_000] {
        let outcome = cluster(&example(1), &["Running"]).reconcile(&example(replicas)).unwrap();
        assert_eq!(outcome.children, None, "no Pod is deleted");
        assert_eq!(outcome.status_value()["replicas"], 1);
        let ready = outcome.condition_of("Ready").unwrap();
        assert_eq!(ready.reason, "InvalidReplicas");
        assert!(ready.message.contains(&replicas.to_string()), "{}", ready.message);
    }
}

#[test]
fn the_custom_resource_is_what_the_tutorial_has() {
    let manifest: Value = Json::raw(PLUGIN.manifest()).value().unwrap();
    let resource = &manifest["customResources"][0];
    assert_eq!(resource["metadata"]["name"], "podsets.app.example.com");
    let version = &resource["spec"]["versions"][0];
    assert_eq!(version["subresources"]["scale"]["specReplicasPath"], ".spec.replicas");
    let schema = &version["schema"]["openAPIV3Schema"];
    let replicas = &schema["properties"]["spec"]["properties"]["replicas"];
    assert_eq!(
        *replicas,
        json!({"description": "How many Pods there should be.", "minimum": 0, "format": "int32", "type": "integer"})
    );
    let template = &schema["properties"]["spec"]["properties"]["template"]["properties"]["spec"];
    assert_eq!(template["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(schema["properties"]["status"]["properties"]["conditions"]["x-kubernetes-list-type"], "map");
    let pods = json!({"apiVersion": "v1", "kind": "Pod", "update": "recreate", "replace": "atOnce"});
    assert_eq!(manifest["controllers"][0]["owns"], json!([pods]));
}

/// A set of one Pod with this spec, under this configuration.
fn asked(config: &Value, spec: &Value) -> Outcome<Value> {
    let set = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "template": {"spec": spec}}});
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.set_config(config.clone());
    cluster.reconcile(&set).unwrap()
}

#[test]
fn without_a_configuration_every_template_is_passed_on() {
    let spec =
        json!({"hostPID": true, "serviceAccountName": "builder", "containers": [{"name": "web", "image": "nginx"}]});
    let outcome = asked(&json!({}), &spec);
    assert_eq!(outcome.child("0").unwrap()["spec"], spec);
    let outcome = asked(&json!({"podSecurity": "privileged", "serviceAccounts": ["builder"]}), &spec);
    assert_eq!(outcome.child("0").unwrap()["spec"], spec);
}

#[test]
fn a_template_beyond_the_level_of_the_configuration_makes_no_pods_and_the_status_says_why() {
    let plain = json!({"containers": [{"name": "web", "image": "nginx"}]});
    let host = json!({"volumes": [{"name": "node", "hostPath": {"path": "/"}}],
        "containers": [{"name": "web", "image": "nginx"}]});
    for (level, spec, wanted) in [
        ("privileged", &host, None),
        ("baseline", &plain, None),
        ("baseline", &host, Some("\"baseline:latest\": hostPath volumes (volume \"node\"); no Pod is changed")),
        ("restricted", &plain, Some("container \"web\" must set securityContext.allowPrivilegeEscalation=false")),
    ] {
        let outcome = asked(&json!({"podSecurity": level}), spec);
        let ready = outcome.condition_of("Ready").unwrap();
        let Some(wanted) = wanted else {
            assert_eq!((outcome.child_keys(), &*ready.reason), (vec!["0"], "PodsMissing"), "{level} {spec}");
            continue;
        };
        assert_eq!((outcome.children.is_none(), &*ready.reason), (true, "PodSecurity"), "{level} {spec}");
        assert!(ready.message.starts_with("spec.template violates PodSecurity \""), "{}", ready.message);
        assert!(ready.message.contains(wanted), "{}", ready.message);
    }
}

#[test]
fn a_template_names_only_the_service_accounts_that_the_configuration_has() {
    let (by_level, by_list) = (json!({"podSecurity": "baseline"}), json!({"serviceAccounts": ["web"]}));
    for (config, field, name, allowed) in [
        (&by_level, "serviceAccountName", json!("default"), true),
        (&by_level, "serviceAccountName", json!(""), true),
        (&by_level, "serviceAccountName", Value::Null, true),
        (&by_level, "serviceAccountName", json!("web"), false),
        (&by_level, "serviceAccount", json!("web"), false),
        (&by_level, "serviceAccountName", json!(["web"]), false),
        (&by_list, "serviceAccountName", json!("web"), true),
        (&by_list, "serviceAccount", json!("web"), true),
        (&by_list, "serviceAccountName", json!("default"), true),
        (&by_list, "serviceAccountName", json!("builder"), false),
        (&by_list, "serviceAccount", json!("builder"), false),
    ] {
        let outcome = asked(config, &json!({field: name, "containers": [{"name": "web", "image": "nginx"}]}));
        assert_eq!(outcome.children.is_some(), allowed, "{config} {field} {name}");
        if !allowed {
            let message = &outcome.condition_of("Ready").unwrap().message;
            assert!(message.starts_with(&format!("spec.template.spec.{field}: {name} is not")), "{message}");
        }
    }
    // Where one field is allowed, the other one is not overlooked.
    let both = json!({"serviceAccountName": "default", "serviceAccount": "builder", "containers": []});
    assert_eq!(asked(&by_list, &both).children, None);
}

#[test]
fn a_refused_set_keeps_its_pods_until_it_wants_none() {
    let mut cluster = cluster(&example(2), &["Running", "Running"]);
    cluster.set_config(json!({"podSecurity": "restricted"}));
    let outcome = cluster.reconcile(&example(2)).unwrap();
    assert_eq!(outcome.children, None, "as with Pod Security admission, what runs is not evicted");
    assert_eq!(outcome.condition_of("Ready").unwrap().reason, "PodSecurity", "the Pod of a set without template, too");
    assert_eq!(cluster.reconcile(&example(0)).unwrap().children, Some(vec![]));
}

#[test]
fn a_mistake_in_the_configuration_makes_no_pods() {
    for wrong in
        [json!({"podSecurity": "strict"}), json!({"podsecurity": "restricted"}), json!({"serviceAccounts": "a"})]
    {
        let mut cluster = Cluster::of(&PLUGIN);
        cluster.set_config(wrong);
        let failure = cluster.reconcile(&example(1)).unwrap_err();
        assert!(failure.message().starts_with("the plugin's configuration is not valid: "), "{failure}");
    }
}
