//! Which keys a change wakes (W1, W3). A key's dependencies are what its last call read; authors write no mappings.

use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::key::{Waiting, Work};
use super::replacements::Replacements;
use crate::engine::context::{Context, remove_member};
use crate::object::{Kind, Name, Object, ObjectRef, OwnerReference};
use crate::observation::Observation;
use crate::store::Change;
use crate::workqueue::{ControllerId, Key, Lane};

/// Keys of large sets that wake in a millisecond, whose waking takes some two hundred microseconds of it: so a set of a
/// hundred thousand takes half a second, and the loop is free for others meanwhile.
pub(super) const WOKEN_PER_MS: usize = 256;
/// What waking one of them takes.
const US_PER_WOKEN: u64 = 1;

impl Reconciler {
    /// Wakes the keys that depend on the object before or after the change. A list may merge several changes into one,
    /// so a change `by_list` is never just the host's own write. Plugins are charged for what their reads cost here
    /// (Q4).
    pub fn on_change(&mut self, change: &Change, by_list: bool, cx: &mut Context<'_>) {
        let Some(object) = change.object().cloned() else { return };
        for controller in self.reconcilers_of(&object.kind).iter().copied() {
            self.wake_primary(controller, change, &object, by_list, cx);
        }
        for side in [&change.before, &change.after].into_iter().flatten() {
            if let Some(owner) = &side.controller {
                self.wake_owner(side, owner, cx);
            }
        }
        for key in self.waiting.get(&object.reference()).cloned().unwrap_or_default() {
            self.wake(&key, Lane::Live, cx);
        }
        let affected = self.index.affected(cx.now.mono_ms, change);
        for (share, compared) in &affected.compared {
            self.charges.add(&mut self.queue, share, compared.cost_us());
        }
        for key in affected.keys {
            self.wake(&key, Lane::Live, cx);
        }
        let of_shares = |(_, controller): &(_, &Controller)| affected.shares.contains(&controller.share);
        let all = if affected.shares.is_empty() { None } else { Some(self.controllers.iter().filter(of_shares)) };
        for id in all.into_iter().flatten().map(|(id, _)| *id).chain(affected.controllers) {
            self.enqueuing.add(id, Lane::Live, cx.now.mono_ms);
        }
    }

    /// Wakes the next keys of large sets that changes have affected, or of controllers that come to serve. One that waits
    /// already costs as much as any other, so the shares pay for them.
    pub(super) fn wake_due(&mut self, cx: &mut Context<'_>) {
        let left = self.woken.left(cx.now.mono_ms);
        let due = self.index.take_due(left);
        self.woken.spend(due.len());
        for (key, since_ms) in due {
            let Some(controller) = self.controllers.get(&key.controller) else { continue };
            self.charges.add(&mut self.queue, &controller.share, US_PER_WOKEN);
            self.wake_since(&key, Lane::Live, since_ms, cx);
        }
        if !self.enqueuing.is_empty() {
            let left = self.woken.left(cx.now.mono_ms);
            let enqueued = self.enqueue_next(left, cx);
            self.woken.spend(enqueued);
        }
    }

    /// When more of these keys are woken.
    pub(super) fn next_wake_ms(&self) -> Option<u64> {
        (self.index.has_due() || !self.enqueuing.is_empty()).then(|| self.woken.next_ms())
    }

