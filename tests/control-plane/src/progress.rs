//! Progress of a long build. A cold build takes minutes, and silence would look like a hang. `print_progress` prints
//! it; a caller may show it in another way.

use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

/// One report of [`Binaries::ensure`](crate::Binaries::ensure), about once a second during a build.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Another process builds the same binaries.
    Waiting {
        /// The binaries.
        what: &'a str,
        /// Time since this process began to wait.
        elapsed: Duration,
    },
    /// `go build` runs.
    Building {
        /// The binaries.
        what: &'a str,
        /// Go packages compiled so far. The total is unknown: it depends on Go's cache.
        packages: usize,
        /// The newest line of `go build -v`: a package, or a module being downloaded.
        latest: &'a str,
        /// Time since the build began.
        elapsed: Duration,
    },
    /// The binaries are in the cache.
    Built {
        /// The binaries.
        what: &'a str,
        /// Time of the build.
        elapsed: Duration,
    },
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { what, elapsed } => {
                write!(f, "waiting for another process to build {what} ({})", seconds(*elapsed))
            }
            Self::Building { what, packages, latest, elapsed } => {
                write!(f, "building {what}: {packages} packages compiled, {} ({latest})", seconds(*elapsed))
            }
            Self::Built { what, elapsed } => write!(f, "built {what} in {}", seconds(*elapsed)),
        }
    }
}

fn seconds(duration: Duration) -> String {
    let all = duration.as_secs();
    if all < 60 { format!("{all} s") } else { format!("{} min {:02} s", all / 60, all % 60) }
}

/// A reporter for logs and test runs: one line at the start of each build, one every 15 s, one at its end. It writes to
/// standard error directly, since `cargo test` captures `eprintln!`.
pub fn print_progress() -> impl FnMut(Progress<'_>) {
    // Often enough to show that it runs, and a cold build still prints less than a screen.
    const EVERY: Duration = Duration::from_secs(15);
    let mut last: Option<Instant> = None;
    move |progress| {
        let done = matches!(progress, Progress::Built { .. });
        if done || last.is_none_or(|at| at.elapsed() >= EVERY) {
            // A closed standard error must not end a build.
            let _ = writeln!(std::io::stderr(), "{progress}");
            last = (!done).then(Instant::now);
        }
    }
}
