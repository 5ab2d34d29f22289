//! What the controllers are at: the keys that wait, and which changes were seen. Input: keys with their times, and what came
//! of each. Output: the next key. It must not know what a controller does with it.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use jiff::{SignedDuration, Timestamp};

use crate::placement::Placement;

/// The first wait of a key that failed; it doubles up to [`LAST_WAIT`].
const FIRST_WAIT: SignedDuration = SignedDuration::from_millis(5);
const LAST_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// After so many steps the controllers that batch get a turn even though others are busy: rare enough to batch well, often
/// enough that a busy cluster does not starve them.
const STEPS_OF_A_BATCH: u64 = 1_000;

/// The namespace and name of what a controller looks at, as its own choice of kind has it.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// What a controller does next with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Nothing until something changes.
    No,
    /// Look again then.
    At(Timestamp),
    /// Something failed that was written down: what was written stays, and the key is tried again, later each time.
    Later,
}

/// The queues of the controllers that run.
#[derive(Clone, Debug)]
pub(crate) struct Controllers {
    pub(crate) queues: Vec<Queue>,
    /// All changes up to this version were seen.
    pub(crate) seen: u64,
    /// How many steps were made.
    pub(crate) steps: u64,
    /// Whose turn is next.
    pub(crate) turn: usize,
    /// When they began to work, in this process.
    pub(crate) since: Option<Timestamp>,
    /// Which Pods are where.
    pub(crate) placement: Placement,
}

/// The keys of one controller that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The controller, by its place among all.
    pub(crate) controller: usize,
    /// Whether it waits until no other has anything to do.
    batches: bool,
    due: OrdSet<(Timestamp, Key)>,
    at: OrdMap<Key, Timestamp>,
    failures: OrdMap<Key, u32>,
}

impl Queue {
    pub(crate) fn new(controller: usize, batches: bool) -> Self {
        Self { controller, batches, ..Self::default() }
    }

    /// Looks at a key then, or earlier if it waits already.
    pub(crate) fn add(&mut self, key: Key, at: Timestamp) {
        if let Some(known) = self.at.get(&key) {
            if *known <= at {
                return;
            }
            self.due.remove(&(*known, key.clone()));
        }
        self.due.insert((at, key.clone()));
        self.at.insert(key, at);
    }

    fn next(&self) -> Option<Timestamp> {
        self.due.get_min().map(|(at, _)| *at)
    }

    pub(crate) fn take(&mut self, now: Timestamp) -> Option<Key> {
        let (at, key) = self.due.get_min().filter(|(at, _)| *at <= now).cloned()?;
        self.due.remove(&(at, key.clone()));
        self.at.remove(&key);
        Some(key)
    }

    /// Looks at a key no more, whenever it would be its time.
    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(at) = self.at.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }

    pub(crate) fn retry(&mut self, key: Key, now: Timestamp) {
        let failures = self.failures.get(&key).copied().unwrap_or(0);
        let wait = FIRST_WAIT.saturating_mul(1 << failures.min(14)).min(LAST_WAIT);
        self.failures.insert(key.clone(), failures + 1);
        self.add(key, now + wait);
    }

    /// Remembers what came of a key.
    pub(crate) fn settle(&mut self, key: Key, again: Again, now: Timestamp) {
        match again {
            Again::Later => return self.retry(key, now),
            Again::At(time) => self.add(key.clone(), time),
            Again::No => {}
        }
        self.failures.remove(&key);
    }
}

impl Controllers {
    pub(crate) fn new(queues: Vec<Queue>) -> Self {
        Self { queues, seen: 0, steps: 0, turn: 0, since: None, placement: Placement::default() }
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.queues.iter().filter_map(Queue::next).min()
    }

    /// The queue whose turn it is, of those that have a key that is due.
    pub(crate) fn due(&self, now: Timestamp) -> Option<usize> {
        let count = self.queues.len();
        let turns = (0..count).map(|offset| (self.turn + offset) % count);
        let mut due = turns.filter(|at| self.queues[*at].next().is_some_and(|next| next <= now)).peekable();
        let first = due.peek().copied()?;
        if self.steps.is_multiple_of(STEPS_OF_A_BATCH) {
            return Some(first);
        }
        due.find(|at| !self.queues[*at].batches).or(Some(first))
    }
}
