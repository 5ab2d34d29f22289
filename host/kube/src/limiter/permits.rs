//! Which request gets a permit next. Requests enter and leave by their flows; the tickets of those that may be sent come out.
//! Nothing waits here, and time is an argument.
//!
//! Each flow has permits of its own. Beyond them it takes permits from a shared pool: at most its part, and none while one of
//! its requests hangs. So flows that hang, however many, keep what they had, and every other flow has at least its own
//! permits. Among flows that wait for the pool, the one with the fewest permits of it is next, then the longest waiting.
//!
//! Where time in flight is counted, a flow has a permit of the pool only where it has saved up what its requests in flight and one
//! more will use, and a request that took longer than a small one keeps its permit when it has ended, for what it took more. Who is
//! asked takes longer for what costs it more, so this bounds what a flow costs it, whatever its requests are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mortise_core::limits::REMEMBERED_PLUGINS;

#[cfg(test)]
mod tests;

/// A request in flight for longer hangs. A response takes milliseconds; an API server that takes a second for one should get
/// fewer requests.
pub(super) const HANGS: Duration = Duration::from_secs(1);
/// A request that took longer hung until its timeout, and the next ones of its flow will too: the flow gets nothing of the pool
/// until requests end in time, each of which doubles its part. Half of the timeout of a write.
pub(super) const HUNG: Duration = Duration::from_secs(5);
/// What a small request takes of an API server that is busy. Only what a request takes beyond that is counted, so a flow of small
/// requests has as many in flight as it may, until they make each other slow.
const SMALL: Duration = Duration::from_millis(25);

/// How many requests the average of what they use is of, about: those of one reconcile are large and small.
const AVERAGED: u32 = 8;

/// How many requests may be in flight.
#[derive(Debug)]
pub struct Limits<F> {
    /// For each flow, whatever the others do.
    pub own: fn(&F) -> usize,
    /// For all flows together, beyond their own.
    pub shared: usize,
    /// The most that one flow takes of the shared ones.
    pub of_one: usize,
    /// The most time that a flow saves up: its requests use twice what they take beyond that of a small one, and as much as passes
    /// comes back, so of large ones one is in flight half of the time. None: it is not counted.
    pub saved: fn(&F) -> Option<Duration>,
}

/// A request, numbered in order of arrival.
pub(super) type Ticket = u64;

/// The requests in flight and those that wait.
#[derive(Debug)]
pub(super) struct Permits<F> {
    limits: Limits<F>,
    flows: BTreeMap<F, Flow>,
    /// Flows that wait for the pool, the next one first: their permits of it, and their first request that waits. A flow that
    /// was found to hang, or to have no time, is not among them until its next request comes or leaves.
    ready: BTreeMap<(usize, Ticket), F>,
    /// Permits of the pool in use.
    taken: usize,
    tickets: Ticket,
}

#[derive(Debug)]
struct Flow {
    own: usize,
    /// The most that it takes of the pool.
    part: usize,
    /// With their start, the oldest first: permits are granted in the order of tickets.
    in_flight: BTreeMap<Ticket, Instant>,
    /// They have ended, and keep their permits for now.
    kept: BTreeSet<Ticket>,
    waiting: BTreeSet<Ticket>,
    saved: Option<Duration>,
    /// Until when it has used the time that passes.
    used_until: Instant,
    /// What its requests use, on average of some.
    used: Duration,
}

impl Flow {
    fn permits(&self) -> usize {
        self.in_flight.len() + self.kept.len()
    }

    fn taken(&self) -> usize {
        self.permits().saturating_sub(self.own)
    }

    fn is_idle(&self) -> bool {
        self.permits() == 0 && self.waiting.is_empty()
    }

    fn hangs(&self, now: Instant) -> bool {
        self.in_flight.first_key_value().is_some_and(|(_, since)| now.saturating_duration_since(*since) > HANGS)
    }

    /// Whether time is saved for one more request.
    fn has_time(&self, now: Instant) -> bool {
        let in_flight = u32::try_from(self.in_flight.len() + 1).unwrap_or(u32::MAX);
        let used = self.used.saturating_mul(in_flight);
        self.saved.is_none_or(|saved| self.used_until.max(now) + used <= now + saved)
    }

    /// Whether it has all that a new flow has.
    fn is_as_new(&self, now: Instant, most: usize) -> bool {
        self.is_idle() && self.part == most && (self.saved.is_none() || self.used_until <= now && self.used < SMALL)
    }

    /// Its place among the flows that wait for the pool.
    fn order(&self) -> Option<(usize, Ticket)> {
        let first = *self.waiting.first()?;
        (self.taken() < self.part).then_some((self.taken(), first))
    }

