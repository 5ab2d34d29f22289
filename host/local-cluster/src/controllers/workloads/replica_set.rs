//! replicaset-controller and replication-controller: as many Pods of a template as wanted. Input: a ReplicaSet or a
//! ReplicationController, and Pods. Output: Pods created and deleted, and the status. It must not know Deployments.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::field::{counts, int, list, text};
use super::ownership::{Kind, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, claim, controlled, controller, keys};
use super::pod_control::{self, Failure};
use super::{condition, pod};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Key};
use crate::controllers::write;
use crate::halt::Halt;
use crate::store::{Change, Object};

pub(super) fn keys_of_replica_set(cluster: &Cluster, change: &Change) -> Vec<Key> {
    keys(cluster, change, &REPLICA_SETS, &PODS)
}

pub(super) fn keys_of_replication_controller(cluster: &Cluster, change: &Change) -> Vec<Key> {
    keys(cluster, change, &REPLICATION_CONTROLLERS, &PODS)
}

pub(super) fn reconcile_replica_set(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    reconcile(cluster, context, &REPLICA_SETS, key)
}

pub(super) fn reconcile_replication_controller(
    cluster: &mut Cluster,
    context: &Context<'_>,
    key: &Key,
) -> Result<Again, Halt> {
    reconcile(cluster, context, &REPLICATION_CONTROLLERS, key)
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, of: &Kind, key: &Key) -> Result<Again, Halt> {
    let Some(set) = of.get(cluster, key) else { return Ok(Again::No) };
    let active = claim(cluster, context, (&set, of), &PODS, pod::is_active)?;
    let failure = if set.terminates() { None } else { manage(cluster, context, (&set, of), active.clone())? };
    let status = status(cluster, &set, of, &active, failure.as_ref(), context.now);
    if status != set.value["status"] {
        write::update_status(cluster, context, &set, status)?;
    }
    if failure.is_some() {
        return Ok(Again::Later);
    }
    let min_ready = int(&set.value["spec"]["minReadySeconds"]);
    Ok(pod::next_available(&active, min_ready, context.now).map_or(Again::No, Again::At))
}

fn manage(
    cluster: &mut Cluster,
    context: &Context<'_>,
    (set, of): (&Arc<Object>, &Kind),
    mut active: Vec<Arc<Object>>,
) -> Result<Option<Failure>, Halt> {
    let wanted = usize::try_from(int(&set.value["spec"]["replicas"])).unwrap_or(0);
    if active.len() < wanted {
        let (template, reference) = (&set.value["spec"]["template"], of.reference(set));
        let pods = (active.len()..wanted).map(|_| pod::from_template(template, set, reference.clone()));
        return pod_control::create(cluster, context, set, pods);
    }
    let excess = active.len() - wanted;
    if excess > 0 && excess < active.len() {
        let related = related(cluster, set);
        pod::rank(&mut active, &related, context.now);
    }
    pod_control::delete(cluster, context, set, active.iter().take(excess))
}

/// The Pods of all ReplicaSets of the same Deployment: which nodes have many of them.
fn related(cluster: &Cluster, set: &Object) -> Vec<Arc<Object>> {
    let Some(owner) = controller(&set.value) else { return controlled(cluster, set, &PODS) };
    let sets = cluster.store.owned(text(&owner["uid"])).into_iter();
    sets.flat_map(|(_, set)| controlled(cluster, &set, &PODS)).collect()
}

fn status(
    cluster: &Cluster,
    set: &Object,
    of: &Kind,
    active: &[Arc<Object>],
    failure: Option<&Failure>,
    now: Timestamp,
) -> Value {
    let spec = &set.value["spec"];
    let labels = spec["template"]["metadata"]["labels"].as_object();
    let labeled =
        |pod: &&Arc<Object>| labels.into_iter().flatten().all(|(key, value)| pod.labels().get(key) == Some(value));
    let count = |fits: &dyn Fn(&&Arc<Object>) -> bool| i64::try_from(active.iter().filter(fits).count()).unwrap_or(0);
    let min_ready = int(&spec["minReadySeconds"]);
    let mut status = Value::Object(counts(&[
        ("observedGeneration", int(&set.value["metadata"]["generation"])),
        ("fullyLabeledReplicas", count(&labeled)),
        ("readyReplicas", count(&|pod| pod::is_ready(pod))),
        ("availableReplicas", count(&|pod| pod::is_available(pod, min_ready, now))),
    ]));
    status["replicas"] = active.len().into();
    if of.kind == REPLICA_SETS.kind {
        let selector = of.selector(&set.value).unwrap_or_default();
        let terminating = controlled(cluster, set, &PODS)
            .into_iter()
            .filter(|pod| pod.terminates() && !pod::is_finished(pod) && selector.matches(pod.labels()));
        status["terminatingReplicas"] = terminating.count().into();
    }
    let mut conditions = condition::of(&set.value["status"]);
    match failure {
        None => condition::remove(&mut conditions, "ReplicaFailure"),
        Some(_) if list(&set.value["status"]["conditions"]).iter().any(|known| known["type"] == "ReplicaFailure") => {}
        Some(Failure { reason, status }) => {
            condition::set(&mut conditions, condition::new("ReplicaFailure", "True", reason, &status.message, now));
        }
    }
    condition::put(&mut status, conditions);
    status
}
