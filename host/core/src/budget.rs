//! How much work a piece of code may still do, counted in things that it looks at and not in time, so that the same
//! input always costs the same. What is counted, and what happens at the end of it, is for the code that spends to say.

use std::cell::Cell;

/// Units of work, of which each spender takes some.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    spent: Cell<u64>,
}

impl Budget {
    /// So much and no more.
    pub(crate) fn new(most: u64) -> Self {
        Self { most, spent: Cell::new(0) }
    }

    /// No bound: only to learn what something costs.
    pub(crate) fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Takes some units. False when that is more than there were; then none are left, and what was to be done with them
    /// must not be done.
    pub(crate) fn spend(&self, units: u64) -> bool {
        let wanted = self.spent.get().saturating_add(units);
        self.spent.set(wanted.min(self.most.saturating_add(1)));
        wanted <= self.most
    }

    /// Whether more was wanted than there was.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.spent.get() > self.most
    }

    /// What was taken.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.get().min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_what_it_has_and_then_nothing() {
        let budget = Budget::new(3);
        assert!(budget.spend(2) && budget.spend(1) && !budget.is_overdrawn());
        assert!(!budget.spend(1) && budget.is_overdrawn());
        assert_eq!(budget.spent(), 3);
        assert!(!budget.spend(0), "who has overdrawn stays so");
    }

    #[test]
    fn without_a_bound_only_the_costs_are_told() {
        let budget = Budget::unlimited();
        assert!(budget.spend(u64::MAX - 1) && budget.spend(1) && !budget.is_overdrawn());
        assert_eq!(budget.spent(), u64::MAX);
    }
}
