//! The keys of controllers that are gone. A controller is out at once: no call, write or request of it begins, and results
//! that come late are nobody's. What its keys have in indexes, counts and sets is taken out in pieces, since a plugin may have
//! a hundred thousand of them. Until then it counts for their share, whose memory it is. A plugin that comes back under the
//! same name has other controllers, and so other keys.

use std::collections::{VecDeque, hash_map};
use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::dynamic_kinds::Named;
use super::key::{KeyState, Work};
use crate::engine::allowance::Allowance;
use crate::engine::context::{Context, remove_member};
use crate::garbage::Garbage;
use crate::object::Name;
use crate::observation::Observation;
use crate::workqueue::{ControllerId, Key};

/// What is taken out in a millisecond, in parts of a few microseconds, which are half of it: a hundred thousand keys that read
/// a few lists each leave in a second.
const PARTS_PER_MS: usize = 128;
/// What is kept of a key in a part. Where each read and each object has an allocation and a place in an index, some ten of
/// them take as many bytes.
const BYTES_OF_A_PART: usize = 1 << 10;

#[derive(Debug)]
pub(super) struct Leaving {
    controllers: VecDeque<Left>,
    pieces: Allowance,
}

/// A controller that is gone, with the keys that have not left yet.
#[derive(Debug)]
struct Left {
    id: ControllerId,
    controller: Controller,
    keys: hash_map::IntoIter<Name, Box<KeyState>>,
    /// Its part of the work queue.
    queued: Garbage,
}

impl Default for Leaving {
    fn default() -> Self {
        Self { controllers: VecDeque::new(), pieces: Allowance::of(PARTS_PER_MS) }
    }
}

impl KeyState {
    /// In how many parts it is taken out.
    pub fn parts(&self) -> usize {
        1 + self.kept_bytes / BYTES_OF_A_PART
    }
}

impl Leaving {
    /// When the next keys leave.
    pub fn next_due_ms(&self) -> Option<u64> {
        (!self.controllers.is_empty()).then(|| self.pieces.next_ms())
    }

    #[cfg(test)]
    pub fn keys(&self) -> usize {
        self.controllers.iter().map(|left| left.keys.len()).sum()
    }
}

impl Reconciler {
    /// Removes a controller. Its keys leave in this step and the next ones.
    pub(super) fn remove_controller(&mut self, id: ControllerId) {
        let Some(controller) = self.controllers.remove(&id) else { return };
        let kind = &controller.spec.primary;
        let others: Arc<[ControllerId]> =
            self.reconcilers_of(kind).iter().copied().filter(|other| *other != id).collect();
        if others.is_empty() {
            self.by_primary.remove(kind);
        } else {
            self.by_primary.insert(kind.clone(), others);
        }
        self.wanted_objects.subtract(&controller.plugin, controller.objects);
        self.exchanges.end(id);
        let (keys, queued) = (self.keys.take(id).into_iter(), self.queue.remove_controller(id));
        self.leaving.controllers.push_back(Left { id, controller, keys, queued: Garbage::new(queued) });
    }

    /// Takes out the next keys, as many as this millisecond allows.
    pub(super) fn let_go_next(&mut self, cx: &mut Context<'_>) {
        while self.leaving.pieces.left(cx.now.mono_ms) > 0
            && let Some(mut of) = self.leaving.controllers.pop_front()
        {
            let Some((name, state)) = of.keys.next() else {
                self.exchanges.ended(of.id);
                cx.discard((of.keys, of.queued));
                continue;
            };
            let key = Key { controller: of.id, name };
            if matches!(state.turn.work, Work::Writing(_)) {
                cx.observe(Observation::TurnEnded { cause: of.controller.cause_of(&key, &state) });
            }
            let parts = state.parts() + self.exchanges.drop_key(&key);
            self.let_go(&key, &of.controller.plugin, &of.controller.share, &state, cx);
            self.charges.add(&mut self.queue, &of.controller.share, parts as u64);
            self.leaving.pieces.spend(parts);
            self.leaving.controllers.push_front(of);
        }
    }

    /// Takes out what is kept of a key that is dropped, but for its requests.
    pub(super) fn let_go(
        &mut self,
        key: &Key,
        plugin: &Arc<str>,
        share: &Arc<str>,
        state: &KeyState,
        cx: &mut Context<'_>,
    ) {
        if let Some(waiting) = &state.expectations.waiting {
            remove_member(&mut self.waiting, &waiting.target, key);
        }
        self.kept_bytes.subtract(share, state.kept_bytes);
        if let Some(last) = &state.last {
            self.index.remove(share, key, &last.reads);
            self.name_kinds(key, plugin, Named::of(Some(&last.reads), None), cx);
        }
        if let Work::Writing(run) = &state.turn.work {
            self.writing_ended(share, run);
        }
        self.index.replace_conflicts(key, &state.name_conflicts, &[]);
    }
}
