//! What a machine gets with each event or message: the time, the cache, and queues for its effects and messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::message::{Message, Outgoing, Owner, Sender, ToLifecycle, ToOutbox, ToReconciler};
use crate::event::Effect;
use crate::garbage::Garbage;
use crate::kube_event::EventRecord;
use crate::object::Object;
use crate::observation::Observation;
use crate::store::Store;
use crate::time::Now;
use crate::write::{Cause, WriteOp};

/// Removes a member of a set, and the set with its last member. Returns whether it was the last one.
pub(super) fn remove_member<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, of: &K, member: &V) -> bool {
    let Some(set) = sets.get_mut(of) else { return false };
    set.remove(member);
    let is_last = set.is_empty();
    if is_last {
        sets.remove(of);
    }
    is_last
}

/// Effects and messages are queued: none takes effect before the machine returns.
pub(super) struct Context<'a> {
    pub now: Now,
    pub store: &'a Store,
    /// X7: whether a write that is sent now ends before this host's claim does.
    pub may_write: bool,
    /// The host is shutting down: nothing new begins.
    pub draining: bool,
    pub effects: &'a mut Vec<Effect>,
    pub messages: &'a mut VecDeque<Message>,
}

impl Context<'_> {
    pub fn observe(&mut self, observation: Observation) {
        self.effects.push(Effect::Observe(observation));
    }

    /// Lets go what may be large.
    pub fn discard(&mut self, it: impl Send + 'static) {
        self.effects.push(Effect::Discard(Garbage::new(it)));
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

    pub fn send(&mut self, by: Sender, cause: Option<Cause>, op: WriteOp, owner: Owner) {
        self.notify_outbox(ToOutbox::Send(Box::new(Outgoing { by, cause, op, owner })));
    }

    /// Records what the host says about a plugin, at its Plugin object or its ConfigMap. The host sends it, with its own writes.
    pub fn say(&mut self, plugin: &Arc<str>, about: &Arc<Object>, record: EventRecord) {
        self.record(Sender { plugin: Some(Arc::clone(plugin)), ..Sender::default() }, about, record);
    }

    /// Records an Event, if this host may write.
    pub fn record(&mut self, by: Sender, about: &Arc<Object>, record: EventRecord) {
        if self.may_write {
            self.notify_outbox(ToOutbox::Record { by, about: Arc::clone(about), record });
        }
    }
}
