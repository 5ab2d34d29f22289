//! The engine makes all decisions. [`Engine::step`] is its only entry: it is synchronous, reads no clock and does no
//! I/O.
//!
//! Four state machines own all state, and the files in a machine's folder see only its fields:
//! - `engine/lifecycle.rs`: plugins, from offer to removal, and what they need of the cluster.
//! - `engine/reconciler.rs`: the keys of serving controllers: wake-ups, work queue, calls, plans, status, finalizers.
//! - `engine/outbox.rs`: all writes and HTTP requests: the claim to lead, budgets, writes in flight, Events.
//! - the [`Store`]: the cache. The Lifecycle and the Reconciler react to its changes.
//!
//! They send each other the messages of `engine/message.rs`; `step` delivers them until none is left.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::{Effect, Event};
use crate::observation::Observation;
use crate::plan::Reserved;
use crate::scope::Slice;
use crate::store::pieces::{Ended, LOOKS_PER_OBJECT};
use crate::store::{Change, Store};
use crate::time::Now;
use crate::watch::WatchEvent;

mod allowance;
mod config;
mod context;
mod health;
mod lifecycle;
mod message;
mod outbox;
mod reconciler;

pub use config::Config;
pub use health::{Health, PluginHealth};
pub use outbox::WriteBudget;

use allowance::Allowance;
use context::Context;
use lifecycle::Lifecycle;
use message::Message;
use outbox::Outbox;
use reconciler::Reconciler;

/// Looks at objects that lists lack or no watch shows, in a millisecond, of which they take half.
const LOOKS_PER_MS: usize = 4_096;
/// Looks that take a microsecond.
const LOOKS_PER_US: usize = 8;

/// The state machines and the messages between them.
#[derive(Debug)]
pub struct Engine {
    now: Now,
    store: Store,
    lifecycle: Lifecycle,
    reconciler: Reconciler,
    outbox: Outbox,
    messages: VecDeque<Message>,
    /// Lists that have ended and are not complete.
    ending: VecDeque<Slice>,
    pieces: Allowance,
    draining: bool,
    /// The earliest time for which [`Effect::WakeAt`] was sent.
    wake_at: Option<u64>,
}

/// The machines, borrowed separately from their [`Context`].
struct Machines<'a> {
    lifecycle: &'a mut Lifecycle,
    reconciler: &'a mut Reconciler,
    outbox: &'a mut Outbox,
}

impl Engine {
    /// An empty engine. Its first event must be [`Event::Started`].
    pub fn new(config: Config) -> Self {
        Self {
            now: Now::default(),
            store: Store::default(),
            lifecycle: Lifecycle::new(&config),
            reconciler: Reconciler::new(
                Reserved { namespace: config.namespace, from_inside: config.require_service_account },
                config.call_slots,
                config.http_requests_per_minute.unwrap_or_default(),
            ),
            outbox: Outbox::new(config.instance, config.leader_election, config.write_budget),
            messages: VecDeque::new(),
            ending: VecDeque::new(),
            pieces: Allowance::of(LOOKS_PER_MS),
            draining: false,
            wake_at: None,
        }
    }

