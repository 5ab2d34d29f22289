//! Audits of the cache: what each watch shows, a slice of a kind, is compared with a live list of it, one at a time. When a
//! watch silently loses an event, the cached object stays wrong, because the resync reads the cache.
//!
//! ```text
//! due ──Act::List──▶ pages ──▶ suspects ──(the watch has passed the list's version)──▶ Act::Report
//! ```
//! Names, UIDs and versions are compared page by page; only differences are kept. A watch lags, so a difference counts
//! only if it remains when the cache has caught up with the list's version. Lists and relists are sent elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::digest::spread;
use crate::heap::HeapBytes;
use crate::object::{Name, Object, ResourceVersion};
use crate::scope::Slice;
use crate::store::Store;
use crate::store::listing::Seen;

#[cfg(test)]
mod tests;

/// Objects of one slice that are compared a second time, and the most differences of a report. When more differ, the
/// watch lags behind a flood, or a thousand examples are enough to show that the cache is wrong.
const MAX_SUSPECTS: usize = 1_000;
/// Remembered differences of one slice that a relist did not repair. With more, an hourly relist is cheap.
const MAX_UNREPAIRED: usize = 100;
/// Longest time for a list: twice the shell's own timeout, after which its response was lost.
const LIST_MS: u64 = 20 * 60 * 1_000;
/// Longest time for the watch to pass the list's version. The API server sends a bookmark each minute, and a watch
/// without events for 2.5 minutes is restarted; an event that is missing after twice that time is lost.
const SETTLE_MS: u64 = 5 * 60 * 1_000;
/// Delay of the next audit after a difference, to see whether the relist repaired it, and after a list that failed, where
/// each further failure doubles it up to the interval: a list that times out occupies the only audit for a minute.
const AGAIN_MS: u64 = 5 * 60 * 1_000;
/// Delay of the audit of a slice whose watch is not synced.
const POSTPONE_MS: u64 = 60 * 1_000;

/// One object of a live list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listed {
    /// Its namespace and name.
    pub name: Name,
    /// Its metadata.uid.
    pub uid: Arc<str>,
    /// Its metadata.resourceVersion.
    pub version: ResourceVersion,
}

/// A part of the shell's response to [`Act::List`].
#[derive(Debug)]
pub enum Response {
    /// A list begins, or begins anew.
    Begun,
    /// The next page.
    Page(Page),
    /// The list failed; the shell has logged why.
    Failed,
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The version of the whole list.
    pub version: ResourceVersion,
    /// The objects.
    pub objects: Vec<Listed>,
    /// Whether this page completes the list.
    pub is_last: bool,
}

impl Page {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.objects.heap_bytes()
    }
}

impl HeapBytes for Listed {
    fn heap_bytes(&self) -> usize {
        self.name.heap_bytes() + self.uid.heap_bytes()
    }
}

/// How the cache differs in one object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    /// The cache does not have it.
    Missing,
    /// Only the cache has it.
    Gone,
    /// The cache has an older state.
    Outdated,
    /// The cache has a newer state than the API server: etcd was restored.
    Undone,
}

/// One object in which the cache differs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// The live object, or the cached one when there is no live one.
    pub object: Listed,
    /// How it differs.
    pub what: What,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Missing => "missing",
            What::Gone => "deleted",
            What::Outdated => "outdated",
            What::Undone => "undone",
        };
        write!(f, "{} {what}", self.object.name)
    }
}

/// The outcome of one slice's audit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// What was compared.
    pub slice: Slice,
    /// The differences, without those that the last relist did not repair.
    pub differences: Vec<Difference>,
}

impl Report {
    /// Whether etcd was restored, so that every kind needs a relist.
    pub fn is_of_a_restore(&self) -> bool {
        self.differences.iter().any(|difference| difference.what == What::Undone)
    }
}

/// What the caller does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// List the slice live and pass the pages to [`Audits::on_response`].
    List(Slice),
    /// An audit is complete. A relist repairs the differences.
    Report(Report),
}

/// The schedule of all slices, and the running audit.
#[derive(Debug)]
pub struct Audits {
    /// 0: no audits.
    interval_ms: u64,
    due: BTreeSet<(u64, Slice)>,
    /// How often the last lists of a slice failed in a row. Such a slice waits for all others that are due: with many of
    /// them, as when a conversion webhook hangs, the rest would be audited too late or never.
    failures: BTreeMap<Slice, u32>,
    running: Option<Audit>,
    /// Differences that a relist did not repair, such as an object that cannot be decoded.
    unrepaired: BTreeMap<Slice, BTreeSet<Difference>>,
}

