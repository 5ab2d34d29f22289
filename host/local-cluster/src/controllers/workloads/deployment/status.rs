//! The status of a Deployment: counts, and the conditions that say whether it is available and progressing. It must not know
//! how its ReplicaSets get their sizes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::condition as conditions;
use super::super::field::{after, counts, fields, int, list, text};
use super::rollout::Rollout;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::Again;
use crate::controllers::write;
use crate::halt::Halt;
use crate::time;

const PROGRESSING: &str = "Progressing";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// A condition of a Deployment that begins now.
pub(super) fn condition(of: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let mut condition = conditions::new(of, status, reason, message, now);
    condition["lastUpdateTime"] = time::seconds(now).into();
    condition
}

/// Adds a condition to the status of a Deployment.
pub(super) fn add(deployment: &mut Value, condition: Value) {
    let Some(status) = fields(&mut deployment["status"]) else { return };
    let mut all = status.get("conditions").map_or(&[][..], list).to_vec();
    conditions::set(&mut all, condition);
    status.insert("conditions".to_owned(), all.into());
}

/// Says in the conditions that the Deployment is paused, or no longer: what is paused does not time out.
pub(super) fn pause(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<(), Halt> {
    let reason = conditions::reason(&rollout.deployment.value["status"], PROGRESSING);
    if rollout.deadline_seconds().is_none() || reason == TIMED_OUT {
        return Ok(());
    }
    let (paused, known) = (rollout.spec()["paused"] == true, reason == "DeploymentPaused");
    if paused != known {
        let word = if paused { "paused" } else { "resumed" };
        let reason = if paused { "DeploymentPaused" } else { "DeploymentResumed" };
        let message = format!("Deployment is {word}");
        let mut value = rollout.deployment.value.clone();
        add(&mut value, condition(PROGRESSING, "Unknown", reason, &message, context.now));
        rollout.deployment = write::update_subresource(cluster, context, &rollout.deployment, "status", value)?;
    }
    Ok(())
}

/// Writes the counts and whether the Deployment is available.
pub(super) fn counts_only(cluster: &mut Cluster, context: &Context<'_>, rollout: &Rollout) -> Result<(), Halt> {
    let (mut status, conditions) = calculate(rollout, context.now);
    conditions::put(&mut status, conditions);
    store(cluster, context, rollout, status).map(drop)
}

fn store(cluster: &mut Cluster, context: &Context<'_>, rollout: &Rollout, status: Value) -> Result<bool, Halt> {
    if status == rollout.deployment.value["status"] {
        return Ok(false);
    }
    write::update_status(cluster, context, &rollout.deployment, status)?;
    Ok(true)
}

/// The counts, and the conditions apart.
fn calculate(rollout: &Rollout, now: Timestamp) -> (Value, Vec<Value>) {
    let old = &rollout.deployment.value["status"];
    let available = rollout.count("availableReplicas");
    let updated = rollout.new.as_ref().map_or(0, |new| int(&new.value["status"]["replicas"]));
    let mut status = Value::Object(counts(&[
        ("observedGeneration", int(&rollout.deployment.value["metadata"]["generation"])),
        ("replicas", rollout.count("replicas")),
        ("updatedReplicas", updated),
        ("readyReplicas", rollout.count("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (rollout.size() - available).max(0)),
    ]));
    // A ReplicaSet that was seen and does not say how many Pods terminate leaves the sum unknown.
    let seen = |status: &Value| int(&status["observedGeneration"]) != 0;
    if rollout.all().all(|set| set.value["status"]["terminatingReplicas"].is_i64() || !seen(&set.value["status"])) {
        status["terminatingReplicas"] = rollout.count("terminatingReplicas").into();
    }
    if old["collisionCount"].is_i64() {
        status["collisionCount"] = old["collisionCount"].clone();
    }
    let mut all = conditions::of(old);
    let enough = available >= rollout.wanted() - rollout.max_unavailable();
    let condition = if enough {
        let message = "Deployment has minimum availability.";
        condition("Available", "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        condition("Available", "False", "MinimumReplicasUnavailable", message, now)
    };
    conditions::set(&mut all, condition);
    (status, all)
}

/// Whether all wanted Pods are new and available, and no others are there.
pub(super) fn is_complete(rollout: &Rollout, status: &Value) -> bool {
    let all = ["updatedReplicas", "replicas", "availableReplicas"];
    all.iter().all(|field| int(&status[*field]) == rollout.wanted())
        && int(&status["observedGeneration"]) >= int(&rollout.deployment.value["metadata"]["generation"])
}

/// Writes the whole status during a rollout. Says when to look whether it has timed out.
pub(super) fn sync(cluster: &mut Cluster, context: &Context<'_>, rollout: &Rollout) -> Result<Again, Halt> {
    let (mut status, mut all) = calculate(rollout, context.now);
    progress(rollout, &status, &mut all, context.now);
    match failure(rollout) {
        Some(failure) => conditions::set(&mut all, failure),
        None => conditions::remove(&mut all, "ReplicaFailure"),
    }
    conditions::put(&mut status, all);
    if store(cluster, context, rollout, status.clone())? {
        // The write is a change that this controller sees.
        return Ok(Again::No);
    }
    let known = conditions::get(&status, PROGRESSING);
    let (Some(seconds), Some(known)) = (rollout.deadline_seconds(), known) else { return Ok(Again::No) };
    if is_complete(rollout, &status) || matches!(text(&known["reason"]), TIMED_OUT | COMPLETE) {
        return Ok(Again::No);
    }
    let last = time::read(&known["lastUpdateTime"]).unwrap_or(context.now);
    // One second more, as times in conditions have whole seconds.
    let at = after(after(last, seconds), 1);
    Ok(if at > context.now { Again::At(at) } else { Again::No })
}

/// Says in the conditions how far the rollout is.
fn progress(rollout: &Rollout, status: &Value, all: &mut Vec<Value>, now: Timestamp) {
    let old = &rollout.deployment.value["status"];
    let Some(seconds) = rollout.deadline_seconds() else { return conditions::remove(all, PROGRESSING) };
    let known = conditions::get(old, PROGRESSING);
    let reason = conditions::reason(old, PROGRESSING);
    let field = |status: &Value, field: &str| int(&status[field]);
    if field(status, "replicas") == field(status, "updatedReplicas") && reason == COMPLETE {
        return;
    }
    let subject = match &rollout.new {
        Some(new) => format!("ReplicaSet {:?}", new.name()),
        None => format!("Deployment {:?}", rollout.deployment.name()),
    };
    let old_ones = |status: &Value| field(status, "replicas") - field(status, "updatedReplicas");
    let grew = |name: &str| field(status, name) > field(old, name);
    let timed_out = || {
        let last = known.and_then(|known| time::read(&known["lastUpdateTime"]));
        reason == TIMED_OUT || reason != COMPLETE && last.is_some_and(|last| after(last, seconds) < now)
    };
    if is_complete(rollout, status) {
        let message = format!("{subject} has successfully progressed.");
        conditions::set(all, condition(PROGRESSING, "True", COMPLETE, &message, now));
    } else if grew("updatedReplicas")
        || old_ones(status) < old_ones(old)
        || grew("readyReplicas")
        || grew("availableReplicas")
    {
        let message = format!("{subject} is progressing.");
        let mut condition = condition(PROGRESSING, "True", "ReplicaSetUpdated", &message, now);
        if let Some(known) = known.filter(|known| known["status"] == "True") {
            condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
        }
        // Every step of progress counts, also with the same reason.
        conditions::remove(all, PROGRESSING);
        conditions::set(all, condition);
    } else if timed_out() {
        let message = format!("{subject} has timed out progressing.");
        conditions::set(all, condition(PROGRESSING, "False", TIMED_OUT, &message, now));
    }
}

/// The failure of the new ReplicaSet, or of an old one, as the Deployment shows it.
fn failure(rollout: &Rollout) -> Option<Value> {
    let sets = rollout.new.iter().chain(&rollout.old);
    let mut known = sets.filter_map(|set| conditions::get(&set.value["status"], "ReplicaFailure"));
    known.next().map(|known| {
        json!({
            "type": "ReplicaFailure", "status": known["status"], "reason": known["reason"],
            "message": known["message"], "lastTransitionTime": known["lastTransitionTime"],
            "lastUpdateTime": known["lastTransitionTime"],
        })
    })
}
