//! What a key remembers of the writes of its outcomes that were rejected: an input of its next calls (W1), and the objects
//! whose change may end a rejection. Nothing here writes.

use std::sync::Arc;

use super::Reconciler;
use super::key::{CHILD_EXISTS, FORBIDDEN, KeyState, NOT_FOUND, StalledReason};
use crate::component::Version;
use crate::manifest::ControllerSpec;
use crate::object::{Kind, Object, ObjectRef};
use crate::permission::Permission;
use crate::plan::{self, ActionDiff, Diff};
use crate::rejection::{MAX_REJECTIONS, Rejection};
use crate::store::Snapshot;
use crate::workqueue::Key;
use crate::write::WriteOp;

/// Objects that block one key, whose end wakes it. When the first thousand are gone, the next turn finds others.
const MAX_CONFLICTS: usize = 1_000;
/// Of these, and of rejections, where a share has no room left for what it keeps: a person sees the cause all the same.
pub(super) const FEW: usize = 4;

/// What the view shows to be impossible: children whose names others have, and patches of what does not exist. No more
/// than are remembered.
pub(super) fn seen(children: &Diff, actions: &ActionDiff, owner: &Kind) -> Vec<Rejection> {
    let taken = children.taken.iter().chain(&children.skipped).filter_map(|taken| {
        let why = StalledReason::children_exist(std::slice::from_ref(taken), owner)?;
        Some(rejection(why, &taken.target, None, Some(Arc::clone(&taken.key))))
    });
    let missing = actions.missing.iter().filter_map(|target| {
        let why = StalledReason::nothing_to_patch(std::slice::from_ref(target))?;
        Some(rejection(why, target, None, None))
    });
    let reserved = actions.reserved.iter().filter_map(|target| {
        let why = StalledReason::actions_are_reserved(std::slice::from_ref(target))?;
        Some(rejection(why, target, None, None))
    });
    let sources = actions.sources.iter().filter_map(|target| {
        let why = StalledReason::actions_are_on_sources(std::slice::from_ref(target))?;
        Some(rejection(why, target, None, None))
    });
    taken.chain(missing).chain(reserved).chain(sources).take(MAX_REJECTIONS).collect()
}

/// Why an object is stalled, as the guest reads it about one write.
fn rejection(
    why: StalledReason,
    target: &ObjectRef,
    subresource: Option<Arc<str>>,
    child: Option<Arc<str>>,
) -> Rejection {
    let StalledReason { reason, message } = why;
    Rejection { target: target.clone(), subresource, child, reason: reason.into(), message: message.into() }
}

/// Whether a rejection may be one still. Those for other reasons than the view's hold until a write succeeds.
fn still_holds(known: &Rejection, spec: &ControllerSpec, primary: &Object, snapshot: &Snapshot) -> bool {
    let live = snapshot.get(&known.target.kind, &known.target.name);
    match &*known.reason {
        CHILD_EXISTS => live.is_some_and(|live| !plan::is_child(spec, primary, live)),
        NOT_FOUND => live.is_none(),
        _ => true,
    }
}

impl KeyState {
    /// What of its outcomes was rejected.
    pub fn rejected(&self) -> Arc<[Rejection]> {
        self.rejections.as_ref().map_or_else(Arc::default, |rejections| Arc::clone(rejections.all()))
    }

    /// Before a call: forgets what was rejected for another edition of the object or version of the plugin, and what
    /// the view shows to be possible now.
    pub fn review_rejections(
        &mut self,
        spec: &ControllerSpec,
        version: &Version,
        primary: &Object,
        snapshot: &Snapshot,
    ) {
        let Some(rejections) = &mut self.rejections else { return };
        rejections.begin(primary.edition(), version);
        rejections.replace(|known| still_holds(known, spec, primary, snapshot), None, MAX_REJECTIONS);
        if rejections.all().is_empty() {
            self.rejections = None;
        }
    }

