//! Replacing children a few at a time: which of the outdated ones may go now. The children of one kind that are wanted go
//! in, as the view shows them; what is to be deleted comes out.
//!
//! What is being replaced, and what is new and not available yet, are at most as many as may be unavailable. So whatever
//! the view does not show yet, the others are untouched: as many as are wanted less those few. Availability that got lost
//! for other reasons counts as well, so that a rollout never makes an outage worse.

use std::sync::Arc;

use crate::availability::is_available;
use crate::object::Object;

/// The wanted children of one kind, sorted by what there is of them.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    max_unavailable: usize,
    /// Not there, or going: their successors are still to come.
    absent: usize,
    /// As they are wanted.
    current: Vec<Arc<Object>>,
    /// Otherwise than they are wanted, in the guest's order.
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

    /// The outdated children that may be deleted now: those first that serve nobody.
    pub(super) fn next(&self) -> Vec<&Arc<Object>> {
        if self.outdated.is_empty() {
            // Looking into statuses is for rollouts alone.
            return Vec::new();
        }
        let unavailable = |objects: &[Arc<Object>]| objects.iter().filter(|live| !is_available(live)).count();
        let on_their_way = self.absent + unavailable(&self.current);
        let room = self.max_unavailable.saturating_sub(on_their_way);
        let (serving, idle): (Vec<_>, Vec<_>) = self.outdated.iter().partition(|live| is_available(live));
        let of_serving = self.max_unavailable.saturating_sub(on_their_way + idle.len());
        idle.into_iter().chain(serving.into_iter().take(of_serving)).take(room).collect()
    }
}

#[cfg(test)]
mod tests;
