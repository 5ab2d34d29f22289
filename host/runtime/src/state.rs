//! The state that the event loop publishes. Probes and scrapes read it; they give the loop no work and never wait for
//! it.
//!
//! Time comes in as milliseconds of [`mortise_kube::clock`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mortise_core::engine::Health;
use mortise_core::event::Event;
use mortise_core::object::Kind;
use mortise_core::store::{Snapshot, Store};
use mortise_core::watch::WatchEvent;
use tokio::sync::watch;

use crate::lag::{Lag, LagReader};
use crate::probes::Phase;

/// How soon a change of plugins is published. Kubelets probe every few seconds.
const SOON_MS: u64 = 250;
/// How soon a change of objects is. They change all the time, scrapes come every 15 s or more, and gathering the state
/// of a thousand plugins takes milliseconds.
const LATER_MS: u64 = 5_000;
/// Publishing takes at most a hundredth of the loop's time, unless the state would get older than [`LATER_MS`].
const PAUSE_PER_COST: u64 = 100;
/// Longer than any step: what is to be done for very many objects or keys is done in pieces of a millisecond or two.
const STUCK_MS: u64 = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct HostState {
    pub(crate) health: Health,
    pub(crate) snapshot: Snapshot,
    pub(crate) kinds: Vec<Kind>,
    /// Waiting keys, by controller.
    pub(crate) queue_depths: Vec<(Arc<str>, usize)>,
    pub(crate) phase: Phase,
    /// When a host that is still starting counts as running.
    pub(crate) starting_until_ms: u64,
}

impl HostState {
    fn unknown() -> Self {
        Self {
            health: Health { sources_listed: false, unlisted: Vec::new(), leads: None, plugins: Vec::new() },
            snapshot: Store::new().snapshot(),
            kinds: Vec::new(),
            queue_depths: Vec::new(),
            phase: Phase::Starting,
            starting_until_ms: u64::MAX,
        }
    }

    pub(crate) fn phase(&self, now_ms: u64) -> Phase {
        if self.phase == Phase::Starting && now_ms >= self.starting_until_ms { Phase::Running } else { self.phase }
    }
}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Publisher {
    state: watch::Sender<Arc<HostState>>,
    step_began_ms: Arc<AtomicU64>,
    pub(crate) lag: Lag,
    published_ms: u64,
    pause_ms: u64,
    due_ms: Option<u64>,
}

/// The readers' end.
#[derive(Clone, Debug)]
pub(crate) struct Inspector {
    state: watch::Receiver<Arc<HostState>>,
    step_began_ms: Arc<AtomicU64>,
    pub(crate) lag: LagReader,
}

/// `step_began_ms` between two steps.
const WAITING: u64 = u64::MAX;

/// Both ends, with the state of a host before its start.
pub(crate) fn channel() -> (Publisher, Inspector) {
    let (sender, state) = watch::channel(Arc::new(HostState::unknown()));
    let step_began_ms = Arc::new(AtomicU64::new(WAITING));
    let lag = Lag::default();
    let inspector = Inspector { state, step_began_ms: Arc::clone(&step_began_ms), lag: lag.reader() };
    (Publisher { state: sender, step_began_ms, lag, published_ms: 0, pause_ms: 0, due_ms: None }, inspector)
}