    /// Remembers what is rejected of an outcome of this edition and version, `most` in all. Whether the guest should know: it
    /// read an earlier state.
    pub fn reject(&mut self, (edition, version): &(u64, Version), new: Vec<Rejection>, most: usize) -> bool {
        if new.is_empty() {
            return false;
        }
        let rejections = self.rejections.get_or_insert_default();
        rejections.begin(*edition, version);
        rejections.replace(|_| true, new, most) && self.last.as_ref().is_some_and(|last| last.reads.has_rejected())
    }

    /// Forgets the rejection of a write that has succeeded. Whether the guest should know.
    pub fn succeed(&mut self, op: &WriteOp) -> bool {
        let Some(rejections) = &mut self.rejections else { return false };
        let subresource = op.permission().subresource;
        let is_other = |known: &Rejection| known.target != *op.target() || known.subresource != subresource;
        let has_changed = rejections.replace(is_other, None, MAX_REJECTIONS);
        has_changed && self.last.as_ref().is_some_and(|last| last.reads.has_rejected())
    }

    /// Whether a guest may do without a write of this permission because it has read that it is forbidden.
    pub fn is_forbidden(&self, permission: &Permission) -> bool {
        if !self.last.as_ref().is_some_and(|last| last.reads.has_rejected()) {
            return false;
        }
        let is_there = |namespace: &Arc<str>| permission.namespace.as_ref().is_none_or(|only| only == namespace);
        let of_permission = |known: &Rejection| {
            let Rejection { target, subresource, .. } = known;
            target.kind == permission.kind && *subresource == permission.subresource && is_there(&target.name.namespace)
        };
        let mut known = self.rejections.iter().flat_map(|rejections| rejections.all().iter());
        known.any(|known| &*known.reason == FORBIDDEN && of_permission(known))
    }

    /// The objects whose deletion or creation ends a rejection, also one of an outcome before the last.
    fn conflicts(&self) -> impl Iterator<Item = &ObjectRef> {
        let known = self.rejections.iter().flat_map(|rejections| rejections.all().iter());
        known.filter(|known| [CHILD_EXISTS, NOT_FOUND].contains(&&*known.reason)).map(|known| &known.target)
    }
}

impl Reconciler {
    /// The API server refused a write of an outcome. The key's next turn, after its backoff, calls a guest that read
    /// what was rejected.
    pub(super) fn note_rejected(&mut self, key: &Key, op: &WriteOp, why: StalledReason) {
        let most = self.most_rejections(key);
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        let Some(run) = state.run_mut() else { return };
        let target = op.target();
        let Some(of) = run.of.clone().filter(|_| target.kind != controller.spec.primary || target.name != key.name)
        else {
            return; // The finalizer is the host's.
        };
        let child = run.children.get(target).map(|child| Arc::clone(&child.key));
        state.reject(&of, vec![rejection(why, target, op.permission().subresource, child)], most);
        let of_plan = state.name_conflicts.clone();
        self.index_conflicts(key, of_plan);
    }

    /// How many rejections of a key are remembered.
    pub(super) fn most_rejections(&self, key: &Key) -> usize {
        if self.has_kept_room(key) { MAX_REJECTIONS } else { FEW }
    }

    /// Indexes the objects that block a key, so that their end wakes it.
    pub(super) fn index_conflicts(&mut self, key: &Key, of_plan: Vec<ObjectRef>) {
        let most = if self.has_kept_room(key) { MAX_CONFLICTS } else { FEW };
        let Some(state) = self.keys.get_mut(key) else { return };
        let mut conflicts: Vec<ObjectRef> = of_plan.into_iter().chain(state.conflicts().cloned()).collect();
        conflicts.sort();
        conflicts.dedup();
        conflicts.truncate(most);
        conflicts.shrink_to_fit();
        if conflicts != state.name_conflicts {
            self.index.replace_conflicts(key, &state.name_conflicts, &conflicts);
            state.name_conflicts = conflicts;
        }
    }
}
