//! When to read a file of a plugin directory: scans and the time come in; files to read, removed names and the time of
//! the next scan go out. No I/O.
//!
//! A file is read when two scans found it unchanged, or at once when a rename replaced another file by it, and offered when
//! its bytes are a complete WebAssembly binary, or have not changed for so long that nobody can still be writing it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

/// How long a file must be unchanged before it is read. Compilers and editors write within milliseconds.
const SETTLE: Duration = Duration::from_millis(150);
/// How long to wait for the rest of an incomplete file, since copies over a network pause. After that it is read as it
/// is, and refused. It also bounds the wait until a directory counts as listed.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(3);

/// Identifies one state of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub bytes: u64,
    pub modified: SystemTime,
    /// The inode, on Unix.
    pub file: u64,
}

/// The states of a component's file and of its configuration's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamps {
    pub wasm: Stamp,
    pub config: Option<Stamp>,
}

#[derive(Debug)]
struct Entry {
    stamps: Stamps,
    /// When it was first found in this state.
    since: Instant,
    /// It replaced another file, and has no configuration, which might be replaced next.
    replaces: bool,
    /// It has its name by a rename, so it is there as a whole.
    renamed: bool,
    /// It was reported in this state.
    settled: bool,
    /// It was read in this state and was incomplete.
    incomplete: bool,
    /// Something was reported under this name, in any state.
    reported: bool,
}