    /// Processes one event and appends the effects. A `now` before the last one counts as the last one.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.now = Now { mono_ms: now.mono_ms.max(self.now.mono_ms), unix_ms: now.unix_ms };
        self.outbox.check_claim(self.now);
        self.reconciler.begin_step();
        match event {
            Event::Watch(slice, event) => self.on_watch(&slice, event, effects),
            Event::Tick => self.wake_at = None,
            Event::Shutdown => self.draining = true,
            event => self.take(event, effects),
        }
        self.end_lists(effects);
        self.deliver(effects);
        self.with(effects, |machines, cx| machines.lifecycle.run_timers(cx));
        self.with(effects, |machines, cx| machines.lifecycle.run_audits(cx));
        self.deliver(effects);
        self.with(effects, |machines, cx| machines.reconciler.run_queue(cx));
        self.with(effects, |machines, cx| machines.reconciler.run_requests(cx));
        self.deliver(effects);
        self.drop_unshown();
        self.store.build_indexes();
        self.set_wake(effects);
    }

    /// How long the last step took, by the caller's clock: the plugins are charged for it. Without it they are charged for
    /// what the engine counts, so that a simulation is repeatable.
    pub fn measured(&mut self, elapsed_us: u64) {
        self.reconciler.measured(elapsed_us);
    }

    /// True after [`Event::Shutdown`] when no write is in flight.
    pub fn is_drained(&self) -> bool {
        self.draining && self.outbox.is_empty() && !self.lifecycle.is_registering()
    }

    /// The store, read-only.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The depth of the work queue, per controller label.
    pub fn queue_depths(&self) -> Vec<(Arc<str>, usize)> {
        self.reconciler.queue_depths()
    }

    /// The host's health, for probes and people.
    pub fn health(&self) -> Health {
        self.lifecycle.health(&self.store, self.outbox.leads(self.now))
    }

    fn with(&mut self, effects: &mut Vec<Effect>, run: impl FnOnce(Machines<'_>, &mut Context<'_>)) {
        let Self { lifecycle, reconciler, outbox, .. } = self;
        let mut cx = Context {
            now: self.now,
            store: &self.store,
            may_write: outbox.may_write(self.now),
            draining: self.draining,
            effects,
            messages: &mut self.messages,
        };
        run(Machines { lifecycle, reconciler, outbox }, &mut cx);
    }

    /// Gives an event to its machine.
    fn take(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.with(effects, |Machines { lifecycle, reconciler, outbox }, cx| match event {
            Event::Started => lifecycle.start(cx),
            Event::PluginFound(offer) => lifecycle.on_source_found(offer, cx),
            Event::PluginUnreadable(unreadable) => lifecycle.on_source_unreadable(unreadable, cx),
            Event::PluginGone { name, source } => lifecycle.on_source_gone(&name, &source, cx),
            Event::SourcesListed => lifecycle.on_sources_listed(cx),
            Event::TenantListed(namespace) => lifecycle.on_tenant_listed(&namespace, cx),
            Event::Compiled(digest, result) => lifecycle.on_compiled(&digest, result, cx),
            Event::CompileDelayed(digest, why) => lifecycle.on_compile_delayed(&digest, why, cx),
            Event::CrdRegistered { plugin, crd, result } => lifecycle.on_crd_registered(&plugin, &crd, result, cx),
            Event::AdmissionServed { plugin, digest, result } => {
                lifecycle.on_admission_served(&plugin, &digest, result, cx);
            }
            Event::AdmissionEnded { plugin } => lifecycle.on_admission_ended(&plugin, cx),
            Event::ConversionServed { plugin, digest, result } => {
                lifecycle.on_conversion_served(&plugin, &digest, result, cx);
            }
            Event::CallDone(id, done) => reconciler.on_call_done(id, done, cx),
            Event::LiveRead(target, result) => reconciler.on_live_read(&target, &result, cx),
            Event::Reviewed(review, result) => lifecycle.on_reviewed(review, result, cx),
            Event::IdentityReviewed(review, result) => lifecycle.on_identity_reviewed(review, result, cx),
            Event::HttpDone(id, sent) => reconciler.on_http_done(id, sent, cx),
            Event::Audit(slice, response) => lifecycle.on_audit(&slice, response, cx),
            Event::Wrote(id, result) => outbox.on_wrote(id, result, cx),
            Event::MemoryPressure(pressure) => lifecycle.on_memory_pressure(pressure, cx),
            Event::LeaseChanged { claim_until_ms } => outbox.on_lease_changed(claim_until_ms, cx),
            Event::Watch(..) | Event::Tick | Event::Shutdown => unreachable!("step matches these itself"),
        });
    }

    /// Delivers messages in order, including those sent meanwhile.
    fn deliver(&mut self, effects: &mut Vec<Effect>) {
        while let Some(message) = self.messages.pop_front() {
            match &message {
                Message::Forget(kind) => effects.extend(self.store.forget(kind).map(Effect::Discard)),
                Message::Drop(slice) => effects.extend(self.store.drop_slice(slice).map(Effect::Discard)),
                Message::Field(field) => self.store.select_field(&field.kind, &field.path, field.is_selected),
                Message::Restored { .. } => self.lifecycle.watched().for_each(|kind| self.store.rewind(kind)),
                _ => {}
            }
            self.with(effects, |machines, cx| match message {
                Message::ToLifecycle(message) => machines.lifecycle.take(message, cx),
                Message::ToReconciler(message) => machines.reconciler.take(message, cx),
                Message::ToOutbox(message) => machines.outbox.take(message, cx),
                Message::Forget(_) | Message::Drop(_) | Message::Field(_) => {}
                Message::Restored { slice, lists, message } => {
                    machines.lifecycle.on_restored(slice, lists, message, cx);
                    machines.reconciler.on_restored(cx);
                    machines.outbox.on_restored();
                }
            });
        }
    }

    fn on_watch(&mut self, slice: &Slice, event: WatchEvent, effects: &mut Vec<Effect>) {
        if !self.lifecycle.watches(slice) {
            // An event of a watch that was stopped since.
            return;
        }
        match event {
            WatchEvent::ClusterScoped => {
                self.with(effects, |machines, cx| machines.lifecycle.on_cluster_scoped(slice, cx));
            }
            WatchEvent::Listing => self.store.begin_list(slice),
            WatchEvent::Listed(objects) => {
                for object in objects {
                    let change = self.store.list_item_of(slice, object);
                    self.on_change(slice, &change, true, effects);
                }
            }
            WatchEvent::ListDone(version) => {
                let contradiction =
                    || format!("a list at version {} shows older versions of objects than the cache", version.0);
                if self.store.is_contradicted(slice, version)
                    && self.notice_restore(slice, false, contradiction(), effects)
                {
                    return;
                }
                self.store.begin_end(slice, version);
                self.ending.push_back(slice.clone());
            }
            WatchEvent::Applied(object) => {
                let change = self.store.apply_of(slice, *object);
                self.on_change(slice, &change, false, effects);
            }
            WatchEvent::Deleted(object) => {
                let change = self.store.remove(slice, &object.name, object.resource_version);
                self.on_change(slice, &change, false, effects);
            }
            WatchEvent::Progress(version) => {
                self.store.progress(slice, version);
                self.on_progress(slice, effects);
            }
            WatchEvent::Restored { before, now } => {
                let message = format!("its version was {} and is {} now", before.0, now.0);
                // Every watch notices the same restore; only the first starts the relists.
                if !self.store.synced(slice) || !self.notice_restore(slice, true, message, effects) {
                    self.store.rewind_slice(slice);
                }
            }
            WatchEvent::Failed(error) => {
                self.with(effects, |machines, cx| machines.lifecycle.on_watch_failed(slice, error, cx));
            }
            WatchEvent::Undecodable { message } => {
                effects.push(Effect::Observe(Observation::Undecodable { kind: slice.kind.clone(), message }));
            }
        }
    }

    /// Takes out of the cache what lists that have ended lack, as much as this millisecond allows. A list is complete when
    /// nothing is left to be taken out (R4).
    fn end_lists(&mut self, effects: &mut Vec<Effect>) {
        let before = self.pieces.left(self.now.mono_ms);
        let mut looks = before;
        while looks > 0
            && let Some(slice) = self.ending.pop_front()
        {
            if !self.lifecycle.watches(&slice) {
                continue;
            }
            match self.store.end_next(&slice, &mut looks) {
                Ended::Lost(change) => {
                    let charged_us = self.reconciler.charged_us();
                    self.on_change(&slice, &change, true, effects);
                    let us = self.reconciler.charged_us() - charged_us;
                    let took = usize::try_from(us).unwrap_or(usize::MAX).saturating_mul(LOOKS_PER_US);
                    looks = looks.saturating_sub(LOOKS_PER_OBJECT.saturating_add(took));
                    self.ending.push_front(slice);
                }
                Ended::NotYet => self.ending.push_front(slice),
                Ended::Complete => self.on_progress(&slice, effects),
                Ended::Abandoned => {}
            }
        }
        self.pieces.spend(before - looks);
    }

    /// The same of what no watch shows any more.
    fn drop_unshown(&mut self) {
        let before = self.pieces.left(self.now.mono_ms);
        let left = self.store.drop_next(before);
        self.pieces.spend(before - left);
    }

    fn notice_restore(&mut self, slice: &Slice, lists: bool, message: String, effects: &mut Vec<Effect>) -> bool {
        let mut counts = false;
        self.with(effects, |machines, cx| counts = machines.lifecycle.notice_restore(slice, lists, message, cx));
        counts
    }

    fn on_change(&mut self, slice: &Slice, change: &Change, by_list: bool, effects: &mut Vec<Effect>) {
        self.with(effects, |machines, cx| {
            machines.lifecycle.on_change(change, cx);
            machines.reconciler.on_change(change, by_list, cx);
            if !by_list {
                machines.lifecycle.on_kind_served(slice, cx);
            }
        });
    }

    fn on_progress(&mut self, slice: &Slice, effects: &mut Vec<Effect>) {
        self.with(effects, |machines, cx| {
            machines.lifecycle.on_kind_served(slice, cx);
            machines.reconciler.on_progress(&slice.kind, cx);
        });
    }

    /// Requests a [`Event::Tick`] for the next timer, when that is earlier than the tick that was requested last.
    fn set_wake(&mut self, effects: &mut Vec<Effect>) {
        let is_ending = !self.ending.is_empty() || self.store.is_dropping();
        let more_ms = is_ending.then(|| self.pieces.next_ms());
        let due_ms = [self.lifecycle.next_due_ms(), self.reconciler.next_due_ms(), more_ms].into_iter().flatten().min();
        if let Some(due_ms) = due_ms
            && self.wake_at.is_none_or(|wake_at| due_ms < wake_at)
        {
            self.wake_at = Some(due_ms);
            effects.push(Effect::WakeAt(due_ms));
        }
    }
}

#[cfg(test)]
mod tests;
