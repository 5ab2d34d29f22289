//! The requests that servers may be carrying out, with those that no outcome contains any more. Ids go in when requests are
//! sent and out with their results, which come after ten seconds at most.
//!
//! Nothing here knows why a request was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::PluginCounts;
use crate::http::HttpId;
use crate::map::Map;
use crate::object::Name;
use crate::tenant::{share, share_name};

/// Requests in flight at once, beside one of each share (Q4). Each may hold a response of a MiB.
pub(super) const MAX_IN_FLIGHT: usize = 64;

/// A plugin, and the name of its objects. A plugin that is removed and comes back has other keys, but not other objects.
pub(super) type Of = (Arc<str>, Name);

#[derive(Debug, Default)]
pub(super) struct InFlight {
    sent: Map<HttpId, Of>,
    /// Those that change something on the server: neither GET nor HEAD.
    changing: BTreeMap<Of, BTreeSet<HttpId>>,
    /// By share.
    counts: PluginCounts,
}

impl InFlight {
    pub fn has_room(&self, share: &str) -> bool {
        self.counts.has_room(share, MAX_IN_FLIGHT)
    }

    pub fn begin(&mut self, id: HttpId, of: Of, changes: bool) {
        self.counts.add(&share(&of.0), 1);
        if changes {
            self.changing.entry(of.clone()).or_default().insert(id);
        }
        self.sent.insert(id, of);
    }

    pub fn end(&mut self, id: HttpId) -> Option<Of> {
        let of = self.sent.remove(&id)?;
        self.counts.subtract(&share_name(&of.0), 1);
        if let Some(changing) = self.changing.get_mut(&of)
            && changing.remove(&id)
            && changing.is_empty()
        {
            self.changing.remove(&of);
        }
        Some(of)
    }

    /// Those that change something.
    pub fn changing(&self, of: &Of) -> impl Iterator<Item = HttpId> {
        self.changing.get(of).into_iter().flatten().copied()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.changing.is_empty() && self.counts.total() == 0
    }
}
