//! The threads that guests run on. A [`Job`] goes in through a bounded queue; its [`JobDone`] comes out through a
//! callback on the worker's thread. Guests never run on the threads that talk to the API server, and a panic of the
//! host while one runs costs that call only.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use mortise_core::contract::{CallResult, GuestFault};
use mortise_core::event::{Call, CallDone, CallId};
use mortise_core::object::ObjectRef;
use mortise_core::read_set::ReadSet;

use crate::log::LogLine;
use crate::plugin::{CallReport, CallStats, Plugin};

#[cfg(test)]
mod tests;

/// Calls that may wait for one worker. The driver hands out as many as its controllers' concurrency allows; this is the
/// bound behind that one.
const QUEUE_LENGTH: usize = 1_024;
/// A plugin's calls go to one worker, whose caches and memory slots are warm for it, unless that many more calls wait
/// there than at the emptiest worker.
const AFFINITY_SLACK: usize = 2;

/// One guest call to run.
#[derive(Debug)]
pub struct Job {
    /// The component to call.
    pub plugin: Arc<Plugin>,
    /// What to call it with.
    pub call: Box<Call>,
}

/// A call that was run.
#[derive(Debug)]
pub struct JobDone {
    /// The call's id.
    pub id: CallId,
    /// "podset/PodSet".
    pub controller: Arc<str>,
    /// The reconciled object.
    pub object: ObjectRef,
    /// What the driver is told.
    pub done: CallDone,
    /// What the guest logged.
    pub logs: Vec<LogLine>,
    /// Log lines that were not kept.
    pub dropped_logs: u64,
    /// What the call used.
    pub stats: CallStats,
}

/// Every worker's queue is full: too many calls were handed out. Carries the job back.
#[derive(Debug, thiserror::Error)]
#[error("the queues of all guest workers are full")]
pub struct QueuesFull(pub Job);

/// The worker threads. Dropping this ends them once their queues are empty.
pub struct Workers {
    queues: Vec<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts this many threads (at least one). `done` is called on a worker's thread after each call and must not
    /// block for long.
    ///
    /// # Errors
    /// When the operating system starts no more threads.
    pub fn start(count: usize, done: impl Fn(JobDone) + Send + Sync + 'static) -> io::Result<Self> {
        let done = Arc::new(done);
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (queue, jobs) = crossbeam_channel::bounded(QUEUE_LENGTH);
            let done = done.clone();
            let thread =
                thread::Builder::new().name(format!("mortise-guest-{number}")).spawn(move || work(&jobs, &*done))?;
            queues.push(queue);
            threads.push(thread);
        }
        Ok(Self { queues, threads })
    }

    /// Puts a job into a worker's queue. Never blocks.
    ///
    /// # Errors
    /// [`QueuesFull`] with the job when no queue has room.
    pub fn submit(&self, job: Job) -> Result<(), Box<QueuesFull>> {
        let mut job = job;
        let first = self.pick(&job.call.plugin);
        for offset in 0..self.queues.len() {
            match self.queues[(first + offset) % self.queues.len()].try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => job = back,
            }
        }
        Err(Box::new(QueuesFull(job)))
    }

    /// Calls that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(Sender::len).sum()
    }

    fn pick(&self, plugin: &str) -> usize {
        let mut hasher = DefaultHasher::new();
        plugin.hash(&mut hasher);
        let count = self.queues.len() as u64;
        let home = usize::try_from(hasher.finish() % count).expect("smaller than the number of queues");
        let emptiest = (0..self.queues.len()).min_by_key(|worker| self.queues[*worker].len()).unwrap_or(home);
        if self.queues[home].len() > self.queues[emptiest].len() + AFFINITY_SLACK { emptiest } else { home }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queues.clear();
        for thread in self.threads.drain(..) {
            // Panics inside calls are caught; one of the callback was reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("count", &self.queues.len()).field("waiting", &self.waiting()).finish()
    }
}

fn work(jobs: &Receiver<Job>, done: &(dyn Fn(JobDone) + Send + Sync)) {
    for Job { plugin, call } in jobs {
        let Call { id, controller, object, view, limits, .. } = *call;
        let report = guarded(|| plugin.call(object.json(), view, &limits));
        let elapsed_us = u64::try_from(report.stats.elapsed.as_micros()).unwrap_or(u64::MAX);
        done(JobDone {
            id,
            controller,
            object: ObjectRef { kind: object.kind.clone(), name: object.name.clone() },
            done: CallDone { result: report.result, reads: report.reads, elapsed_us },
            logs: report.logs,
            dropped_logs: report.dropped_logs,
            stats: report.stats,
        });
    }
}

/// Runs a call; a panic of the host ends as a fault. Nothing that the call touched is used again: its store is its own.
fn guarded(call: impl FnOnce() -> CallReport) -> CallReport {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| host_panic(&*panic))
}

/// A panic of the host during a call. It is no fault that the guest can mend, but the guest set it off, so it ends the
/// call as a trap does and says whose error it is.
fn host_panic(panic: &(dyn Any + Send)) -> CallReport {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!(
        "the host panicked while it ran this call ({}); this is an error of mortise, set off by this plugin; \
         its backoff keeps the object in quarantine",
        text.unwrap_or("no message")
    );
    CallReport {
        result: CallResult::Fault(GuestFault::Trap { message, detail: String::new() }),
        reads: ReadSet::default(),
        logs: Vec::new(),
        dropped_logs: 0,
        stats: CallStats::default(),
    }
}
