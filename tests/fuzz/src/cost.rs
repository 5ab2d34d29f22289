//! What a call costs, checked beside what it says: the bytes that its result keeps, the bytes at its peak, its allocations and the
//! processor's time. The first two are compared with what the host counts for them, so that a bound in bytes is one of memory.
//!
//! Time is looked at here and in no target. A machine that is busy fails nothing: the time is that of the thread alone, and the
//! least of three runs.

use std::fs;
use std::time::{Duration, Instant};

use crate::allocations::{Count, counted};

/// What a call may take.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    /// Bytes of the texts that it reads.
    pub(crate) input: usize,
    /// Bytes of the heap while it runs, as the host counts them, or as the target says why.
    pub(crate) peak: usize,
}

/// Bytes that are not counted: a handful of names, and lists of a few.
const SLACK_BYTES: usize = 16 << 10;
/// The same of a peak, of which most targets know a formula and no count: what turns text into a hundred times as much memory takes
/// megabytes for inputs of these sizes.
const PEAK_SLACK_BYTES: usize = 256 << 10;
/// Of each byte of a text. A list of objects with a member each has an allocation in six bytes, and few texts are read ten times.
const ALLOCATIONS_OF_BYTE: usize = 4;
/// Of a call that reads nothing.
const FEW_ALLOCATIONS: usize = 4_096;
/// All allocations of a call take so many times its peak: what grows by doubling takes twice as much, and what is made
/// for each part of a text and dropped takes some times the text.
const TURNOVER: usize = 64;
/// Of each 64 KiB begun, with the counters of the fuzzer. JSON that is read once takes less than a millisecond; a configuration in
/// YAML, which is the slowest, 130.
const TIME: Duration = Duration::from_millis(500);
const TIME_BYTES: usize = 64 << 10;
/// Runs of which the least time counts.
const RUNS: usize = 3;

/// Runs `work` and checks what it costs. `kept` is what the host counts for the result.
#[track_caller]
pub(crate) fn within<T>(what: &str, bound: Bound, mut work: impl FnMut() -> T, kept: impl FnOnce(&T) -> usize) -> T {
    let begin = Instant::now();
    let (count, result) = counted(&mut work);
    let passed = begin.elapsed();
    let Count { held_bytes, peak_bytes, allocations, allocated_bytes, .. } = count;
    let (held, peak) = (held_bytes.max(0).unsigned_abs(), peak_bytes.unsigned_abs());
    let Bound { input, peak: most } = bound;
    let (kept, most) = (half_more(kept(&result)), half_more(most) + PEAK_SLACK_BYTES);
    assert!(held <= kept, "{what} of {input} bytes keeps {held} bytes, and {kept} are allowed for it");
    assert!(peak <= most, "{what} of {input} bytes takes {peak} bytes, and {most} are allowed for it");
    let few = FEW_ALLOCATIONS + ALLOCATIONS_OF_BYTE * input;
    assert!(allocations <= few, "{what} of {input} bytes makes {allocations} allocations, and {few} are allowed");
    let turned = TURNOVER * most;
    assert!(allocated_bytes <= turned, "{what} of {input} bytes allocates {allocated_bytes} bytes, of {turned}");
    let longest = TIME * u32::try_from(input.div_ceil(TIME_BYTES).max(1)).unwrap_or(u32::MAX);
    if passed > longest {
        let least = (0..RUNS).map(|_| time_of(&mut work)).min().unwrap_or_default();
        assert!(least <= longest, "{what} of {input} bytes takes {least:?}, and {longest:?} are allowed for it");
    }
    result
}

/// What is counted, and as much as the host's own tests allow between that and what the allocator gives.
fn half_more(counted: usize) -> usize {
    counted + counted / 2 + SLACK_BYTES
}

fn time_of<T>(work: &mut impl FnMut() -> T) -> Duration {
    let (begin, before) = (Instant::now(), time_of_thread());
    drop(work());
    match (before, time_of_thread()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => begin.elapsed(),
    }
}

/// The processor's time of this thread; None where the system does not show it.
fn time_of_thread() -> Option<Duration> {
    let shown = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    shown.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(input: usize, peak: usize, kept: usize, work: impl FnMut() -> Vec<u8>) -> bool {
        let check = std::panic::AssertUnwindSafe(|| within("work", Bound { input, peak }, work, |_| kept));
        std::panic::catch_unwind(check).is_ok()
    }

    #[test]
    fn what_is_kept_and_what_is_taken_meanwhile_are_checked_at_half_more_than_is_counted() {
        let (counted, most) = (1 << 20, half_more(1 << 20));
        let taken = most + PEAK_SLACK_BYTES;
        // The allocator rounds up to a quarter more.
        assert!(costs(1, counted, counted, || vec![0; most / 4 * 3]));
        assert!(!costs(1, 2 * counted, counted, || vec![0; most + 64]), "it keeps too much");
        let meanwhile = |bytes: usize| move || vec![vec![0; bytes], vec![1]].swap_remove(1);
        assert!(costs(1, counted, 0, meanwhile(taken / 4 * 3)));
        assert!(!costs(1, counted, 0, meanwhile(taken + 256)), "it takes too much meanwhile");
    }

    #[test]
    fn many_allocations_fail_a_call_however_small_they_are() {
        let allocate = |count: usize| {
            move || {
                (0..count).for_each(|_| drop(std::hint::black_box(Box::new(1_u8))));
                Vec::new()
            }
        };
        assert!(costs(1, 1 << 20, 0, allocate(1_000)));
        assert!(!costs(1, 1 << 20, 0, allocate(FEW_ALLOCATIONS + 100)));
    }
}
