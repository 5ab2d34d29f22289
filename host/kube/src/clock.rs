//! The one clock that claims are measured by: of the event loop, which tells the driver the time, of the Lease, and of the
//! last look before a write is sent. All of them must read the same one, or what one promises the other does not keep.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME` and not `CLOCK_MONOTONIC`, which Rust's `Instant` reads: that one stands still while the machine is
/// suspended. A leader that slept for an hour would find its claim as fresh as before, while another host has led for long.
/// While a process alone is stopped (SIGSTOP, a debugger, a frozen cgroup) both go on. Neither sees that a virtual machine
/// was frozen by its hypervisor, unless the guest is told; what then is sent late is caught by the UIDs and versions in every
/// write, as with any other controller.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// Where there is no such clock, the monotonic one goes on during a sleep.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Milliseconds on a clock that never goes back and stands still for nothing; its zero is some moment before this process.
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
    fn it_goes_on_as_fast_as_the_monotonic_clock() {
        let (began_ms, began) = (now_ms(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let elapsed_ms = now_ms() - began_ms;
        let bound_ms = u64::try_from(began.elapsed().as_millis()).unwrap() + 2;
        assert!((49..=bound_ms).contains(&elapsed_ms), "{elapsed_ms} ms");
    }
}
