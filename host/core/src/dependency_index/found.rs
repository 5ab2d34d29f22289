//! The dependencies that a change has found under its index keys, by share, and how much of the comparing each share
//! has. Here dependencies are positions and shares are numbers.

use std::collections::BTreeMap;

use crate::budget::Budget;

/// Dependencies of one share that one change looks at: some hundred microseconds. Only an object with many labels has
/// so many index keys; beyond it all keys of the share count as affected.
pub(super) const MAX_COMPARED: usize = 1_024;
/// Comparisons of all shares with one change, a millisecond to eight. Half of them are equal parts of the shares, and half are
/// for those that come first. What a share has beyond that counts as affected.
pub(super) const MAX_COMPARED_IN_ALL: u64 = 8_192;
/// Budget of one share's dependencies to project the two sides of one change, at 16 units per KiB that no
/// projection has cached: half a MiB of text, one or two milliseconds of the event loop. Beyond it, the share's
/// keys under the change's index keys count as affected: they wake, and their own turns pay for the reads.
pub(super) const MAX_CUTS: u64 = 8_192;
/// The same of all shares together, two to four milliseconds, half of it in equal parts. What very many shares read alike is
/// projected for the first one, from the half that is for all.
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

/// How much of one kind of work each share of a change may have.
#[derive(Debug)]
struct Parts {
    /// The part of each share, whatever the others need.
    own: u64,
    /// What is left for all, and what those before have left of their parts.
    common: u64,
}

impl Parts {
    fn of(total: u64, shares: u64) -> Self {
        Self { own: total / 2 / shares.max(1), common: total / 2 }
    }

    fn next(&self) -> u64 {
        self.own + self.common
    }

    fn spend(&mut self, spent: u64) {
        self.common = self.next().saturating_sub(spent);
    }
}

/// What is left for the shares of one change that had no turn yet.
#[derive(Debug)]
pub(super) struct Left {
    compared: Parts,
    cuts: Parts,
}

impl Left {
    pub(super) fn of(shares: u64) -> Self {
        Self { compared: Parts::of(MAX_COMPARED_IN_ALL, shares), cuts: Parts::of(MAX_CUTS_IN_ALL, shares) }
    }

    /// The comparisons and projections of the next share.
    pub(super) fn part(&self) -> (u64, Budget) {
        (self.compared.next(), Budget::new(self.cuts.next().min(MAX_CUTS)))
    }

    /// The next share has had its turn.
    pub(super) fn spend(&mut self, compared: u64, cuts: u64) {
        self.compared.spend(compared);
        self.cuts.spend(cuts);
    }
}
