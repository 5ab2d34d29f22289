//! What every machine works with during one event or message: the time, the cache, and the ways out.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::message::{Message, Outgoing, Owner, ToLifecycle, ToOutbox, ToReconciler};
use crate::event::Effect;
use crate::kube_event::EventRecord;
use crate::object::{Kind, Object};
use crate::observation::Observation;
use crate::store::Store;
use crate::time::Now;
use crate::write::{Cause, WriteOp};

/// A map whose order depends on its history alone, so that a simulated run is repeatable to the letter.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// The machines' surroundings. Its ways out are queues: nothing happens before the machine returns.
pub(super) struct Context<'a> {
    pub now: Now,
    pub store: &'a Store,
    /// X7: whether a write that is sent now ends while this host still has the right to it.
    pub may_write: bool,
    /// The host is ending: nothing new begins.
    pub draining: bool,
    pub effects: &'a mut Vec<Effect>,
    pub messages: &'a mut VecDeque<Message>,
}

impl Context<'_> {
    pub fn observe(&mut self, observation: Observation) {
        self.effects.push(Effect::Observe(observation));
    }

    pub fn notify_lifecycle(&mut self, message: ToLifecycle) {
        self.messages.push_back(Message::ToLifecycle(message));
    }

    pub fn notify_reconciler(&mut self, message: ToReconciler) {
        self.messages.push_back(Message::ToReconciler(message));
    }

    pub fn notify_outbox(&mut self, message: ToOutbox) {
        self.messages.push_back(Message::ToOutbox(message));
    }

    /// Has the store forget a kind that nobody watches any more.
    pub fn forget(&mut self, kind: &Kind) {
        self.messages.push_back(Message::Forget(kind.clone()));
    }

    pub fn send(&mut self, plugin: Option<Arc<str>>, cause: Option<Cause>, op: WriteOp, owner: Owner) {
        self.notify_outbox(ToOutbox::Send(Box::new(Outgoing { plugin, cause, op, owner })));
    }

    /// Has an Event recorded, if this host may write.
    pub fn record(&mut self, plugin: Option<Arc<str>>, about: &Arc<Object>, record: EventRecord) {
        if self.may_write {
            self.notify_outbox(ToOutbox::Record { plugin, about: Arc::clone(about), record });
        }
    }
}
