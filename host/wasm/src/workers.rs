//! The threads that guests run on. A [`Job`] goes in through one bounded queue; its [`JobDone`] comes out through a
//! callback on the worker's thread. Guests never run on the threads that talk to the API server, and a panic of the
//! host while one runs costs that call only.
//!
//! A worker that is free takes the oldest job of the plugin that occupies the fewest workers (Q4): a job waits for no
//! particular worker, and never for more than one call of another plugin if its own has none in work. There is no
//! affinity of plugins to workers, because what is warm for a component, its slots in the pool, is warm for them all.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use mortise_core::call::{Call, CallDone, CallId};
use mortise_core::contract::CallResult;
use mortise_core::dependencies::Dependencies;
use mortise_core::limits::CallLimits;
use mortise_core::object::ObjectRef;
use mortise_core::{admission, conversion};

use crate::log::LogLine;
use crate::plugin::request::WebhookRequest;
use crate::plugin::{CallCompletion, CallStats, Completion, Plugin};

#[cfg(test)]
mod tests;

/// Calls that may wait. The driver hands out two for each worker; this is the bound behind that one, and what a worker
/// looks through at most when it takes the next.
const QUEUE_LENGTH: usize = 1_024;

/// One guest call to run.
#[derive(Debug)]
pub struct Job {
    /// The component to call.
    pub plugin: Arc<Plugin>,
    /// What to call it with.
    pub work: Work,
}

/// What a guest is called for.
#[derive(Debug)]
pub enum Work {
    /// To reconcile an object; its [`JobDone`] goes to the callback of [`Workers::start`].
    Reconcile(Box<Call>),
    /// To say whether an object may be stored; the one who asked waits.
    Admit(Box<Admit>),
    /// To convert an object to another version of its kind; the one who asked waits.
    Convert(Box<Convert>),
}

/// A question about an object that is not stored yet.
pub type Admit = WebhookCall<admission::AdmissionRequest, admission::Verdict>;
/// A question for an object in another version.
pub type Convert = WebhookCall<conversion::ConversionRequest, conversion::Conversion>;

/// A question of the API server.
pub struct WebhookCall<Q, A> {
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// What is asked.
    pub question: Q,
    /// Bounds of the call.
    pub limits: CallLimits,
    /// After this moment nobody waits any more, and nobody is asked.
    pub until: Instant,
    /// Called on a worker's thread with what came of it, unless it was too late; must not block.
    pub answer: Box<dyn FnOnce(Completion<A>) + Send>,
}

impl<Q: fmt::Debug, A> fmt::Debug for WebhookCall<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookCall")
            .field("plugin", &self.plugin)
            .field("question", &self.question)
            .finish_non_exhaustive()
    }
}

impl Work {
    /// Whose share of the workers it takes.
    fn plugin(&self) -> &Arc<str> {
        match self {
            Self::Reconcile(call) => &call.plugin,
            Self::Admit(admit) => &admit.plugin,
            Self::Convert(convert) => &convert.plugin,
        }
    }
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

/// Too many calls were handed out. Carries the job back.
#[derive(Debug, thiserror::Error)]
#[error("the queue of the guest workers is full: {QUEUE_LENGTH} calls wait in it")]
pub struct QueueFull(pub Job);

/// Hands jobs to the workers, from anywhere. Once they have ended, what is handed to it stays unanswered.
#[derive(Clone)]
pub struct Submitter {
    queue: Arc<Queue>,
}

impl Submitter {
    /// As [`Workers::submit`].
    ///
    /// # Errors
    /// [`QueueFull`] with the job when there is no room.
    pub fn submit(&self, job: Job) -> Result<(), Box<QueueFull>> {
        self.queue.push(job)
    }
}

impl fmt::Debug for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitter").finish_non_exhaustive()
    }
}

/// The worker threads. Dropping this ends them once the queue is empty.
pub struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts this many threads (at least one). `done` is called on a worker's thread after each call and must not
    /// block for long.
    ///
    /// # Errors
    /// When the operating system starts no more threads.
    pub fn start(count: usize, done: impl Fn(JobDone) + Send + Sync + 'static) -> io::Result<Self> {
        let count = count.max(1);
        // Dropped on an error too, which ends the threads that were started before it.
        let mut workers = Self { queue: Arc::new(Queue::new(count)), threads: Vec::with_capacity(count) };
        let done = Arc::new(done);
        for number in 0..count {
            let (queue, done) = (Arc::clone(&workers.queue), Arc::clone(&done));
            let thread = thread::Builder::new().name(format!("mortise-guest-{number}"));
            workers.threads.push(thread.spawn(move || work(&queue, number, &*done))?);
        }
        Ok(workers)
    }

    /// Puts a job into the queue. Never blocks.
    ///
    /// # Errors
    /// [`QueueFull`] with the job when there is no room.
    pub fn submit(&self, job: Job) -> Result<(), Box<QueueFull>> {
        self.queue.push(job)
    }

    /// The way in for those who do not hold the workers.
    pub fn submitter(&self) -> Submitter {
        Submitter { queue: Arc::clone(&self.queue) }
    }

    /// Calls that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // Panics inside calls are caught; one of the callback was reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("count", &self.threads.len()).field("waiting", &self.waiting()).finish()
    }
}

