//! BlueGreenDeployment as its users see it, run natively.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Json, Outcome, PodTemplate, RawJson, Value, json};

use super::{BlueGreenDeployment, BlueGreenDeploymentSpec, PLUGIN};

fn example(image: &str) -> BlueGreenDeployment {
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}});
    let template = PodTemplate(RawJson::new(&template).unwrap());
    let spec = BlueGreenDeploymentSpec { replicas: 2, min_ready_seconds: 0, template, port: 80, target_port: None };
    BlueGreenDeployment::new("web", spec)
}

/// The children of an outcome as the cluster has them, with so many available Pods of each ReplicaSet.
fn follow(cluster: &mut Cluster, bg: &BlueGreenDeployment, outcome: &Outcome<Value>, available: i32) {
    for child in outcome.children.iter().flatten() {
        let mut object = child.object.value().unwrap();
        if object["spec"].is_null() {
            continue; // kept as it is
        }
        if object["kind"] == "ReplicaSet" {
            object["status"] = json!({"availableReplicas": available});
        }
        cluster.add_child(bg, &child.key, &object);
    }
}

fn color_in_use(outcome: &Outcome<Value>) -> Value {
    outcome.child("service").unwrap()["spec"]["selector"]["ctl.enisoc.com/color"].clone()
}

fn message(outcome: &Outcome<Value>) -> &str {
    &outcome.condition_of("Ready").unwrap().message
}

#[test]
fn the_first_replica_set_is_blue_and_in_use() {
    let bg = example("web:1");
    let mut cluster = Cluster::of(&PLUGIN);
    let outcome = cluster.reconcile(&bg).unwrap();
    let [set, service] = outcome.child_keys()[..] else { panic!("{:?}", outcome.child_keys()) };
    let (set, service) = (outcome.child(set).unwrap(), outcome.child(service).unwrap());
    assert_eq!(set["spec"]["template"]["metadata"]["labels"]["app"], "web", "the template's own labels stay");
    assert_eq!(set["spec"]["selector"]["matchLabels"], service["spec"]["selector"]);
    assert_eq!(service["spec"]["ports"], json!([{"port": 80}]));
    assert!(!outcome.is_ready());
    follow(&mut cluster, &bg, &outcome, 2);
    let outcome = cluster.reconcile(&bg).unwrap();
    assert!(outcome.is_ready());
    assert_eq!(outcome.status_value(), json!({"activeColor": "blue", "availableReplicas": 2}));
}

#[test]
fn the_service_switches_when_all_pods_of_the_new_color_are_available() {
    let (old, new) = (example("web:1"), example("web:2"));
    let mut cluster = Cluster::of(&PLUGIN);
    let first = cluster.reconcile(&old).unwrap();
    follow(&mut cluster, &old, &first, 2);

    let rolling = cluster.reconcile(&new).unwrap();
    assert_eq!((rolling.child_keys().len(), color_in_use(&rolling)), (3, json!("blue")));
    follow(&mut cluster, &new, &rolling, 1);
    let waiting = cluster.reconcile(&new).unwrap();
    assert_eq!((color_in_use(&waiting), message(&waiting)), (json!("blue"), "1 of 2 Pods of green are available"));
    let status = json!({"activeColor": "blue", "availableReplicas": 2, "previewReplicas": 1});
    assert_eq!(waiting.status_value(), status);

    follow(&mut cluster, &new, &waiting, 2);
    let switched = cluster.reconcile(&new).unwrap();
    assert_eq!((color_in_use(&switched), switched.child_keys().len()), (json!("green"), 3));
    assert_eq!(switched.events[0].reason, "Switched");
    follow(&mut cluster, &new, &switched, 2);
    let after = cluster.reconcile(&new).unwrap();
    assert_eq!(after.child_keys().len(), 2, "the old ReplicaSet is not wanted any more");
    assert_eq!(after.status_value()["activeColor"], "green");
    assert!(after.is_ready());
}

#[test]
fn a_template_that_changes_during_a_rollout_has_a_replica_set_of_its_own() {
    let (old, new, newer) = (example("web:1"), example("web:2"), example("web:3"));
    let mut cluster = Cluster::of(&PLUGIN);
    let first = cluster.reconcile(&old).unwrap();
    follow(&mut cluster, &old, &first, 2);
    let second = cluster.reconcile(&new).unwrap();
    follow(&mut cluster, &new, &second, 2);
    let third = cluster.reconcile(&newer).unwrap();
    assert_eq!(color_in_use(&third), "blue", "the Pods that are available are of another template");
    assert_ne!(second.child_keys()[0], third.child_keys()[0]);
    assert!(!third.child_keys().contains(&second.child_keys()[0]), "the host deletes it");
    let back = cluster.reconcile(&old).unwrap();
    assert_eq!((back.child_keys(), back.is_ready()), (first.child_keys(), true), "the old template is in use");
}

#[test]
fn the_kept_replica_set_is_named_by_its_kind_alone() {
    let (old, new) = (example("web:1"), example("web:2"));
    let mut cluster = Cluster::of(&PLUGIN);
    let first = cluster.reconcile(&old).unwrap();
    follow(&mut cluster, &old, &first, 2);
    let outcome = cluster.reconcile(&new).unwrap();
    let kept = outcome.child(first.child_keys()[0]).unwrap();
    assert_eq!(kept, Json::of_kind("apps/v1", "ReplicaSet", &json!({})).value().unwrap());
}
