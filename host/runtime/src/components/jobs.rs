//! The queue of the compile threads. Those of the host's namespace come first, in their order; tenants take turns, and never have
//! the last thread. Where memory has room for one compiler alone, one of a tenant that is under way is waited for. The event loop
//! withdraws what is not needed any
//! more, so of a plugin that is replaced a hundred times only the newest version is queued.
//!
//! A digest is queued once at most, and only while it is a plugin's, so there are no more entries than plugins; each
//! has some 200 bytes, without the component's. Of each tenant that ever had a turn there is a name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mortise_core::digest::Digest;
use mortise_source::Origin;
use mortise_wasm::compile::COMPILERS;

/// Threads that tenants may have.
const OF_TENANTS: usize = COMPILERS - 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    pub(super) digest: Digest,
    pub(super) origin: Origin,
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Those that the machine could not compile, and when they join the others.
    later: Vec<(Instant, Job)>,
    /// Jobs of tenants that are under way.
    running: usize,
    /// When each tenant had its last turn.
    turns: BTreeMap<Arc<str>, u64>,
    last_turn: u64,
}

/// The tenant whose ConfigMap this is.
pub(super) fn tenant_of(origin: &Origin) -> Option<&Arc<str>> {
    match origin {
        Origin::Tenant(name) => Some(&name.namespace),
        Origin::ConfigMap(_) | Origin::File(_) => None,
    }
}

impl Job {
    fn tenant(&self) -> Option<&Arc<str>> {
        tenant_of(&self.origin)
    }
}

impl Queue {
    /// The next job that may begin.
    fn next(&mut self, now: Instant) -> Option<Job> {
        let due = self.later.extract_if(.., |(due, _)| *due <= now).map(|(_, job)| job);
        self.waiting.extend(due);
        let turn_of = |job: &Job| job.tenant().map_or(0, |tenant| self.turns.get(tenant).copied().unwrap_or_default());
        let of_host = self.waiting.iter().position(|job| job.tenant().is_none());
        let jobs = || self.waiting.iter().enumerate();
        let at = of_host.or_else(|| {
            let next = jobs().min_by_key(|(at, job)| (turn_of(job), *at)).filter(|_| self.running < OF_TENANTS);
            next.map(|(at, _)| at)
        })?;
        let job = self.waiting.remove(at)?;
        if let Some(tenant) = job.tenant() {
            self.running += 1;
            self.last_turn += 1;
            self.turns.insert(Arc::clone(tenant), self.last_turn);
        }
        Some(job)
    }

    fn withdraw(&mut self, digest: &Digest) {
        self.waiting.retain(|waiting| waiting.digest != *digest);
        self.later.retain(|(_, waiting)| waiting.digest != *digest);
    }
}

impl Jobs {
    pub(super) fn push(&self, job: Job) {
        let mut queue = self.lock();
        queue.withdraw(&job.digest);
        queue.waiting.push_back(job);
        self.changed.notify_one();
    }

    /// As [`Self::push`], at this time.
    pub(super) fn push_later(&self, job: Job, due: Instant) {
        let mut queue = self.lock();
        queue.withdraw(&job.digest);
        queue.later.push((due, job));
        self.changed.notify_one();
    }

    /// Changes where one that still waits is read.
    pub(super) fn replace(&self, job: Job) {
        let mut queue = self.lock();
        let Queue { waiting, later, .. } = &mut *queue;
        let mut all = waiting.iter_mut().chain(later.iter_mut().map(|(_, job)| job));
        if let Some(waiting) = all.find(|waiting| waiting.digest == job.digest) {
            *waiting = job;
            self.changed.notify_one();
        }
    }

    pub(super) fn withdraw(&self, digest: &Digest) {
        self.lock().withdraw(digest);
    }

    /// Waits for the next one. The caller says when it has ended.
    pub(super) fn take(&self) -> Job {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            if let Some(job) = queue.next(now) {
                return job;
            }
            queue = match queue.later.iter().map(|(due, _)| *due).min() {
                Some(due) => self.changed.wait_timeout(queue, due - now).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn ended(&self, job: &Job) {
        if job.tenant().is_some() {
            self.lock().running -= 1;
            self.changed.notify_one();
        }
    }

    /// When the next one of those that wait for the machine joins the others.
    #[cfg(test)]
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lock().later.iter().map(|(due, _)| *due).min()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each change leaves a queue that is whole, so a panic under the lock does too.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::object::Name;

    use super::*;

    fn job(namespace: &str, number: usize) -> Job {
        let name = Name::new(namespace, &number.to_string());
        let origin = if namespace == "host" { Origin::ConfigMap(name) } else { Origin::Tenant(name) };
        Job { digest: Digest(format!("{namespace}/{number}").into()), origin }
    }

    #[test]
    fn g11_a_tenant_that_queues_a_hundred_components_has_one_thread_and_every_other_turn() {
        let jobs = Jobs::default();
        (0..100).for_each(|number| jobs.push(job("team-a", number)));
        jobs.push(job("team-b", 0));
        jobs.push(job("host", 0));
        let next = || jobs.lock().next(Instant::now()).map(|job| job.digest.0.to_string());
        assert_eq!(next().as_deref(), Some("host/0"), "what the host's namespace has is first");
        assert_eq!(next().as_deref(), Some("team-a/0"));
        assert_eq!(next(), None, "tenants have no further thread");
        jobs.push(job("host", 1));
        assert_eq!(next().as_deref(), Some("host/1"), "and the host has it");
        jobs.ended(&job("host", 1));
        assert_eq!(next(), None);
        jobs.ended(&job("team-a", 0));
        assert_eq!(next().as_deref(), Some("team-b/0"), "its turn, behind ninety-nine");
        jobs.ended(&job("team-b", 0));
        assert_eq!(next().as_deref(), Some("team-a/1"));
    }
}
