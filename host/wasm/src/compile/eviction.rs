//! Which entries a full compile cache evicts. Entries come in, the evicted ones come out; no file is touched here.
//!
//! A host loads its plugins in the same order at each start, so the entry used longest ago is the one needed next: a
//! slightly too small LRU cache would never hit. So entries in use are never evicted, and of those that earlier runs
//! used the newest, which is needed last, is evicted first. When all entries are in use, a new artifact is not kept:
//! the same part of the plugins hits at each start.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Artifacts, and as many records without one.
    pub(super) entries: usize,
    /// Artifacts and their records together.
    pub(super) bytes: u64,
}

/// Artifacts have 0.6 MiB (Rust) to 35 MiB (Python): space for three thousand Rust plugins, three times what a host is
/// built for. The folder's volume in deploy/ has 3 GiB, because a Pod with a full volume is evicted; the rest is for
/// artifacts that were removed but are still mapped. The number of entries bounds the directory walk that each new one
/// costs.
pub(super) const BOUNDS: Bounds = Bounds { entries: 8_000, bytes: 2 << 30 };

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) record: PathBuf,
    pub(super) used: SystemTime,
    /// Of its record and its artifact.
    pub(super) bytes: u64,
    pub(super) has_artifact: bool,
    /// This process has its artifact open.
    pub(super) in_use: bool,
}

/// The order of eviction.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// Last used this long before this run began; the shortest time first.
    Before(Duration),
    /// Last used this long after it began; the shortest time first. It is an older version, which a rollback may need.
    Since(Duration),
}

impl Order {
    fn of(candidate: &Candidate, run_began: SystemTime) -> Self {
        match candidate.used.duration_since(run_began) {
            Ok(since) => Self::Since(since),
            Err(before) => Self::Before(before.duration()),
        }
    }
}

/// The records to evict for an artifact of this size; None when the entries in use leave no space for it.
pub(super) fn for_artifact(
    entries: &[Candidate],
    bounds: Bounds,
    run_began: SystemTime,
    bytes: u64,
) -> Option<Vec<PathBuf>> {
    let (in_use, mut free): (Vec<&Candidate>, Vec<_>) =
        entries.iter().filter(|entry| entry.has_artifact).partition(|entry| entry.in_use);
    let size = |entries: &[&Candidate]| entries.iter().map(|entry| entry.bytes).sum::<u64>();
    let (mut count, mut total) = (in_use.len() + 1, size(&in_use) + bytes);
    if count > bounds.entries || total > bounds.bytes {
        return None;
    }
    (count, total) = (count + free.len(), total + size(&free));
    free.sort_by_key(|entry| Order::of(entry, run_began));
    let over = |entry: &&Candidate| {
        let is_over = count > bounds.entries || total > bounds.bytes;
        (count, total) = (count - 1, total - entry.bytes);
        is_over
    };
    Some(free.into_iter().take_while(over).map(|entry| entry.record.clone()).collect())
}

/// The records without an artifact that are over the bound, the least recently used ones. A lost record costs a
/// compilation at most. The newest, which may be an attempt that kills the host, is never evicted for an older refusal.
pub(super) fn for_record(entries: &[Candidate], bounds: Bounds) -> Vec<PathBuf> {
    let mut records: Vec<&Candidate> = entries.iter().filter(|entry| !entry.has_artifact).collect();
    records.sort_by_key(|entry| entry.used);
    let too_many = records.len().saturating_sub(bounds.entries);
    records.into_iter().take(too_many).map(|entry| entry.record.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { entries: 100, bytes: 1_000 };

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn artifact(name: &str, used: u64, in_use: bool) -> Candidate {
        Candidate { record: name.into(), used: at(used), bytes: 200, has_artifact: true, in_use }
    }

    #[track_caller]
    fn check(entries: &[Candidate], bytes: u64, expected: Option<&[&str]>) {
        let evicted = for_artifact(entries, BOUNDS, at(1_000), bytes);
        assert_eq!(evicted, expected.map(|names| names.iter().map(PathBuf::from).collect()));
    }

    #[test]
    fn earlier_runs_newest_is_evicted_first_then_this_runs_oldest_and_never_what_is_in_use() {
        let entries = [
            artifact("earlier-1", 10, false),
            artifact("earlier-2", 20, false),
            artifact("replaced-1", 1_010, false),
            artifact("replaced-2", 1_020, false),
            artifact("loaded", 5, true),
        ];
        check(&entries[1..], 200, Some(&[]));
        check(&entries, 200, Some(&["earlier-2"]));
        check(&entries, 800, Some(&["earlier-2", "earlier-1", "replaced-1", "replaced-2"]));
        check(&entries, 801, None);
    }

    #[test]
    fn nothing_is_evicted_when_that_would_not_make_enough_space() {
        let mut entries: Vec<Candidate> = (0..5).map(|number| artifact(&number.to_string(), 1_000, true)).collect();
        check(&entries, 1, None);
        entries[3].in_use = false;
        check(&entries, 1, Some(&["3"]));
        check(&entries, 201, None);
    }

    #[test]
    fn records_without_an_artifact_have_a_bound_of_their_own() {
        let record = |name: &str, used| Candidate { has_artifact: false, bytes: 5_000, ..artifact(name, used, false) };
        let entries = [record("old", 1), record("new", 3), record("middle", 2), artifact("artifact", 0, false)];
        assert_eq!(for_record(&entries, Bounds { entries: 1, ..BOUNDS }), [PathBuf::from("old"), "middle".into()]);
        check(&entries, 200, Some(&[]));
    }
}