impl Publisher {
    /// A step of the loop begins.
    pub(crate) fn working(&self, now_ms: u64) {
        self.step_began_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The loop waits for its next input.
    pub(crate) fn waiting(&self) {
        self.step_began_ms.store(WAITING, Ordering::Relaxed);
    }

    /// Schedules the publication of the state that this event changes.
    pub(crate) fn changed_by(&mut self, event: &Event) {
        let within_ms = match event {
            Event::Watch(_, WatchEvent::Listed(_) | WatchEvent::Applied(_) | WatchEvent::Deleted(_))
            | Event::Watch(_, WatchEvent::Progress(_))
            | Event::CallDone(..)
            | Event::Wrote(..)
            | Event::LiveRead(..)
            | Event::Audit(..)
            // Each renewal is one.
            | Event::LeaseChanged { .. }
            | Event::Tick => LATER_MS,
            // The next probe must see that the host ends.
            Event::Shutdown => return self.due_ms = Some(0),
            _ => SOON_MS,
        };
        let due_ms = self.published_ms.saturating_add(within_ms.max(self.pause_ms));
        self.due_ms = Some(self.due_ms.map_or(due_ms, |earlier| earlier.min(due_ms)));
    }

    /// When the state should be published; None without a change.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Publishes a state that was gathered between these two moments. Returns the one before, which may take long to be
    /// freed.
    pub(crate) fn publish(&mut self, state: HostState, began_ms: u64, ended_ms: u64) -> Arc<HostState> {
        let before = self.state.send_replace(Arc::new(state));
        self.due_ms = None;
        self.published_ms = ended_ms;
        self.pause_ms = ended_ms.saturating_sub(began_ms).saturating_mul(PAUSE_PER_COST).min(LATER_MS);
        before
    }
}

impl Inspector {
    /// The last published state.
    pub(crate) fn state(&self) -> Arc<HostState> {
        Arc::clone(&self.state.borrow())
    }

    /// Why the loop is not live.
    pub(crate) fn failure(&self, now_ms: u64) -> Option<String> {
        if self.state.has_changed().is_err() {
            return Some("the event loop has ended".to_owned());
        }
        let step_began_ms = self.step_began_ms.load(Ordering::Relaxed);
        let step_ms = now_ms.saturating_sub(step_began_ms);
        (step_ms >= STUCK_MS).then(|| format!("the event loop has been in one step for {} s", step_ms / 1_000))
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::object::ResourceVersion;

    use super::*;

    fn bookmark() -> Event {
        Event::Watch(Kind::new("v1", "Pod").into(), WatchEvent::Progress(ResourceVersion(1)))
    }

    #[test]
    fn a_change_of_plugins_is_published_soon_and_one_of_objects_later() {
        let (mut publisher, _inspector) = channel();
        assert_eq!(publisher.due_ms(), None);
        publisher.publish(HostState::unknown(), 10_000, 10_000);
        publisher.changed_by(&bookmark());
        assert_eq!(publisher.due_ms(), Some(10_000 + LATER_MS));
        publisher.changed_by(&Event::SourcesListed);
        publisher.changed_by(&bookmark());
        assert_eq!(publisher.due_ms(), Some(10_000 + SOON_MS), "the earlier time counts");
        publisher.changed_by(&Event::Shutdown);
        assert_eq!(publisher.due_ms(), Some(0));
        publisher.publish(HostState::unknown(), 10_300, 10_300);
        assert_eq!(publisher.due_ms(), None);
    }

    #[test]
    fn a_state_that_takes_long_to_gather_is_gathered_for_a_hundredth_of_the_time() {
        let (mut publisher, _inspector) = channel();
        let (mut now_ms, mut gathered) = (0, 0);
        while now_ms < 60_000 {
            publisher.changed_by(&Event::SourcesListed);
            if publisher.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                publisher.publish(HostState::unknown(), now_ms, now_ms + 20);
                gathered += 1;
            }
            now_ms += 10;
        }
        assert!((25..=31).contains(&gathered), "{gathered} times 20 ms in a minute");
    }

    #[test]
    fn a_loop_that_waits_is_live_and_one_that_stays_in_a_step_is_not() {
        let (publisher, inspector) = channel();
        assert_eq!(inspector.failure(u64::MAX - 1), None, "before the first step");
        publisher.working(1_000);
        assert_eq!(inspector.failure(1_000 + STUCK_MS - 1), None);
        let failure = inspector.failure(61_000).unwrap();
        assert_eq!(failure, "the event loop has been in one step for 60 s");
        publisher.waiting();
        assert_eq!(inspector.failure(3_600_000), None);
        drop(publisher);
        assert_eq!(inspector.failure(0), Some("the event loop has ended".to_owned()));
    }

    #[test]
    fn the_start_ends_in_time_also_without_another_publication() {
        let state = HostState { starting_until_ms: 60_000, ..HostState::unknown() };
        assert_eq!((state.phase(59_999), state.phase(60_000)), (Phase::Starting, Phase::Running));
        let ending = HostState { phase: Phase::Ending, ..state };
        assert_eq!(ending.phase(60_000), Phase::Ending);
    }
}