    fn grant_own(&mut self, now: Instant) -> Option<Ticket> {
        if self.permits() < self.own { self.grant_first(now) } else { None }
    }

    fn grant_first(&mut self, now: Instant) -> Option<Ticket> {
        let first = self.waiting.pop_first()?;
        self.in_flight.insert(first, now);
        Some(first)
    }

    /// A request ends. Returns for how long it keeps its permit.
    fn end(&mut self, now: Instant, ticket: Ticket, most: usize) -> Duration {
        let Some(since) = self.in_flight.remove(&ticket) else { return Duration::ZERO };
        self.kept.insert(ticket);
        let took = now.saturating_duration_since(since);
        match took {
            took if took > HUNG => self.part = 0,
            took if took <= HANGS => self.part = (self.part * 2).clamp(1, most),
            _ => {}
        }
        if self.saved.is_none() {
            return Duration::ZERO;
        }
        // One that hung waited for somebody else for the rest of its time.
        let beyond_small = took.min(HANGS).saturating_sub(SMALL);
        self.used = (self.used * (AVERAGED - 1) + 2 * beyond_small) / AVERAGED;
        self.used_until = self.used_until.max(now) + 2 * beyond_small;
        beyond_small
    }
}

impl<F: Ord + Clone> Permits<F> {
    pub(super) fn new(limits: Limits<F>) -> Self {
        Self { limits, flows: BTreeMap::new(), ready: BTreeMap::new(), taken: 0, tickets: 0 }
    }

    /// A new request, and those that may be sent now. If it is not among them, it waits until it is among those of a later call.
    pub(super) fn enter(&mut self, now: Instant, flow: &F) -> (Ticket, Vec<Ticket>) {
        self.tickets += 1;
        let ticket = self.tickets;
        if !self.flows.contains_key(flow) {
            let (own, part, saved) = ((self.limits.own)(flow), self.limits.of_one, (self.limits.saved)(flow));
            let (in_flight, kept, waiting) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
            let empty = Flow { own, part, in_flight, kept, waiting, saved, used_until: now, used: Duration::ZERO };
            self.flows.insert(flow.clone(), empty);
        }
        let own = self.update(flow, |flow| {
            flow.waiting.insert(ticket);
            flow.grant_own(now)
        });
        (ticket, own.into_iter().chain(self.grant(now)).collect())
    }

    /// A request ends. Returns for how long it keeps its permit, after which it has to leave.
    pub(super) fn end(&mut self, now: Instant, flow: &F, ticket: Ticket) -> Duration {
        let most = self.limits.of_one;
        self.update(flow, |flow| flow.end(now, ticket, most))
    }

    /// A request that has ended leaves, or one that waits stops. Returns those that may be sent now.
    pub(super) fn leave(&mut self, now: Instant, flow: &F, ticket: Ticket) -> Vec<Ticket> {
        let most = self.limits.of_one;
        let (own, is_idle, is_as_new) = self.update(flow, |flow| {
            flow.waiting.remove(&ticket);
            flow.kept.remove(&ticket);
            (flow.grant_own(now), flow.is_idle(), flow.is_as_new(now, most))
        });
        if is_as_new {
            self.flows.remove(flow);
        } else if is_idle && self.flows.len() > REMEMBERED_PLUGINS {
            self.flows.retain(|_, flow| !flow.is_as_new(now, most));
            if self.flows.len() > REMEMBERED_PLUGINS {
                // They have their whole part and time again.
                self.flows.retain(|_, flow| !flow.is_idle());
            }
        }
        own.into_iter().chain(self.grant(now)).collect()
    }

    /// Grants permits of the pool.
    fn grant(&mut self, now: Instant) -> Vec<Ticket> {
        let mut granted = Vec::new();
        while self.taken < self.limits.shared {
            let Some((_, flow)) = self.ready.pop_first() else { break };
            if self.flows.get(&flow).is_some_and(|flow| !flow.hangs(now) && flow.has_time(now)) {
                granted.extend(self.update(&flow, |flow| flow.grant_first(now)));
            }
        }
        granted
    }

    /// Changes a flow, and brings `taken` and `ready` in line.
    fn update<R>(&mut self, key: &F, change: impl FnOnce(&mut Flow) -> R) -> R {
        let flow = self.flows.get_mut(key).expect("a flow with a request has an entry");
        self.taken -= flow.taken();
        if let Some(order) = flow.order() {
            self.ready.remove(&order);
        }
        let result = change(flow);
        self.taken += flow.taken();
        if let Some(order) = flow.order() {
            self.ready.insert(order, key.clone());
        }
        result
    }
}
