//! How xtask speaks to a person: headlines, and a line that moves while something long goes on. Where no terminal is, as
//! in CI, plain lines take their place.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::Duration;

/// A headline above the output of what it names.
pub(crate) fn headline(text: &str) {
    if stdout().is_terminal() {
        println!("\n\x1b[1m==> {text}\x1b[0m");
    } else {
        println!("\n==> {text}");
    }
    // What runs next may write to the same place by itself.
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

/// Whether a line may be overwritten while something goes on.
pub(crate) fn can_animate() -> bool {
    stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well_at_every_size() {
        assert_eq!(time(Duration::from_millis(440)), "0.4 s");
        assert_eq!(time(Duration::from_secs(185)), "3 min 05 s");
    }
}