#[derive(Debug)]
struct Audit {
    slice: Slice,
    /// The list's version, once it is known.
    version: ResourceVersion,
    seen: Seen,
    suspects: Vec<Difference>,
    /// Whether suspects were dropped.
    overflowed: bool,
    is_complete: bool,
    /// The deadline of the list, then of the wait for the watch.
    until_ms: u64,
}

impl Audits {
    /// Audits each kind once per interval; 0 disables audits.
    pub fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            due: BTreeSet::new(),
            failures: BTreeMap::new(),
            running: None,
            unrepaired: BTreeMap::new(),
        }
    }

    /// Schedules a slice that is watched from now on. A hash of its name spreads the first audits over the interval.
    pub fn begin(&mut self, now_ms: u64, slice: &Slice) {
        if self.interval_ms == 0 {
            return;
        }
        let Slice { kind, namespace, .. } = slice;
        let names = [&*kind.api_version, &kind.kind, namespace.as_deref().unwrap_or_default()];
        let delay_ms = spread(&names[..if namespace.is_some() { 3 } else { 2 }], self.interval_ms);
        self.due.insert((now_ms.saturating_add(delay_ms), slice.clone()));
    }

    /// Removes a slice that is no longer watched.
    pub fn end(&mut self, slice: &Slice) {
        self.due.retain(|(_, other)| other != slice);
        self.running.take_if(|audit| audit.slice == *slice);
        self.failures.remove(slice);
        self.unrepaired.remove(slice);
    }

    /// When [`Self::step`] is due without an event.
    pub fn next_due_ms(&self) -> Option<u64> {
        match &self.running {
            Some(audit) => Some(audit.until_ms),
            None => self.due.first().map(|(due_ms, _)| *due_ms),
        }
    }

    /// Takes a part of the response to [`Act::List`]; late ones are ignored.
    pub fn on_response(&mut self, now_ms: u64, slice: &Slice, answer: Response, store: &Store) {
        let Some(audit) = self.running.as_mut().filter(|audit| audit.slice == *slice && !audit.is_complete) else {
            return;
        };
        match answer {
            Response::Begun => *audit = Audit::new(slice.clone(), audit.until_ms),
            Response::Page(page) => audit.compare(now_ms, &page, store),
            Response::Failed => self.on_failure(now_ms),
        }
    }

    /// Starts the audit that is due and ends the one that has settled. Called after every event.
    pub fn step(&mut self, now_ms: u64, store: &Store) -> Option<Act> {
        match &self.running {
            None => return self.begin_next(now_ms, store).map(Act::List),
            // A relist of the kind repairs every difference.
            Some(audit) if !store.synced(&audit.slice) => self.retry(now_ms, POSTPONE_MS),
            Some(audit) if audit.has_settled(now_ms, store) => return self.finish(now_ms, store).map(Act::Report),
            Some(audit) if !audit.is_complete && audit.until_ms <= now_ms => self.on_failure(now_ms),
            Some(_) => {}
        }
        None
    }

    fn begin_next(&mut self, now_ms: u64, store: &Store) -> Option<Slice> {
        loop {
            let due = self.due.iter().take_while(|(due_ms, _)| *due_ms <= now_ms);
            let next = due.min_by_key(|(_, slice)| self.failures.contains_key(slice))?.clone();
            self.due.remove(&next);
            let slice = next.1;
            if store.synced(&slice) {
                self.running = Some(Audit::new(slice.clone(), now_ms.saturating_add(LIST_MS)));
                return Some(slice);
            }
            self.due.insert((now_ms.saturating_add(POSTPONE_MS), slice));
        }
    }

    fn on_failure(&mut self, now_ms: u64) {
        let Some(audit) = &self.running else { return };
        let failures = self.failures.entry(audit.slice.clone()).or_default();
        let doubled = 2u64.saturating_pow(*failures);
        *failures = failures.saturating_add(1);
        self.retry(now_ms, AGAIN_MS.saturating_mul(doubled));
    }

    /// Gives up the running audit and schedules it again.
    fn retry(&mut self, now_ms: u64, delay_ms: u64) {
        if let Some(audit) = self.running.take() {
            self.due.insert((now_ms.saturating_add(delay_ms.min(self.interval_ms)), audit.slice));
        }
    }

    fn finish(&mut self, now_ms: u64, store: &Store) -> Option<Report> {
        let audit = self.running.take()?;
        let slice = audit.slice.clone();
        self.failures.remove(&slice);
        let found = audit.differences(store);
        let before = self.unrepaired.remove(&slice).unwrap_or_default();
        let differences: Vec<Difference> = found.iter().filter(|found| !before.contains(found)).cloned().collect();
        let looks_again = audit.overflowed || !differences.is_empty();
        let delay_ms = if looks_again { AGAIN_MS.min(self.interval_ms) } else { self.interval_ms };
        self.due.insert((now_ms.saturating_add(delay_ms), slice.clone()));
        if !found.is_empty() {
            self.unrepaired.insert(slice.clone(), found.into_iter().take(MAX_UNREPAIRED).collect());
        }
        Some(Report { slice, differences })
    }
}

