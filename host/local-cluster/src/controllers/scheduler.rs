//! A model of kube-scheduler: binds Pods to nodes that fit, those with the fewest Pods first. Input: Pods without a node, and
//! nodes. Output: bindings, and the condition and Event of Pods that fit nowhere. It must not know what runs on nodes.

mod fit;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use self::fit::{Reason, Wanted};
use super::storages::{CLAIMS, NODES, PODS};
use super::write;
use crate::Cluster;
use crate::condition;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, unchanged};
use crate::halt::Halt;
use crate::placement::{has_ended, node_of};
use crate::store::{Change, Event, Object};

/// How many waiting Pods are looked at again when one Pod leaves a node: it makes room for one, or for a few small ones.
const MAX_FOLLOWERS: usize = 16;

pub(super) const CONTROLLER: Controller = Controller {
    name: "scheduler",
    user: "system:kube-scheduler",
    watches: &[("", "pods"), ("", "nodes"), ("", "persistentvolumeclaims")],
    batches: false,
    keys,
    reconcile,
};

fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let (object, before) = (&change.object, change.previous.as_deref());
    let waiting = cluster.controllers.placement.waiting();
    match &*change.storage.plural {
        "pods" if node_of(&object.value).is_none() => {
            let changed = before.is_none_or(|before| !unchanged(before, object, &["/spec"]));
            let wanted = change.event != Event::Deleted && changed;
            wanted.then(|| (object.namespace().into(), object.name().into())).into_iter().collect()
        }
        "pods" => {
            let ended = has_ended(&object.value) && before.is_some_and(|before| !has_ended(&before.value));
            let count = if ended || change.event == Event::Deleted { MAX_FOLLOWERS } else { 0 };
            waiting.take(count).cloned().collect()
        }
        "nodes" => {
            let fields = ["/spec", "/metadata/labels", "/status/allocatable"];
            let same = before.is_some_and(|before| unchanged(before, object, &fields));
            let count = if same || change.event == Event::Deleted { 0 } else { usize::MAX };
            waiting.take(count).cloned().collect()
        }
        _ => waiting.filter(|(namespace, _)| **namespace == *object.namespace()).cloned().collect(),
    }
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let Some(pod) = cluster.store.get(&PODS, namespace, name).cloned() else { return Ok(Again::No) };
    let spec = &pod.value["spec"];
    let gated = spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let other = spec["schedulerName"].as_str().is_some_and(|name| !matches!(name, "" | "default-scheduler"));
    if node_of(&pod.value).is_some() || has_ended(&pod.value) || pod.terminates() || gated || other {
        return Ok(Again::No);
    }
    match place(cluster, &pod) {
        Ok(node) => bind(cluster, context, &pod, &node)?,
        Err(message) => refuse(cluster, context, &pod, &message)?,
    }
    Ok(Again::No)
}

/// The node for a Pod, or why there is none.
fn place(cluster: &Cluster, pod: &Object) -> Result<Arc<str>, String> {
    let placement = &cluster.controllers.placement;
    if placement.nodes().next().is_none() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    if let Some(missing) = missing_claim(cluster, pod) {
        let count = placement.nodes().count();
        return Err(sentence(count, &missing, &format!("{count} {}", fit::HELPLESS)));
    }
    let wanted = Wanted::new(pod);
    // A DaemonSet's Pods name their node; the others need not be asked.
    let named = wanted.named_node().and_then(|node| cluster.store.get(&NODES, "", node));
    if let Some(node) = named
        && wanted.misfits(node, &placement.on(node.name())).is_empty()
    {
        return Ok(node.name().into());
    }
    let (mut count, mut why, mut helps) = (0, BTreeMap::new(), BTreeMap::new());
    for name in placement.nodes() {
        let Some(node) = cluster.store.get(&NODES, "", name) else { continue };
        let misfits: Vec<Reason> = wanted.misfits(node, &placement.on(name));
        if misfits.is_empty() {
            return Ok(name.clone());
        }
        count += 1;
        let helpless = misfits.iter().any(|reason| !reason.resolvable);
        let help = if helpless { fit::HELPLESS } else { fit::NO_VICTIMS };
        *helps.entry(help.to_owned()).or_insert(0) += 1;
        for reason in misfits {
            *why.entry(reason.text).or_insert(0) += 1;
        }
    }
    Err(sentence(count, &histogram(&why), &histogram(&helps)))
}

fn histogram(reasons: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    parts.join(", ")
}

/// What the plugins say that could make room: the one of claims to devices has none, and then the one of preemption.
fn sentence(count: usize, why: &str, help: &str) -> String {
    format!(
        "0/{count} nodes are available: {why}. no new claims to deallocate, preemption: 0/{count} nodes are available: {help}."
    )
}

