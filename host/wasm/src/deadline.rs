//! When a call ends that does not return: once its thread has used the processor for as long as its deadline says. A guest
//! cannot block, so the rest of the time that passes is the machine's, which runs other threads meanwhile. What the
//! clocks show comes in, and whether a call continues comes out. Epochs and guests are not known here.
//!
//! A call looks at the clocks at the first epoch after its begin, and then when its deadline may have passed. One that
//! returns before costs no look.

use std::time::{Duration, Instant};

use mortise_core::limits::CallLimits;
use rustix::time::{ClockId, clock_gettime};

/// Wall time of a reconcile for its deadline. On the smallest host, of one core, three workers that spin beside one busy thread of
/// nice 0 have an eighth of it each. With less than a tenth the machine is not fit for the host, which says so.
const WALL_FACTOR: u32 = 10;
/// A shorter time says little about a machine: others run first for some tenths of a second.
const LEAST_WALL: Duration = Duration::from_secs(1);

/// What the clocks show at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) wall: Instant,
    /// How long this thread has used a processor.
    pub(crate) processor: Duration,
}

/// The bounds of one call, and what it has seen of the clocks.
#[derive(Debug)]
pub(crate) struct Deadline {
    processor: Duration,
    began: Instant,
    until: Instant,
    /// What is used before it, an epoch's time, does not count.
    first: Option<Clocks>,
}

/// Whether a call continues that has looked at the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Neither bound can be met before this time.
    Again(Duration),
    /// It has had its processor time.
    Exceeded,
    /// It would take too long, by no fault of the guest's.
    Starved(Starved),
}

/// Ends the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the call was ended after {} ms, in which it got {} ms of processor time of the {} ms that it may use: the machine has too \
     much else to do; the plugin is not at fault; raise the host's CPU request or limit",
    .wall.as_millis(), .used.as_millis(), .may_use.as_millis()
)]
pub(crate) struct Starved {
    wall: Duration,
    used: Duration,
    may_use: Duration,
}

impl Clocks {
    pub(crate) fn now() -> Self {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        Self { wall: Instant::now(), processor: used.try_into().expect("no thread has used less than nothing") }
    }
}

impl Deadline {
    /// Of a call that begins now.
    pub(crate) fn new(limits: &CallLimits, began: Instant, until: Instant) -> Self {
        Self { processor: Duration::from_millis(limits.deadline_ms), began, until, first: None }
    }

    /// The end of a call that nobody waits for, however little its thread gets of the processor.
    pub(crate) fn latest(limits: &CallLimits, began: Instant) -> Instant {
        began + (Duration::from_millis(limits.deadline_ms) * WALL_FACTOR).max(LEAST_WALL)
    }

    pub(crate) fn look(&mut self, now: Clocks) -> Look {
        let first = *self.first.get_or_insert(now);
        let used = now.processor.saturating_sub(first.processor);
        let left = self.processor.saturating_sub(used);
        if left.is_zero() {
            return Look::Exceeded;
        }
        let wall_left = self.until.saturating_duration_since(now.wall);
        if wall_left.is_zero() {
            let wall = now.wall.saturating_duration_since(self.began);
            return Look::Starved(Starved { wall, used, may_use: self.processor });
        }
        Look::Again(left.min(wall_left))
    }

    /// How long the call waited for a processor since its first look.
    pub(crate) fn waited(&self, now: impl FnOnce() -> Clocks) -> Duration {
        self.first.map_or(Duration::ZERO, |first| {
            let now = now();
            let used = now.processor.saturating_sub(first.processor);
            now.wall.saturating_duration_since(first.wall).saturating_sub(used)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    /// A call with a deadline of a second, and what its clocks show: milliseconds since its begin, and of processor time.
    fn call() -> (Deadline, impl Fn(u32, u32) -> Clocks) {
        let (limits, began) = (CallLimits { deadline_ms: 1_000, ..CallLimits::default() }, Instant::now());
        // The thread has run other calls before.
        let clocks = move |wall, used| Clocks { wall: began + wall * MS, processor: 77 * SECOND + used * MS };
        (Deadline::new(&limits, began, Deadline::latest(&limits, began)), clocks)
    }

    #[test]
    fn g2_a_deadline_measures_the_processor_time_of_the_call_and_not_what_the_machine_does_meanwhile() {
        let (mut deadline, clocks) = call();
        assert_eq!(deadline.look(clocks(10, 10)), Look::Again(SECOND), "the time before the first look is its own");
        assert_eq!(deadline.look(clocks(1_010, 210)), Look::Again(800 * MS), "it had a fifth of a core");
        assert_eq!(deadline.look(clocks(5_000, 1_009)), Look::Again(MS));
        assert_eq!(deadline.look(clocks(5_001, 1_010)), Look::Exceeded);
        // Alone on its core it ends after as long.
        let (mut deadline, clocks) = call();
        assert_eq!(deadline.look(clocks(0, 0)), Look::Again(SECOND));
        assert_eq!(deadline.look(clocks(1_000, 1_000)), Look::Exceeded);
    }

    #[test]
    fn g2_a_call_that_gets_a_tenth_of_its_processor_time_ends_by_no_fault_of_its_guest() {
        let (mut deadline, clocks) = call();
        assert_eq!(deadline.look(clocks(0, 0)), Look::Again(SECOND));
        assert_eq!(deadline.look(clocks(9_999, 500)), Look::Again(MS), "not longer than it may take");
        let Look::Starved(starved) = deadline.look(clocks(10_000, 999)) else { panic!("it continues") };
        let said = "after 10000 ms, in which it got 999 ms of processor time of the 1000 ms";
        assert!(starved.to_string().contains(said), "{starved}");
        assert_eq!(deadline.look(clocks(10_000, 1_000)), Look::Exceeded, "its own fault comes first");
    }

    #[test]
    fn a_short_deadline_leaves_the_machine_a_second() {
        for (deadline_ms, wall) in [(1, SECOND), (100, SECOND), (101, SECOND + 10 * MS), (10_000, 100 * SECOND)] {
            let (limits, began) = (CallLimits { deadline_ms, ..CallLimits::default() }, Instant::now());
            assert_eq!(Deadline::latest(&limits, began) - began, wall, "{deadline_ms} ms");
        }
    }

    #[test]
    fn what_a_call_waited_for_a_processor_is_known_since_its_first_look() {
        let (mut deadline, clocks) = call();
        assert_eq!(deadline.waited(|| unreachable!("a call without a look reads no clock")), Duration::ZERO);
        deadline.look(clocks(10, 5));
        assert_eq!(deadline.waited(|| clocks(110, 25)), 80 * MS);
        // The clocks are not read at the same instant.
        assert_eq!(deadline.waited(|| clocks(110, 106)), Duration::ZERO);
    }
}
