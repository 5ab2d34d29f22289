//! How many compilers run at once: [`COMPILERS`] at most, and a second one only when the container has memory for both.
//! Threads wait here for a slot. Nothing here knows what is compiled.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::container::Cgroup;

/// A compiler uses all cores and some hundred MiB, so more than two would not be faster. The second one lets other components
/// pass a slow one.
pub const COMPILERS: usize = 2;
/// Memory that compilers leave to the host: two guests with the default memory.
pub(super) const RESERVE_BYTES: u64 = 128 << 20;

#[derive(Debug)]
pub(super) struct Slots {
    running: Mutex<Running>,
    ended: Condvar,
    pub(super) cgroup: Cgroup,
}

#[derive(Debug, Default)]
struct Running {
    count: usize,
    /// What all of them may take.
    bytes: u64,
}

/// The right to run one compiler until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    /// The compiler's memory: what was wanted, or what the container leaves.
    pub(super) bytes: u64,
}

impl Slots {
    pub(super) fn new(cgroup: Cgroup) -> Self {
        Self { running: Mutex::default(), ended: Condvar::new(), cgroup }
    }

    /// Waits until a compiler with this much memory may run.
    pub(super) fn take(&self, wanted_bytes: u64) -> Slot<'_> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(bytes) = self.grant(&running, wanted_bytes) {
                running.count += 1;
                running.bytes += bytes;
                return Slot { slots: self, bytes };
            }
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The memory for one more compiler; None when it must wait for another to end.
    fn grant(&self, running: &Running, wanted_bytes: u64) -> Option<u64> {
        let free_bytes = self.cgroup.free_bytes().map(|free| free.saturating_sub(RESERVE_BYTES));
        // Counts what running compilers have already taken twice, since it is missing from the free bytes too: an
        // unneeded wait costs less than a killed container.
        let fits = free_bytes.is_none_or(|free| free >= running.bytes.saturating_add(wanted_bytes));
        let may_run = running.count == 0 || (running.count < COMPILERS && fits);
        may_run.then(|| free_bytes.map_or(wanted_bytes, |free| free.min(wanted_bytes)))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut running = self.slots.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.count -= 1;
        running.bytes -= self.bytes;
        self.slots.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::container::tests::cgroup;

    const GIB: u64 = 1 << 30;

    fn slots(limit_bytes: u64, used_bytes: u64) -> (Slots, TempDir) {
        let (cgroup, folder) = cgroup("/", &[("", &limit_bytes.to_string(), used_bytes)]);
        (Slots::new(cgroup), folder)
    }

    #[test]
    fn g3_a_second_compiler_runs_beside_the_first_only_when_the_container_has_memory_for_both() {
        for (limit_bytes, expected) in [(2 * GIB, None), (2 * GIB + RESERVE_BYTES, Some(GIB))] {
            let (slots, _folder) = slots(limit_bytes, 0);
            let first = slots.take(GIB);
            assert_eq!((first.bytes, slots.grant(&slots.running.lock().unwrap(), GIB)), (GIB, expected));
            drop(first);
            assert_eq!(slots.grant(&slots.running.lock().unwrap(), GIB), Some(GIB), "it has waited for the first");
        }
    }

    #[test]
    fn g3_no_more_than_two_compilers_run_however_much_memory_there_is() {
        let slots = Slots::new(Cgroup::nowhere());
        let running = (slots.take(GIB), slots.take(GIB));
        assert_eq!(slots.grant(&slots.running.lock().unwrap(), 1), None);
        drop(running);
        assert_eq!(slots.take(GIB).bytes, GIB);
    }

    #[test]
    fn g3_a_compiler_gets_what_the_container_leaves_beside_the_host() {
        assert_eq!(slots(GIB, GIB / 4).0.take(GIB).bytes, 3 * GIB / 4 - RESERVE_BYTES);
        assert_eq!(slots(GIB, GIB).0.take(GIB).bytes, 0);
        assert_eq!(slots(4 * GIB, GIB).0.take(GIB).bytes, GIB);
    }
}
