//! `mortise cluster`: what a test in any language starts, uses and ends.

use std::path::Path;

use kube::api::{DeleteParams, PostParams};
use kube::core::DynamicObject;
use serde_json::json;

use super::program::{Objects, Program, mortise, until};

/// A cluster whose kubeconfig is in the folder.
pub(super) fn start(folder: &Path, arguments: &[&str]) -> (Program, Objects) {
    let kubeconfig = folder.join("kubeconfig");
    let kubeconfig_argument = kubeconfig.to_str().unwrap();
    let all = [&["cluster", "--kubeconfig", kubeconfig_argument], arguments].concat();
    let mut program = Program::start(mortise(folder, &all));
    let ready = program.line("The cluster is ready at https://127.0.0.1:");
    assert!(ready.ends_with(&format!("export KUBECONFIG={kubeconfig_argument}")), "{ready}");
    (program, Objects::of(&kubeconfig))
}

fn deployment(replicas: usize) -> DynamicObject {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_cluster_runs_deployments_and_outlasts_its_process_in_the_folder_of_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let arguments = ["--state", state.to_str().unwrap(), "--nodes", "2"];
    let (program, objects) = start(folder.path(), &arguments);
    objects.block_on(objects.api("apps/v1", "Deployment").create(&PostParams::default(), &deployment(3))).unwrap();
    let pods = until("three Pods run", || Some(objects.running_pods()).filter(|pods| pods.len() == 3));
    program.stop();

    let (program, objects) = start(folder.path(), &arguments);
    assert_eq!(objects.running_pods(), pods, "after a restart");
    objects.block_on(objects.api("v1", "Pod").delete(&pods[0], &DeleteParams::default())).unwrap();
    let after = until("a successor runs", || {
        Some(objects.running_pods()).filter(|names| names.len() == 3 && !names.contains(&pods[0]))
    });
    assert_eq!(after.iter().filter(|name| pods.contains(name)).count(), 2, "the controllers know what they made");
    program.stop();
}

#[test]
fn controllers_are_left_out_by_the_names_of_kube_controller_manager() {
    let folder = tempfile::tempdir().unwrap();
    let (program, objects) = start(folder.path(), &["--controllers", "*,-replicaset-controller"]);
    let deployments = objects.api("apps/v1", "Deployment");
    objects.block_on(deployments.create(&PostParams::default(), &deployment(1))).unwrap();
    let set = until("the Deployment has a ReplicaSet", || {
        let sets = objects.block_on(objects.api("apps/v1", "ReplicaSet").list(&Default::default())).unwrap();
        sets.items.into_iter().next()
    });
    assert_eq!(set.data["spec"]["replicas"], 1);
    assert!(objects.running_pods().is_empty() && set.data["status"]["replicas"] == 0, "nobody makes Pods: {set:?}");
    program.stop();

    let mut wrong = Program::start(mortise(folder.path(), &["cluster", "--controllers", "*,-replicaset"]));
    let error = wrong.line("is not in the list of known controllers");
    assert!(error.contains("\"replicaset\"") && error.contains("replicaset-controller"), "{error}");
}
