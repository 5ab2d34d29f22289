//! Who wakes when something changes (W1, W3). What a call read is what wakes its key; authors write no mappings.

use std::sync::Arc;

use super::Driver;
use super::keys::Work;
use crate::event::Effect;
use crate::object::{Kind, Name, Object, OwnerReference};
use crate::observation::Observation;
use crate::store::Change;
use crate::workqueue::{ControllerId, Key, Lane};

impl Driver {
    /// Wakes whoever a change concerns, before or after. A change that a list has brought may stand for several, so it is
    /// never taken for our own write alone.
    pub(super) fn on_change(&mut self, change: &Change, by_list: bool, effects: &mut Vec<Effect>) {
        let Some(object) = change.object().cloned() else { return };
        self.on_plugin_object_change(&object, effects);
        for controller in self.reconcilers_of(&object.kind).iter().copied() {
            self.wake_primary(controller, change, &object, by_list, effects);
        }
        for side in [&change.before, &change.after].into_iter().flatten() {
            if let Some(owner) = &side.controller {
                self.wake_owner(&side.kind, &side.name.namespace, owner, effects);
            }
        }
        for key in self.index.affected(change).keys {
            self.wake(&key, Lane::Live, effects);
        }
    }

    fn wake_primary(
        &mut self,
        controller: ControllerId,
        change: &Change,
        object: &Object,
        by_list: bool,
        effects: &mut Vec<Effect>,
    ) {
        let generation = |side: &Option<Arc<Object>>| side.as_ref().map(|object| object.generation);
        let is_new_generation = generation(&change.before) != generation(&change.after);
        let key = Key { controller, name: object.name.clone() };
        let controller = self.controllers.get(&controller);
        let after = change.after.as_ref().filter(|after| controller.is_some_and(|found| found.reconciles(after)));
        let Some(after) = after else {
            // Gone, or selected no more; then its children stay, and nobody looks at them until it is selected again.
            match self.keys.get_mut(&key) {
                Some(state) if state.is_idle() => self.drop_key(&key),
                Some(state) => state.mark_dirty(Lane::Live),
                None => {}
            }
            return;
        };
        let Some(state) = self.keys.get_mut(&key) else {
            self.keys.insert(key.clone(), Default::default());
            let lane = if change.before.is_some() { Lane::Live } else { self.first_look(&object.kind) };
            return self.wake(&key, lane, effects);
        };
        // W3: the version is that of our own status write, so nothing is new to this key. A write that the API server found
        // to change nothing has the version of somebody else's change, hence the second look. While an earlier one may still
        // land, one event may show both.
        let is_own_status = state.status_version == Some(after.resource_version)
            && state.status_lands_until_ms <= self.now.mono_ms
            && change.before.as_ref().is_some_and(|before| before.differs_only_in_status(after));
        // What a list shows may be several changes in one. And a status write makes no new generation, so a change that
        // shows one is not, or not only, ours.
        if by_list || is_new_generation {
            self.wake(&key, Lane::Live, effects);
        } else if is_own_status {
            // A key that waits to see that very write is let through.
            if state.gated_since_ms.is_some() {
                self.wake(&key, Lane::Live, effects);
            }
        } else if matches!(state.work, Work::Writing(_)) {
            // Of two changes one at most is our own write.
            if state.unsorted_version.replace(after.resource_version).is_some() {
                state.mark_dirty(Lane::Live);
            }
        } else {
            self.wake(&key, Lane::Live, effects);
        }
    }

    /// An object of a list that has just begun is old news; one that a watch adds was created just now.
    fn first_look(&self, kind: &Kind) -> Lane {
        if self.store.synced(kind) { Lane::Live } else { Lane::Resync }
    }

    fn wake_owner(&mut self, child: &Kind, namespace: &Arc<str>, owner: &OwnerReference, effects: &mut Vec<Effect>) {
        for id in self.reconcilers_of(&owner.kind).iter().copied() {
            if !self.controllers.get(&id).is_some_and(|controller| controller.access.readable.contains(child)) {
                continue;
            }
            // A cluster-scoped owner may have children in any namespace.
            for namespace in [Arc::clone(namespace), Arc::from("")] {
                let key = Key { controller: id, name: Name { namespace, name: Arc::clone(&owner.name) } };
                if self.keys.contains_key(&key) {
                    self.wake(&key, Lane::Live, effects);
                    break;
                }
            }
        }
    }

    /// Puts a key into the queue, or marks it when it is at work (Q1).
    pub(super) fn wake(&mut self, key: &Key, lane: Lane, effects: &mut Vec<Effect>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let Some(state) = self.keys.get_mut(key) else { return };
        if !state.is_idle() {
            state.mark_dirty(lane);
            return;
        }
        if self.queue.add(self.now.mono_ms, &controller.plugin, key.clone(), lane) {
            let controller = Arc::clone(&controller.label);
            effects.push(Effect::Observe(Observation::Enqueued { controller, retry: lane == Lane::Retry }));
        }
    }

    /// Looks again at the keys that wait to see a write of theirs to this kind: what came and went unseen is only shown by
    /// how far the kind as a whole has come.
    pub(super) fn wake_gated(&mut self, kind: &Kind, effects: &mut Vec<Effect>) {
        let waits = |key: &&Key| {
            let state = self.keys.get(*key);
            state.is_some_and(|state| state.expectations.first().is_some_and(|write| write.target.kind == *kind))
        };
        let keys: Vec<Key> = self.gated.iter().filter(waits).cloned().collect();
        for key in keys {
            self.wake(&key, Lane::Live, effects);
        }
    }

    /// Forgets a key whose object is gone or not selected any more.
    pub(super) fn drop_key(&mut self, key: &Key) {
        self.queue.remove(key);
        self.clear_fault(key);
        self.clear_denials(key);
        self.gated.remove(key);
        let Some(state) = self.keys.remove(key) else { return };
        if matches!(state.work, Work::Writing(_)) {
            self.writing_ended(key);
        }
        self.index.replace_awaited(key, &state.taken, &[]);
        if let Some(last) = state.last {
            self.index.remove(key, &last.reads);
        }
    }
}
