//! A rolling replacement: which outdated children of one kind may be deleted now.
//!
//! Children that are absent, being deleted, or not available count against `max_unavailable`, also those that the
//! rollout did not touch, so that it never makes an outage worse. The rest stay untouched, whatever the view does not
//! show yet.

use std::sync::Arc;

use crate::availability::is_available;
use crate::object::Object;

/// The wanted children of one kind, by their state in the view.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    max_unavailable: usize,
    /// Absent or being deleted.
    absent: usize,
    /// Equal to what is wanted.
    current: Vec<Arc<Object>>,
    /// Different from what is wanted, in the guest's order.
    outdated: Vec<Arc<Object>>,
}

impl Rollout {
    pub(super) fn new(max_unavailable: u32) -> Self {
        let max_unavailable = usize::try_from(max_unavailable).unwrap_or(usize::MAX);
        Self { max_unavailable, absent: 0, current: Vec::new(), outdated: Vec::new() }
    }

    pub(super) fn absent(&mut self) {
        self.absent += 1;
    }

    pub(super) fn current(&mut self, live: &Arc<Object>) {
        self.current.push(Arc::clone(live));
    }

    pub(super) fn outdated(&mut self, live: &Arc<Object>) {
        self.outdated.push(Arc::clone(live));
    }

    /// The outdated children that may be deleted now, unavailable ones first. The bytes that are parsed are added.
    pub(super) fn next(&self, parsed_bytes: &mut usize) -> Vec<&Arc<Object>> {
        if self.outdated.is_empty() {
            // Without an outdated child no status needs to be parsed.
            return Vec::new();
        }
        let mut is_available = |live: &Arc<Object>| is_available(live, parsed_bytes);
        let unavailable = self.absent + self.current.iter().filter(|live| !is_available(live)).count();
        let room = self.max_unavailable.saturating_sub(unavailable);
        let (available, idle): (Vec<_>, Vec<_>) = self.outdated.iter().partition(|live| is_available(live));
        let of_available = room.saturating_sub(idle.len());
        idle.into_iter().chain(available.into_iter().take(of_available)).take(room).collect()
    }
}

#[cfg(test)]
mod tests;
