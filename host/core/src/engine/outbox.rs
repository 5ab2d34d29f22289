//! The Outbox: every write's way out. It owns this host's claim to lead (X7), what is in flight, and the Events that were
//! recorded lately (X10). It knows neither plugins' states nor keys' plans: whoever asked for a write is sent its result.
//!
//! A host that may not write keeps everything else up: it watches, compiles plugins and takes them as far as they come without
//! a write, so that it can take over at once. What is left undone for want of the right is not remembered one by one: when the
//! right comes, both other machines look at everything that could have been.

use std::sync::Arc;

use self::budget::{Budgets, Debt};
use super::context::{Context, Map};
use super::message::{Outgoing, Owner, ToLifecycle, ToOutbox, ToReconciler};
use crate::event::Effect;
use crate::kube_event::EventLog;
use crate::lease::Claim;
use crate::observation::Observation;
use crate::time::Now;
use crate::write::{Write, WriteError, WriteId, WriteOp, Written};

mod budget;

pub use self::budget::WriteBudget;

/// The state of all writes.
#[derive(Debug)]
pub(super) struct Outbox {
    claim: Claim,
    leader_election: bool,
    /// There was a moment without the right to write, so what was to be written then is still to be.
    held_back: bool,
    in_flight: Map<WriteId, (Owner, WriteOp)>,
    last_write: u64,
    /// Writes up to this one were sent before etcd was restored.
    void_up_to: u64,
    events: EventLog,
    budgets: Budgets,
}

impl Outbox {
    pub fn new(instance: Arc<str>, leader_election: bool, budget: WriteBudget) -> Self {
        Self {
            claim: if leader_election { Claim::None } else { Claim::Everlasting },
            leader_election,
            held_back: false,
            in_flight: Map::default(),
            last_write: 0,
            void_up_to: 0,
            events: EventLog::new(instance),
            budgets: Budgets::new(budget),
        }
    }

    pub fn take(&mut self, message: ToOutbox, cx: &mut Context<'_>) {
        match message {
            ToOutbox::Send(outgoing) => self.send(*outgoing, cx),
            ToOutbox::Record { plugin, about, record } => {
                if let Some(op) = self.events.tell(cx.now, plugin.as_deref(), &about, record) {
                    self.send(Outgoing { plugin, cause: None, op, owner: Owner::Nobody }, cx);
                }
            }
            ToOutbox::Register { plugin, crd, body } => {
                let not_after_ms = self.claim.not_after_ms();
                cx.effects.push(Effect::RegisterCrd { plugin, crd, body, not_after_ms });
            }
        }
    }

    fn send(&mut self, outgoing: Outgoing, cx: &mut Context<'_>) {
        let Outgoing { plugin, cause, op, owner } = outgoing;
        if let Some(plugin) = &plugin
            && let Some(Debt { until_ms, message }) = self.budgets.spend(cx.now.mono_ms, plugin, &op)
        {
            cx.notify_reconciler(ToReconciler::Throttle { plugin: Arc::clone(plugin), until_ms });
            cx.notify_lifecycle(ToLifecycle::Throttled { plugin: Arc::clone(plugin), message });
        }
        self.last_write += 1;
        let id = WriteId(self.last_write);
        self.in_flight.insert(id, (owner, op.clone()));
        let not_after_ms = self.claim.not_after_ms();
        cx.effects.push(Effect::Write(Box::new(Write { id, plugin, cause, op, not_after_ms })));
    }

    pub fn on_wrote(&mut self, id: WriteId, result: Result<Written, WriteError>, cx: &mut Context<'_>) {
        let is_void = id.0 <= self.void_up_to;
        let result = result.and_then(|written| if is_void { Err(WriteError::undone()) } else { Ok(written) });
        match self.in_flight.remove(&id) {
            Some((Owner::Key(key), op)) => cx.notify_reconciler(ToReconciler::Wrote { key, op, result }),
            Some((Owner::Lifecycle(write), op)) => cx.notify_lifecycle(ToLifecycle::Wrote { write, op, result }),
            Some((Owner::Nobody, op)) => {
                if let Err(error) = result {
                    cx.observe(Observation::WriteFailed { cause: None, target: op.target().clone(), error });
                }
            }
            None => {}
        }
    }

    /// Events that were recorded are gone from the cluster with whatever else happened since the backup, and so may be what is
    /// in flight.
    pub fn on_restored(&mut self) {
        self.events.forget();
        self.void_up_to = self.last_write;
    }

    /// Nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// X7: whether a write that is sent now ends while this host still has the right to it.
    pub fn may_write(&self, now: Now) -> bool {
        self.claim.allows_writes(now.mono_ms)
    }

    /// Whether this host leads; None when it takes part in no election.
    pub fn leads(&self, now: Now) -> Option<bool> {
        self.leader_election.then(|| self.claim.lasts(now.mono_ms))
    }

    /// Notices a claim that has run out.
    pub fn look_at_claim(&mut self, now: Now) {
        self.held_back |= !self.may_write(now);
    }

    pub fn on_lease_changed(&mut self, claim_until_ms: Option<u64>, cx: &mut Context<'_>) {
        if !self.leader_election {
            return;
        }
        // A claim that has run out before it was renewed was not renewed: another host may have led meanwhile.
        let led = self.claim.lasts(cx.now.mono_ms);
        self.claim = Claim::of(claim_until_ms);
        if !self.may_write(cx.now) {
            self.held_back = true;
            return;
        }
        if !led {
            cx.notify_reconciler(ToReconciler::Resync);
        }
        if std::mem::take(&mut self.held_back) {
            cx.notify_lifecycle(ToLifecycle::MayWrite);
        }
    }
}

#[cfg(test)]
mod tests;
