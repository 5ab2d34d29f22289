//! node-lifecycle-controller: taints nodes that are cordoned or whose kubelet is silent; taint-eviction-controller: deletes
//! the Pods that do not tolerate it. Input: nodes, their leases and Pods. Output: taints, conditions and deletions. It must
//! not know the kubelet's model.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::storages::{LEASES, NODES, PODS};
use super::{taint, write};
use crate::Cluster;
use crate::condition;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, unchanged};
use crate::deletion::DeleteOptions;
use crate::halt::Halt;
use crate::options::NODE_LEASE_SECONDS;
use crate::placement::node_of;
use crate::store::{Change, Event, Object};
use crate::time;

/// How long after the end of its lease a node is lost: of one that lasts 40 seconds, after `--node-monitor-grace-period`.
const GRACE_SECONDS: i64 = 10;
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Conditions, the status in which they taint a node, and the taint.
const TAINTING: &[(&str, &str, &str)] = &[
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

pub(super) const CONTROLLER: Controller = Controller {
    name: "node-lifecycle-controller",
    user: "system:serviceaccount:kube-system:node-controller",
    watches: &[("", "nodes"), ("coordination.k8s.io", "leases")],
    batches: false,
    keys: watched_keys,
    reconcile: watch_node,
};

pub(super) const EVICTION: Controller = Controller {
    name: "taint-eviction-controller",
    user: "system:serviceaccount:kube-system:node-controller",
    watches: &[("", "nodes"), ("", "pods")],
    batches: true,
    keys: eviction_keys,
    reconcile: evict,
};

/// Nodes that changed, and those whose lease lasts longer or shorter than before.
fn watched_keys(_: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    let lasts = |lease: &Object| lease_seconds(Some(&lease.value));
    let wanted = change.event != Event::Deleted
        && (change.storage != *LEASES
            || change.previous.as_deref().is_some_and(|before| lasts(before) != lasts(object)));
    node_keys(wanted, object)
}

/// How long a lease lasts: not less than usual, also when a client renews it.
fn lease_seconds(lease: Option<&Value>) -> i64 {
    let usual = i64::from(NODE_LEASE_SECONDS);
    lease
        .and_then(|lease| lease["spec"]["leaseDurationSeconds"].as_i64())
        .map_or(usual, |lasts| lasts.clamp(usual, i64::from(u32::MAX)))
}

fn node_keys(wanted: bool, node: &Object) -> Vec<Key> {
    wanted.then(|| ("".into(), node.name().into())).into_iter().collect()
}

fn watch_node(cluster: &mut Cluster, context: &Context<'_>, (_, name): &Key) -> Result<Again, Halt> {
    let Some(node) = cluster.store.get(&NODES, "", name).cloned() else { return Ok(Again::No) };
    let made = time::read(&node.value["metadata"]["creationTimestamp"]).unwrap_or(context.now);
    let lease = cluster.store.get(&LEASES, "kube-node-lease", name);
    let renewed = lease.and_then(|lease| time::read(&lease.value["spec"]["renewTime"])).unwrap_or(made);
    // Kubelets were silent while nothing of the cluster ran: that does not count.
    let grace = SignedDuration::from_secs(lease_seconds(lease.map(|lease| &*lease.value)) + GRACE_SECONDS);
    let silent_at = renewed.max(cluster.controllers.since.unwrap_or(renewed)) + grace;
    let ready = condition::get(&node.value["status"], "Ready").map(|ready| ready["status"].clone());
    let (mut node, mut again) = (node, Again::At(silent_at));
    if silent_at <= context.now {
        again = Again::No;
        if ready.as_ref().is_none_or(|ready| ready != "Unknown") {
            node = lose(cluster, context, &node)?;
        }
    }
    let cordoned = node.value["spec"]["unschedulable"] == true;
    let mut wanted = vec![(UNSCHEDULABLE, "NoSchedule", cordoned)];
    for (kind, bad, key) in TAINTING {
        let found = condition::get(&node.value["status"], kind).and_then(|condition| condition["status"].as_str());
        // A node whose kubelet has said nothing yet is not ready.
        let holds = found.or((*kind == "Ready").then_some("False")) == Some(*bad);
        let effects = if *kind == "Ready" { &["NoSchedule", "NoExecute"][..] } else { &["NoSchedule"] };
        wanted.extend(effects.iter().map(|effect| (*key, *effect, holds)));
    }
    let mut taints = node.value["spec"]["taints"].as_array().cloned().unwrap_or_default();
    for (key, effect, holds) in wanted {
        let is_it = |taint: &Value| taint["key"] == key && taint["effect"] == effect;
        if !holds {
            taints.retain(|taint| !is_it(taint));
        } else if !taints.iter().any(is_it) {
            let mut taint = taint::new(key, effect);
            taint["timeAdded"] = time::seconds(context.now).into();
            taints.push(taint);
        }
    }
    let known = node.value["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    if known != taints {
        write::change(cluster, context, &node, |node| {
            if let Some(spec) = node["spec"].as_object_mut().filter(|_| taints.is_empty()) {
                spec.remove("taints");
            } else {
                if !node["spec"].is_object() {
                    write::set(node, "spec", serde_json::json!({}));
                }
                write::set(&mut node["spec"], "taints", taints.into());
            }
        })?;
    }
    Ok(again)
}

/// Marks a node whose kubelet is silent, and its Pods.
fn lose(cluster: &mut Cluster, context: &Context<'_>, node: &Object) -> Result<std::sync::Arc<Object>, Halt> {
    let mut status = node.value["status"].clone();
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
        let message = "Kubelet stopped posting node status.";
        let mut unknown = condition::new(kind, "Unknown", "NodeStatusUnknown", message);
        if let Some(last) = condition::get(&status, kind).map(|known| known["lastHeartbeatTime"].clone()) {
            unknown["lastHeartbeatTime"] = last;
        }
        condition::set(&mut status, unknown, context.now);
    }
    let pods: Vec<_> = cluster.controllers.placement.pods(node.name()).cloned().collect();
    for (namespace, name) in pods {
        let Some(pod) = cluster.store.get(&PODS, &namespace, &name).cloned() else { continue };
        let Some(ready) = condition::get(&pod.value["status"], "Ready").filter(|ready| ready["status"] == "True")
        else {
            continue;
        };
        let mut unready = ready.clone();
        write::set(&mut unready, "status", "False".into());
        let mut status = pod.value["status"].clone();
        condition::set(&mut status, unready, context.now);
        write::update_status(cluster, context, &pod, status)?;
    }
    write::update_status(cluster, context, node, status)
}

