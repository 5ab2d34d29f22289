//! The delay of a key, of an HTTP request or of anything else that is tried again, after failures (Q3).

use crate::digest::spread;
use crate::write::WriteErrorClass;

/// client-go's base delay.
const BASE_MS: u64 = 5;
/// client-go's maximum: a key that always fails costs one call in a quarter of an hour.
const MAX_MS: u64 = 1_000_000;
/// The key is not at fault when the API server is unreachable, and must not wait for minutes afterwards. A request
/// every two seconds per key is no load on a server that refuses connections.
const MAX_UNREACHABLE_MS: u64 = 2_000;
/// A person grants the missing right and then checks whether it works.
const MAX_DENIED_MS: u64 = 15_000;

/// A server of somebody else's gets no more than a request a second from an object that it fails.
const REQUEST_BASE_MS: u64 = 1_000;
/// Five minutes: a server that is down for long costs nothing, and one that is back is noticed while a person waits.
const REQUEST_MAX_MS: u64 = 300_000;

/// The cause of a failure, which bounds the delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureCause {
    /// The key itself fails.
    Failed,
    /// The API server is unreachable.
    Unreachable,
    /// A right is missing.
    Denied,
}

impl FailureCause {
    /// The cause behind a write error of this class.
    pub fn after(class: WriteErrorClass) -> Self {
        match class {
            WriteErrorClass::Unavailable | WriteErrorClass::Unknown | WriteErrorClass::TooManyRequests { .. } => {
                Self::Unreachable
            }
            WriteErrorClass::Denied => Self::Denied,
            WriteErrorClass::AlreadyExists
            | WriteErrorClass::Conflict
            | WriteErrorClass::FieldConflict
            | WriteErrorClass::NotFound
            | WriteErrorClass::Blocked
            | WriteErrorClass::Invalid => Self::Failed,
        }
    }
}

/// The delay before attempt `failures + 1` of a key, with up to 10 % jitter to spread keys that failed together.
pub fn delay_ms(failures: u32, key: &str, cause: FailureCause) -> u64 {
    let longest = match cause {
        FailureCause::Failed => MAX_MS,
        FailureCause::Unreachable => MAX_UNREACHABLE_MS,
        FailureCause::Denied => MAX_DENIED_MS,
    };
    doubled_ms(BASE_MS, longest, failures, key)
}

/// The delay of a key whose write the API server has postponed, with up to 10 % more: keys that were refused together would
/// come back together.
pub fn postponed_ms(retry_after_ms: u64, key: &str) -> u64 {
    retry_after_ms + spread(&[key], retry_after_ms / 10 + 1)
}

/// The delay before try `failures + 1` of an HTTP request.
pub fn request_delay_ms(failures: u32, key: &str) -> u64 {
    doubled_ms(REQUEST_BASE_MS, REQUEST_MAX_MS, failures, key)
}

/// A delay that doubles from the base with each failure after the first up to the longest, with up to 10 % jitter by key.
pub fn doubled_ms(base_ms: u64, longest_ms: u64, failures: u32, key: &str) -> u64 {
    let exponent = failures.saturating_sub(1).min(32);
    let delay = base_ms.saturating_mul(1 << exponent).min(longest_ms);
    delay + spread(&[key, &failures.to_string()], delay / 10 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q3_backoff_doubles_from_5_ms_to_1000_s_with_jitter() {
        let within = |failures: u32, expected: u64| {
            let delay = delay_ms(failures, "default/a", FailureCause::Failed);
            assert!((expected..=expected + expected / 10 + 1).contains(&delay), "attempt {failures}: {delay} ms");
        };
        within(1, 5);
        within(2, 10);
        within(5, 80);
        within(18, 655_360);
        within(19, 1_000_000);
        within(4_000_000_000, 1_000_000);
        assert_ne!(delay_ms(12, "default/a", FailureCause::Failed), delay_ms(12, "default/b", FailureCause::Failed));
    }

    #[test]
    fn a_key_never_waits_long_for_an_api_server_that_was_away_or_a_right_that_was_taken() {
        for (cause, longest) in [(FailureCause::Unreachable, 2_000), (FailureCause::Denied, 15_000)] {
            assert!(delay_ms(30, "default/a", cause) <= longest + longest / 10 + 1);
        }
    }
}
