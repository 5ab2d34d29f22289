//! The one event loop. It waits for inputs, takes all that are there, steps the driver through each and performs what it
//! asks for before the next; it decides nothing and does no I/O itself. The driver has no other owner, so nothing is locked.
//!
//! Inputs come through one bounded channel: a watch that lists faster than the driver takes waits for it. Performing an
//! effect never waits for anything that waits for an input, so the two directions cannot block each other. The word to stop
//! has a way of its own, so that it waits for no place in the channel and for nothing that stands in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mortise_core::digest::Digest;
use mortise_core::engine::Engine;
use mortise_core::event::{Effect, Event};
use mortise_core::time::Now;
use mortise_kube::clock;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::components::Loaded;
use crate::effects::Performer;
use crate::probes::{Phase, is_starting};
use crate::sources::{Offers, Source, SourceInput, SourceOutput};
use crate::state::{HostState, Publisher};

#[cfg(test)]
mod tests;

/// Inputs that wait for the loop. Some milliseconds of work: enough that a listing keeps the loop busy, few enough that
/// an answer behind it is not late.
pub(crate) const INPUTS: usize = 1_024;
/// Inputs of one round. After each round the clock is looked at, so this bounds how late a tick is.
const BATCH: usize = 256;
/// A plugin that was not called for this long gives back what it needs in memory to be called; the next call takes a
/// millisecond more. Long beside the requeues and resyncs of a plugin that has work.
const UNUSED: Duration = Duration::from_secs(300);
/// How often that is looked at.
const LOOK_FOR_UNUSED: Duration = Duration::from_secs(60);

/// How long a host counts as beginning. Plugins mostly serve within seconds; one that does not must not keep those that do from
/// being found by their Service.
const START_MS: u64 = 60_000;

/// What enters the loop.
#[derive(Debug)]
pub(crate) enum Input {
    /// For the driver.
    Event(Event),
    /// From a source of plugins.
    Source(SourceInput),
    /// The time for the first listing of a source is over.
    ListingDue(Source),
    /// From a compile thread.
    Loaded(Digest, Loaded),
}

/// The driver and what it moves.
pub(crate) struct EventLoop {
    driver: Engine,
    inputs: mpsc::Receiver<Input>,
    performer: Performer,
    offers: Offers,
    read_config_maps_again: Arc<Notify>,
    publisher: Publisher,
    /// When the driver wants its next tick.
    wake_at: Option<u64>,
    /// Sent to, or dropped, when the host is to end.
    stop: oneshot::Receiver<()>,
    stopping: bool,
    /// None when the plugins that were there at the start serve.
    starting_until_ms: Option<u64>,
    effects: Vec<Effect>,
}

impl EventLoop {
    pub(crate) fn new(
        driver: Engine,
        inputs: mpsc::Receiver<Input>,
        stop: oneshot::Receiver<()>,
        performer: Performer,
        offers: Offers,
        read_config_maps_again: Arc<Notify>,
        publisher: Publisher,
    ) -> Self {
        Self {
            driver,
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

    /// Turns until the driver has finished after a shutdown.
    pub(crate) async fn run(&mut self) {
        self.step(Event::Started);
        let mut look_for_unused = interval(LOOK_FOR_UNUSED);
        look_for_unused.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        while !(self.stopping && self.driver.is_drained()) {
            self.round(&mut look_for_unused, &mut batch).await;
        }
    }

    async fn round(&mut self, look_for_unused: &mut Interval, batch: &mut Vec<Input>) {
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
        for input in batch.drain(..) {
            self.take(input);
        }
        // Looked at in every round, so that a steady flow of inputs does not hold up what is due.
        if self.wake_at.is_some_and(|due_ms| due_ms <= clock::now_ms()) {
            self.wake_at = None;
            self.step(Event::Tick);
        }
        self.publish_if_due();
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.step(event),
            Input::Source(input) => {
                let found = self.offers.take(input);
                self.offered(found);
            }
            Input::ListingDue(source) => {
                let found = self.offers.listing_due(source);
                self.offered(found);
            }
            Input::Loaded(digest, loaded) => {
                if let Some(event) = self.performer.components.loaded(digest, loaded) {
                    self.step(event);
                }
            }
        }
    }

    fn offered(&mut self, told: Vec<SourceOutput>) {
        for told in told {
            match told {
                SourceOutput::Event(event, found) => {
                    if let Some((digest, origin)) = found {
                        self.performer.components.offered(digest, origin);
                    }
                    self.step(*event);
                }
                SourceOutput::ReadAgain(Source::ConfigMaps) => self.read_config_maps_again.notify_one(),
                SourceOutput::ReadAgain(Source::Directory) => unreachable!("nothing goes before the plugin folder"),
            }
        }
    }

    /// Steps the driver and performs its effects, and those of the answers that some have at once. Ends, because such an
    /// answer is a refusal, after which the driver waits before it asks again. The effects of one event are performed
    /// before the next is looked at: a component that is unloaded and offered anew in one round has to keep this order.
    fn step(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.stopping |= matches!(event, Event::Shutdown);
            self.publisher.changed_by(&event);
            let now = now();
            self.publisher.working(now.mono_ms);
            self.driver.step(now, event, &mut self.effects);
            for effect in self.effects.drain(..) {
                match effect {
                    Effect::WakeAt(at) => self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at))),
                    effect => events.extend(self.performer.perform(effect)),
                }
            }
        }
    }

    fn publish_if_due(&mut self) {
        let began_ms = clock::now_ms();
        if self.publisher.due_ms().is_none_or(|due_ms| due_ms > began_ms) {
            return;
        }
        let health = self.driver.health();
        self.starting_until_ms = self.starting_until_ms.filter(|_| is_starting(&health));
        let state = HostState {
            phase: match self.starting_until_ms {
                _ if self.stopping => Phase::Ending,
                Some(_) => Phase::Starting,
                None => Phase::Running,
            },
            starting_until_ms: self.starting_until_ms.unwrap_or_default(),
            health,
            snapshot: self.driver.store().snapshot(),
            kinds: self.performer.watched(),
            queue_depths: self.driver.queue_depths(),
        };
        self.publisher.publish(state, began_ms, clock::now_ms());
    }
}

/// The time of a step. Its monotonic half is the clock that claims to write are measured by.
fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono_ms: clock::now_ms(), unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX) }
}

/// How long it is until a moment of that clock; nothing for none, which nobody waits for.
fn until(mono_ms: Option<u64>) -> Duration {
    Duration::from_millis(mono_ms.unwrap_or_default().saturating_sub(clock::now_ms()))
}
