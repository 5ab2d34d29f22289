//! Waiting on a condition with a deadline. Every wait of this crate, of the demo and of the end-to-end tests goes
//! through here, so that none of them sleeps and hopes, and each says what it waited for when time runs out.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// Calls `probe` every `every` until it returns `Ok(Some(value))` or `deadline` has passed.
///
/// An `Err` from the probe does not end the wait, since most conditions are asked of something that is still starting;
/// the newest one is kept and becomes the cause of the error when the deadline passes. The probe runs at least once.
///
/// # Errors
/// When the deadline passes first. The message names `what` was awaited and for how long.
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
                None => Err(anyhow!("{}, in vain", waited())),
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
