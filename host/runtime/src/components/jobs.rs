//! Components that wait for a compile thread, first come, first compiled. The event loop puts them in and takes back what
//! nobody wants any more, so of a plugin that is replaced a hundred times only the newest waits.
//!
//! A digest waits once at most, and only while a plugin is offered as it, so there are no more entries than plugins; each has
//! some 200 bytes, since nobody has read the component yet.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use mortise_core::digest::Digest;
use mortise_source::Origin;

/// What is to be compiled, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    pub(super) digest: Digest,
    pub(super) origin: Origin,
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: Mutex<VecDeque<Job>>,
    came: Condvar,
}

impl Jobs {
    /// Lets a component wait, behind all others.
    pub(super) fn push(&self, job: Job) {
        let mut waiting = self.lock();
        waiting.retain(|waiting| waiting.digest != job.digest);
        waiting.push_back(job);
        self.came.notify_one();
    }

    /// Lets it wait no longer.
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
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Job>> {
        // Each change is one insertion or removal, so a panic under the lock leaves it whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