impl Audit {
    fn new(slice: Slice, until_ms: u64) -> Self {
        Self {
            slice,
            version: ResourceVersion::default(),
            seen: Seen::default(),
            suspects: Vec::new(),
            overflowed: false,
            is_complete: false,
            until_ms,
        }
    }

    fn compare(&mut self, now_ms: u64, page: &Page, store: &Store) {
        self.version = page.version;
        for live in &page.objects {
            let kind = &self.slice.kind;
            let cached = store.see(kind, &live.name, &mut self.seen);
            if let Some(what) = difference(live, cached, || store.deleted_at(kind, &live.name), self.version) {
                self.suspect(Difference { object: live.clone(), what });
            }
        }
        if page.is_last {
            self.is_complete = true;
            self.until_ms = now_ms.saturating_add(SETTLE_MS);
            let unseen = store.unseen(&self.slice, &self.seen);
            let gone = unseen.filter(|cached| cached.resource_version <= self.version).take(MAX_SUSPECTS + 1);
            let gone: Vec<Listed> = gone.map(|cached| listed(cached)).collect();
            gone.into_iter().for_each(|object| self.suspect(Difference { object, what: What::Gone }));
        }
    }

    fn suspect(&mut self, difference: Difference) {
        self.overflowed |= self.suspects.len() == MAX_SUSPECTS;
        if !self.overflowed {
            self.suspects.push(difference);
        }
    }

    fn has_settled(&self, now_ms: u64, store: &Store) -> bool {
        let has_caught_up = || self.suspects.is_empty() || store.progress_of(&self.slice) >= self.version;
        self.is_complete && (has_caught_up() || self.until_ms <= now_ms)
    }

    /// The suspects that still differ.
    fn differences(&self, store: &Store) -> Vec<Difference> {
        let (snapshot, kind) = (store.snapshot(), &self.slice.kind);
        let still_differs = |suspect: &Difference| {
            let live = &suspect.object;
            let cached = snapshot.get(kind, &live.name);
            let what = match suspect.what {
                What::Gone => cached.is_some_and(|cached| listed(cached) == *live).then_some(What::Gone),
                _ => difference(live, cached, || store.deleted_at(kind, &live.name), self.version),
            }?;
            Some(Difference { object: live.clone(), what })
        };
        self.suspects.iter().filter_map(still_differs).collect()
    }
}

fn listed(object: &Object) -> Listed {
    Listed { name: object.name.clone(), uid: Arc::clone(&object.uid), version: object.resource_version }
}

/// How the cache differs from an object of a list at version `until`. Later changes are no difference.
fn difference(
    live: &Listed,
    cached: Option<&Arc<Object>>,
    deleted_at: impl FnOnce() -> Option<ResourceVersion>,
    until: ResourceVersion,
) -> Option<What> {
    let Some(cached) = cached else {
        return match deleted_at() {
            Some(at) if at > until => None,
            Some(at) if at >= live.version => Some(What::Undone),
            _ => Some(What::Missing),
        };
    };
    let is_same = cached.resource_version == live.version && cached.uid == live.uid;
    if is_same || cached.resource_version > until {
        None
    } else if cached.resource_version < live.version {
        Some(What::Outdated)
    } else {
        Some(What::Undone)
    }
}
