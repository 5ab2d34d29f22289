//! Decides whether a watch shares its connection. What a stream delivered and how long it was open come in, the class of the
//! next stream comes out; `connections.rs` opens it.

use std::time::Duration;

/// Bytes a second above which a watch gets a connection of its own: some eleven thousand Pods. Not for CPU, of which a shared
/// connection takes no more (5.9 µs an event, 5.6 alone), but for the watches beside it: up to 28 MiB/s they were as fast as
/// without it (0.1 ms), and up to ten times slower when watches took all that the host can read, 280 MiB/s.
const BUSY_BYTES_PER_SECOND: u64 = 32 << 20;
/// Below this a watch shares again: half, so that one near the threshold does not change with every stream.
const QUIET_BYTES_PER_SECOND: u64 = BUSY_BYTES_PER_SECOND / 2;
/// A stream that was open for less decides nothing: a rollout of a minute is no steady load. Most streams last four to five.
const WINDOW: Duration = Duration::from_secs(60);

/// Which connection a watch is opened on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Class {
    /// One with other watches.
    #[default]
    Shared,
    /// One of its own.
    Own,
}

impl Class {
    /// The class of a watch's next stream, after one of this class that delivered so many bytes, without its list.
    pub(crate) fn after(self, bytes: u64, open: Duration) -> Self {
        let per_second = bytes / open.as_secs().max(1);
        match self {
            _ if open < WINDOW => self,
            Self::Shared if per_second >= BUSY_BYTES_PER_SECOND => Self::Own,
            Self::Own if per_second < QUIET_BYTES_PER_SECOND => Self::Shared,
            unchanged => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_watch_gets_its_own_connection_and_shares_again_when_it_is_quiet() {
        let after =
            |class: Class, per_second: u64, seconds| class.after(per_second * seconds, Duration::from_secs(seconds));
        let mut class = Class::default();
        for (per_second, seconds, expected) in [
            (BUSY_BYTES_PER_SECOND - 1, 290, Class::Shared),
            (BUSY_BYTES_PER_SECOND * 100, 59, Class::Shared),
            (BUSY_BYTES_PER_SECOND, 60, Class::Own),
            (QUIET_BYTES_PER_SECOND, 290, Class::Own),
            (0, 59, Class::Own),
            (QUIET_BYTES_PER_SECOND - 1, 290, Class::Shared),
            (QUIET_BYTES_PER_SECOND, 290, Class::Shared),
        ] {
            class = after(class, per_second, seconds);
            assert_eq!(class, expected, "{per_second} bytes/s for {seconds} s");
        }
        assert_eq!(Class::Shared.after(0, Duration::ZERO), Class::Shared);
    }
}
