//! Terminal output: headlines, durations, and whether progress can be animated.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::Duration;

pub(crate) fn headline(text: &str) {
    if stdout().is_terminal() {
        println!("\n\x1b[1m==> {text}\x1b[0m");
    } else {
        println!("\n==> {text}");
    }
    // The next command may write to the terminal directly.
    let _ = stdout().flush();
}

/// `0.4 s`, `12.3 s`, `3 min 05 s`.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

/// Whether a progress line may be overwritten.
pub(crate) fn can_animate() -> bool {
    stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(time(Duration::from_millis(440)), "0.4 s");
        assert_eq!(time(Duration::from_secs(185)), "3 min 05 s");
    }
}
