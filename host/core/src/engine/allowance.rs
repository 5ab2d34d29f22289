//! How much of long work a millisecond takes: the steps of one do so much of it together, so that the loop is free for
//! others meanwhile, and the rest follows in the next ones. It does not know the work.

#[derive(Debug)]
pub(super) struct Allowance {
    per_ms: usize,
    at_ms: u64,
    spent: usize,
}

impl Allowance {
    pub fn of(per_ms: usize) -> Self {
        Self { per_ms, at_ms: 0, spent: 0 }
    }

    /// What is left of this millisecond's.
    pub fn left(&mut self, now_ms: u64) -> usize {
        if self.at_ms != now_ms {
            (self.at_ms, self.spent) = (now_ms, 0);
        }
        self.per_ms.saturating_sub(self.spent)
    }

    pub fn spend(&mut self, units: usize) {
        self.spent += units;
    }

    /// When there is more.
    pub fn next_ms(&self) -> u64 {
        self.at_ms + 1
    }
}