/// Jobs that wait, and who works on what.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// In the order in which they came.
    waiting: VecDeque<Job>,
    /// By worker, the plugin that it works for, or has just worked for while it takes the next.
    occupied: Vec<Option<Arc<str>>>,
    closed: bool,
}

impl Queue {
    fn new(workers: usize) -> Self {
        let state = State { waiting: VecDeque::new(), occupied: vec![None; workers], closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) -> Result<(), Box<QueueFull>> {
        let mut state = self.lock();
        if state.waiting.len() >= QUEUE_LENGTH {
            return Err(Box::new(QueueFull(job)));
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a job; None when there will be none any more.
    fn take(&self, worker: usize) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.next(worker) {
                state.occupied[worker] = Some(Arc::clone(job.work.plugin()));
                return Some(job);
            }
            state.occupied[worker] = None;
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl State {
    /// The oldest job of the plugin that occupies the fewest other workers. Where that says nothing, another plugin than the
    /// one that this worker has just worked for goes first, so that a single worker serves plugins in turn; and of one
    /// plugin's jobs a question of the API server, for whose answer a person waits.
    fn next(&mut self, worker: usize) -> Option<Job> {
        let (occupied, own) = (&self.occupied, self.occupied[worker].as_deref());
        let others = |plugin: &str| {
            let others = occupied.iter().enumerate().filter(|(other, _)| *other != worker);
            others.filter(|(_, occupied)| occupied.as_deref() == Some(plugin)).count()
        };
        let urgency = |work: &Work| {
            let plugin = work.plugin();
            (others(plugin), own == Some(&**plugin), matches!(work, Work::Reconcile(_)))
        };
        let jobs = self.waiting.iter().enumerate();
        let (at, _) = jobs.min_by_key(|(_, job)| urgency(&job.work))?;
        self.waiting.remove(at)
    }
}

fn work(queue: &Queue, worker: usize, done: &(dyn Fn(JobDone) + Send + Sync)) {
    while let Some(Job { plugin, work }) = queue.take(worker) {
        match work {
            Work::Reconcile(call) => done(reconcile(&plugin, *call)),
            Work::Admit(admit) => answer(&plugin, *admit),
            Work::Convert(convert) => answer(&plugin, *convert),
        }
    }
}

fn reconcile(plugin: &Plugin, call: Call) -> JobDone {
    let Call { id, controller, object, view, limits, check, .. } = call;
    let report = guarded(
        || plugin.call(object.json(), view, &limits),
        |message| CallCompletion {
            result: CallResult::HostFault(message),
            reads: Dependencies::default(),
            logs: Vec::new(),
            dropped_logs: 0,
            stats: CallStats::default(),
        },
    );
    // The check takes time by the size of the outcome, so it is the plugin's too.
    let checked = Instant::now();
    let conclusion = check.conclude(&object, report.result);
    let elapsed = report.stats.elapsed + checked.elapsed();
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    JobDone {
        id,
        controller,
        object: ObjectRef { kind: object.kind.clone(), name: object.name.clone() },
        done: CallDone { conclusion, reads: report.reads, elapsed_us },
        logs: report.logs,
        dropped_logs: report.dropped_logs,
        stats: report.stats,
    }
}

fn answer<Q: WebhookRequest>(plugin: &Plugin, ask: WebhookCall<Q, Q::Answer>) {
    if Instant::now() >= ask.until {
        return;
    }
    let report = guarded(
        || plugin.ask(&ask.question, &ask.limits),
        |message| Completion {
            answer: Q::host_fault(message),
            logs: Vec::new(),
            dropped_logs: 0,
            stats: CallStats::default(),
        },
    );
    (ask.answer)(report);
}

/// Runs a call; a panic of the host ends as the host's own fault. Nothing that the call touched is used again: its
/// store is its own.
fn guarded<R>(call: impl FnOnce() -> R, host_fault: impl FnOnce(String) -> R) -> R {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| host_fault(host_panic(&*panic)))
}

/// A panic of the host during a call. The guest set it off but cannot mend it, so it never reads as the guest's trap.
fn host_panic(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "mortise itself panicked while it ran this call ({}); the plugin is not at fault; please report it with the \
         lines above it in the host's log",
        text.unwrap_or("no message")
    )
}
