//! What the shares pay for the event loop's work on their behalf (Q4). The core counts it, since it has no clock; the
//! runtime measures each step, and what the step took beyond the count is charged to the same shares.

use std::sync::Arc;

use super::Reconciler;
use crate::workqueue::WorkQueue;

/// How many times the count a measured step may cost. Counts are right within a few times for any content; the rest of a
/// longer step is the machine's, or nobody's.
const MOST_TIMES: u64 = 8;

/// The charges of one step.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// In the order of the work. Two in a row are of different shares.
    of_shares: Vec<(Arc<str>, u64)>,
    total_us: u64,
}

impl Charges {
    pub fn total_us(&self) -> u64 {
        self.total_us
    }

    /// Charges a share for work of this step, as counted.
    pub fn add(&mut self, queue: &mut WorkQueue, share: &Arc<str>, us: u64) {
        queue.charge(share, us);
        self.total_us = self.total_us.saturating_add(us);
        match self.of_shares.last_mut() {
            Some((last, charged_us)) if last == share => *charged_us = charged_us.saturating_add(us),
            _ => self.of_shares.push((Arc::clone(share), us)),
        }
    }

    fn clear(&mut self) {
        self.of_shares.clear();
        self.total_us = 0;
    }
}

impl Reconciler {
    /// A step begins.
    pub fn begin_step(&mut self) {
        self.charges.clear();
    }

    /// What this step was charged so far, as counted.
    pub fn charged_us(&self) -> u64 {
        self.charges.total_us
    }

    /// The step has taken so long.
    pub fn measured(&mut self, elapsed_us: u64) {
        let counted_us = self.charges.total_us;
        let most_us = counted_us.saturating_mul(MOST_TIMES);
        let Some(more_us) = elapsed_us.min(most_us).checked_sub(counted_us).filter(|more_us| *more_us > 0) else {
            return;
        };
        for (share, charged_us) in &self.charges.of_shares {
            let part_us = u128::from(more_us) * u128::from(*charged_us) / u128::from(counted_us);
            self.queue.charge(share, u64::try_from(part_us).expect("a part is no more than the whole"));
        }
        self.charges.clear();
    }
}