impl Entry {
    /// When to read it; None when it was reported in this state.
    fn due_at(&self) -> Option<Instant> {
        match (self.settled, self.incomplete) {
            (true, _) => None,
            (false, false) if self.replaces && self.renamed => Some(self.since),
            (false, false) => Some(self.since + SETTLE),
            (false, true) => Some(self.since + MAX_WAIT),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Folder {
    entries: BTreeMap<String, Entry>,
}

impl Folder {
    /// Records a scan, and which files were renamed into their places: a notification may come after the scan that saw its
    /// rename. Returns the removed names that had been reported.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        found: BTreeMap<String, Stamps>,
        renamed: &BTreeSet<String>,
    ) -> Vec<String> {
        let mut gone = Vec::new();
        self.entries.retain(|name, entry| {
            let stays = found.contains_key(name);
            if !stays && entry.reported {
                gone.push(name.clone());
            }
            stays
        });
        for (name, stamps) in found {
            let renamed = renamed.contains(&name);
            let before = self.entries.get_mut(&name);
            if let Some(entry) = before.filter(|entry| entry.stamps == stamps) {
                entry.renamed |= renamed;
                continue;
            }
            let before = self.entries.get(&name);
            let replaces = before.is_some_and(|entry| entry.stamps.config.is_none()) && stamps.config.is_none();
            let reported = before.is_some_and(|entry| entry.reported);
            let entry = Entry { stamps, since: now, replaces, renamed, settled: false, incomplete: false, reported };
            self.entries.insert(name, entry);
        }
        gone
    }

    /// The files to read now, in the state that the scan found.
    pub(super) fn due(&self, now: Instant) -> Vec<(String, Stamps)> {
        let is_due = |entry: &Entry| entry.due_at().is_some_and(|at| at <= now);
        let due = self.entries.iter().filter(|(_, entry)| is_due(entry));
        due.map(|(name, entry)| (name.clone(), entry.stamps.clone())).collect()
    }

    /// Records a read. Returns whether to report the file: an incomplete one waits for [`MAX_WAIT`].
    pub(super) fn settle(&mut self, now: Instant, name: &str, whole: bool) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        if !whole && now < entry.since + MAX_WAIT {
            entry.incomplete = true;
            return false;
        }
        entry.settled = true;
        entry.reported = true;
        true
    }

    /// The names without any report so far. They count as reported now, and are still read once stable.
    pub(super) fn give_up_on_unreported(&mut self) -> Vec<String> {
        let unreported = self.entries.iter_mut().filter(|(_, entry)| !entry.reported);
        let report = |(name, entry): (&String, &mut Entry)| {
            entry.reported = true;
            name.clone()
        };
        unreported.map(report).collect()
    }

    /// How long until the next scan is needed; None when all files were reported.
    pub(super) fn next_scan(&self, now: Instant) -> Option<Duration> {
        let next = self.entries.values().filter_map(Entry::due_at).min()?;
        // Never zero: a file that is due and not settled changed during its read.
        Some(next.saturating_duration_since(now).max(SETTLE / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: BTreeSet<String> = BTreeSet::new();

    fn found(states: &[(&str, u64)]) -> BTreeMap<String, Stamps> {
        let stamps = |bytes| Stamps { wasm: Stamp { bytes, modified: SystemTime::UNIX_EPOCH, file: 1 }, config: None };
        states.iter().map(|(name, bytes)| ((*name).to_owned(), stamps(*bytes))).collect()
    }

    fn names(due: Vec<(String, Stamps)>) -> Vec<String> {
        due.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_file_that_a_rename_replaced_is_read_at_once_and_waited_for_if_incomplete() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        let renamed = BTreeSet::from(["a".to_owned(), "c".to_owned()]);
        let with_config = |bytes| {
            let mut found = found(&[("a", bytes), ("b", bytes), ("c", bytes)]);
            let c = found.get_mut("c").unwrap();
            c.config = Some(c.wasm.clone());
            found
        };
        folder.observe(start, with_config(1), &renamed);
        assert!(folder.due(start).is_empty(), "a configuration may come next");
        folder.observe(start, with_config(2), &NONE);
        assert!(folder.due(start).is_empty(), "the rename is not known yet");
        folder.observe(start, with_config(2), &renamed);
        assert_eq!(names(folder.due(start)), ["a"]);
        assert!(!folder.settle(start, "a", false));
        assert_eq!(names(folder.due(start + SETTLE)), ["b", "c"]);
        assert_eq!(names(folder.due(start + MAX_WAIT)), ["a", "b", "c"]);
    }

    #[test]
    fn a_file_is_read_once_and_only_when_stable() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1)]), &NONE);
        assert!(folder.due(start).is_empty());
        // It grows, so the wait starts again.
        folder.observe(start + SETTLE, found(&[("a", 2)]), &NONE);
        assert!(folder.due(start + SETTLE).is_empty());
        folder.observe(start + SETTLE * 2, found(&[("a", 2)]), &NONE);
        assert_eq!(names(folder.due(start + SETTLE * 2)), ["a"]);
        assert!(folder.settle(start + SETTLE * 2, "a", true));
        assert!(folder.due(start + MAX_WAIT).is_empty());
        assert_eq!(folder.next_scan(start + MAX_WAIT), None);
    }

    #[test]
    fn an_incomplete_file_is_reported_only_after_a_wait() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1)]), &NONE);
        assert!(!folder.settle(start + SETTLE, "a", false));
        assert!(folder.due(start + SETTLE * 2).is_empty());
        assert!(folder.next_scan(start + SETTLE).is_some(), "there is another scan");
        assert_eq!(names(folder.due(start + MAX_WAIT)), ["a"]);
        assert!(folder.settle(start + MAX_WAIT, "a", false));
    }

    #[test]
    fn only_reported_files_are_reported_as_removed() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1), ("b", 1)]), &NONE);
        folder.settle(start + SETTLE, "a", true);
        // A changed file that is removed before it is read again was reported before.
        folder.observe(start + SETTLE, found(&[("a", 2), ("b", 1)]), &NONE);
        assert_eq!(folder.observe(start + SETTLE, found(&[]), &NONE), ["a"]);
        assert!(folder.observe(start + SETTLE, found(&[]), &NONE).is_empty());
    }

    #[test]
    fn a_file_that_is_given_up_on_is_still_read_or_removed_later() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1), ("b", 1), ("c", 1)]), &NONE);
        folder.settle(start + SETTLE, "a", true);
        assert_eq!(folder.give_up_on_unreported(), ["b", "c"]);
        assert!(folder.give_up_on_unreported().is_empty());
        assert_eq!(folder.observe(start + SETTLE, found(&[("a", 1), ("b", 1)]), &NONE), ["c"]);
        assert_eq!(names(folder.due(start + SETTLE)), ["b"]);
    }
}
