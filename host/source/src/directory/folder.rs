//! When a file is worth reading: what looks at a directory found comes in, with the time, and names to read, names that
//! are gone and the moment of the next look go out. No file is touched here.
//!
//! A file is read when two looks a moment apart found the same, and offered when its bytes are a whole WebAssembly
//! binary, or when they have not changed for so long that nobody can still be writing it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// How long a file has to stay as it is before it is read. Compilers and editors write within milliseconds.
const SETTLE: Duration = Duration::from_millis(150);
/// How long a file that is not whole is waited for. Copies over a network pause; after this a file is what it is, and
/// whoever reads it says what is wrong with it. A directory is waited for no longer than that until it counts as listed.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What tells one state of a file from another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub bytes: u64,
    pub modified: SystemTime,
    /// The inode, where there are such.
    pub file: u64,
}

/// A component's file, and that of its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamps {
    pub wasm: Stamp,
    pub config: Option<Stamp>,
}

#[derive(Debug)]
struct Entry {
    stamps: Stamps,
    /// When it was first found as it is.
    since: Instant,
    /// It was told as it is.
    settled: bool,
    /// It was read as it is, and was not whole.
    incomplete: bool,
    /// Something was told under this name, in whatever state it was.
    told: bool,
}

impl Entry {
    /// When it has to be read; None when there is nothing to do.
    fn due_at(&self) -> Option<Instant> {
        match (self.settled, self.incomplete) {
            (true, _) => None,
            (false, false) => Some(self.since + SETTLE),
            (false, true) => Some(self.since + PATIENCE),
        }
    }
}

/// What is known of a directory.
#[derive(Debug, Default)]
pub(super) struct Folder {
    entries: BTreeMap<String, Entry>,
}

impl Folder {
    /// Takes note of what a look found. Gives back the names that were told and are no longer there.
    pub(super) fn observe(&mut self, now: Instant, found: BTreeMap<String, Stamps>) -> Vec<String> {
        let mut gone = Vec::new();
        self.entries.retain(|name, entry| {
            let stays = found.contains_key(name);
            if !stays && entry.told {
                gone.push(name.clone());
            }
            stays
        });
        for (name, stamps) in found {
            let told = match self.entries.get(&name) {
                Some(entry) if entry.stamps == stamps => continue,
                Some(entry) => entry.told,
                None => false,
            };
            self.entries.insert(name, Entry { stamps, since: now, settled: false, incomplete: false, told });
        }
        gone
    }

    /// The files to read now, as they were found.
    pub(super) fn due(&self, now: Instant) -> Vec<(String, Stamps)> {
        let is_due = |entry: &Entry| entry.due_at().is_some_and(|at| at <= now);
        let due = self.entries.iter().filter(|(_, entry)| is_due(entry));
        due.map(|(name, entry)| (name.clone(), entry.stamps.clone())).collect()
    }

    /// A file was read. Says whether it is to be told: a file that is not whole has to wait until patience ends.
    pub(super) fn settle(&mut self, now: Instant, name: &str, whole: bool) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        if !whole && now < entry.since + PATIENCE {
            entry.incomplete = true;
            return false;
        }
        entry.settled = true;
        entry.told = true;
        true
    }

    /// The names of which nothing was told yet. They count as told from now on, and are still read when they come to rest.
    pub(super) fn give_up_on_untold(&mut self) -> Vec<String> {
        let untold = self.entries.iter_mut().filter(|(_, entry)| !entry.told);
        untold
            .map(|(name, entry)| {
                entry.told = true;
                name.clone()
            })
            .collect()
    }

    /// How long until something has to be looked at again; None when everything has come to rest.
    pub(super) fn next_look(&self, now: Instant) -> Option<Duration> {
        let next = self.entries.values().filter_map(Entry::due_at).min()?;
        // Never at once: what is due and was not settled changed while it was read.
        Some(next.saturating_duration_since(now).max(SETTLE / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(states: &[(&str, u64)]) -> BTreeMap<String, Stamps> {
        let stamps = |bytes| Stamps { wasm: Stamp { bytes, modified: SystemTime::UNIX_EPOCH, file: 1 }, config: None };
        states.iter().map(|(name, bytes)| ((*name).to_owned(), stamps(*bytes))).collect()
    }

    fn names(due: Vec<(String, Stamps)>) -> Vec<String> {
        due.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_file_is_read_when_it_has_come_to_rest_and_once() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1)]));
        assert!(folder.due(start).is_empty());
        // It grows, so its rest begins anew.
        folder.observe(start + SETTLE, found(&[("a", 2)]));
        assert!(folder.due(start + SETTLE).is_empty());
        folder.observe(start + SETTLE * 2, found(&[("a", 2)]));
        assert_eq!(names(folder.due(start + SETTLE * 2)), ["a"]);
        assert!(folder.settle(start + SETTLE * 2, "a", true));
        assert!(folder.due(start + PATIENCE).is_empty());
        assert_eq!(folder.next_look(start + PATIENCE), None);
    }

    #[test]
    fn a_half_written_file_is_waited_for_and_then_told_as_it_is() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1)]));
        assert!(!folder.settle(start + SETTLE, "a", false));
        assert!(folder.due(start + SETTLE * 2).is_empty());
        assert!(folder.next_look(start + SETTLE).is_some(), "somebody looks again");
        assert_eq!(names(folder.due(start + PATIENCE)), ["a"]);
        assert!(folder.settle(start + PATIENCE, "a", false));
    }

    #[test]
    fn only_what_was_told_can_be_gone() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1), ("b", 1)]));
        folder.settle(start + SETTLE, "a", true);
        // A changed file that vanishes before it is read again was still told once.
        folder.observe(start + SETTLE, found(&[("a", 2), ("b", 1)]));
        assert_eq!(folder.observe(start + SETTLE, found(&[])), ["a"]);
        assert!(folder.observe(start + SETTLE, found(&[])).is_empty());
    }

    #[test]
    fn what_is_given_up_on_is_named_once_and_still_read_or_gone_later() {
        let (mut folder, start) = (Folder::default(), Instant::now());
        folder.observe(start, found(&[("a", 1), ("b", 1), ("c", 1)]));
        folder.settle(start + SETTLE, "a", true);
        assert_eq!(folder.give_up_on_untold(), ["b", "c"]);
        assert!(folder.give_up_on_untold().is_empty());
        assert_eq!(folder.observe(start + SETTLE, found(&[("a", 1), ("b", 1)])), ["c"]);
        assert_eq!(names(folder.due(start + SETTLE)), ["b"]);
    }
}