    fn wake_primary(
        &mut self,
        controller: ControllerId,
        change: &Change,
        object: &Object,
        by_list: bool,
        cx: &mut Context<'_>,
    ) {
        let generation = |side: &Option<Arc<Object>>| side.as_ref().map(|object| object.generation);
        let is_new_generation = generation(&change.before) != generation(&change.after);
        let key = Key { controller, name: object.name.clone() };
        let controller = self.controllers.get(&controller);
        let after = change.after.as_ref().filter(|after| controller.is_some_and(|found| found.reconciles(after)));
        let Some(after) = after else {
            // Deleted, or no longer selected: then its children stay as they are.
            match self.keys.get_mut(&key) {
                Some(state) if state.is_idle() => self.drop_key(&key, cx),
                Some(state) => state.mark_dirty(Lane::Live),
                None => {}
            }
            return;
        };
        let Some(state) = self.keys.get_mut(&key) else {
            self.keys.add(&key);
            // An object of the first list existed before; one that a watch adds is new.
            let is_synced = cx.store.synced(&object.kind);
            if let Some(state) = self.keys.get_mut(&key).filter(|_| is_synced && !by_list && change.before.is_none()) {
                state.memory.replacements = Replacements::of_new();
            }
            let is_new = change.before.is_some() || is_synced;
            return self.wake(&key, if is_new { Lane::Live } else { Lane::Resync }, cx);
        };
        // W3: this is the version of our own status write. A write that changed nothing has the version of another's
        // change, so the contents are compared too. While an earlier write may still be carried out, one event may show
        // both.
        let is_own_status = state.status.version == Some(after.resource_version)
            && state.status.unknown_until_ms <= cx.now.mono_ms
            && change.before.as_ref().is_some_and(|before| before.differs_only_in_status(after));
        // A status write does not change the generation.
        let may_be_own = !by_list && !is_new_generation;
        if may_be_own && is_own_status && state.expectations.waiting.is_none() {
            return;
        }
        if may_be_own && !is_own_status && matches!(state.turn.work, Work::Writing(_)) {
            // Of two changes, at most one is our own write.
            if state.turn.unsorted_version.replace(after.resource_version).is_some() {
                state.mark_dirty(Lane::Live);
            }
            return;
        }
        self.wake(&key, Lane::Live, cx);
    }

    fn wake_owner(&mut self, child: &Object, owner: &OwnerReference, cx: &mut Context<'_>) {
        for id in self.reconcilers_of(&owner.kind).iter().copied() {
            let sees = |controller: &Controller| controller.spec.sees(&child.kind, &child.name.namespace);
            if !self.controllers.get(&id).is_some_and(sees) {
                continue;
            }
            // A cluster-scoped owner may have children in any namespace.
            for namespace in [Arc::clone(&owner.namespace), Arc::from("")] {
                let key = Key { controller: id, name: Name { namespace, name: Arc::clone(&owner.name) } };
                if self.keys.contains(&key) {
                    self.wake(&key, Lane::Live, cx);
                    break;
                }
            }
        }
    }

    /// Enqueues a key, or marks it dirty during its turn (Q1).
    pub(super) fn wake(&mut self, key: &Key, lane: Lane, cx: &mut Context<'_>) {
        self.wake_since(key, lane, cx.now.mono_ms, cx);
    }

    pub(super) fn wake_since(&mut self, key: &Key, lane: Lane, since_ms: u64, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        if !state.is_idle() {
            state.mark_dirty(lane);
            return;
        }
        if self.queue.add(since_ms, &controller.share, key.clone(), lane) {
            let controller = Arc::clone(&controller.label);
            cx.observe(Observation::Enqueued { controller, retry: lane == Lane::Retry });
        }
    }

    /// Wakes the keys that wait for a write of this kind: an object that was created and deleted between two events is
    /// shown only by the informer's progress.
    pub fn on_progress(&mut self, kind: &Kind, cx: &mut Context<'_>) {
        let first = ObjectRef { kind: kind.clone(), name: Name::new("", "") };
        let of_kind = self.waiting.range(first..).take_while(|(target, _)| target.kind == *kind);
        for key in of_kind.flat_map(|(_, keys)| keys).cloned().collect::<Vec<_>>() {
            self.wake(&key, Lane::Live, cx);
        }
    }

    pub(super) fn stop_waiting(&mut self, key: &Key) -> Option<Waiting> {
        let waiting = self.keys.get_mut(key)?.expectations.waiting.take()?;
        remove_member(&mut self.waiting, &waiting.target, key);
        Some(waiting)
    }

    /// Drops a key whose object is gone or no longer selected.
    pub(super) fn drop_key(&mut self, key: &Key, cx: &mut Context<'_>) {
        self.queue.remove(key);
        self.clear_fault(key, cx);
        self.clear_denials(key, cx);
        self.exchanges.drop_key(key);
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let (plugin, share) = (Arc::clone(&controller.plugin), Arc::clone(&controller.share));
        let Some(state) = self.keys.remove(key) else { return };
        self.count_objects(key.controller, state.last.as_ref().map_or(0, |last| last.objects), 0);
        self.charges.add(&mut self.queue, &share, state.parts() as u64);
        self.let_go(key, &plugin, &share, &state, cx);
    }
}