/// Nodes that Pods may have to leave.
fn eviction_keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    if change.storage == *NODES {
        let changed = change.previous.as_deref().is_none_or(|before| !unchanged(before, object, &["/spec/taints"]));
        return node_keys(changed && change.event != Event::Deleted, object);
    }
    let came = change.previous.as_deref().is_none_or(|before| node_of(&before.value).is_none());
    let node = node_of(&object.value).filter(|_| came && change.event != Event::Deleted);
    let node = node.and_then(|node| cluster.store.get(&NODES, "", node));
    node.map_or_else(Vec::new, |node| node_keys(evicting(node).next().is_some(), node))
}

fn evicting(node: &Object) -> impl Iterator<Item = &Value> {
    let taints = node.value["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter(|taint| taint["effect"] == "NoExecute")
}

fn evict(cluster: &mut Cluster, context: &Context<'_>, (_, name): &Key) -> Result<Again, Halt> {
    let node = cluster.store.get(&NODES, "", name).filter(|node| evicting(node).next().is_some()).cloned();
    let Some(node) = node else { return Ok(Again::No) };
    let mut next: Option<Timestamp> = None;
    let pods: Vec<_> = cluster.controllers.placement.pods(name).cloned().collect();
    for (namespace, pod) in pods {
        let Some(pod) = cluster.store.get(&PODS, &namespace, &pod).filter(|pod| !pod.terminates()).cloned() else {
            continue;
        };
        let ends = evicting(&node).filter_map(|taint| leaves_at(&pod, taint, context.now)).min();
        match ends {
            Some(ends) if ends > context.now => next = Some(next.map_or(ends, |known| known.min(ends))),
            Some(_) => {
                let mut status = pod.value["status"].clone();
                let message = "Taint manager: deleting due to NoExecute taint";
                let why = condition::new("DisruptionTarget", "True", "DeletionByTaintManager", message);
                condition::set(&mut status, why, context.now);
                let pod = write::update_status(cluster, context, &pod, status)?;
                let message = format!("Marking for deletion Pod {namespace}/{}", pod.name());
                write::event(cluster, context, &pod, "Normal", "TaintManagerEviction", &message)?;
                write::delete(cluster, context, &pod, &DeleteOptions::default())?;
            }
            None => {}
        }
    }
    Ok(next.map_or(Again::No, Again::At))
}

/// When a Pod must leave for a taint; never, if it tolerates it for ever.
fn leaves_at(pod: &Object, taint: &Value, now: Timestamp) -> Option<Timestamp> {
    let since = time::read(&taint["timeAdded"]).unwrap_or(now);
    let Some(toleration) = taint::toleration(taint, &pod.value["spec"]["tolerations"]) else { return Some(now) };
    let seconds = toleration["tolerationSeconds"].as_i64()?;
    since.saturating_add(SignedDuration::from_secs(seconds.max(0))).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::Put;
    use crate::condition;
    use crate::controllers::testing::{after, cluster, pass, pod, post, read};
    use crate::testing::ask;
    use crate::{Cluster, Options, Reply, Step};

    const NODE: &str = "/api/v1/nodes/node-0";

    #[test]
    fn a_silent_node_loses_its_pods_and_a_cordoned_one_is_tainted() {
        let mut cluster = cluster(&["scheduler", "kubelet", "node-lifecycle-controller", "taint-eviction-controller"]);
        let pods = "/api/v1/namespaces/default/pods";
        let mut patient = pod("a");
        patient["spec"]["tolerations"] = json!([
            {"key": super::UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ]);
        post(&mut cluster, pods, &patient);
        pass(&mut cluster, 5);
        let mut node = read(&mut cluster, NODE);
        assert!(node["spec"]["taints"].is_null());
        node["spec"]["unschedulable"] = true.into();
        ask(&mut cluster, Put, NODE, &node);
        pass(&mut cluster, 6);
        let mut node = read(&mut cluster, NODE);
        assert_eq!(node["spec"]["taints"][0]["key"], super::UNSCHEDULABLE);
        node["spec"]["unschedulable"] = false.into();
        node["metadata"]["annotations"] = json!({"local-cluster.mortise.dev/ready": "false"});
        ask(&mut cluster, Put, NODE, &node);
        // The last heartbeat was at the start.
        pass(&mut cluster, 50);
        let node = read(&mut cluster, NODE);
        let ready = condition::get(&node["status"], "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
        let keys: Vec<_> = node["spec"]["taints"].as_array().unwrap().iter().map(|taint| &taint["key"]).collect();
        assert_eq!(keys, [super::UNREACHABLE, super::UNREACHABLE]);
        assert!(!condition::is_true(&read(&mut cluster, &format!("{pods}/a"))["status"], "Ready"));
        pass(&mut cluster, 79);
        assert!(read(&mut cluster, &format!("{pods}/a"))["metadata"]["deletionTimestamp"].is_null());
        pass(&mut cluster, 80);
        let left = read(&mut cluster, &format!("{pods}/a"));
        assert!(left.is_null() || !left["metadata"]["deletionTimestamp"].is_null());
    }

    #[test]
    fn a_node_whose_lease_lasts_for_hours_is_lost_as_soon_as_any_other() {
        let mut cluster = Cluster::new(Options { node_lease_seconds: 14_400, ..Options::default() }, after(0));
        let work = |cluster: &mut Cluster, seconds| {
            while matches!(cluster.step(&[], after(seconds)), Reply::Done(Step::Worked)) {}
            let ready = condition::get(&read(cluster, NODE)["status"], "Ready").unwrap()["status"].clone();
            (ready.as_str().unwrap().to_owned(), cluster.revision())
        };
        let annotate = |cluster: &mut Cluster, annotations| {
            let mut node = read(cluster, NODE);
            node["metadata"]["annotations"] = annotations;
            ask(cluster, Put, NODE, &node);
        };
        let begun = work(&mut cluster, 5);
        assert_eq!(work(&mut cluster, 3_500), begun, "a cluster at rest");
        annotate(&mut cluster, json!({"local-cluster.mortise.dev/ready": "false"}));
        for (seconds, ready) in [(3_500, "True"), (3_549, "True"), (3_550, "Unknown")] {
            assert_eq!(work(&mut cluster, seconds).0, ready, "after {seconds} s");
        }
        annotate(&mut cluster, json!({}));
        for seconds in [3_600, 10_000] {
            assert_eq!(work(&mut cluster, seconds).0, "True", "after {seconds} s");
        }
    }

    #[test]
    fn the_taints_of_conditions_come_and_go_with_them() {
        let mut cluster = cluster(&["node-lifecycle-controller"]);
        let mut node = read(&mut cluster, NODE);
        let pressure = |effect: &str| json!({"key": "node.kubernetes.io/memory-pressure", "effect": effect});
        node["spec"]["taints"] = json!([pressure("NoSchedule"), pressure("NoExecute")]);
        ask(&mut cluster, Put, NODE, &node);
        let mut node = read(&mut cluster, NODE);
        node["status"]["conditions"] =
            json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]);
        ask(&mut cluster, Put, &format!("{NODE}/status"), &node);
        pass(&mut cluster, 1);
        let node = read(&mut cluster, NODE);
        let taints = node["spec"]["taints"].as_array().unwrap().iter();
        let taints: Vec<_> =
            taints.map(|taint| format!("{}:{}", taint["key"], taint["effect"]).replace('"', "")).collect();
        assert_eq!(
            taints,
            ["node.kubernetes.io/memory-pressure:NoExecute", "node.kubernetes.io/disk-pressure:NoSchedule",]
        );
    }

    #[test]
    fn a_node_is_not_lost_for_the_time_in_which_nothing_ran() {
        let mut cluster = cluster(&["kubelet", "node-lifecycle-controller"]);
        pass(&mut cluster, 5);
        let options =
            Options { controllers: vec!["node-lifecycle-controller".to_owned()], ..(*cluster.options).clone() };
        let mut restored = Cluster::restore(options, cluster.saved()).unwrap();
        for (seconds, ready) in [(600, "True"), (649, "True"), (650, "Unknown")] {
            while matches!(restored.step(&[], after(seconds)), Reply::Done(Step::Worked)) {}
            let node = read(&mut restored, NODE);
            assert_eq!(condition::get(&node["status"], "Ready").unwrap()["status"], ready, "after {seconds} s");
        }
    }
}
