//! Who wakes when something changes (W1, W3). What a call read is what wakes its key; authors write no mappings.

use std::sync::Arc;

use super::Reconciler;
use super::key::{Waiting, Work};
use crate::engine::context::Context;
use crate::object::{Kind, Name, Object, ObjectRef, OwnerReference};
use crate::observation::Observation;
use crate::store::Change;
use crate::workqueue::{ControllerId, Key, Lane};

impl Reconciler {
    /// Wakes whoever a change concerns, before or after. A change that a list has brought may stand for several, so it is
    /// never taken for our own write alone.
    pub fn on_change(&mut self, change: &Change, by_list: bool, cx: &mut Context<'_>) {
        let Some(object) = change.object().cloned() else { return };
        for controller in self.reconcilers_of(&object.kind).iter().copied() {
            self.wake_primary(controller, change, &object, by_list, cx);
        }
        for side in [&change.before, &change.after].into_iter().flatten() {
            if let Some(owner) = &side.controller {
                self.wake_owner(&side.kind, &side.name.namespace, owner, cx);
            }
        }
        for key in self.waiting.get(&object.reference()).cloned().unwrap_or_default() {
            self.wake(&key, Lane::Live, cx);
        }
        for key in self.index.affected(change).keys {
            self.wake(&key, Lane::Live, cx);
        }
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
            // Gone, or selected no more; then its children stay, and nobody looks at them until it is selected again.
            match self.keys.get_mut(&key) {
                Some(state) if state.is_idle() => self.drop_key(&key, cx),
                Some(state) => state.mark_dirty(Lane::Live),
                None => {}
            }
            return;
        };
        let Some(state) = self.keys.get_mut(&key) else {
            self.keys.add(&key);
            // An object of a list that has just begun is old news; one that a watch adds was created just now.
            let is_news = change.before.is_some() || cx.store.synced(&object.kind);
            return self.wake(&key, if is_news { Lane::Live } else { Lane::Resync }, cx);
        };
        // W3: the version is that of our own status write, so nothing is new to this key. A write that the API server found
        // to change nothing has the version of somebody else's change, hence the second look. While an earlier one may still
        // land, one event may show both.
        let is_own_status = state.status.version == Some(after.resource_version)
            && state.status.unknown_until_ms <= cx.now.mono_ms
            && change.before.as_ref().is_some_and(|before| before.differs_only_in_status(after));
        // What a list shows may be several changes in one. And a status write makes no new generation, so a change that
        // shows one is not, or not only, ours.
        if by_list || is_new_generation {
            self.wake(&key, Lane::Live, cx);
        } else if is_own_status {
            // A key that waits to see that very write is let through.
            if state.expectations.waiting.is_some() {
                self.wake(&key, Lane::Live, cx);
            }
        } else if matches!(state.turn.work, Work::Writing(_)) {
            // Of two changes one at most is our own write.
            if state.turn.unsorted_version.replace(after.resource_version).is_some() {
                state.mark_dirty(Lane::Live);
            }
        } else {
            self.wake(&key, Lane::Live, cx);
        }
    }

    fn wake_owner(&mut self, child: &Kind, namespace: &Arc<str>, owner: &OwnerReference, cx: &mut Context<'_>) {
        for id in self.reconcilers_of(&owner.kind).iter().copied() {
            if !self.controllers.get(&id).is_some_and(|controller| controller.access.readable.contains(child)) {
                continue;
            }
            // A cluster-scoped owner may have children in any namespace.
            for namespace in [Arc::clone(namespace), Arc::from("")] {
                let key = Key { controller: id, name: Name { namespace, name: Arc::clone(&owner.name) } };
                if self.keys.contains(&key) {
                    self.wake(&key, Lane::Live, cx);
                    break;
                }
            }
        }
    }

    /// Puts a key into the queue, or marks it when it is at work (Q1).
    pub(super) fn wake(&mut self, key: &Key, lane: Lane, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        if !state.is_idle() {
            state.mark_dirty(lane);
            return;
        }
        if self.queue.add(cx.now.mono_ms, &controller.plugin, key.clone(), lane) {
            let controller = Arc::clone(&controller.label);
            cx.observe(Observation::Enqueued { controller, retry: lane == Lane::Retry });
        }
    }

    /// Looks again at the keys that wait for a write of this kind to be shown: what came and went unseen is only shown by how
    /// far the informer as a whole has come.
    pub fn on_progress(&mut self, kind: &Kind, cx: &mut Context<'_>) {
        let first = ObjectRef { kind: kind.clone(), name: Name::new("", "") };
        let of_kind = self.waiting.range(first..).take_while(|(target, _)| target.kind == *kind);
        for key in of_kind.flat_map(|(_, keys)| keys).cloned().collect::<Vec<_>>() {
            self.wake(&key, Lane::Live, cx);
        }
    }

    /// Wakes a key when this write of its own is shown, whatever it reads. Returns since when it has waited.
    pub(super) fn wait_for(&mut self, key: &Key, target: ObjectRef, now_ms: u64) -> u64 {
        let waited = self.stop_waiting(key);
        let Some(state) = self.keys.get_mut(key) else { return now_ms };
        let since_ms = waited.map_or(now_ms, |waiting| waiting.since_ms);
        self.waiting.entry(target.clone()).or_default().insert(key.clone());
        state.expectations.waiting = Some(Waiting { since_ms, target });
        since_ms
    }

    pub(super) fn stop_waiting(&mut self, key: &Key) -> Option<Waiting> {
        let waiting = self.keys.get_mut(key)?.expectations.waiting.take()?;
        if let Some(keys) = self.waiting.get_mut(&waiting.target) {
            keys.remove(key);
            if keys.is_empty() {
                self.waiting.remove(&waiting.target);
            }
        }
        Some(waiting)
    }

    /// Forgets a key whose object is gone or not selected any more.
    pub(super) fn drop_key(&mut self, key: &Key, cx: &mut Context<'_>) {
        self.queue.remove(key);
        self.clear_fault(key, cx);
        self.clear_denials(key, cx);
        self.stop_waiting(key);
        if let Some(plugin) = self.plugin_of(key) {
            self.forget_call(key, &plugin);
        }
        let Some(state) = self.keys.remove(key) else { return };
        if matches!(state.turn.work, Work::Writing(_)) {
            self.writing_ended(key);
        }
        self.index.replace_conflicts(key, &state.name_conflicts, &[]);
    }
}
