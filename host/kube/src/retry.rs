//! The delay before the next try. Failures come in, delays come out; nothing sleeps here.

use std::time::Duration;

use tokio::time::Instant;

/// The first delay. Most breaks are a connection that a load balancer or a restarting API server closed.
const FIRST_MS: u64 = 100;
/// The longest delay while there is no connection: a try costs the API server nothing, and its return is seen within about a
/// second.
const UNREACHABLE_CAP_MS: u64 = 1_000;
/// The longest delay while the API server responds with errors: it is up and may be overloaded.
const ERROR_CAP_MS: u64 = 5_000;
/// The delay after a missing permission or kind: once granted or served it is noticed within five seconds, with jitter.
const REFUSED_MS: u64 = 3_500;
/// The same after so many tries, which take a minute: what has been missing for longer may be missing for good.
const REFUSED_LONG_MS: u64 = 15_000;
const REFUSED_TRIES: u32 = 20;
/// The longest `Retry-After` that is honoured: any proxy may send one, and the kind is not watched meanwhile.
const RETRY_AFTER_CAP_MS: u64 = 30_000;
/// The longest time between lists of a kind that are worth nothing: what one costs is spread over a minute, and a cluster that
/// works again is listed within one.
const LISTS_CAP_MS: u64 = 60_000;
/// A list after this time is a first one: the API server forgets versions after five minutes by default.
const LISTS_APART: Duration = Duration::from_secs(240);
/// Lists in a row that are reported: some six seconds' worth.
const MANY_LISTS: u32 = 6;

/// Why a try failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    /// No connection.
    Unreachable,
    /// An error response, with its `Retry-After`.
    Error { retry_after_ms: u64 },
    /// No permission, or no such kind.
    Refused,
}

/// Consecutive failures with the same obstacle.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
    last: Option<Obstacle>,
}

impl Retry {
    /// After a success.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Consecutive failures.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// The delay after one more failure. `random` adds jitter of a quarter up or down, since many watches fail together.
    /// Another obstacle starts from the first delay: an API server that has just come back responds with errors for a
    /// moment, however long it was away.
    pub(crate) fn next(&mut self, obstacle: Obstacle, random: u64) -> Duration {
        if self.last.is_some_and(|last| std::mem::discriminant(&last) != std::mem::discriminant(&obstacle)) {
            self.failures = 0;
        }
        self.last = Some(obstacle);
        let doubled = FIRST_MS.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let delay = match obstacle {
            Obstacle::Unreachable => doubled.min(UNREACHABLE_CAP_MS),
            Obstacle::Error { retry_after_ms } => doubled.min(ERROR_CAP_MS).max(retry_after_ms.min(RETRY_AFTER_CAP_MS)),
            Obstacle::Refused if self.failures > REFUSED_TRIES => REFUSED_LONG_MS,
            Obstacle::Refused => REFUSED_MS,
        };
        Duration::from_millis(delay * 3 / 4 + random % (delay / 2 + 1))
    }
}

/// When a kind may be listed again. A list ends well and may be worth nothing a moment later: its version expires or decreases,
/// which no count of failures shows.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Complete lists, each soon after the one before.
    soon: u32,
    done: Option<Instant>,
}

impl Lists {
    /// A list is complete.
    pub(crate) fn done(&mut self, now: Instant) {
        let is_soon = self.done.is_some_and(|done| now.duration_since(done) < LISTS_APART);
        (self.soon, self.done) = (if is_soon { self.soon.saturating_add(1) } else { 0 }, Some(now));
    }

    /// How long the next list waits.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let Some(done) = self.done else { return Duration::ZERO };
        let apart = FIRST_MS.saturating_mul(1 << self.soon.min(20)).min(LISTS_CAP_MS);
        Duration::from_millis(apart).saturating_sub(now.duration_since(done))
    }

    /// Whether lists follow each other so often that a person should know.
    pub(crate) fn are_many(&self) -> bool {
        self.soon >= MANY_LISTS
    }
}

/// A number for jitter; without the system's generator there is no jitter.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_their_cap_and_restart_after_success() {
        let delays = |obstacle| {
            let mut retry = Retry::default();
            // Half of the jitter's span is the delay itself.
            (0..8).map(|_| retry.next(obstacle, 0).as_millis() * 4 / 3).collect::<Vec<_>>()
        };
        assert_eq!(delays(Obstacle::Unreachable), [100, 200, 400, 800, 1000, 1000, 1000, 1000]);
        let errors = delays(Obstacle::Error { retry_after_ms: 0 });
        assert_eq!(errors, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let mut retry = Retry::default();
        retry.next(Obstacle::Unreachable, 0);
        assert_eq!(retry.failures(), 1);
        retry.reset();
        assert_eq!(retry.failures(), 0);
        assert_eq!(retry.next(Obstacle::Unreachable, 0).as_millis(), 75);
    }

    #[test]
    fn q4_lists_that_follow_each_other_are_a_minute_apart_in_the_end_and_one_after_a_while_waits_for_nothing() {
        let (mut lists, began) = (Lists::default(), Instant::now());
        assert_eq!(lists.wait(began), Duration::ZERO);
        let mut now = began;
        let waits: Vec<u128> = (0..14)
            .map(|_| {
                lists.done(now);
                let wait = lists.wait(now);
                assert_eq!(lists.wait(now + wait), Duration::ZERO);
                now += wait;
                wait.as_millis()
            })
            .collect();
        assert_eq!(waits[..5], [100, 200, 400, 800, 1_600]);
        assert_eq!(waits[10..], [60_000; 4]);
        assert!(lists.are_many());
        lists.done(now + LISTS_APART);
        assert!(!lists.are_many() && lists.wait(now + LISTS_APART).as_millis() == 100);
    }

    #[test]
    fn a_long_outage_does_not_lengthen_the_delays_after_the_api_servers_return() {
        let mut retry = Retry::default();
        for _ in 0..60 {
            retry.next(Obstacle::Unreachable, 0);
        }
        assert_eq!(retry.next(Obstacle::Error { retry_after_ms: 0 }, 0).as_millis(), 75);
    }

    #[test]
    fn jitter_stays_within_a_quarter_and_refusals_are_retried_within_five_seconds() {
        for random in [0, 1, 777, u64::MAX] {
            let delay = Retry::default().next(Obstacle::Refused, random).as_millis();
            assert!((2_600..=4_400).contains(&delay), "{delay}");
        }
    }

    #[test]
    fn q4_what_is_refused_for_more_than_a_minute_is_retried_every_quarter_of_a_minute() {
        let mut retry = Retry::default();
        let delays: Vec<u128> = (0..30).map(|_| retry.next(Obstacle::Refused, 0).as_millis() * 4 / 3).collect();
        assert!(
            delays[..20].iter().all(|delay| *delay == 3_500) && delays[20..].iter().all(|delay| *delay == 15_000),
            "{delays:?}"
        );
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_bound() {
        let next = |retry_after_ms| Retry::default().next(Obstacle::Error { retry_after_ms }, 0).as_millis() * 4 / 3;
        assert_eq!(next(2_000), 2_000);
        assert_eq!(next(600_000), 30_000);
    }
}
