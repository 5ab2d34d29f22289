//! The sizes of a Deployment's ReplicaSets: step by step in a rollout, in proportion when the Deployment is scaled in the
//! middle of one, and the end of old ones. It must not know conditions.

use std::cmp::Reverse;
use std::sync::Arc;

use super::super::field::{int, set};
use super::rollout::{DESIRED, MAX, Rollout, age, annotation, replicas, revision};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::write;
use crate::deletion::DeleteOptions;
use crate::halt::Halt;
use crate::store::Object;

/// The size that the new ReplicaSet may have now.
pub(super) fn size_of_new(rollout: &Rollout, now: i64) -> i64 {
    if !rollout.rolls() {
        return rollout.wanted();
    }
    let room = rollout.wanted() + rollout.max_surge() - rollout.size();
    if room <= 0 { now } else { now + room.min(rollout.wanted() - now) }
}

/// Gives a ReplicaSet a size; says whether it had another one. `annotate` updates its annotations even if it has that size.
fn resize(
    cluster: &mut Cluster,
    context: &Context<'_>,
    rollout: &mut Rollout,
    of: &Arc<Object>,
    size: i64,
    annotate: bool,
) -> Result<bool, Halt> {
    let before = replicas(of);
    if before == size && !annotate {
        return Ok(false);
    }
    let mut value = of.value.clone();
    let mut changed = set(&mut value, "annotations", DESIRED, &rollout.wanted().to_string());
    changed |= set(&mut value, "annotations", MAX, &(rollout.wanted() + rollout.max_surge()).to_string());
    if before != size && value["spec"].is_object() {
        value["spec"]["replicas"] = size.into();
        changed = true;
    }
    if changed {
        let written = write::update(cluster, context, of, value)?;
        rollout.put(&written);
    }
    if before != size {
        let way = if before < size { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {} from {before} to {size}", of.name());
        write::event(cluster, context, &rollout.deployment, "Normal", "ScalingReplicaSet", &message)?;
    }
    Ok(before != size)
}

/// Whether the Deployment was scaled since its ReplicaSets were.
pub(super) fn is_due(rollout: &Rollout) -> bool {
    let active = rollout.all().filter(|set| replicas(set) > 0);
    active.filter_map(|set| annotation(set, DESIRED).parse::<i64>().ok()).any(|desired| desired != rollout.wanted())
}

/// Scales the one ReplicaSet that has Pods, or the newest if none has; several in proportion to their sizes.
pub(super) fn whole(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<(), Halt> {
    let wanted = rollout.wanted();
    let active: Vec<Arc<Object>> = rollout.all().filter(|set| replicas(set) > 0).cloned().collect();
    if active.len() < 2 {
        let newest = || rollout.new.as_ref().or(rollout.old.last()).cloned();
        let Some(only) = active.first().cloned().or_else(newest) else { return Ok(()) };
        return resize(cluster, context, rollout, &only, wanted, false).map(drop);
    }
    let saturated = |new: &Arc<Object>| {
        let available = int(&new.value["status"]["availableReplicas"]);
        let desired = annotation(new, DESIRED).parse::<i64>().ok();
        replicas(new) == wanted && desired == Some(wanted) && available == wanted
    };
    if rollout.new.as_ref().is_some_and(saturated) {
        let old: Vec<Arc<Object>> = rollout.old.iter().filter(|set| replicas(set) > 0).cloned().collect();
        for set in old {
            resize(cluster, context, rollout, &set, 0, false)?;
        }
    } else if rollout.rolls() {
        proportionally(cluster, context, rollout, active)?;
    }
    Ok(())
}

fn proportionally(
    cluster: &mut Cluster,
    context: &Context<'_>,
    rollout: &mut Rollout,
    mut active: Vec<Arc<Object>>,
) -> Result<(), Halt> {
    let allowed = if rollout.wanted() > 0 { rollout.wanted() + rollout.max_surge() } else { 0 };
    let to_add = allowed - rollout.size();
    // The largest first; of the same size, the newer when Pods are added, the older when they are taken away.
    active.sort_by_cached_key(|set| age(set));
    if to_add > 0 {
        active.reverse();
    }
    active.sort_by_key(|set| Reverse(replicas(set)));
    let mut added = 0;
    let mut sizes = Vec::with_capacity(active.len());
    for set in &active {
        let left = to_add - added;
        let fraction = if left == 0 { 0 } else { fraction(rollout, set) };
        let part = if to_add > 0 { fraction.min(left) } else { fraction.max(left) };
        added += part;
        sizes.push(replicas(set) + part);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    for (set, size) in active.iter().zip(sizes) {
        resize(cluster, context, rollout, set, size, true)?;
    }
    Ok(())
}

/// By how much a ReplicaSet grows or shrinks to keep its part of the Deployment.
fn fraction(rollout: &Rollout, set: &Object) -> i64 {
    let size = replicas(set);
    if rollout.wanted() == 0 {
        return -size;
    }
    let most = rollout.wanted() + rollout.max_surge();
    let before = annotation(set, MAX).parse::<i64>().ok().filter(|before| *before > 0);
    let before = before.unwrap_or_else(|| int(&rollout.deployment.value["status"]["replicas"]));
    if before <= 0 {
        return 0;
    }
    // Rounded to the nearest, halves up.
    (2 * size).saturating_mul(most).saturating_add(before).div_euclid(2 * before) - size
}

/// Brings the new ReplicaSet nearer to its size; says whether it changed.
pub(super) fn new(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<bool, Halt> {
    let Some(new) = rollout.new.clone() else { return Ok(false) };
    let (size, wanted) = (replicas(&new), rollout.wanted());
    let size = if size >= wanted { wanted } else { size_of_new(rollout, size) };
    resize(cluster, context, rollout, &new, size, false)
}

/// Takes all Pods from the old ReplicaSets; says whether there were any.
pub(super) fn end_old(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<bool, Halt> {
    let mut changed = false;
    for set in rollout.old.clone() {
        changed |= resize(cluster, context, rollout, &set, 0, false)?;
    }
    Ok(changed)
}

/// Takes as many Pods from the old ReplicaSets as may be unavailable now: first those that are not available, then others,
/// of the oldest first.
pub(super) fn old(cluster: &mut Cluster, context: &Context<'_>, rollout: &mut Rollout) -> Result<bool, Halt> {
    let available = |set: &Object| int(&set.value["status"]["availableReplicas"]);
    let at_least = rollout.wanted() - rollout.max_unavailable();
    let missing = rollout.new.as_ref().map_or(0, |new| replicas(new) - available(new));
    let room = rollout.size() - at_least - missing;
    if rollout.old.iter().all(|set| replicas(set) == 0) || room <= 0 {
        return Ok(false);
    }
    let mut down = 0;
    for set in rollout.old.clone() {
        let unhealthy = (replicas(&set) - available(&set)).min(room - down);
        if unhealthy > 0 {
            resize(cluster, context, rollout, &set, replicas(&set) - unhealthy, false)?;
            down += unhealthy;
        }
    }
    let active = rollout.old.iter().filter(|set| replicas(set) > 0 || available(set) > 0).chain(&rollout.new);
    let mut left = active.map(|set| available(set)).sum::<i64>() - at_least;
    for set in rollout.old.clone() {
        let part = replicas(&set).min(left);
        if part > 0 {
            resize(cluster, context, rollout, &set, replicas(&set) - part, false)?;
            (left, down) = (left - part, down + part);
        }
    }
    Ok(down > 0)
}

/// Deletes old ReplicaSets without Pods but for the last few.
pub(super) fn clean_up(cluster: &mut Cluster, context: &Context<'_>, rollout: &Rollout) -> Result<(), Halt> {
    let limit = rollout.spec()["revisionHistoryLimit"].as_i64().and_then(|limit| usize::try_from(limit).ok());
    let Some(limit) = limit else { return Ok(()) };
    let mut old: Vec<&Arc<Object>> = rollout.old.iter().filter(|set| !set.terminates()).collect();
    old.sort_by_cached_key(|set| (revision(set), age(set)));
    for set in old.iter().take(old.len().saturating_sub(limit)) {
        let (status, metadata) = (&set.value["status"], &set.value["metadata"]);
        let seen = int(&metadata["generation"]) <= int(&status["observedGeneration"]);
        if int(&status["replicas"]) == 0 && replicas(set) == 0 && seen {
            write::delete(cluster, context, set, &DeleteOptions::default())?;
        }
    }
    Ok(())
}
