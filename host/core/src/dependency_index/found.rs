//! The dependencies that a change has found under its index keys, by share, and how much of the comparing each share
//! has. Here dependencies are positions and shares are numbers.

use std::collections::BTreeMap;

use crate::budget::Budget;

/// Dependencies of one share that one change looks at: some hundred microseconds. Only an object with many labels has
/// so many index keys; beyond it all keys of the share count as affected.
pub(super) const MAX_COMPARED: usize = 1_024;
/// Comparisons of all shares with one change, half a millisecond to four. Then each share has an equal part: what it
/// has beyond that counts as affected.
pub(super) const MAX_COMPARED_IN_ALL: u64 = 4_096;
/// Budget of one share's dependencies to project the two sides of one change, at 16 units per KiB that no
/// projection has cached: half a MiB of text, one or two milliseconds of the event loop. Beyond it, the share's
/// keys under the change's index keys count as affected: they wake, and their own turns pay for the reads.
pub(super) const MAX_CUTS: u64 = 8_192;
/// The same of all shares together, in equal parts: two to four milliseconds. A Pod of ten KiB is cut for fifty
/// projections.
pub(super) const MAX_CUTS_IN_ALL: u64 = 2 * MAX_CUTS;

#[derive(Debug, Default)]
pub(super) struct Found {
    /// The share of each dependency, and its position.
    entries: Vec<(u32, u32)>,
    /// How many each share has, once one may have too many.
    counts: BTreeMap<u32, usize>,
}

impl Found {
    /// Adds a dependency of a share. False if the share has more than are looked at.
    pub(super) fn add(&mut self, share: u32, place: u32) -> bool {
        if self.entries.len() >= MAX_COMPARED {
            if self.counts.is_empty() {
                self.entries.iter().for_each(|(share, _)| *self.counts.entry(*share).or_default() += 1);
            }
            let count = self.counts.entry(share).or_default();
            *count += 1;
            if *count > MAX_COMPARED {
                return false;
            }
        }
        self.entries.push((share, place));
        true
    }

    pub(super) fn is_over(&self, share: u32) -> bool {
        self.counts.get(&share).is_some_and(|count| *count > MAX_COMPARED)
    }

    /// Sorts them by share and returns how many shares there are. Another share is the first with each change: the
    /// first one pays for the projections that others have too, and the last one may have what those before it have
    /// left.
    pub(super) fn sort_from(&mut self, first: &mut u32) -> u64 {
        self.entries.sort_unstable();
        let at = self.entries.partition_point(|(share, _)| share < first);
        if at < self.entries.len() {
            self.entries.rotate_left(at);
        }
        if let Some((share, _)) = self.entries.first() {
            *first = share.saturating_add(1);
        }
        self.by_share().count() as u64
    }

    /// The dependencies of each share.
    pub(super) fn by_share(&self) -> impl Iterator<Item = (u32, &[(u32, u32)])> {
        self.entries.chunk_by(|(one, _), (other, _)| one == other).map(|of_share| (of_share[0].0, of_share))
    }
}

/// What is left for the shares of one change that had no turn yet.
#[derive(Debug)]
pub(super) struct Left {
    shares: u64,
    compared: u64,
    cuts: u64,
}

impl Left {
    pub(super) fn of(shares: u64) -> Self {
        Self { shares, compared: MAX_COMPARED_IN_ALL, cuts: MAX_CUTS_IN_ALL }
    }

    /// The comparisons and projections of the next share: an equal part at least, whatever the others need.
    pub(super) fn part(&self) -> (u64, Budget) {
        let shares = self.shares.max(1);
        (self.compared / shares, Budget::new((self.cuts / shares).min(MAX_CUTS)))
    }

    /// The next share has had its turn.
    pub(super) fn spend(&mut self, compared: u64, cuts: u64) {
        self.shares = self.shares.saturating_sub(1);
        self.compared = self.compared.saturating_sub(compared);
        self.cuts = self.cuts.saturating_sub(cuts);
    }
}
