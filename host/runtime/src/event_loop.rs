//! The one event loop. It takes inputs, steps the engine with each and performs the effects before the next. It decides
//! nothing and does no I/O itself. It owns the engine, so nothing is locked.
//!
//! Inputs come through one queue that is bounded by number and bytes: a watch that lists faster than the engine steps waits. No
//! effect waits for an input, so the two directions cannot deadlock. The stop signal has a channel of its own, so that
//! it waits for no input.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_core::engine::Engine;
use mortise_core::event::{Effect, Event};
use mortise_core::memory::{Level, Pressure};
use mortise_core::watch::WatchEvent;
use mortise_kube::clock;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::clock::now;
use crate::effects::Performer;
use crate::input::{Input, Source};
use crate::inputs::{Arrivals, Arrived};
use crate::probes::{Phase, is_starting};
use crate::sources::{Offers, SourceOutput};
use crate::state::{HostState, Publisher};

#[cfg(test)]
mod tests;

/// Inputs of one round. The loop reads the clock after each round, so this bounds how late a tick is: by some milliseconds.
const BATCH: usize = 64;
/// Calls that are submitted before the end of a round. Waking a worker takes about as long as a small call.
const CALLS: usize = 8;
/// Steps that a metric counts. Most take some ten microseconds, as long as a few observations.
const LONG_STEP: Duration = Duration::from_millis(1);
/// A plugin that was not called for this long gives back the memory for its calls; the next call takes a millisecond
/// more. Longer than the usual requeues of a plugin with work.
const UNUSED: Duration = Duration::from_secs(300);
/// The same while memory is short.
const UNUSED_WHILE_SHORT: Duration = Duration::from_secs(1);
/// How often the loop looks for such plugins.
const LOOK_FOR_UNUSED: Duration = Duration::from_secs(60);

/// How long a host is not ready because of plugins that start. They take seconds; one that does not must not keep the
/// others out of their Service.
const START_MS: u64 = 60_000;

pub(crate) struct EventLoop {
    engine: Engine,
    inputs: Arrivals,
    performer: Performer,
    offers: Offers,
    read_config_maps_again: Arc<Notify>,
    publisher: Publisher,
    /// When the engine's next tick is due.
    wake_at: Option<u64>,
    /// Sent to, or dropped, when the host should end.
    stop: oneshot::Receiver<()>,
    stopping: bool,
    /// None once the plugins of the start serve.
    starting_until_ms: Option<u64>,
    effects: Vec<Effect>,
}

impl EventLoop {
    pub(crate) fn new(
        engine: Engine,
        inputs: Arrivals,
        stop: oneshot::Receiver<()>,
        performer: Performer,
        offers: Offers,
        read_config_maps_again: Arc<Notify>,
        publisher: Publisher,
    ) -> Self {
        Self {
            engine,
            inputs,
            performer,
            offers,
            read_config_maps_again,
            publisher,
            wake_at: None,
            stop,
            stopping: false,
            starting_until_ms: Some(clock::now_ms() + START_MS),
            effects: Vec::new(),
        }
    }

    /// Runs until the engine has drained after a shutdown.
    pub(crate) async fn run(&mut self) {
        self.step(Event::Started);
        let mut look_for_unused = interval(LOOK_FOR_UNUSED);
        look_for_unused.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        while !(self.stopping && self.engine.is_drained()) {
            self.round(&mut look_for_unused, &mut batch).await;
        }
    }

    async fn round(&mut self, look_for_unused: &mut Interval, batch: &mut Vec<Arrived>) {
        let due_ms = [self.wake_at, self.publisher.due_ms()].into_iter().flatten().min();
        self.publisher.waiting();
        tokio::select! {
            biased;
            _ = &mut self.stop, if !self.stopping => self.step(Event::Shutdown),
            _ = self.inputs.recv_many(batch, BATCH) => {}
            () = sleep(until(due_ms)), if due_ms.is_some() => {}
            _ = look_for_unused.tick() => self.performer.components.release_unused(UNUSED),
        }
        self.publisher.working(clock::now_ms());
        if !batch.is_empty() {
            self.publisher.lag.arrived(Instant::now(), clock::now_ms(), batch.len() + self.inputs.len());
        }
        for Arrived { input, room } in batch.drain(..) {
            self.take(input);
            drop(room);
            if let Some(since) = self.publisher.lag.handled() {
                self.late("input", since.elapsed());
            }
            if self.performer.jobs.len() >= CALLS {
                self.submit();
            }
        }
        // In every round, so that a steady flow of inputs does not delay ticks.
        let now_ms = clock::now_ms();
        if let Some(due_ms) = self.wake_at.take_if(|due_ms| *due_ms <= now_ms) {
            self.late("timer", Duration::from_millis(now_ms - due_ms));
            self.step(Event::Tick);
        }
        self.submit();
        self.publish_if_due();
    }

