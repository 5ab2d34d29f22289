//! Who is over a budget, and until when. Each operation costs the same however many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Throttled {
    until_ms: BTreeMap<Arc<str>, u64>,
    order: BTreeSet<(u64, Arc<str>)>,
}

impl Throttled {
    /// It waits until this time at least: an earlier time does not replace a later one.
    pub fn hold(&mut self, who: &Arc<str>, until_ms: u64) {
        if self.until_ms.get(who).is_none_or(|before_ms| *before_ms < until_ms) {
            self.remove(who);
            self.until_ms.insert(Arc::clone(who), until_ms);
            self.order.insert((until_ms, Arc::clone(who)));
        }
    }

    pub fn remove(&mut self, who: &str) {
        if let Some((who, until_ms)) = self.until_ms.remove_entry(who) {
            self.order.remove(&(until_ms, who));
        }
    }

    pub fn has(&self, who: &str) -> bool {
        self.until_ms.contains_key(who)
    }

    /// One that waits no longer.
    pub fn take_due(&mut self, now_ms: u64) -> Option<Arc<str>> {
        let (_, who) = self.order.first().filter(|(until_ms, _)| *until_ms <= now_ms).cloned()?;
        self.remove(&who);
        Some(who)
    }

    pub fn next_due_ms(&self) -> Option<u64> {
        self.order.first().map(|(until_ms, _)| *until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_until_the_latest_time_that_was_set_for_it() {
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let mut throttled = Throttled::default();
        for until_ms in [20, 30, 10] {
            throttled.hold(&one, until_ms);
        }
        throttled.hold(&other, 25);
        assert_eq!((throttled.next_due_ms(), throttled.take_due(24)), (Some(25), None));
        assert_eq!((throttled.take_due(25), throttled.take_due(29)), (Some(other), None));
        assert!(throttled.has("one"));
        throttled.remove("one");
        assert_eq!((throttled.has("one"), throttled.next_due_ms()), (false, None));
    }
}
