//! What the compile cache removes when it is full. Entries come in, those that go come out; no file is touched here.
//!
//! A host loads its plugins in the same order at each start, so what was used longest ago is what it needs next: a cache
//! that removes that would, once it is a little too small, hit never. So what is loaded now is never removed, and of what
//! earlier runs have used the newest goes first, which is needed last. When all that is there is in use, what comes on top of it
//! is not kept: the same part of the plugins hits at each start.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Artifacts, and as many records of components that have none.
    pub(super) entries: usize,
    /// All artifacts together, with their records.
    pub(super) bytes: u64,
}

/// An artifact has some 0.6 MiB (Rust) to 35 MiB (Python): room for three thousand plugins of the first sort, three times
/// what a host is built for. The volume that deploy/ gives to the folder has 3 GiB, and a Pod whose volume is full is
/// evicted: the rest is for artifacts that were removed here and are still mapped. The number of entries bounds the walk
/// over the folder that each new one costs.
pub(super) const BOUNDS: Bounds = Bounds { entries: 8_000, bytes: 2 << 30 };

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub(super) record: PathBuf,
    /// When it was last of use.
    pub(super) used: SystemTime,
    /// Of its record and its artifact.
    pub(super) bytes: u64,
    pub(super) has_artifact: bool,
    /// Something in this process has its artifact open.
    pub(super) in_use: bool,
}

/// The turn in which entries are removed, first to last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Used so long before this run, the shortest time first.
    Before(Duration),
    /// Used so long since it began, the longest time ago first: an older version, which a rollback may want.
    Since(Duration),
}

impl Turn {
    fn of(kept: &Kept, run_began: SystemTime) -> Self {
        match kept.used.duration_since(run_began) {
            Ok(since) => Self::Since(since),
            Err(before) => Self::Before(before.duration()),
        }
    }
}

/// The records of the entries that make room for an artifact of so many bytes; None when what is in use leaves none.
pub(super) fn for_artifact(kept: &[Kept], bounds: Bounds, run_began: SystemTime, bytes: u64) -> Option<Vec<PathBuf>> {
    let (in_use, mut free): (Vec<&Kept>, Vec<_>) =
        kept.iter().filter(|kept| kept.has_artifact).partition(|kept| kept.in_use);
    let size = |kept: &[&Kept]| kept.iter().map(|kept| kept.bytes).sum::<u64>();
    let (mut count, mut total) = (in_use.len() + 1, size(&in_use) + bytes);
    if count > bounds.entries || total > bounds.bytes {
        return None;
    }
    (count, total) = (count + free.len(), total + size(&free));
    free.sort_by_key(|kept| Turn::of(kept, run_began));
    let mut removed = free.into_iter();
    let mut records = Vec::new();
    while count > bounds.entries || total > bounds.bytes {
        let Some(next) = removed.next() else { break };
        (count, total) = (count - 1, total - next.bytes);
        records.push(next.record.clone());
    }
    Some(records)
}

/// The records without an artifact that are too many: those that were of use longest ago. They cost a compilation at most,
/// and one that tells of a host that died must not make room for a newer refusal.
pub(super) fn for_record(kept: &[Kept], bounds: Bounds) -> Vec<PathBuf> {
    let mut records: Vec<&Kept> = kept.iter().filter(|kept| !kept.has_artifact).collect();
    records.sort_by_key(|kept| kept.used);
    let too_many = records.len().saturating_sub(bounds.entries);
    records.into_iter().take(too_many).map(|kept| kept.record.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { entries: 100, bytes: 1_000 };

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn artifact(name: &str, used: u64, in_use: bool) -> Kept {
        Kept { record: name.into(), used: at(used), bytes: 200, has_artifact: true, in_use }
    }

    #[track_caller]
    fn check(kept: &[Kept], bytes: u64, expected: Option<&[&str]>) {
        let removed = for_artifact(kept, BOUNDS, at(1_000), bytes);
        assert_eq!(removed, expected.map(|names| names.iter().map(PathBuf::from).collect()));
    }

    #[test]
    fn earlier_runs_newest_goes_first_then_this_runs_oldest_and_never_what_is_in_use() {
        let kept = [
            artifact("earlier-1", 10, false),
            artifact("earlier-2", 20, false),
            artifact("replaced-1", 1_010, false),
            artifact("replaced-2", 1_020, false),
            artifact("loaded", 5, true),
        ];
        check(&kept[1..], 200, Some(&[]));
        check(&kept, 200, Some(&["earlier-2"]));
        check(&kept, 800, Some(&["earlier-2", "earlier-1", "replaced-1", "replaced-2"]));
        check(&kept, 801, None);
    }

    #[test]
    fn what_is_in_use_leaves_no_room_and_then_nothing_is_removed_for_nothing() {
        let mut kept: Vec<Kept> = (0..5).map(|number| artifact(&number.to_string(), 1_000, true)).collect();
        check(&kept, 1, None);
        kept[3].in_use = false;
        check(&kept, 1, Some(&["3"]));
        check(&kept, 201, None);
    }

    #[test]
    fn records_without_an_artifact_have_a_bound_of_their_own() {
        let record = |name: &str, used| Kept { has_artifact: false, bytes: 5_000, ..artifact(name, used, false) };
        let kept = [record("old", 1), record("new", 3), record("middle", 2), artifact("artifact", 0, false)];
        assert_eq!(for_record(&kept, Bounds { entries: 1, ..BOUNDS }), [PathBuf::from("old"), "middle".into()]);
        check(&kept, 200, Some(&[]));
    }
}
