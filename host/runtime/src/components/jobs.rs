//! The queue of the compile threads, first in, first out. The event loop withdraws what is not needed any more, so of a
//! plugin that is replaced a hundred times only the newest version is queued.
//!
//! A digest is queued once at most, and only while it is a plugin's, so there are no more entries than plugins; each
//! has some 200 bytes, without the component's.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use mortise_core::digest::Digest;
use mortise_source::Origin;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    pub(super) digest: Digest,
    pub(super) origin: Origin,
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: Mutex<VecDeque<Job>>,
    pushed: Condvar,
}

impl Jobs {
    pub(super) fn push(&self, job: Job) {
        let mut waiting = self.lock();
        waiting.retain(|waiting| waiting.digest != job.digest);
        waiting.push_back(job);
        self.pushed.notify_one();
    }

    pub(super) fn withdraw(&self, digest: &Digest) {
        self.lock().retain(|waiting| waiting.digest != *digest);
    }

    /// Waits for the next one.
    pub(super) fn take(&self) -> Job {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.pop_front() {
                return job;
            }
            waiting = self.pushed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Job>> {
        // Each change is one insertion or removal, so a panic under the lock leaves it whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
