//! What the shares pay for the event loop's work on their behalf (Q4). The core counts it, since it has no clock; the
//! runtime measures each step, and what the step took beyond the count is charged to the same shares.

use std::sync::Arc;

use super::Reconciler;
use crate::workqueue::{Key, WorkQueue};

/// How many times the count a measured step may cost. Counts are right within a few times for any content; the rest of a
/// longer step is its event's, the machine's, or nobody's.
const MOST_TIMES: u64 = 8;
/// What an event of a share's own takes at least: a call, a write, a read or a request of it has ended.
const US_PER_EVENT: u64 = 5;
/// What the share of an event pays at most for a step that took longer than was counted: no step is meant to take more,
/// so the rest is the machine's.
const MOST_US_OF_EVENT: u64 = 20_000;

/// The charges of one step.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// In the order of the work. Two in a row are of different shares.
    of_shares: Vec<(Arc<str>, u64)>,
    total_us: u64,
    /// Whose event the step is of.
    event_of: Option<Arc<str>>,
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

    /// The step's event is of this share, whose it is to pay for what nobody has counted.
    pub fn add_event(&mut self, queue: &mut WorkQueue, share: &Arc<str>) {
        self.add(queue, share, US_PER_EVENT);
        self.event_of.get_or_insert_with(|| Arc::clone(share));
    }

    fn clear(&mut self) {
        self.of_shares.clear();
        self.total_us = 0;
        self.event_of = None;
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

    /// The step has taken so long: its shares pay for that as their work was counted, and the share of its event for
    /// what is far beyond it.
    pub fn measured(&mut self, elapsed_us: u64) {
        let counted_us = self.charges.total_us;
        let most_us = counted_us.saturating_mul(MOST_TIMES);
        let more_us = elapsed_us.min(most_us).saturating_sub(counted_us);
        if more_us > 0 {
            for (share, charged_us) in &self.charges.of_shares {
                let part_us = u128::from(more_us) * u128::from(*charged_us) / u128::from(counted_us);
                self.queue.charge(share, u64::try_from(part_us).expect("a part is no more than the whole"));
            }
        }
        let rest_us = elapsed_us.min(MOST_US_OF_EVENT).saturating_sub(most_us);
        if let Some(share) = self.charges.event_of.as_ref().filter(|_| rest_us > 0) {
            self.queue.charge(share, rest_us);
        }
        self.charges.clear();
    }

    /// The result of something that a key has sent is the event of this step.
    pub(super) fn charge_event(&mut self, key: &Key) {
        if let Some(controller) = self.controllers.get(&key.controller) {
            self.charges.add_event(&mut self.queue, &controller.share);
        }
    }
}
