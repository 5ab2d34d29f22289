//! The clock of claims. The event loop, the Lease and the last check before a write all read this one: a moment of one clock
//! means nothing on another.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME` and not `CLOCK_MONOTONIC`, which Rust's `Instant` reads: the latter does not advance while the machine is
/// suspended, so a leader that slept for an hour would find its claim valid. Both advance while only the process is stopped
/// (SIGSTOP, a debugger, a frozen cgroup). Neither notices that a hypervisor froze the virtual machine; a write that is sent
/// late then fails by the UIDs and versions in it, as with any other controller.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// Other systems have no such clock; their monotonic one advances during a sleep.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Milliseconds since some moment before this process; never decreases and never pauses.
pub fn now_ms() -> u64 {
    let now = clock_gettime(CLOCK);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000 + nanos / 1_000_000
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn it_advances_as_fast_as_the_monotonic_clock() {
        let (began_ms, began) = (now_ms(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let elapsed_ms = now_ms() - began_ms;
        let bound_ms = u64::try_from(began.elapsed().as_millis()).unwrap() + 2;
        assert!((49..=bound_ms).contains(&elapsed_ms), "{elapsed_ms} ms");
    }
}
