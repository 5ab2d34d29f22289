//! The compiler processes that run, and how much memory they have. They end when the host needs it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::attempts::MUCH;
use super::memory::resident_bytes;

/// How often the memory of a compiler is looked at. It fills a tenth of its limit in this time at most.
pub(super) const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Children {
    running: Mutex<BTreeSet<u32>>,
    /// None may run.
    pub(super) halted: AtomicBool,
}

impl Children {
    pub(super) fn are_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// Waits for the output of a process, for its wall time or until none may run, and looks at its memory meanwhile.
    pub(super) fn watch<T>(
        &self,
        output: &Receiver<T>,
        process: u32,
        (wall, memory_bytes): (Duration, u64),
        has_much: &dyn Fn(),
    ) -> Result<T, RecvTimeoutError> {
        let began = Instant::now();
        self.running().insert(process);
        let ended = loop {
            let left = wall.saturating_sub(began.elapsed());
            match output.recv_timeout(left.min(LOOK)) {
                Err(RecvTimeoutError::Timeout) if left > LOOK && !self.are_halted() => {}
                ended => break ended,
            }
            if resident_bytes(process).is_some_and(|bytes| bytes >= memory_bytes / MUCH) {
                has_much();
            }
        };
        self.running().remove(&process);
        ended
    }

    pub(super) fn running(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // Each change is one insertion or removal, so a panic under the lock leaves it whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
