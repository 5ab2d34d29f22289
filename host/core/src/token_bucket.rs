//! A token bucket that fills in a minute. What has begun is finished, so it can become negative; then the next one waits
//! until it is refilled to zero.

const MINUTE_MS: u64 = 60_000;

/// A token is 60,000 parts, so that each millisecond adds a whole number of parts.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    parts: i64,
    at_ms: u64,
}

impl TokenBucket {
    /// A bucket with a minute's worth.
    pub(crate) fn full(now_ms: u64, per_minute: u32) -> Self {
        Self { parts: Self::size(per_minute), at_ms: now_ms }
    }

    fn size(per_minute: u32) -> i64 {
        i64::from(per_minute) * MINUTE_MS.cast_signed()
    }

    /// Whether it is as a new one would be.
    pub(crate) fn is_full(&mut self, now_ms: u64, per_minute: u32) -> bool {
        self.fill(now_ms, per_minute);
        self.parts >= Self::size(per_minute)
    }

    fn fill(&mut self, now_ms: u64, per_minute: u32) {
        let elapsed_ms = now_ms.saturating_sub(self.at_ms).cast_signed();
        let parts = self.parts.saturating_add(elapsed_ms.saturating_mul(i64::from(per_minute)));
        (self.parts, self.at_ms) = (parts.min(Self::size(per_minute)), now_ms);
    }

    /// Takes one token. Returns how many milliseconds it takes to refill a negative bucket to zero.
    pub(crate) fn spend(&mut self, now_ms: u64, per_minute: u32) -> Option<u64> {
        self.spend_many(now_ms, per_minute, 1)
    }

    /// Takes a token if there is one.
    pub(crate) fn take(&mut self, now_ms: u64, per_minute: u32) -> bool {
        self.fill(now_ms, per_minute);
        let has_one = self.parts >= Self::size(1);
        self.parts -= if has_one { Self::size(1) } else { 0 };
        has_one
    }

    /// As `spend`, of so many tokens.
    pub(crate) fn spend_many(&mut self, now_ms: u64, per_minute: u32, tokens: u32) -> Option<u64> {
        self.fill(now_ms, per_minute);
        self.parts = self.parts.saturating_sub(Self::size(tokens));
        let owed = u64::try_from(self.parts.saturating_neg()).ok().filter(|owed| *owed > 0)?;
        Some(owed.div_ceil(u64::from(per_minute.max(1))))
    }
}
