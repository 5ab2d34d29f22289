//! What is deleted after its time: finished Jobs (ttl-after-finished-controller), Pods of nodes that are gone
//! (pod-garbage-collector-controller), and Events after an hour, as etcd's lease ends them. It must not know why they ended.

use jiff::SignedDuration;
use serde_json::Value;

use super::storages::{EVENTS, JOBS, NODES, PODS};
use super::write;
use crate::Cluster;
use crate::condition;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, key};
use crate::deletion::{DeleteOptions, Propagation};
use crate::halt::Halt;
use crate::placement::{has_ended, node_of};
use crate::store::{Change, Event};
use crate::time;

/// `--event-ttl` of the API server.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// How long a Pod may wait for its node to be registered: the quarantine of 40 seconds and a check every 20 seconds.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(60);

pub(super) const FINISHED_JOBS: Controller = Controller {
    name: "ttl-after-finished-controller",
    user: "system:serviceaccount:kube-system:ttl-after-finished-controller",
    watches: &[("batch", "jobs")],
    batches: false,
    keys: own_key,
    reconcile: finished_job,
};

pub(super) const LOST_PODS: Controller = Controller {
    name: "pod-garbage-collector-controller",
    user: "system:serviceaccount:kube-system:pod-garbage-collector",
    watches: &[("", "nodes"), ("", "pods")],
    batches: false,
    keys: lost_keys,
    reconcile: lost_pod,
};

pub(super) const OLD_EVENTS: Controller = Controller {
    name: "event-ttl",
    user: "system:apiserver",
    watches: &[("", "events")],
    batches: false,
    keys: own_key,
    reconcile: old_event,
};

fn own_key(_: &Cluster, change: &Change) -> Vec<Key> {
    if change.event == Event::Deleted { Vec::new() } else { vec![key(&change.object)] }
}

fn finished_job(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let Some(job) = cluster.store.get(&JOBS, namespace, name).cloned() else { return Ok(Again::No) };
    let seconds = job.value["spec"]["ttlSecondsAfterFinished"].as_i64();
    let finished = ["Complete", "Failed"].iter().find_map(|kind| {
        let found = condition::get(&job.value["status"], kind).filter(|found| found["status"] == "True")?;
        time::read(&found["lastTransitionTime"])
    });
    let (Some(seconds), Some(finished), false) = (seconds, finished, job.terminates()) else { return Ok(Again::No) };
    let due = finished.saturating_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(jiff::Timestamp::MAX);
    if due > context.now {
        return Ok(Again::At(due));
    }
    let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    write::delete(cluster, context, &job, &options)?;
    Ok(Again::No)
}

fn lost_keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    if change.storage == *NODES {
        let gone = change.event == Event::Deleted;
        let pods = cluster.controllers.placement.pods(object.name());
        return pods.filter(|_| gone).cloned().collect();
    }
    let bound = |pod: &Value| node_of(pod).map(str::to_owned);
    let moved = change.previous.as_deref().is_none_or(|before| bound(&before.value) != bound(&object.value));
    let lost = node_of(&object.value).is_some_and(|node| cluster.store.get(&NODES, "", node).is_none());
    if change.event != Event::Deleted && moved && lost { vec![key(object)] } else { Vec::new() }
}

fn lost_pod(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let Some(pod) = cluster.store.get(&PODS, namespace, name).cloned() else { return Ok(Again::No) };
    if node_of(&pod.value).is_none_or(|node| cluster.store.get(&NODES, "", node).is_some()) {
        return Ok(Again::No);
    }
    let due = time::read(&pod.value["metadata"]["creationTimestamp"]).map_or(context.now, |made| made + QUARANTINE);
    if due > context.now {
        return Ok(Again::At(due));
    }
    let mut lost = pod;
    if !has_ended(&lost.value) {
        let mut status = lost.value["status"].clone();
        let why = condition::new("DisruptionTarget", "True", "DeletionByPodGC", "PodGC: node no longer exists");
        condition::set(&mut status, why, context.now);
        write::set(&mut status, "phase", "Failed".into());
        lost = write::update_status(cluster, context, &lost, status)?;
    }
    write::delete(cluster, context, &lost, &DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() })?;
    Ok(Again::No)
}

fn old_event(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let Some(event) = cluster.store.get(&EVENTS, namespace, name) else { return Ok(Again::No) };
    let value = &event.value;
    let times =
        [&value["metadata"]["creationTimestamp"], &value["lastTimestamp"], &value["series"]["lastObservedTime"]];
    let last = times.into_iter().filter_map(time::read).max().unwrap_or(context.now);
    let due = last.saturating_add(EVENT_LIFE).unwrap_or(jiff::Timestamp::MAX);
    if due > context.now {
        return Ok(Again::At(due));
    }
    cluster.store.remove(&EVENTS, namespace, name);
    Ok(Again::No)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::{Delete, Put};
    use crate::controllers::testing::{cluster, pass, pod, post, read};
    use crate::testing::ask;

    #[test]
    fn a_finished_job_is_deleted_after_its_time() {
        let mut cluster = cluster(&["ttl-after-finished-controller", "garbage-collector-controller"]);
        let template = json!({"spec": pod("x")["spec"]});
        let mut template = template;
        template["spec"]["restartPolicy"] = "Never".into();
        let job = json!({"metadata": {"name": "j"}, "spec": {"ttlSecondsAfterFinished": 30, "template": template}});
        let jobs = "/apis/batch/v1/namespaces/default/jobs";
        let mut job = post(&mut cluster, jobs, &job);
        let at = "2026-01-01T00:00:05Z";
        let finished = json!({"type": "Complete", "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
        let mut before = finished.clone();
        before["type"] = "SuccessCriteriaMet".into();
        job["status"] =
            json!({"conditions": [before, finished], "startTime": at, "completionTime": at, "succeeded": 1});
        let (code, answer) = ask(&mut cluster, Put, &format!("{jobs}/j/status"), &job);
        assert_eq!(code, 200, "{answer}");
        pass(&mut cluster, 34);
        assert_eq!(read(&mut cluster, &format!("{jobs}/j"))["metadata"]["name"], "j");
        pass(&mut cluster, 35);
        assert!(read(&mut cluster, &format!("{jobs}/j")).is_null());
    }

    #[test]
    fn pods_go_with_their_node_and_events_after_an_hour() {
        let mut cluster = cluster(&["scheduler", "kubelet", "pod-garbage-collector-controller", "event-ttl"]);
        let pods = "/api/v1/namespaces/default/pods";
        post(&mut cluster, pods, &pod("a"));
        pass(&mut cluster, 2);
        ask(&mut cluster, Delete, "/api/v1/nodes/node-0", &json!(null));
        pass(&mut cluster, 59);
        assert_eq!(read(&mut cluster, &format!("{pods}/a"))["status"]["phase"], "Running");
        pass(&mut cluster, 60);
        assert!(read(&mut cluster, &format!("{pods}/a")).is_null());
        let events = "/api/v1/namespaces/default/events";
        assert_eq!(read(&mut cluster, events)["items"].as_array().unwrap().len(), 4);
        pass(&mut cluster, 3700);
        assert_eq!(read(&mut cluster, events)["items"], json!([]));
    }
}
