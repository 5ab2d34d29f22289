//! The new ReplicaSet of a Deployment: made, or found again and renumbered, and the Deployment's revision. It must not know
//! how many Pods move from old to new.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::field::{fields, int, set};
use super::super::ownership::{DEPLOYMENTS, REPLICA_SETS, is_controlled_by, namespace_terminates, refusal};
use super::super::{condition, hash};
use super::rollout::{DESIRED, HASH, HISTORY, MAX, REVISION, Rollout, annotation, revision, same_template};
use super::{scale, status};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::Again;
use crate::controllers::write;
use crate::halt::{Halt, Status};
use crate::store::Object;

/// How long the annotation with earlier revisions may be, as the real controller has it: the oldest are dropped.
const MAX_HISTORY: usize = 2000;

/// Brings the number and annotations of the new ReplicaSet, then the Deployment's revision, up to date.
pub(super) fn sync(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<(), Halt> {
    let Some(new) = rollout.new.clone() else { return Ok(()) };
    let number = next(rollout);
    let mut value = new.value.clone();
    let mut changed = annotate(&rollout.deployment, &mut value, number);
    let min_ready = &rollout.spec()["minReadySeconds"];
    if int(&value["spec"]["minReadySeconds"]) != int(min_ready) && value["spec"].is_object() {
        value["spec"]["minReadySeconds"] = int(min_ready).into();
        changed = true;
    }
    if changed {
        let new = write::update(cluster, context, &new, value)?;
        rollout.put(&new);
        return Ok(());
    }
    let mut deployment = rollout.deployment.value.clone();
    let mut changed = set(&mut deployment, "annotations", REVISION, annotation(&new, REVISION));
    if rollout.deadline_seconds().is_some() && condition::get(&deployment["status"], "Progressing").is_none() {
        let message = format!("Found new replica set {:?}", new.name());
        let found = status::condition("Progressing", "True", "FoundNewReplicaSet", &message, context.now);
        status::add(&mut deployment, found);
        changed = true;
    }
    if changed {
        rollout.deployment = write::update_subresource(cluster, context, &rollout.deployment, "status", deployment)?;
    }
    Ok(())
}

/// The number of the new ReplicaSet, unless it has a larger one.
fn next(rollout: &Rollout) -> i64 {
    rollout.old.iter().map(|set| revision(set)).max().unwrap_or(0).saturating_add(1)
}

/// Copies the Deployment's annotations and numbers the ReplicaSet; says whether that changed it.
fn annotate(deployment: &Object, value: &mut Value, number: i64) -> bool {
    const OWN: [&str; 6] = [
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        HISTORY,
        DESIRED,
        MAX,
        "deprecated.deployment.rollback.to",
    ];
    let mut changed = false;
    for (key, of) in deployment.value["metadata"]["annotations"].as_object().into_iter().flatten() {
        if !OWN.contains(&key.as_str()) {
            changed |= set(value, "annotations", key, of.as_str().unwrap_or_default());
        }
    }
    let known = |value: &Value, key: &str| value["metadata"]["annotations"][key].as_str().map(str::to_owned);
    let before = known(value, REVISION);
    let before_number = match before.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return changed,
        },
    };
    if before_number >= number {
        return changed;
    }
    set(value, "annotations", REVISION, &number.to_string());
    // It had a number: the Deployment was rolled back to it, and it keeps its earlier numbers.
    if let Some(before) = before {
        let mut history = known(value, HISTORY).filter(|history| !history.is_empty()).unwrap_or_default();
        while history.len() + before.len() + 1 > MAX_HISTORY {
            history = history.split_once(',').map(|(_, later)| later.to_owned()).unwrap_or_default();
        }
        let history = if history.is_empty() { before } else { format!("{history},{before}") };
        set(value, "annotations", HISTORY, &history);
    }
    true
}

