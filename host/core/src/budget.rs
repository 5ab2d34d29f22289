//! A bound on work, counted in units instead of time, so that the same input always costs the same. The spender defines
//! the unit, and what happens when the budget is exhausted.

use std::cell::Cell;

/// Units of work that are left to spend.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    spent: Cell<u64>,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Self {
        Self { most, spent: Cell::new(0) }
    }

    /// Without a bound, to measure what something costs.
    pub(crate) fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Takes some units. False when fewer are left: the budget is overdrawn, and the caller must not do the work.
    pub(crate) fn spend(&self, units: u64) -> bool {
        let wanted = self.spent.get().saturating_add(units);
        self.spent.set(wanted.min(self.most.saturating_add(1)));
        wanted <= self.most
    }

    pub(crate) fn is_overdrawn(&self) -> bool {
        self.spent.get() > self.most
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent.get().min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_overdrawn_gives_nothing_more() {
        let budget = Budget::new(3);
        assert!(budget.spend(2) && budget.spend(1) && !budget.is_overdrawn());
        assert!(!budget.spend(1) && budget.is_overdrawn());
        assert_eq!(budget.spent(), 3);
        assert!(!budget.spend(0));
    }

    #[test]
    fn an_unlimited_budget_is_never_overdrawn_and_counts_what_was_spent() {
        let budget = Budget::unlimited();
        assert!(budget.spend(u64::MAX - 1) && budget.spend(1) && !budget.is_overdrawn());
        assert_eq!(budget.spent(), u64::MAX);
    }
}
