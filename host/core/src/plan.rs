//! From an outcome and a snapshot to the writes that are missing.
//!
//! [`prepare`] checks an outcome once and gives every child its name; [`diff`] compares what was prepared with a
//! snapshot, as often as wanted. Both are pure; neither knows queues or retries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::actions::{ActionDiff, Memory, Sent, diff as diff_actions, evictions};
pub use self::applied::Applied;
use self::applied::is_applied;
pub use self::prepare::prepare;
pub use self::prepared::{Action, Prepared, PreparedAction, PreparedChild};
use self::rollout::Rollout;
use crate::contract::Propagation;
use crate::limits::MAX_DELETES_PER_PLAN;
use crate::manifest::{ControllerSpec, Update};
use crate::object::{Kind, Object, ObjectRef};
use crate::store::Snapshot;
use crate::write::{Precondition, WriteOp};

mod actions;
mod applied;
mod body;
mod fault;
mod metadata;
mod prepare;
mod prepared;
mod rollout;

/// What is missing between a snapshot and an outcome.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Diff {
    /// Creates and applies, in the guest's order.
    pub children: Vec<WriteOp>,
    /// Deletes: children that are not wanted, or that make place for what is wanted.
    pub deletes: Vec<WriteOp>,
    /// A wanted child's name is still taken by one that is going away.
    pub waits: bool,
    /// More is to be deleted than one plan may.
    pub more_deletes: bool,
    /// Wanted children whose names belong to objects of someone else.
    pub taken: Vec<ObjectRef>,
}

impl Diff {
    /// True when writes are sent that change what the guest may read of its children.
    pub fn changes_what_is_read(&self) -> bool {
        !self.children.is_empty() || !self.deletes.is_empty()
    }

    /// True when the children do not stand as wanted yet, so a status computed beforehand is about to be outdated.
    pub fn changes_children(&self) -> bool {
        !self.children.is_empty() || !self.deletes.is_empty() || self.waits || self.more_deletes
    }
}

/// What is missing between the snapshot and what was prepared (X4, X5). What is found to be applied as it is wanted is
/// remembered, so that it is compared once for each version of the object.
pub fn diff(
    prepared: &Prepared,
    spec: &ControllerSpec,
    primary: &Object,
    manager: &str,
    snapshot: &Snapshot,
    applied: &mut Applied,
) -> Diff {
    let mut diff = Diff::default();
    let Some(children) = &prepared.children else { return diff };
    let mut rollouts: BTreeMap<&Kind, Rollout> = BTreeMap::new();
    for child in children {
        let mut rollout = match child.update {
            Update::RollingRecreate { max_unavailable } => {
                Some(rollouts.entry(&child.target.kind).or_insert_with(|| Rollout::new(max_unavailable)))
            }
            Update::Apply | Update::Recreate | Update::OnDelete => None,
        };
        let found = snapshot.get(&child.target.kind, &child.target.name);
        let Some(live) = found.filter(|live| is_child(spec, &primary.uid, live) && !live.deleting) else {
            match found {
                None => diff.children.push(create(child, primary)),
                Some(live) if is_child(spec, &primary.uid, live) => diff.waits = true,
                Some(_) => diff.taken.push(child.target.clone()),
            }
            rollout.into_iter().for_each(Rollout::absent);
            continue;
        };
        let is_current = live.desired.as_deref() == Some(&*child.hash);
        match (child.update, &mut rollout) {
            (Update::Apply, _) => diff.children.extend(apply(child, live, manager, applied)),
            (Update::Recreate, _) if !is_current => diff.deletes.push(delete(live)),
            (_, Some(rollout)) if is_current => rollout.current(live),
            (_, Some(rollout)) => rollout.outdated(live),
            (Update::Recreate | Update::RollingRecreate { .. } | Update::OnDelete, _) => {}
        }
    }
    diff.deletes.extend(rollouts.values().flat_map(Rollout::next).map(|live| delete(live)));
    let wanted: BTreeSet<&ObjectRef> = children.iter().map(|child| &child.target).collect();
    for owned in &spec.owns {
        for live in snapshot.owned(&owned.kind, &primary.uid) {
            if !live.deleting && is_child(spec, &primary.uid, live) && !wanted.contains(&live.reference()) {
                diff.deletes.push(delete(live));
            }
        }
    }
    if diff.deletes.len() > MAX_DELETES_PER_PLAN {
        diff.deletes.truncate(MAX_DELETES_PER_PLAN);
        diff.more_deletes = true;
    }
    diff
}

/// Whether an object is a child that the host has made for this primary. What Kubernetes itself reconciles has children of
/// Kubernetes' as well, such as the ReplicaSets of a Deployment: those have no key, and are left alone.
pub fn is_child(spec: &ControllerSpec, primary_uid: &str, live: &Object) -> bool {
    let is_controlled = live.controller.as_ref().is_some_and(|controller| *controller.uid == *primary_uid);
    is_controlled && (!spec.builtin || live.child_key.is_some())
}

fn delete(live: &Object) -> WriteOp {
    WriteOp::Delete { target: live.reference(), uid: Arc::clone(&live.uid), propagation: Propagation::Background }
}

fn create(child: &PreparedChild, primary: &Object) -> WriteOp {
    let target = child.target.clone();
    if let Some(body) = &child.body {
        WriteOp::Apply { target, body: Arc::clone(body), force: false, only_if: Precondition::Absent }
    } else {
        let body = body::of(&target, &child.key, &child.object, primary, Some(&child.hash));
        WriteOp::Create { target, body }
    }
}

fn apply(child: &PreparedChild, live: &Object, manager: &str, applied: &mut Applied) -> Option<WriteOp> {
    let body = child.body.as_ref().filter(|body| !is_applied(live, body, manager, applied))?;
    // The child is ours, by its owner reference: what somebody else has set of the fields that are wanted is set back.
    let only_if = Precondition::Is(Arc::clone(&live.uid));
    Some(WriteOp::Apply { target: child.target.clone(), body: Arc::clone(body), force: true, only_if })
}

#[cfg(test)]
mod tests;
