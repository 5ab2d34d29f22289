//! Foo as the users of the sample-controller see it, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{ConditionStatus, Event, Json, Outcome, Value, json};

use super::{Foo, FooSpec, PLUGIN};

fn example(replicas: i32) -> Foo {
    Foo::new("example-foo", FooSpec { deployment_name: "web".to_owned(), replicas })
}

/// A Deployment of this name, with so many available replicas.
fn deployment(name: &str, replicas: i32, available: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas}, "status": {"availableReplicas": available},
    })
}

fn events(outcome: &Outcome<Value>) -> Vec<&str> {
    outcome.events.iter().map(|event| event.reason.as_str()).collect()
}

#[test]
fn a_new_foo_wants_the_sample_controllers_deployment() {
    let outcome = Cluster::of(&PLUGIN).reconcile(&example(2)).unwrap();
    assert_eq!(outcome.child_keys(), ["deployment"]);
    let labels = json!({"app": "nginx", "controller": "example-foo"});
    let wanted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    });
    assert_eq!(outcome.child("deployment").unwrap(), wanted);
    assert_eq!(outcome.status_value(), json!({"availableReplicas": 0}));
    assert!(!outcome.is_ready());
    assert_eq!(events(&outcome), [""; 0], "nothing is synced yet");
}

#[test]
fn an_event_reports_a_synced_deployment_and_the_status_has_its_available_replicas() {
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add_child(&example(3), "deployment", &deployment("web", 3, 1));
    let outcome = cluster.reconcile(&example(3)).unwrap();
    assert_eq!(outcome.events, [Event::normal("Synced", "Foo synced successfully")]);
    assert_eq!(outcome.status_value(), json!({"availableReplicas": 1}));
    assert!(!outcome.is_ready(), "1 of 3 is available");

    cluster.add_child(&example(3), "deployment", &deployment("web", 3, 3));
    let outcome = cluster.reconcile(&example(3)).unwrap();
    assert!(outcome.is_ready());
    assert_eq!(events(&outcome), ["Synced"]);
}

#[test]
fn a_change_of_replicas_changes_the_same_deployment() {
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add_child(&example(1), "deployment", &deployment("web", 1, 1));
    let outcome = cluster.reconcile(&example(3)).unwrap();
    assert_eq!(outcome.child("deployment").unwrap()["spec"]["replicas"], 3);
    assert_eq!(events(&outcome), [""; 0], "the Deployment still has the old replicas");
}

#[test]
fn a_foreign_deployment_is_not_changed_and_reported_with_the_sample_controllers_message() {
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add(&deployment("web", 7, 7));
    let outcome = cluster.reconcile(&example(1)).unwrap();
    let message = "Resource \"web\" already exists and is not managed by Foo";
    assert_eq!(outcome.events, [Event::warning("ErrResourceExists", message)]);
    assert_eq!(outcome.children, None);
    assert_eq!(outcome.status_value(), json!({"availableReplicas": 0}), "its 7 replicas do not count");
    let ready = outcome.condition_of("Ready").unwrap();
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("ErrResourceExists", message));
    assert_eq!(cluster.reconcile(&example(1)).unwrap(), outcome, "the same Event, so the host sends it once");

    let other = Foo::new("another-foo", FooSpec { deployment_name: "web".to_owned(), replicas: 1 });
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add_child(&other, "deployment", &deployment("web", 1, 1));
    assert_eq!(
        events(&cluster.reconcile(&example(1)).unwrap()),
        ["ErrResourceExists"],
        "another Foo's Deployment is foreign"
    );
    assert_eq!(events(&cluster.reconcile(&other).unwrap()), ["Synced"]);
}

#[test]
fn a_changed_name_moves_the_deployment_unless_the_new_name_is_taken() {
    let renamed = Foo::new("example-foo", FooSpec { deployment_name: "site".to_owned(), replicas: 1 });
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add_child(&example(1), "deployment", &deployment("web", 1, 1));
    let outcome = cluster.reconcile(&renamed).unwrap();
    assert_eq!(outcome.child("deployment").unwrap()["metadata"]["name"], "site", "the host deletes the old one");
    assert_eq!(outcome.status_value(), json!({"availableReplicas": 0}));

    cluster.add(&deployment("site", 1, 1));
    let outcome = cluster.reconcile(&renamed).unwrap();
    assert_eq!((events(&outcome), &outcome.children), (vec!["ErrResourceExists"], &None), "the old one is kept");
}

#[test]
fn an_invalid_spec_is_reported_and_changes_nothing() {
    let long = "f".repeat(64);
    let cases = [
        (example(0), "InvalidReplicas", "spec.replicas is 0"),
        (example(-1), "InvalidReplicas", "spec.replicas is -1"),
        (example(1_000_000_000), "InvalidReplicas", "not within 1 and 10"),
        (Foo::new("a", FooSpec { deployment_name: String::new(), replicas: 1 }), "InvalidDeploymentName", "is empty"),
        (Foo::new(long, FooSpec { deployment_name: "web".to_owned(), replicas: 1 }), "NameTooLong", "64 letters"),
    ];
    for (foo, reason, words) in cases {
        let mut cluster = Cluster::of(&PLUGIN);
        cluster.add_child(&foo, "deployment", &deployment("web", 1, 1));
        let outcome = cluster.reconcile(&foo).unwrap();
        assert_eq!((&outcome.children, outcome.events.len()), (&None, 0), "{reason}");
        let ready = outcome.condition_of("Ready").unwrap();
        assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::False, reason));
        assert!(ready.message.contains(words), "{}", ready.message);
    }
}

#[test]
fn the_custom_resource_is_the_sample_controllers() {
    let manifest: Value = Json::raw(PLUGIN.manifest()).value().unwrap();
    let resource = &manifest["customResources"][0];
    assert_eq!(resource["metadata"]["name"], "foos.samplecontroller.k8s.io");
    let approval = &resource["metadata"]["annotations"]["api-approved.kubernetes.io"];
    assert!(approval.as_str().unwrap().starts_with("unapproved"), "the API server requires an approval: {approval}");
    let version = &resource["spec"]["versions"][0];
    assert_eq!((&version["name"], &version["subresources"]), (&json!("v1alpha1"), &json!({"status": {}})));
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let replicas = &schema["spec"]["properties"]["replicas"];
    assert_eq!((&replicas["minimum"], &replicas["maximum"], &replicas["default"]), (&json!(1), &json!(10), &json!(1)));
    assert_eq!(schema["spec"]["required"], json!(["deploymentName"]));
    assert_eq!(schema["status"]["properties"]["availableReplicas"]["type"], "integer");
}
