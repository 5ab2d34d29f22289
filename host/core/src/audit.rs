//! Whether the cache is what the API server has: one kind after the other is listed live and compared. A watch that loses an
//! event without a word leaves an object wrong for ever, since the resync reads the cache.
//!
//! ```text
//! due ──Act::List──▶ pages ──▶ suspects ──(the watch has passed the list's version)──▶ Act::Report
//! ```
//! Names, UIDs and versions come in page by page and are compared as they come; only what differs is kept. A watch lags, so a
//! difference is real when it outlives the moment at which the cache shows everything up to the list's version. Nothing here
//! lists, relists or knows what a kind means.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::digest::spread;
use crate::object::{Kind, Name, Object, ResourceVersion};
use crate::store::Store;
use crate::store::listing::Seen;

#[cfg(test)]
mod tests;

/// Objects of one kind that are compared a second time, and the most that a report holds. When more differ, the watch lags
/// behind a flood, or a thousand examples are enough to say that the cache is wrong.
const MAX_SUSPECTS: usize = 1_000;
/// Differences of one kind that are remembered because a relist did not mend them. With more, an hourly relist is no waste.
const MAX_UNMENDED: usize = 100;
/// Longest that a list may take: twice as long as it has in the shell, which then has lost the answer.
const LIST_MS: u64 = 20 * 60 * 1_000;
/// Longest that the watch may take to pass the list's version. The API server sends a bookmark each minute, and a watch that
/// is silent for two and a half is opened anew; what it has not shown after twice that, it has lost.
const SETTLE_MS: u64 = 5 * 60 * 1_000;
/// How soon a kind is looked at again that could not be listed, or that differed: whether it has been mended.
const AGAIN_MS: u64 = 5 * 60 * 1_000;
/// How soon it is looked at again whether a kind's watch works.
const POSTPONE_MS: u64 = 60 * 1_000;

/// One object as a live list shows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listed {
    /// Its namespace and name.
    pub name: Name,
    /// Its metadata.uid.
    pub uid: Arc<str>,
    /// Its metadata.resourceVersion.
    pub version: ResourceVersion,
}

/// What the shell answers to a request for a live list.
#[derive(Debug)]
pub enum Answer {
    /// A list begins, or begins anew.
    Begun,
    /// Some hundred objects of it.
    Page(Page),
    /// It cannot be had; the shell has told why.
    Failed,
}

/// A part of a list.
#[derive(Debug)]
pub struct Page {
    /// The version that the whole list shows.
    pub version: ResourceVersion,
    /// The objects.
    pub objects: Vec<Listed>,
    /// Whether the list is complete with it.
    pub is_last: bool,
}

/// How the cache differs in one object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    /// It is not in the cache.
    Missing,
    /// It is in the cache and nowhere else.
    Gone,
    /// The cache has an older state.
    Outdated,
    /// The cache has a state that the API server never had after the one that it has: etcd was restored.
    Undone,
}

/// One object in which the cache differs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// As the API server has it, or as the cache does where only that has it.
    pub object: Listed,
    /// How.
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

/// The outcome of one kind's audit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The kind.
    pub kind: Kind,
    /// What differs, without what differed in the same way before and was not mended by a relist.
    pub differences: Vec<Difference>,
}

impl Report {
    /// Whether the API server's versions went backwards: every kind has to be listed anew, not this one alone.
    pub fn is_of_a_restore(&self) -> bool {
        self.differences.iter().any(|difference| difference.what == What::Undone)
    }
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// List the kind live and tell [`Audits::on_answer`].
    List(Kind),
    /// An audit is complete. What differs is mended by a relist.
    Report(Report),
}

/// When each kind is due, and the audit that is under way.
#[derive(Debug)]
pub struct Audits {
    /// 0: none.
    interval_ms: u64,
    due: BTreeSet<(u64, Kind)>,
    running: Option<Audit>,
    /// What a relist did not mend, such as an object that cannot be decoded.
    unmended: BTreeMap<Kind, BTreeSet<Difference>>,
}

/// One kind's audit.
#[derive(Debug)]
struct Audit {
    kind: Kind,
    /// The list's version, once it is known.
    version: ResourceVersion,
    seen: Seen,
    suspects: Vec<Difference>,
    /// There were more suspects than are kept.
    overflowed: bool,
    is_complete: bool,
    /// When it is given up while it lists, or judged as it is while it waits for the watch.
    until_ms: u64,
}

impl Audits {
    /// Each kind once in so many milliseconds; 0: none at all.
    pub fn new(interval_ms: u64) -> Self {
        Self { interval_ms, due: BTreeSet::new(), running: None, unmended: BTreeMap::new() }
    }

    /// A kind is watched from now on. Its first audit comes within the interval, by its name, so that kinds whose watches
    /// began together are not due together.
    pub fn begin(&mut self, now_ms: u64, kind: &Kind) {
        if self.interval_ms == 0 {
            return;
        }
        let delay_ms = spread(&[&kind.api_version, &kind.kind], self.interval_ms);
        self.due.insert((now_ms.saturating_add(delay_ms), kind.clone()));
    }

    /// Nobody watches the kind any more.
    pub fn end(&mut self, kind: &Kind) {
        self.due.retain(|(_, other)| other != kind);
        self.running.take_if(|audit| audit.kind == *kind);
        self.unmended.remove(kind);
    }

