//! A model of the kubelets: nodes are Ready and renew their leases; Pods that are bound run, become ready, end as their
//! annotations say, and stop when they are deleted. Input: Pods, nodes and the time. Output: their statuses. It must not know
//! who made the Pods.
//!
//! What happens next follows from the times in the status. These are whole seconds, so that all happens at whole seconds.

mod annotation;
mod containers;
mod node;
mod pod;
mod references;

use self::annotation::is_ready;
use super::storages::{NODES, PODS};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key};
use crate::halt::Halt;
use crate::placement::node_of;
use crate::store::{Change, Event};
use crate::user::User;

pub(super) const CONTROLLER: Controller = Controller {
    name: "kubelet",
    user: "system:nodes",
    watches: &[("", "pods"), ("", "nodes")],
    batches: false,
    keys,
    reconcile,
};

/// The keys of nodes have no namespace; those of Pods have one.
fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    if change.event == Event::Deleted {
        return Vec::new();
    }
    if &*change.storage.plural == "pods" {
        let wanted = node_of(&object.value).is_some();
        return wanted.then(|| (object.namespace().into(), object.name().into())).into_iter().collect();
    }
    let mut keys = vec![("".into(), object.name().into())];
    let comes_back = change.previous.as_deref().is_none_or(|before| is_ready(object) && !is_ready(before));
    if comes_back {
        keys.extend(cluster.controllers.placement.pods(object.name()).cloned());
    }
    keys
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let pod = cluster.store.get(&PODS, namespace, name).filter(|_| !namespace.is_empty()).cloned();
    let node = match &pod {
        Some(pod) => node_of(&pod.value).unwrap_or_default(),
        None if namespace.is_empty() => name,
        None => return Ok(Again::No),
    };
    let Some(node) = cluster.store.get(&NODES, "", node).cloned() else { return Ok(Again::No) };
    if !is_ready(&node) {
        node::leave(cluster, &node, context.now);
        return Ok(Again::No);
    }
    let groups = vec!["system:nodes".to_owned(), "system:authenticated".to_owned()];
    let mut context = Context::system(&format!("system:node:{}", node.name()), context.answers, context.now);
    context.user = User { groups, ..context.user };
    "kubelet".clone_into(&mut context.manager);
    match pod {
        Some(pod) => pod::reconcile(cluster, &context, &pod, &node),
        None => node::reconcile(cluster, &context, &node),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::annotation::{EXIT_AFTER, EXIT_CODE, STOPS_AFTER};
    use crate::Method::{Delete, Put};
    use crate::condition;
    use crate::controllers::testing::{cluster, pass, pod, post, read, reasons};
    use crate::testing::ask;

    const PODS: &str = "/api/v1/namespaces/default/pods";
    const POD: &str = "/api/v1/namespaces/default/pods/a";

    fn annotated(annotations: serde_json::Value) -> serde_json::Value {
        let mut pod = pod("a");
        pod["metadata"]["annotations"] = annotations;
        pod["spec"]["restartPolicy"] = "Never".into();
        pod
    }

    #[test]
    fn a_pod_runs_within_a_second_and_comes_to_rest() {
        let mut cluster = cluster(&["scheduler", "kubelet"]);
        post(&mut cluster, PODS, &pod("a"));
        pass(&mut cluster, 0);
        let creating = read(&mut cluster, POD);
        assert_eq!(creating["status"]["phase"], "Pending");
        let state = &creating["status"]["containerStatuses"][0]["state"];
        assert_eq!(*state, json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(
            condition::get(&creating["status"], "Ready").unwrap()["message"],
            "containers with unready status: [a]"
        );
        pass(&mut cluster, 1);
        let running = read(&mut cluster, POD);
        let status = &running["status"];
        assert_eq!((&running["spec"]["nodeName"], &status["phase"]), (&json!("node-0"), &json!("Running")));
        assert!(condition::is_true(status, "Ready") && condition::is_true(status, "PodScheduled"));
        assert!(status["podIP"].as_str().unwrap().starts_with("10.24") && status["hostIP"] == "172.18.0.3");
        assert_eq!(reasons(&mut cluster, "a"), ["Created", "Pulled", "Scheduled", "Started"]);
        pass(&mut cluster, 5);
        assert_eq!(read(&mut cluster, POD), running);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";
        pass(&mut cluster, 25);
        assert_eq!(read(&mut cluster, lease)["spec"]["renewTime"], "2026-01-01T00:00:20.000000Z");
    }

    #[test]
    fn init_containers_run_one_after_another_before_the_others() {
        let mut cluster = cluster(&["scheduler", "kubelet"]);
        let mut wanted = pod("a");
        wanted["spec"]["initContainers"] = json!([{"name": "i", "image": "i:1"}, {"name": "j", "image": "j:1"}]);
        post(&mut cluster, PODS, &wanted);
        pass(&mut cluster, 2);
        let status = read(&mut cluster, POD)["status"].clone();
        assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
        assert!(status["initContainerStatuses"][1]["state"]["running"].is_object());
        assert_eq!(status["containerStatuses"][0]["state"], json!({"waiting": {"reason": "PodInitializing"}}));
        let initialized = condition::get(&status, "Initialized").unwrap();
        assert_eq!(initialized["message"], "containers with incomplete status: [j]");
        pass(&mut cluster, 3);
        assert_eq!(read(&mut cluster, POD)["status"]["phase"], "Running");
    }

    #[test]
    fn containers_end_and_start_again_as_the_annotations_and_the_policy_say() {
        for (policy, code, phase) in
            [("Never", "0", "Succeeded"), ("Never", "3", "Failed"), ("OnFailure", "0", "Succeeded")]
        {
            let mut cluster = cluster(&["scheduler", "kubelet"]);
            let mut wanted = annotated(json!({EXIT_CODE: code, EXIT_AFTER: "4s"}));
            wanted["spec"]["restartPolicy"] = policy.into();
            post(&mut cluster, PODS, &wanted);
            pass(&mut cluster, 4);
            assert_eq!(read(&mut cluster, POD)["status"]["phase"], "Running");
            pass(&mut cluster, 5);
            let status = read(&mut cluster, POD)["status"].clone();
            assert_eq!(status["phase"], phase);
            assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"].to_string(), code);
        }
        let mut cluster = cluster(&["scheduler", "kubelet"]);
        let mut wanted = annotated(json!({EXIT_CODE: "1"}));
        wanted["spec"]["restartPolicy"] = "Always".into();
        post(&mut cluster, PODS, &wanted);
        pass(&mut cluster, 3);
        let status = read(&mut cluster, POD)["status"].clone();
        let container = &status["containerStatuses"][0];
        assert_eq!((&status["phase"], &container["restartCount"]), (&json!("Running"), &json!(1)));
        let message = container["state"]["waiting"]["message"].as_str().unwrap();
        assert!(message.starts_with("back-off 10s restarting failed container=a pod=a_default("), "{message}");
        pass(&mut cluster, 13);
        assert_eq!(read(&mut cluster, POD)["status"]["containerStatuses"][0]["restartCount"], 2);
    }

    #[test]
    fn a_pod_waits_for_the_config_maps_and_secrets_that_it_names() {
        let mut cluster = cluster(&["scheduler", "kubelet"]);
        let mut wanted = pod("a");
        wanted["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "c"}}]);
        wanted["spec"]["containers"][0]["env"] =
            json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        post(&mut cluster, PODS, &wanted);
        pass(&mut cluster, 2);
        assert_eq!(reasons(&mut cluster, "a"), ["FailedMount", "Scheduled"]);
        post(&mut cluster, "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "c"}}));
        pass(&mut cluster, 5);
        let status = read(&mut cluster, POD)["status"].clone();
        let waiting = json!({"reason": "CreateContainerConfigError", "message": "secret \"s\" not found"});
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"], waiting);
        assert_eq!(status["phase"], "Pending");
        post(
            &mut cluster,
            "/api/v1/namespaces/default/secrets",
            &json!({"metadata": {"name": "s"}, "data": {"k": "dg=="}}),
        );
        pass(&mut cluster, 8);
        assert_eq!(read(&mut cluster, POD)["status"]["phase"], "Running");
    }

    #[test]
    fn a_pod_that_is_deleted_stops_and_vanishes() {
        let mut cluster = cluster(&["scheduler", "kubelet"]);
        let mut wanted = annotated(json!({STOPS_AFTER: "5s"}));
        wanted["metadata"]["finalizers"] = json!(["example.com/keep"]);
        post(&mut cluster, PODS, &wanted);
        pass(&mut cluster, 1);
        let (code, _) = ask(&mut cluster, Delete, POD, &json!({"gracePeriodSeconds": 30}));
        assert_eq!(code, 200);
        pass(&mut cluster, 5);
        assert_eq!(read(&mut cluster, POD)["status"]["phase"], "Running");
        pass(&mut cluster, 6);
        let mut stopped = read(&mut cluster, POD);
        assert_eq!(stopped["status"]["phase"], "Succeeded");
        assert_eq!(stopped["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
        let version = stopped["metadata"]["resourceVersion"].clone();
        pass(&mut cluster, 90);
        assert_eq!(read(&mut cluster, POD)["metadata"]["resourceVersion"], version);
        stopped["metadata"]["finalizers"] = json!([]);
        ask(&mut cluster, Put, POD, &stopped);
        assert!(read(&mut cluster, POD).is_null());
    }
}
