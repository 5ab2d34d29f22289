//! Waits for a condition, with a deadline. This crate, the demo and the end-to-end tests use it for every wait, so that
//! none relies on a fixed sleep, and a timeout names its condition.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// Calls `probe` at this interval until it returns `Ok(Some(value))` or `deadline` has passed, and at least once.
///
/// An `Err` from the probe does not end the wait, since most probes read from something that is starting; the last one
/// is the cause of the error at the deadline.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    every: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let last = match probe() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if start.elapsed() >= deadline {
            let waited = || format!("waited {:.1} s for {what}", start.elapsed().as_secs_f64());
            return match last {
                Some(error) => Err(error).with_context(waited),
                None => Err(anyhow!("{}", waited())),
            };
        }
        sleep(every.min(deadline.saturating_sub(start.elapsed())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_value_ends_the_wait() {
        let mut calls = 0;
        let value = until("three calls", Duration::from_secs(5), MILLI, || {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[test]
    fn a_passed_deadline_names_the_condition_and_the_last_cause() {
        let error = until::<()>("the moon", MILLI, MILLI, || Err(anyhow!("clouds"))).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("for the moon") && text.ends_with("clouds"), "{text}");
    }
}