/// What a Pod waits for before any node is asked: its claims must be bound.
fn missing_claim(cluster: &Cluster, pod: &Object) -> Option<String> {
    for volume in pod.value["spec"]["volumes"].as_array().into_iter().flatten() {
        let Some(name) = volume["persistentVolumeClaim"]["claimName"].as_str() else { continue };
        let Some(claim) = cluster.store.get(&CLAIMS, pod.namespace(), name) else {
            return Some(format!("persistentvolumeclaim {name:?} not found"));
        };
        if claim.terminates() {
            return Some(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if claim.value["status"]["phase"] != "Bound" {
            return Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
    }
    None
}

/// Binds a Pod as the API server does for a Binding: without the checks of an update, which may not set the node.
fn bind(cluster: &mut Cluster, context: &Context<'_>, pod: &Object, node: &str) -> Result<(), Halt> {
    let mut value = pod.value.clone();
    write::set(&mut value["spec"], "nodeName", node.into());
    condition::set(&mut value["status"], scheduled(pod, "True", "", ""), context.now);
    let bound = cluster.store.put(&PODS, value);
    let message = format!("Successfully assigned {}/{} to {node}", pod.namespace(), pod.name());
    write::event(cluster, context, &bound, "Normal", "Scheduled", &message)
}

fn refuse(cluster: &mut Cluster, context: &Context<'_>, pod: &Object, message: &str) -> Result<(), Halt> {
    let mut status = pod.value["status"].clone();
    condition::set(&mut status, scheduled(pod, "False", "Unschedulable", message), context.now);
    if status != pod.value["status"] {
        write::event(cluster, context, pod, "Warning", "FailedScheduling", message)?;
    }
    write::update_status(cluster, context, pod, status)?;
    Ok(())
}

fn scheduled(pod: &Object, status: &str, reason: &str, message: &str) -> Value {
    let mut condition = condition::new("PodScheduled", status, reason, message);
    condition["lastProbeTime"] = Value::Null;
    let generation = &pod.value["metadata"]["generation"];
    if !generation.is_null() {
        condition["observedGeneration"] = generation.clone();
    }
    condition
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::{Delete, Put};
    use crate::condition;
    use crate::controllers::testing::{cluster, pass, pod, post, read};
    use crate::testing::ask;

    const PODS: &str = "/api/v1/namespaces/default/pods";
    const NODE: &str = "/api/v1/nodes/node-0";

    #[test]
    fn pods_spread_over_the_nodes() {
        let mut cluster = cluster(&["scheduler", "kubelet"]);
        for name in ["node-1", "node-2"] {
            post(&mut cluster, "/api/v1/nodes", &json!({"metadata": {"name": name}}));
        }
        for at in 0..30 {
            post(&mut cluster, PODS, &pod(&format!("p{at}")));
        }
        pass(&mut cluster, 2);
        let pods = read(&mut cluster, PODS);
        let on =
            |node: &str| pods["items"].as_array().unwrap().iter().filter(|pod| pod["spec"]["nodeName"] == node).count();
        assert_eq!((on("node-0"), on("node-1"), on("node-2")), (10, 10, 10));
        let mut addresses: Vec<_> =
            pods["items"].as_array().unwrap().iter().map(|pod| pod["status"]["podIP"].to_string()).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 30);
    }

    #[test]
    fn a_pod_that_fits_nowhere_says_why_until_it_fits() {
        let terms = |key: &str| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}})
        };
        let requests = |cpu: &str| json!([{"name": "a", "image": "a", "resources": {"requests": {"cpu": cpu}}}]);
        let helpless = "1 Preemption is not helpful for scheduling";
        for (node, field, value, why, help) in [
            (json!({"unschedulable": true}), "nodeSelector", json!({}), "1 node(s) were unschedulable", helpless),
            (
                json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
                "nodeSelector",
                json!({}),
                "1 node(s) had untolerated taint(s)",
                helpless,
            ),
            (
                json!({}),
                "nodeSelector",
                json!({"zone": "a"}),
                "1 node(s) didn't match Pod's node affinity/selector",
                helpless,
            ),
            (json!({}), "affinity", terms("zone"), "1 node(s) didn't match Pod's node affinity/selector", helpless),
            (json!({}), "containers", requests("33"), "1 Insufficient cpu", helpless),
            (
                json!({}),
                "containers",
                requests("31"),
                "1 Insufficient cpu",
                "1 No preemption victims found for incoming pod",
            ),
        ] {
            let mut cluster = cluster(&["scheduler", "kubelet"]);
            let mut first = pod("first");
            first["spec"]["containers"] = requests("2");
            post(&mut cluster, PODS, &first);
            pass(&mut cluster, 1);
            let mut changed = read(&mut cluster, NODE);
            for (name, value) in node.as_object().unwrap() {
                changed["spec"][name] = value.clone();
            }
            let (code, answer) = ask(&mut cluster, Put, NODE, &changed);
            assert_eq!(code, 200, "{answer}");
            let mut wanted = pod("a");
            wanted["spec"][field] = value;
            post(&mut cluster, PODS, &wanted);
            pass(&mut cluster, 2);
            let pod = read(&mut cluster, &format!("{PODS}/a"));
            let scheduled = condition::get(&pod["status"], "PodScheduled").unwrap();
            let message = format!(
                "0/1 nodes are available: {why}. no new claims to deallocate, preemption: 0/1 nodes are available: {help}."
            );
            assert_eq!((&scheduled["reason"], &scheduled["message"]), (&json!("Unschedulable"), &json!(message)));
            if why.contains("cpu") {
                ask(&mut cluster, Delete, &format!("{PODS}/first?gracePeriodSeconds=0"), &json!(null));
            }
            let mut changed = read(&mut cluster, NODE);
            changed["spec"].as_object_mut().unwrap().retain(|name, _| name == "providerID");
            changed["metadata"]["labels"] = json!({"zone": "a"});
            ask(&mut cluster, Put, NODE, &changed);
            pass(&mut cluster, 4);
            let bound = read(&mut cluster, &format!("{PODS}/a"))["spec"]["nodeName"] == "node-0";
            assert_eq!(bound, value_fits(why, help), "{why}");
        }
    }

    fn value_fits(why: &str, help: &str) -> bool {
        !(why.contains("cpu") && help.contains("not helpful"))
    }
}
