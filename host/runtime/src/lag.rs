//! How late the event loop handles what has arrived or is due. The loop says when inputs arrive and are handled, probes ask
//! whether it is late. Times come in; nothing here knows what an input is.
//!
//! Inputs carry no time of arrival. Those that wait at one moment are counted instead: when as many were handled, an input
//! that arrived at that moment would be the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A host whose loop is later than this is not ready. A person who changes an object sees nothing happen for that long, and
/// a renewal of the claim to lead, of ten seconds, half of it.
const LATE_MS: u64 = 5_000;
/// How often in a row: one pause may be the machine's.
const LATE_TIMES: u64 = 2;
/// Without an input for so long, what was late before is forgotten.
const FORGET_MS: u64 = 30_000;
/// The highest lag is that of this window and of the one before.
const WINDOW_MS: u64 = 60_000;

/// The loop's end.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    mark: Option<Mark>,
    shown: Arc<Mutex<Shown>>,
}

#[derive(Debug)]
struct Mark {
    at: Instant,
    /// The inputs that had arrived and were not handled yet.
    left: usize,
}

/// The readers' end.
#[derive(Clone, Debug)]
pub(crate) struct LagReader(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    marked_ms: Option<u64>,
    /// Late ones in a row.
    late: u64,
    last_ms: u64,
    window_ms: u64,
    /// The highest of this window, and of the one before.
    most_ms: [u64; 2],
}

impl Lag {
    pub(crate) fn reader(&self) -> LagReader {
        LagReader(Arc::clone(&self.shown))
    }

    /// So many inputs have arrived and are not handled yet.
    pub(crate) fn arrived(&mut self, at: Instant, now_ms: u64, inputs: usize) {
        if self.mark.is_none() && inputs > 0 {
            self.mark = Some(Mark { at, left: inputs });
            lock(&self.shown).marked_ms = Some(now_ms);
        }
    }

    /// An input was handled. Returns since when, if it was the last of those that had arrived then.
    pub(crate) fn handled(&mut self) -> Option<Instant> {
        let mark = self.mark.as_mut()?;
        mark.left = mark.left.saturating_sub(1);
        if mark.left > 0 { None } else { self.mark.take().map(|mark| mark.at) }
    }

    /// An input or a timer was so late.
    pub(crate) fn observe(&self, lag: Duration, now_ms: u64) {
        let lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
        let mut shown = lock(&self.shown);
        if self.mark.is_none() {
            shown.marked_ms = None;
        }
        shown.late = if lag_ms > LATE_MS { shown.late + 1 } else { 0 };
        shown.last_ms = now_ms;
        shown.turn(now_ms);
        shown.most_ms[0] = shown.most_ms[0].max(lag_ms);
    }
}

impl Shown {
    fn turn(&mut self, now_ms: u64) {
        let windows = now_ms.saturating_sub(self.window_ms) / WINDOW_MS;
        if windows > 0 {
            self.most_ms = [0, if windows == 1 { self.most_ms[0] } else { 0 }];
            self.window_ms += windows * WINDOW_MS;
        }
    }
}

impl LagReader {
    /// The highest lag of the last minute or two, with that of inputs that wait now.
    pub(crate) fn most_ms(&self, now_ms: u64) -> u64 {
        let mut shown = lock(&self.0);
        shown.turn(now_ms);
        let waits_ms = shown.marked_ms.map_or(0, |marked_ms| now_ms.saturating_sub(marked_ms));
        shown.most_ms[0].max(shown.most_ms[1]).max(waits_ms)
    }

    /// Why the host is not ready.
    pub(crate) fn failure(&self, now_ms: u64) -> Option<String> {
        let is_late = {
            let shown = lock(&self.0);
            let waits_ms = shown.marked_ms.map_or(0, |marked_ms| now_ms.saturating_sub(marked_ms));
            let before = if now_ms.saturating_sub(shown.last_ms) < FORGET_MS { shown.late } else { 0 };
            before + waits_ms / (LATE_MS + 1) >= LATE_TIMES
        };
        let late = || {
            let seconds = self.most_ms(now_ms).div_ceil(1_000);
            format!("inputs wait {seconds} s for the event loop, and {} s are the most", LATE_MS / 1_000)
        };
        is_late.then(late)
    }
}

fn lock(shown: &Mutex<Shown>) -> std::sync::MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(lag: &Lag, now_ms: u64, lag_ms: u64) {
        lag.observe(Duration::from_millis(lag_ms), now_ms);
    }

    #[test]
    fn an_input_is_as_late_as_those_that_had_arrived_before_it_take() {
        let (mut lag, began) = (Lag::default(), Instant::now());
        lag.arrived(began, 0, 3);
        lag.arrived(began + Duration::from_secs(1), 1_000, 9);
        assert_eq!([(); 3].map(|()| lag.handled()), [None, None, Some(began)], "the first mark counts until its end");
        lag.arrived(began + Duration::from_secs(2), 2_000, 1);
        assert_eq!(lag.handled(), Some(began + Duration::from_secs(2)));
        assert_eq!(lag.handled(), None);
    }

    #[test]
    fn a_loop_that_is_late_twice_in_a_row_is_not_ready_until_it_is_in_time_again() {
        let lag = Lag::default();
        let reader = lag.reader();
        late(&lag, 10_000, LATE_MS + 1);
        assert_eq!(reader.failure(10_000), None, "once may be a pause of the machine");
        late(&lag, 16_000, LATE_MS);
        late(&lag, 22_000, LATE_MS + 1);
        assert_eq!(reader.failure(22_000), None, "not in a row");
        late(&lag, 28_000, 7_500);
        let failure = reader.failure(28_000).unwrap();
        assert_eq!(failure, "inputs wait 8 s for the event loop, and 5 s are the most");
        assert!(reader.failure(28_000 + FORGET_MS - 1).is_some() && reader.failure(28_000 + FORGET_MS).is_none());
        late(&lag, 29_000, 3);
        assert_eq!(reader.failure(29_000), None);
    }

    #[test]
    fn inputs_that_wait_count_before_they_are_handled() {
        let mut lag = Lag::default();
        let reader = lag.reader();
        lag.arrived(Instant::now(), 1_000, 500);
        assert_eq!((reader.failure(11_000), reader.most_ms(11_000)), (None, 10_000));
        assert!(reader.failure(1_000 + 2 * (LATE_MS + 1)).is_some());
    }

    #[test]
    fn the_highest_lag_is_of_the_last_minute_or_two() {
        let lag = Lag::default();
        let reader = lag.reader();
        late(&lag, 61_000, 40);
        late(&lag, 62_000, 7);
        late(&lag, 121_000, 9);
        assert_eq!([121_000, 179_999, 180_000, 240_000].map(|now_ms| reader.most_ms(now_ms)), [40, 40, 9, 0]);
    }
}
