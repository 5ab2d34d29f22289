//! deployment-controller: a ReplicaSet for each template, and Pods that move from old ones to the new one. Input: a
//! Deployment and its ReplicaSets. Output: ReplicaSets with sizes, and the status. It must not know how Pods are made.

mod revision;
mod rollout;
mod scale;
mod status;

use serde_json::json;

use self::rollout::Rollout;
use super::field::{int, text};
use super::ownership::{DEPLOYMENTS, PODS, REPLICA_SETS, controlled, controller, keys};
use super::pod;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Key};
use crate::controllers::write;
use crate::halt::Halt;
use crate::store::{Change, Event};

pub(super) fn keys_of(cluster: &Cluster, change: &Change) -> Vec<Key> {
    if change.event == Event::Deleted && change.storage == PODS.storage() {
        return of_deleted_pod(cluster, change).into_iter().collect();
    }
    keys(cluster, change, &DEPLOYMENTS, &REPLICA_SETS)
}

/// The Deployment of a deleted Pod: one that is recreated waits for its old Pods to be gone.
fn of_deleted_pod(cluster: &Cluster, change: &Change) -> Option<Key> {
    let namespace = change.object.namespace();
    let owner = controller(&change.object.value).filter(|owner| owner["kind"] == REPLICA_SETS.kind)?;
    let set = REPLICA_SETS.get(cluster, &(namespace.into(), text(&owner["name"]).into()))?;
    let owner = controller(&set.value).filter(|owner| owner["kind"] == DEPLOYMENTS.kind)?;
    Some((namespace.into(), text(&owner["name"]).into()))
}

pub(super) fn reconcile(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    let Some(deployment) = DEPLOYMENTS.get(cluster, key) else { return Ok(Again::No) };
    if deployment.value["spec"]["selector"] == json!({}) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        let generation = &deployment.value["metadata"]["generation"];
        let mut status = deployment.value["status"].clone();
        if int(&status["observedGeneration"]) < int(generation) {
            write::event(cluster, context, &deployment, "Warning", "SelectingAll", message)?;
            if let Some(fields) = super::field::fields(&mut status) {
                fields.insert("observedGeneration".to_owned(), generation.clone());
            }
            write::update_status(cluster, context, &deployment, status)?;
        }
        return Ok(Again::No);
    }
    let mut rollout = Rollout::read(cluster, context, deployment)?;
    if rollout.deployment.terminates() {
        revision::sync(cluster, context, &mut rollout)?;
        status::counts_only(cluster, context, &rollout)?;
        return Ok(Again::No);
    }
    status::pause(cluster, context, &mut rollout)?;
    revision::sync(cluster, context, &mut rollout)?;
    let paused = rollout.spec()["paused"] == true;
    if paused || scale::is_due(&rollout) {
        scale::whole(cluster, context, &mut rollout)?;
        if paused {
            scale::clean_up(cluster, context, &rollout)?;
        }
        status::counts_only(cluster, context, &rollout)?;
        return Ok(Again::No);
    }
    if rollout.rolls() { roll(cluster, context, &mut rollout) } else { recreate(cluster, context, &mut rollout) }
}

/// The new ReplicaSet grows and the old ones shrink, within what may surge and be unavailable.
fn roll(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<Again, Halt> {
    if let Some(again) = create(cluster, context, rollout)? {
        return Ok(again);
    }
    let moved = scale::new(cluster, context, rollout)? || scale::old(cluster, context, rollout)?;
    if !moved && status::is_complete(rollout, &rollout.deployment.value["status"]) {
        scale::clean_up(cluster, context, rollout)?;
    }
    status::sync(cluster, context, rollout)
}

/// The new ReplicaSet comes when all old Pods are gone.
fn recreate(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<Again, Halt> {
    if scale::end_old(cluster, context, rollout)? || old_pods_run(cluster, rollout) {
        return status::sync(cluster, context, rollout);
    }
    if let Some(again) = create(cluster, context, rollout)? {
        return Ok(again);
    }
    scale::new(cluster, context, rollout)?;
    if status::is_complete(rollout, &rollout.deployment.value["status"]) {
        scale::clean_up(cluster, context, rollout)?;
    }
    status::sync(cluster, context, rollout)
}

fn create(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<Option<Again>, Halt> {
    if rollout.new.is_some() { Ok(None) } else { revision::create(cluster, context, rollout) }
}

fn old_pods_run(cluster: &Cluster, rollout: &Rollout) -> bool {
    rollout.old.iter().any(|set| {
        int(&set.value["status"]["replicas"]) > 0
            || controlled(cluster, set, &PODS).iter().any(|pod| !pod::is_finished(pod))
    })
}