    fn late(&self, what: &'static str, lag: Duration) {
        self.publisher.lag.observe(lag, clock::now_ms());
        self.performer.metrics.late(what, lag);
    }

    /// Submits the calls of the steps before. Terminates as [`Self::step`] does.
    fn submit(&mut self) {
        while !self.performer.jobs.is_empty() {
            for not_run in self.performer.submit() {
                self.step(not_run);
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.step(event),
            Input::Source(input) => {
                let outputs = self.offers.take(input);
                self.offered(outputs);
            }
            Input::Tenant(tenancy, ..) if tenancy.has_ended() => {}
            Input::Tenant(_, event, component) => self.offered(vec![SourceOutput::Event(event, component)]),
            Input::ListingDue(source) => {
                let outputs = self.offers.listing_due(source);
                self.offered(outputs);
            }
            Input::Loaded(digest, loaded) => {
                if let Some(event) = self.performer.components.loaded(digest, loaded) {
                    self.step(event);
                }
            }
        }
    }

    fn offered(&mut self, outputs: Vec<SourceOutput>) {
        for output in outputs {
            match output {
                SourceOutput::Event(event, component) => {
                    if let Some((digest, origin)) = component {
                        self.performer.components.offered(digest, origin);
                    }
                    self.step(*event);
                }
                SourceOutput::ReadAgain(Source::ConfigMaps) => self.read_config_maps_again.notify_one(),
                SourceOutput::ReadAgain(Source::Directory) => unreachable!("no source precedes the plugin folder"),
            }
        }
    }

    /// Steps the engine, performs its effects, and steps it with the results that some have at once. Terminates,
    /// because such a result is a refusal, and the engine retries later. The effects of one event are performed before
    /// the next event: a component that is unloaded and offered again in one round depends on this order.
    fn step(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.stopping |= matches!(event, Event::Shutdown);
            self.publisher.changed_by(&event);
            if matches!(event, Event::MemoryPressure(Pressure { level: Level::Short | Level::Scarce, .. })) {
                self.performer.components.release_unused(UNUSED_WHILE_SHORT);
            }
            if let Some(observer) = &self.performer.observer {
                observer.event(&event);
            }
            let (now, began, name) = (now(), Instant::now(), name_of(&event));
            self.publisher.working(now.mono_ms);
            self.engine.step(now, event, &mut self.effects);
            for effect in self.effects.drain(..) {
                match effect {
                    Effect::WakeAt(at) => self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at))),
                    effect => events.extend(self.performer.perform(effect)),
                }
            }
            let elapsed = began.elapsed();
            self.engine.measured(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
            if elapsed >= LONG_STEP {
                self.performer.metrics.long_step(name, elapsed);
            }
        }
    }

    fn publish_if_due(&mut self) {
        let began_ms = clock::now_ms();
        if self.publisher.due_ms().is_none_or(|due_ms| due_ms > began_ms) {
            return;
        }
        let health = self.engine.health();
        self.starting_until_ms = self.starting_until_ms.filter(|_| is_starting(&health));
        let state = HostState {
            phase: match self.starting_until_ms {
                _ if self.stopping => Phase::Ending,
                Some(_) => Phase::Starting,
                None => Phase::Running,
            },
            starting_until_ms: self.starting_until_ms.unwrap_or_default(),
            health,
            snapshot: self.engine.store().snapshot(),
            kinds: self.performer.watched(),
            queue_depths: self.engine.queue_depths(),
        };
        // It may be the last one to have a kind that was forgotten.
        let before = self.publisher.publish(state, began_ms, clock::now_ms());
        self.performer.discard(before);
    }
}

/// The name of an event in metrics.
fn name_of(event: &Event) -> &'static str {
    match event {
        Event::Watch(_, WatchEvent::Applied(_) | WatchEvent::Deleted(_)) => "watch",
        Event::Watch(..) => "list",
        Event::CallDone(..) => "call",
        Event::Wrote(..) => "write",
        Event::HttpDone(..) => "http",
        Event::LiveRead(..) | Event::Audit(..) => "read",
        Event::Reviewed(..) | Event::IdentityReviewed(..) => "review",
        Event::MemoryPressure(_) => "memory",
        Event::Tick => "timer",
        Event::LeaseChanged { .. } => "lease",
        Event::Started
        | Event::Shutdown
        | Event::PluginFound(_)
        | Event::PluginUnreadable(_)
        | Event::PluginGone { .. }
        | Event::SourcesListed
        | Event::TenantListed(_)
        | Event::Compiled(..)
        | Event::CompileDelayed(..)
        | Event::CrdRegistered { .. }
        | Event::AdmissionServed { .. }
        | Event::AdmissionEnded { .. }
        | Event::ConversionServed { .. } => "plugin",
    }
}

fn until(mono_ms: Option<u64>) -> Duration {
    Duration::from_millis(mono_ms.unwrap_or_default().saturating_sub(clock::now_ms()))
}
