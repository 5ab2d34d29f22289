//! When the API server is asked something about rights: at once, again after a change that may concern the answer, with backoff
//! after a failure, and without a reason now and then. It must not know what is asked, or what an answer leads to.

use crate::write::WriteError;

/// Between a change of a role or a binding and the next review: the API server learns of it by a watch too, and a tool that
/// applies roles changes several at once.
const CHANGED_MS: u64 = 1_000;
/// Until this long after a change, an answer may be older than the change: each API server has its own watch. One review
/// confirms what is known then.
const SETTLED_MS: u64 = 10_000;
/// Between two reviews of one thing, however often somebody changes bindings.
const SPACING_MS: u64 = 3_000;
/// The same of a tenant's plugins, and after what changes in a tenant's namespace, also of others that it names: their reviews
/// wait for each other, and a tenant may change its bindings all the time.
const TENANT_SPACING_MS: u64 = 15_000;
/// Between two reviews when one has failed, doubled with each failure up to the most.
const FAILED_MS: u64 = 5_000;
const MOST_FAILED_MS: u64 = 300_000;
/// From the first failure until the last answer counts no more: what it allowed may have been taken away since. Longer than an API
/// server takes to be replaced or to elect a leader of etcd, and as long as the longest time between two tries.
pub(super) const UNANSWERED_MS: u64 = MOST_FAILED_MS;
/// Between two reviews without a change: of what other authorizers than RBAC say, no watch tells.
pub(super) const AGAIN_MS: u64 = 60 * 60_000;

#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Why there is no newer answer.
    pub failed: Option<WriteError>,
    /// How often in succession.
    failures: u32,
    /// Since when.
    failing_since_ms: Option<u64>,
    /// The review whose answer is awaited. Any other answer is an earlier one.
    in_flight: Option<u64>,
    sent_ms: u64,
    /// When a role or a binding changed last that may concern it.
    changed_ms: Option<u64>,
    /// That was in the namespace of a tenant, or the plugin is one's.
    is_paced: bool,
    /// When it is asked again.
    due_ms: Option<u64>,
}

impl Asking {
    /// Asks anew, whatever was asked before.
    pub fn anew(&self, now_ms: u64) -> Self {
        Self { due_ms: Some(now_ms), changed_ms: self.changed_ms, ..Self::default() }
    }

    /// Whether it is asked now or will be.
    pub fn has_begun(&self) -> bool {
        self.due_ms.is_some() || self.in_flight.is_some()
    }

    /// When it is asked again; None while an answer is awaited.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms.filter(|_| self.in_flight.is_none())
    }

    /// Begins the review of this number, if one is due.
    pub fn begin(&mut self, review: u64, now_ms: u64) -> bool {
        let is_due = self.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        if is_due {
            (self.in_flight, self.sent_ms, self.due_ms) = (Some(review), now_ms, None);
        }
        is_due
    }

    /// Whether this is the answer that is awaited, which it is no more then.
    pub fn ends(&mut self, review: u64) -> bool {
        self.in_flight.take_if(|awaited| *awaited == review).is_some()
    }

    /// There is an answer; whether it is newer than all that has changed. `is_early`: what it depends on may have been made just
    /// now, and the API server may not know that yet. Without a change it is asked again at `again_ms`.
    pub fn answered(&mut self, is_early: bool, again_ms: u64, now_ms: u64) -> bool {
        (self.failed, self.failures, self.failing_since_ms) = (None, 0, None);
        let unsettled = self.after_change(CHANGED_MS).or(self.after_change(SETTLED_MS));
        let unsettled = unsettled.or(is_early.then_some(now_ms + SETTLED_MS));
        self.due_ms = Some(unsettled.unwrap_or(again_ms));
        unsettled.is_none()
    }

    /// There is no answer. Whether that is so for so long that the last one counts no more; tries begin anew then.
    pub fn failed(&mut self, error: WriteError, now_ms: u64) -> bool {
        self.failed = Some(error);
        let counts_until_ms = *self.failing_since_ms.get_or_insert(now_ms) + UNANSWERED_MS;
        let is_unanswered = counts_until_ms <= now_ms;
        if is_unanswered {
            (self.failures, self.failing_since_ms) = (0, None);
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.min(10) - 1;
        let again_ms = now_ms + (FAILED_MS << doublings).min(MOST_FAILED_MS);
        let last_ms = Some(counts_until_ms).filter(|_| !is_unanswered);
        // A change while the review was in flight is asked about as if that had been answered.
        self.due_ms = [Some(again_ms), last_ms, self.after_change(CHANGED_MS)].into_iter().flatten().min();
        is_unanswered
    }

    /// When to ask again after a change that the last review may be older than, if the API servers take so long to learn of it.
    fn after_change(&self, ms: u64) -> Option<u64> {
        let at_ms = self.changed_ms.map(|changed_ms| changed_ms + ms).filter(|at_ms| self.sent_ms < *at_ms);
        at_ms.map(|at_ms| self.spaced(at_ms))
    }

    /// What made the last review fail has ended. Returns whether one had failed.
    pub fn retry(&mut self, now_ms: u64) -> bool {
        let is_due = self.failed.is_some() && self.in_flight.is_none();
        if is_due {
            self.due_ms = Some(now_ms);
        }
        is_due
    }

    /// Something has changed that may concern the answer.
    pub fn on_change(&mut self, now_ms: u64, is_paced: bool) {
        (self.changed_ms, self.is_paced) = (Some(now_ms), is_paced);
        let due_ms = self.spaced(now_ms + CHANGED_MS);
        self.due_ms = Some(self.due_ms.map_or(due_ms, |before_ms| before_ms.min(due_ms)));
    }

    /// When to ask again that is to be asked at this time.
    fn spaced(&self, due_ms: u64) -> u64 {
        due_ms.max(self.sent_ms + if self.is_paced { TENANT_SPACING_MS } else { SPACING_MS })
    }
}
