//! The circuit breaker of one key (X9). It opens when a controller writes endlessly: it fights another.
//!
//! A reconcile that changes or deletes costs one token. One that only creates costs a quarter: controllers exist to
//! replace what others delete. A new generation of the object closes and refills the breaker: a person who edits an
//! object fifty times a minute is no fight. Nor is a controller that follows objects it only reads, such as Nodes
//! during a drain: the owner of the breaker replaces it then. Nor is a status that follows its children, such as a count
//! of two thousand Pods that become ready one by one: it is free, once that matters.

/// Tokens of a full breaker.
const BURST: f64 = 50.0;
/// Tokens that are refilled per second.
const REFILL_PER_S: f64 = 0.5;
/// The cost of a reconcile that only creates.
pub const HEALING: f64 = 0.25;
/// The cost of a reconcile that writes the status alone, after children have changed.
pub const FOLLOWING: f64 = 0.0;
/// The cost of any other reconcile with writes.
pub const CHANGING: f64 = 1.0;
/// How long an open breaker blocks the key's writes.
const OPEN_MS: u64 = 5 * 60 * 1_000;
/// Tokens of a breaker that was open. A fight that is not over costs a few reconciles in five minutes then, and after one that
/// is over it is full again within two minutes.
const AFTER_OPEN: f64 = 5.0;

/// The breaker of one key.
#[derive(Clone, Debug)]
pub struct Breaker {
    tokens: f64,
    refilled_ms: u64,
    generation: i64,
    open_until_ms: u64,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(now_ms: u64, generation: i64) -> Self {
        Self { tokens: BURST, refilled_ms: now_ms, generation, open_until_ms: 0 }
    }

    /// Whether half of the tokens were spent lately. Only then is it worth a look at what changed whether a status follows
    /// its children.
    pub fn is_low(&self) -> bool {
        self.tokens < BURST / 2.0
    }

    /// When an open breaker closes; None when it is closed for this generation.
    pub fn open_until_ms(&self, now_ms: u64, generation: i64) -> Option<u64> {
        (self.open_until_ms > now_ms && generation == self.generation).then_some(self.open_until_ms)
    }

    /// Takes the tokens of a reconcile before its writes. False: too few are left, and the breaker opens.
    pub fn admit(&mut self, now_ms: u64, generation: i64, cost: f64) -> bool {
        if generation != self.generation {
            *self = Self::new(now_ms, generation);
        }
        let elapsed_s = now_ms.saturating_sub(self.refilled_ms) as f64 / 1_000.0;
        self.tokens = (self.tokens + elapsed_s * REFILL_PER_S).min(BURST);
        self.refilled_ms = self.refilled_ms.max(now_ms);
        if self.tokens < cost {
            self.open_until_ms = now_ms + OPEN_MS;
            (self.tokens, self.refilled_ms) = (AFTER_OPEN, self.open_until_ms);
            return false;
        }
        self.tokens -= cost;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x9_fifty_writes_in_a_burst_then_one_in_two_seconds_then_closed_for_five_minutes() {
        let mut breaker = Breaker::new(0, 1);
        assert!((0..50).all(|_| breaker.admit(0, 1, CHANGING)));
        assert!(breaker.admit(2_000, 1, CHANGING));
        assert!(!breaker.admit(2_000, 1, CHANGING));
        assert_eq!(breaker.open_until_ms(2_001, 1), Some(302_000));
        assert_eq!(breaker.open_until_ms(302_000, 1), None);
        assert!(breaker.admit(302_000, 1, CHANGING));
    }

    #[test]
    fn x9_p13_a_breaker_that_was_open_admits_a_few_until_it_is_full_again() {
        let fought = || {
            let mut breaker = Breaker::new(0, 1);
            while breaker.admit(0, 1, CHANGING) {}
            breaker
        };
        let mut breaker = fought();
        assert!((0..5).all(|_| breaker.admit(300_000, 1, CHANGING)));
        assert!(!breaker.admit(300_000, 1, CHANGING), "the fight is not over");
        assert_eq!(breaker.open_until_ms(300_001, 1), Some(600_000));
        let mut breaker = fought();
        assert!((0..50).all(|_| breaker.admit(390_000, 1, CHANGING)));
        let mut breaker = fought();
        assert!((0..50).all(|_| breaker.admit(1, 2, CHANGING)), "a new generation refills it at once");
    }

    #[test]
    fn x9_a_new_generation_is_not_a_fight_and_opens_nothing() {
        let mut breaker = Breaker::new(0, 1);
        assert!((1..1_000).all(|generation| breaker.admit(0, generation, CHANGING)));
        while breaker.admit(0, 999, CHANGING) {}
        assert_eq!(breaker.open_until_ms(1, 1_000), None);
        assert!(breaker.admit(1, 1_000, CHANGING));
    }

    #[test]
    fn x9_creating_is_cheaper_than_changing_and_bounded_too() {
        let mut breaker = Breaker::new(0, 1);
        assert!((0..200).all(|_| breaker.admit(0, 1, HEALING)));
        assert!(!breaker.admit(0, 1, HEALING));
    }
}
