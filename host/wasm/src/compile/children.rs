//! The compiler processes that run, and how much memory they have. They end when the host needs it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::attempts::MUCH;
use crate::container::resident_bytes;

/// How often the memory of a compiler is looked at. It fills a tenth of its limit in this time at most.
pub(super) const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Children {
    running: Mutex<BTreeSet<u32>>,
    /// None may run.
    pub(super) halted: AtomicBool,
}

/// Why a process that did not end has to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stopped {
    /// None may run.
    Halted,
    /// It has had its wall time.
    TooLong,
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
    ) -> Result<T, Stopped> {
        let began = Instant::now();
        self.running().insert(process);
        let ended = loop {
            let left = wall.saturating_sub(began.elapsed());
            match output.recv_timeout(left.min(LOOK)) {
                Ok(output) => break Ok(output),
                Err(_) if self.are_halted() => break Err(Stopped::Halted),
                Err(RecvTimeoutError::Timeout) if left > LOOK => {}
                Err(_) => break Err(Stopped::TooLong),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory may be enough again by the time that the process has ended.
    #[test]
    fn f32_a_compiler_that_had_to_end_for_memory_did_not_take_too_long() {
        let children = Children::default();
        let (_sender, output) = crossbeam_channel::bounded::<()>(1);
        let watch = |wall| children.watch(&output, std::process::id(), (wall, u64::MAX), &|| ());
        assert_eq!(watch(LOOK / 2), Err(Stopped::TooLong));
        children.halted.store(true, Ordering::Relaxed);
        assert_eq!(watch(Duration::from_secs(60)), Err(Stopped::Halted));
        assert!(children.running().is_empty());
    }
}
