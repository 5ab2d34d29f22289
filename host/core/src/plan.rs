//! Plans: the writes that are missing between a snapshot and an outcome.
//!
//! [`prepare`] checks an outcome once and names its children; [`diff`] compares the prepared outcome with a snapshot,
//! as often as needed. Both are pure; neither knows queues or retries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::actions::{ActionDiff, Memory, Sent, diff as diff_actions, evictions};
pub use self::applied::Applied;
use self::applied::is_applied;
pub use self::prepare::prepare;
pub use self::prepared::{Action, Body, Prepared, PreparedAction, PreparedChild};
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

/// The writes of children that are missing between a snapshot and an outcome.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Diff {
    /// Creates and applies, in the guest's order.
    pub children: Vec<WriteOp>,
    /// Deletes of children that are not wanted or must be replaced.
    pub deletes: Vec<WriteOp>,
    /// A child's predecessor of the same name is still being deleted.
    pub waits: bool,
    /// The deletes exceed [`MAX_DELETES_PER_PLAN`].
    pub more_deletes: bool,
    /// Children whose names belong to objects of another owner.
    pub taken: Vec<ObjectRef>,
    /// Bytes of JSON that were parsed for the comparison, for which the plugin is charged.
    pub parsed_bytes: usize,
}

impl Diff {
    /// Whether it has writes of children, which the guest may read.
    pub fn changes_what_is_read(&self) -> bool {
        !self.children.is_empty() || !self.deletes.is_empty()
    }

    /// Whether children will still change, so that a status computed before is soon outdated.
    pub fn changes_children(&self) -> bool {
        self.changes_what_is_read() || self.waits || self.more_deletes
    }
}

/// Compares a prepared outcome with a snapshot (X4, X5). `applied` remembers the children that need no apply, so that
/// each version of an object is compared once.
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
                None => {
                    diff.parsed_bytes += if child.body.is_none() { child.object.len() } else { 0 };
                    diff.children.push(create(child, primary));
                }
                Some(live) if is_child(spec, &primary.uid, live) => diff.waits = true,
                Some(_) => diff.taken.push(child.target.clone()),
            }
            rollout.into_iter().for_each(Rollout::absent);
            continue;
        };
        let is_current = live.desired.as_deref() == Some(&*child.hash);
        match (child.update, &mut rollout) {
            (Update::Apply, _) => {
                diff.children.extend(apply(child, live, manager, applied, &mut diff.parsed_bytes));
            }
            (Update::Recreate, _) if !is_current => diff.deletes.push(delete(live)),
            (_, Some(rollout)) if is_current => rollout.current(live),
            (_, Some(rollout)) => rollout.outdated(live),
            (Update::Recreate | Update::RollingRecreate { .. } | Update::OnDelete, _) => {}
        }
    }
    diff.parsed_bytes += rollouts.values().map(Rollout::parsed_bytes).sum::<usize>();
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

/// Whether an object is a child that the host created for this primary. A built-in primary also has children that
/// Kubernetes created, such as a Deployment's ReplicaSets: they have no child key, and the host never writes them.
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
        WriteOp::Apply { target, body: Arc::clone(&body.text), force: false, only_if: Precondition::Absent }
    } else {
        let body = body::of(&target, &child.key, &child.object, primary, Some(&child.hash));
        WriteOp::Create { target, body }
    }
}

fn apply(
    child: &PreparedChild,
    live: &Object,
    manager: &str,
    applied: &mut Applied,
    parsed_bytes: &mut usize,
) -> Option<WriteOp> {
    let body = child.body.as_ref().filter(|body| !is_applied(live, body, manager, applied, parsed_bytes))?;
    // Forced: the owner reference shows that the child is ours, so wanted fields that others have set are set back.
    let only_if = Precondition::Is(Arc::clone(&live.uid));
    Some(WriteOp::Apply { target: child.target.clone(), body: Arc::clone(&body.text), force: true, only_if })
}

#[cfg(test)]
mod tests;
