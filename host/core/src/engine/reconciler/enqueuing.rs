//! Controllers all of whose objects are enqueued: a version takes over, this host comes to lead, or a change affects a
//! controller in very many ways. The objects are walked in pieces, controllers in turn, and each controller once
//! however many reasons there are meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Reconciler;
use crate::engine::context::Context;
use crate::object::{Name, Object};
use crate::workqueue::{ControllerId, Key, Lane};

/// Objects of one controller in a row.
const IN_A_ROW: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Enqueuing {
    walks: BTreeMap<ControllerId, Walk>,
    turns: VecDeque<ControllerId>,
}

#[derive(Debug)]
struct Walk {
    lane: Lane,
    since_ms: u64,
    /// The last object that was enqueued.
    after: Option<Name>,
    /// The reason to walk again.
    again: Option<(Lane, u64)>,
}

impl Enqueuing {
    /// Every object of a controller is enqueued, in this step and the next ones.
    pub fn add(&mut self, controller: ControllerId, lane: Lane, now_ms: u64) {
        let Some(walk) = self.walks.get_mut(&controller) else {
            self.turns.push_back(controller);
            self.walks.insert(controller, Walk { lane, since_ms: now_ms, after: None, again: None });
            return;
        };
        if walk.after.is_none() {
            walk.lane = walk.lane.min(lane);
        } else {
            let (before, since_ms) = walk.again.unwrap_or((lane, now_ms));
            walk.again = Some((before.min(lane), since_ms));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

impl Reconciler {
    /// Enqueues the next objects, so many at most, and drops the keys of those that a new predicate does not select (W1). Returns
    /// how many.
    pub(super) fn enqueue_next(&mut self, most: usize, cx: &mut Context<'_>) -> usize {
        let snapshot = cx.store.snapshot();
        let mut enqueued = 0;
        while enqueued < most
            && let Some(id) = self.enqueuing.turns.pop_front()
        {
            let Some(mut walk) = self.enqueuing.walks.remove(&id) else { continue };
            let Some(controller) = self.controllers.get(&id) else { continue };
            let (kind, piece) = (controller.spec.primary.clone(), IN_A_ROW.min(most - enqueued));
            let objects: Vec<&Arc<Object>> = snapshot.after(&kind, walk.after.as_ref()).take(piece).collect();
            enqueued += objects.len();
            objects.iter().for_each(|object| self.enqueue(id, object, walk.lane, walk.since_ms, cx));
            walk.after = objects.last().filter(|_| objects.len() == piece).map(|object| object.name.clone());
            if walk.after.is_none() {
                let Some((lane, since_ms)) = walk.again.take() else { continue };
                (walk.lane, walk.since_ms) = (lane, since_ms);
            }
            self.enqueuing.walks.insert(id, walk);
            self.enqueuing.turns.push_back(id);
        }
        enqueued
    }

    fn enqueue(&mut self, id: ControllerId, object: &Object, lane: Lane, since_ms: u64, cx: &mut Context<'_>) {
        let key = Key { controller: id, name: object.name.clone() };
        if self.controllers.get(&id).is_some_and(|controller| controller.reconciles(object)) {
            self.keys.add(&key);
            self.wake_since(&key, lane, since_ms, cx);
        } else if self.keys.get(&key).is_some_and(|state| state.is_idle()) {
            self.drop_key(&key, cx);
        } else {
            self.wake_since(&key, Lane::Live, since_ms, cx);
        }
    }
}