/// Makes the new ReplicaSet. Says when to look again if that ends this reconcile.
pub(super) fn create(
    cluster: &mut Cluster,
    context: &Context<'_>,
    rollout: &mut Rollout,
) -> Result<Option<Again>, Halt> {
    let (value, size) = new(rollout);
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let deployment = rollout.deployment.clone();
    let number = value["metadata"]["annotations"][REVISION].as_str().unwrap_or_default().to_owned();
    let made = refusal(write::create(cluster, context, REPLICA_SETS.name(), deployment.namespace(), value))?;
    let made = match made {
        Ok(made) => made,
        Err(status) => return refused(cluster, context, rollout, &name, &status),
    };
    if size > 0 {
        let message = format!("Scaled up replica set {name} from 0 to {size}");
        write::event(cluster, context, &deployment, "Normal", "ScalingReplicaSet", &message)?;
    }
    let mut value = deployment.value.clone();
    set(&mut value, "annotations", REVISION, &number);
    if rollout.deadline_seconds().is_some() {
        let message = format!("Created new replica set {name:?}");
        status::add(
            &mut value,
            status::condition("Progressing", "True", "NewReplicaSetCreated", &message, context.now),
        );
    }
    rollout.new = Some(made);
    rollout.deployment = write::update_subresource(cluster, context, &deployment, "status", value)?;
    Ok(None)
}

/// The new ReplicaSet with its size.
fn new(rollout: &Rollout) -> (Value, i64) {
    let (deployment, spec) = (&rollout.deployment, rollout.spec());
    let hash = hash::of(&spec["template"], int(&deployment.value["status"]["collisionCount"]));
    let (mut template, mut selector) = (spec["template"].clone(), spec["selector"].clone());
    set(&mut template, "labels", HASH, &hash);
    if let Some(labels) = fields(&mut selector["matchLabels"]) {
        labels.insert(HASH.to_owned(), hash.as_str().into());
    }
    let size = scale::size_of_new(rollout, 0);
    let most = rollout.wanted() + rollout.max_surge();
    let mut value = json!({
        "metadata": {
            "name": hash::name(deployment.name(), &hash), "ownerReferences": [DEPLOYMENTS.reference(deployment)],
            "labels": template["metadata"]["labels"],
            "annotations": {DESIRED: rollout.wanted().to_string(), MAX: most.to_string()},
        },
        "spec": {"replicas": size, "selector": selector, "template": template},
    });
    if int(&spec["minReadySeconds"]) != 0 {
        value["spec"]["minReadySeconds"] = spec["minReadySeconds"].clone();
    }
    annotate(deployment, &mut value, next(rollout));
    (value, size)
}

/// What follows when the new ReplicaSet is refused: its name is taken, or the API server says why it may not be.
fn refused(
    cluster: &mut Cluster,
    context: &Context<'_>,
    rollout: &mut Rollout,
    name: &str,
    status: &Status,
) -> Result<Option<Again>, Halt> {
    let deployment = rollout.deployment.clone();
    let mut value = deployment.value.clone();
    if status.reason == "AlreadyExists" {
        let key = (deployment.namespace().into(), name.into());
        let ours = |set: &Arc<Object>| {
            is_controlled_by(set, deployment.uid())
                && same_template(&rollout.spec()["template"], &set.value["spec"]["template"])
        };
        if let Some(set) = REPLICA_SETS.get(cluster, &key).filter(ours) {
            rollout.new = Some(set);
            return Ok(None);
        }
        if let Some(fields) = fields(&mut value["status"]) {
            fields.insert("collisionCount".to_owned(), (int(&deployment.value["status"]["collisionCount"]) + 1).into());
        }
        write::update_subresource(cluster, context, &deployment, "status", value)?;
        return Ok(Some(Again::Later));
    }
    if namespace_terminates(status) {
        return Ok(Some(Again::No));
    }
    let message = format!("Failed to create new replica set {name:?}: {}", status.message);
    if rollout.deadline_seconds().is_some() {
        let failed = status::condition("Progressing", "False", "ReplicaSetCreateError", &message, context.now);
        status::add(&mut value, failed);
        write::update_subresource(cluster, context, &deployment, "status", value)?;
    }
    write::event(cluster, context, &deployment, "Warning", "ReplicaSetCreateError", &message)?;
    Ok(Some(Again::Later))
}