    /// The earliest moment at which [`Self::step`] has something to do though nothing else happens.
    pub fn next_due_ms(&self) -> Option<u64> {
        match &self.running {
            Some(audit) => Some(audit.until_ms),
            None => self.due.first().map(|(due_ms, _)| *due_ms),
        }
    }

    /// The shell's answer to [`Act::List`]; one that belongs to no audit is ignored.
    pub fn on_answer(&mut self, now_ms: u64, kind: &Kind, answer: Answer, store: &Store) {
        let Some(audit) = self.running.as_mut().filter(|audit| audit.kind == *kind && !audit.is_complete) else {
            return;
        };
        match answer {
            Answer::Begun => *audit = Audit::new(kind.clone(), audit.until_ms),
            Answer::Page(page) => audit.compare(now_ms, &page, store),
            Answer::Failed => self.again(now_ms, AGAIN_MS),
        }
    }

    /// Begins what is due and ends what has settled. To be asked after every event; it looks at two numbers when there is
    /// nothing to do.
    pub fn step(&mut self, now_ms: u64, store: &Store) -> Option<Act> {
        match &self.running {
            None => self.begin_next(now_ms, store).map(Act::List),
            // The kind is listed anew, which mends whatever there is.
            Some(audit) if !store.synced(&audit.kind) => {
                self.again(now_ms, POSTPONE_MS);
                None
            }
            Some(audit) if audit.has_settled(now_ms, store) => self.judge(now_ms, store).map(Act::Report),
            Some(audit) => {
                if !audit.is_complete && audit.until_ms <= now_ms {
                    self.again(now_ms, AGAIN_MS);
                }
                None
            }
        }
    }

    fn begin_next(&mut self, now_ms: u64, store: &Store) -> Option<Kind> {
        while self.due.first().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
            let (_, kind) = self.due.pop_first()?;
            if store.synced(&kind) {
                self.running = Some(Audit::new(kind.clone(), now_ms.saturating_add(LIST_MS)));
                return Some(kind);
            }
            self.due.insert((now_ms.saturating_add(POSTPONE_MS), kind));
        }
        None
    }

    /// Gives up the audit that is under way, for so long or until its next turn.
    fn again(&mut self, now_ms: u64, delay_ms: u64) {
        if let Some(audit) = self.running.take() {
            self.due.insert((now_ms.saturating_add(delay_ms.min(self.interval_ms)), audit.kind));
        }
    }

    fn judge(&mut self, now_ms: u64, store: &Store) -> Option<Report> {
        let audit = self.running.take()?;
        let kind = audit.kind.clone();
        let found = audit.differences(store);
        let before = self.unmended.remove(&kind).unwrap_or_default();
        let differences: Vec<Difference> = found.iter().filter(|found| !before.contains(found)).cloned().collect();
        let looks_again = audit.overflowed || !differences.is_empty();
        let delay_ms = if looks_again { AGAIN_MS.min(self.interval_ms) } else { self.interval_ms };
        self.due.insert((now_ms.saturating_add(delay_ms), kind.clone()));
        if !found.is_empty() {
            self.unmended.insert(kind.clone(), found.into_iter().take(MAX_UNMENDED).collect());
        }
        Some(Report { kind, differences })
    }
}

impl Audit {
    fn new(kind: Kind, until_ms: u64) -> Self {
        Self {
            kind,
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
            let cached = store.see(&self.kind, &live.name, &mut self.seen);
            if let Some(what) = difference(live, cached, || store.deleted_at(&self.kind, &live.name), self.version) {
                self.suspect(Difference { object: live.clone(), what });
            }
        }
        if page.is_last {
            self.is_complete = true;
            self.until_ms = now_ms.saturating_add(SETTLE_MS);
            let unseen = store.unseen(&self.kind, &self.seen);
            let gone: Vec<Listed> = unseen
                .filter(|cached| cached.resource_version <= self.version)
                .map(|cached| listed(cached))
                .take(MAX_SUSPECTS + 1)
                .collect();
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
        let is_explained = || self.suspects.is_empty() || store.progress_of(&self.kind) >= self.version;
        self.is_complete && (is_explained() || self.until_ms <= now_ms)
    }

    /// The suspects that the watch has not explained.
    fn differences(&self, store: &Store) -> Vec<Difference> {
        let snapshot = store.snapshot();
        let is_left = |suspect: &Difference| {
            let live = &suspect.object;
            let cached = snapshot.get(&self.kind, &live.name);
            match suspect.what {
                What::Gone => cached.is_some_and(|cached| listed(cached) == *live).then_some(What::Gone),
                _ => difference(live, cached, || store.deleted_at(&self.kind, &live.name), self.version),
            }
        };
        let left = self.suspects.iter().filter_map(|suspect| Some((suspect, is_left(suspect)?)));
        left.map(|(suspect, what)| Difference { object: suspect.object.clone(), what }).collect()
    }
}

fn listed(object: &Object) -> Listed {
    Listed { name: object.name.clone(), uid: Arc::clone(&object.uid), version: object.resource_version }
}

/// How the cache differs from what a list at version `until` has shown of one object. What changed after it is no difference.
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
