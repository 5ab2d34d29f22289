//! The Outbox sends all writes, and HTTP requests. It owns this host's claim to lead (X7), the writes in flight, the
//! write budgets (Q4), and the recent Events and those that wait (X10). It does not know plugins' states or keys' plans:
//! it sends each result to the owner of the write.
//!
//! A host without a claim still watches, compiles plugins and brings them up as far as that needs no write, so that it
//! can take over at once. Writes that it could not send are not queued: with a new claim, both other machines compare
//! everything again.

use std::sync::Arc;

use self::budget::{Budgets, Cost, Debt};
use self::events::Events;
use super::context::Context;
use super::message::{Outgoing, Owner, Sender, ToLifecycle, ToOutbox, ToReconciler};
use crate::event::{Effect, Sending};
use crate::lease::Claim;
use crate::map::Map;
use crate::object::ObjectRef;
use crate::observation::Observation;
use crate::rights::Namespaces;
use crate::tenant;
use crate::time::Now;
use crate::write::{Write, WriteError, WriteErrorClass, WriteId, WriteOp, Written};

mod budget;
mod events;

pub use self::budget::WriteBudget;

#[derive(Debug)]
pub(super) struct Outbox {
    claim: Claim,
    leader_election: bool,
    /// This host could not write for a while, so writes may be missing.
    held_back: bool,
    in_flight: Map<WriteId, (Owner, WriteOp)>,
    last_write: u64,
    /// Writes up to this id were sent before etcd was restored.
    void_up_to: u64,
    events: Events,
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
            events: Events::new(instance),
            budgets: Budgets::new(budget),
        }
    }

    pub fn take(&mut self, message: ToOutbox, cx: &mut Context<'_>) {
        match message {
            ToOutbox::Send(outgoing) => self.send(*outgoing, cx),
            ToOutbox::Record { by, about, record } => {
                if let Some(outgoing) = self.events.record(by, &about, record, cx) {
                    self.send(outgoing, cx);
                }
            }
            ToOutbox::Request(sending) => {
                let not_after_ms = self.claim.not_after_ms();
                cx.effects.push(Effect::Http(Box::new(Sending { not_after_ms, ..*sending })));
            }
            ToOutbox::Register { plugin, crd, body } => {
                let not_after_ms = self.claim.not_after_ms();
                cx.effects.push(Effect::RegisterCrd { plugin, crd, body, not_after_ms });
            }
        }
    }

    fn send(&mut self, outgoing: Outgoing, cx: &mut Context<'_>) {
        let Outgoing { by, cause, op, owner } = outgoing;
        let Sender { plugin, service_account, namespaces, writes_per_minute } = by;
        if let Some(error) = plugin.as_ref().and_then(|plugin| outside(plugin, namespaces.as_ref()?, op.target())) {
            return self.report(owner, op, Err(error), cx);
        }
        let is_shown = |target: &ObjectRef| cx.store.snapshot().get(&target.kind, &target.name).is_some();
        if let Some(plugin) = &plugin
            && let Some(Debt { until_ms, message }) = self.budgets.spend(
                cx.now.mono_ms,
                plugin,
                Cost::of(op.creates(is_shown), op.text_bytes()),
                writes_per_minute,
            )
        {
            cx.notify_reconciler(ToReconciler::Throttle { share: tenant::share(plugin), until_ms });
            cx.notify_lifecycle(ToLifecycle::Throttled { plugin: Arc::clone(plugin), message });
        }
        self.last_write += 1;
        let id = WriteId(self.last_write);
        self.in_flight.insert(id, (owner, op.clone()));
        let not_after_ms = self.claim.not_after_ms();
        cx.effects.push(Effect::Write(Box::new(Write { id, plugin, cause, service_account, op, not_after_ms })));
    }

    pub fn on_wrote(&mut self, id: WriteId, result: Result<Written, WriteError>, cx: &mut Context<'_>) {
        let is_void = id.0 <= self.void_up_to;
        let result = result.and_then(|written| if is_void { Err(WriteError::undone()) } else { Ok(written) });
        if let Some((owner, op)) = self.in_flight.remove(&id) {
            self.report(owner, op, result, cx);
        }
    }

    fn report(&mut self, owner: Owner, op: WriteOp, result: Result<Written, WriteError>, cx: &mut Context<'_>) {
        match owner {
            Owner::Key(key) => cx.notify_reconciler(ToReconciler::Wrote { key, op, result }),
            Owner::Lifecycle(write) => cx.notify_lifecycle(ToLifecycle::Wrote { write, op, result }),
            Owner::Event(flow) => {
                if let Err(error) = result {
                    let (target, share) = (op.target().clone(), Arc::clone(&flow.share));
                    cx.observe(if flow.is_hosts {
                        Observation::WriteFailed { cause: None, target, error }
                    } else {
                        Observation::EventFailed { share, target, error }
                    });
                }
                if let Some(next) = self.events.answered(&flow, cx) {
                    self.send(next, cx);
                }
            }
        }
    }

    /// A restore of etcd undoes recent Events and possibly the writes in flight.
    pub fn on_restored(&mut self) {
        self.events.forget();
        self.void_up_to = self.last_write;
    }

    /// True when no write is in flight.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// X7: whether a write that is sent now ends before the claim does.
    pub fn may_write(&self, now: Now) -> bool {
        self.claim.allows_writes(now.mono_ms)
    }

    /// Whether this host leads; None without leader election.
    pub fn leads(&self, now: Now) -> Option<bool> {
        self.leader_election.then(|| self.claim.lasts(now.mono_ms))
    }

    /// Notes when the claim has become too short for a write.
    pub fn check_claim(&mut self, now: Now) {
        self.held_back |= !self.may_write(now);
    }

    pub fn on_lease_changed(&mut self, claim_until_ms: Option<u64>, cx: &mut Context<'_>) {
        if !self.leader_election {
            return;
        }
        // Another host may have led since a claim ended.
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

/// Why a plugin may not write an object, if its namespace is none of those where the plugin may act. An object without a
/// namespace belongs to no tenant.
fn outside(plugin: &str, namespaces: &Namespaces, target: &ObjectRef) -> Option<WriteError> {
    let namespace = &target.name.namespace;
    if namespaces.contains(namespace) {
        return None;
    }
    let message = match tenant::of_plugin(plugin) {
        Some(tenant) => {
            format!(
                "{plugin} is a plugin of the tenant {tenant} and writes in that namespace alone, so it may not write {target}"
            )
        }
        None if namespace.is_empty() => return None,
        None => {
            format!("spec.namespaces of the Plugin {plugin} does not have {namespace:?}, so it may not write {target}")
        }
    };
    Some(WriteError { class: WriteErrorClass::Denied, message })
}

#[cfg(test)]
mod tests;
