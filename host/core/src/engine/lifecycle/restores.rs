//! Which decreases of the API server's versions count as a restore of etcd, after which every kind is listed anew: the first
//! ones at once, further ones more and more seldom, since a server may go back again and again. Notices and the time come in;
//! how long one waits, and the one that has waited, come out.
//!
//! Nothing here knows a kind's objects, or how a decrease shows.

use crate::scope::Slice;

/// Restores that count at once. An administrator who restores etcd, finds the wrong backup and restores it twice more is not
/// kept waiting.
const AT_ONCE: u32 = 3;
/// How long the next one waits after the last that counted, doubled for each further one.
const FIRST_WAIT_MS: u64 = 60_000;
/// The longest wait: the host lists every kind four times an hour then, which is a few seconds of work in a large cluster.
const LONGEST_WAIT_MS: u64 = 15 * 60_000;
/// Without a notice for this long the next one counts at once again.
const FORGET_MS: u64 = 3_600_000;

#[derive(Debug, Default)]
pub(super) struct Restores {
    /// Those that counted.
    counted: u32,
    counted_ms: u64,
    noticed_ms: u64,
    held: Option<Held>,
}

/// The first notice that waits.
#[derive(Debug)]
struct Held {
    slice: Slice,
    message: String,
    notices: u32,
}

impl Restores {
    /// Whether what a watch or an audit of a slice has noticed counts now; else when the timer is due that takes it.
    pub fn notice(&mut self, now_ms: u64, slice: &Slice, message: &str) -> Result<(), u64> {
        if now_ms.saturating_sub(self.noticed_ms) >= FORGET_MS && self.held.is_none() {
            self.counted = 0;
        }
        self.noticed_ms = now_ms;
        let due_ms = self.counted_ms.saturating_add(self.wait_ms());
        if due_ms <= now_ms && self.held.is_none() {
            self.count(now_ms);
            return Ok(());
        }
        let held =
            self.held.get_or_insert_with(|| Held { slice: slice.clone(), message: message.to_owned(), notices: 0 });
        held.notices = held.notices.saturating_add(1);
        Err(due_ms)
    }

    /// The notice that has waited counts now.
    pub fn take_held(&mut self, now_ms: u64) -> Option<(Slice, String)> {
        let Held { slice, message, notices } = self.held.take()?;
        self.count(now_ms);
        Some((
            slice,
            format!("{message}; that is the first of {notices} such notices since every kind was last listed"),
        ))
    }

    fn count(&mut self, now_ms: u64) {
        (self.counted, self.counted_ms) = (self.counted.saturating_add(1), now_ms);
    }

    fn wait_ms(&self) -> u64 {
        match self.counted.checked_sub(AT_ONCE) {
            Some(further) => FIRST_WAIT_MS.saturating_mul(1 << further.min(10)).min(LONGEST_WAIT_MS),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    /// When each of so many notices in a row, a second apart, counts.
    fn counted(restores: &mut Restores, from_ms: u64, seconds: u64) -> Vec<u64> {
        let (slice, mut due_ms, mut counted) = (Slice::from(Kind::new("v1", "Pod")), None, Vec::new());
        for now_ms in (0..seconds).map(|second| from_ms + second * 1_000) {
            if due_ms.take_if(|due_ms| *due_ms <= now_ms).is_some() {
                restores.take_held(now_ms).expect("one has waited");
                counted.push((now_ms - from_ms) / 1_000);
            }
            match restores.notice(now_ms, &slice, "") {
                Ok(()) => counted.push((now_ms - from_ms) / 1_000),
                Err(at_ms) => due_ms = Some(at_ms),
            }
        }
        restores.held = None;
        counted
    }

    #[test]
    fn q4_three_restores_count_at_once_and_further_ones_at_most_every_quarter_of_an_hour() {
        let mut restores = Restores::default();
        let seconds = counted(&mut restores, 10_000, 4 * 3_600);
        assert_eq!(seconds[..8], [0, 1, 2, 62, 182, 422, 902, 1_802]);
        assert!(seconds[8..].windows(2).all(|pair| pair[1] - pair[0] == 900), "{seconds:?}");
        let from_ms = restores.noticed_ms + FORGET_MS;
        assert_eq!(counted(&mut restores, from_ms, 3), [0, 1, 2], "after an hour of silence");
    }
}
