//! Bytes that are kept for shares, within bounds for each and for all. What several kinds of state have in common: who pays,
//! and how much more he may have (Q4).
//!
//! Nothing here knows what is kept, or what is done without.

use std::sync::Arc;

use super::plugin_counts::PluginCounts;

/// The bounds of a ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes of one share.
    pub share: usize,
    /// Bytes of all shares.
    pub total: usize,
    /// Bytes that a share may have whatever the others have, so that those do not make it work more.
    pub own: usize,
    /// What all shares may have beyond the total by that together. With many of them each has less to itself.
    pub reserve: usize,
}

/// Bytes by share.
#[derive(Debug)]
pub(super) struct Ledger {
    bounds: Bounds,
    counts: PluginCounts,
}

impl Ledger {
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, counts: PluginCounts::default() }
    }

    /// Whether a share may have so many more bytes in the `part`th of its room.
    pub fn fits(&self, share: &str, bytes: usize, part: usize) -> bool {
        let Bounds { share: most, total: most_of_all, own, reserve } = self.bounds;
        let (of_share, total) =
            (self.counts.of(share).saturating_add(bytes), self.counts.total().saturating_add(bytes));
        let own = own.min(reserve / self.counts.len().max(1));
        of_share <= own / part || (of_share <= most / part && total <= most_of_all / part)
    }

    pub fn add(&mut self, share: &Arc<str>, bytes: usize) {
        self.counts.add(share, bytes);
    }

    /// Never counts below zero.
    pub fn subtract(&mut self, share: &str, bytes: usize) {
        self.counts.subtract(share, bytes);
    }

    pub fn of(&self, share: &str) -> usize {
        self.counts.of(share)
    }

    /// Those that have any.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.counts.iter()
    }

    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.counts.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { share: 64, total: 512, own: 4, reserve: 40 };

    fn add(ledger: &mut Ledger, share: usize, bytes: usize, part: usize) -> bool {
        let share = share.to_string();
        let fits = ledger.fits(&share, bytes, part);
        ledger.add(&share.into(), if fits { bytes } else { 0 });
        fits
    }

    #[test]
    fn what_is_kept_is_bounded_by_plugin_and_in_all_and_each_plugin_has_some_of_its_own() {
        let mut ledger = Ledger::new(BOUNDS);
        assert!(add(&mut ledger, 0, 32, 2) && !add(&mut ledger, 0, 1, 2), "half is for outcomes");
        assert!(add(&mut ledger, 0, 32, 1) && !add(&mut ledger, 0, 1, 1), "over the plugin's bound");
        let full = (1..20).filter(|number| add(&mut ledger, *number, 64, 1)).count();
        assert_eq!(full, 512 / 64 - 1);
        assert!(add(&mut ledger, 30, 4, 1) && !add(&mut ledger, 30, 1, 1), "over the total bound");
        ledger.subtract("0", 8);
        assert!(ledger.fits("30", 1, 1));
    }

    #[test]
    fn however_many_shares_there_are_what_each_has_to_itself_is_bounded_in_all() {
        let mut ledger = Ledger::new(BOUNDS);
        (0..8).for_each(|share| assert!(add(&mut ledger, share, 64, 1), "they have the total"));
        for share in 8..1_000 {
            while add(&mut ledger, share, 1, 1) {}
        }
        assert!((512..=512 + 2 * 40).contains(&ledger.total()), "{}", ledger.total());
    }
}
