//! Whether this host leads, as the election publishes it and writes look it up. It must not know the Lease.

use mortise_core::lease::Claim;

/// Whether this host leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leadership {
    /// Until when, on [`crate::clock`], unless it is renewed; None when it does not lead.
    pub claim_until_ms: Option<u64>,
    /// Since when, without a break.
    pub since_ms: u64,
}

impl Leadership {
    /// X7: the last time to send a write that was let be sent until then.
    pub(crate) fn renewed(self, not_after_ms: u64) -> u64 {
        Claim::of(self.claim_until_ms).renewed(self.since_ms, not_after_ms)
    }
}
