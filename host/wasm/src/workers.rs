//! The threads that guests run on. A [`Job`] is submitted without waiting; its [`JobDone`] comes out through a callback on the
//! worker's thread. Guests never run on the threads that talk to the API server, and a panic of the host while one runs costs
//! that call only.
//!
//! Reconciles have workers of their own, admission and conversion others, so that neither waits for the other. Which job a
//! worker takes is for `schedule.rs` to say (Q4). Plugins have no affinity to workers, because what is warm for a component,
//! its slots in the pool, is warm for them all.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mortise_core::call::{Call, CallDone, CallId, Conclusion};
use mortise_core::contract::{CallResult, GuestFault};
use mortise_core::dependencies::Dependencies;
use mortise_core::limits::CallLimits;
use mortise_core::object::ObjectRef;
use mortise_core::{admission, conversion};

use crate::log::LogLine;
use crate::plugin::request::WebhookRequest;
use crate::plugin::{CallCompletion, CallStats, Completion, Plugin};

use self::schedule::{Pace, QUEUE_LENGTH, Schedule};

mod schedule;
#[cfg(test)]
mod tests;

/// Fewest workers of reconciles, and of webhook calls, however few cores there are: threads are no cores.
pub const MIN_WORKERS: usize = schedule::MIN_WORKERS;

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

/// Too many calls of one plugin wait. Carries the job back.
#[derive(Debug, thiserror::Error)]
#[error("{QUEUE_LENGTH} calls of the plugin {:?} wait for a worker, and no more may", .0.work.plugin())]
pub struct QueueFull(pub Job);

/// Hands jobs to the workers, from anywhere. Once they have ended, what is handed to it stays unanswered.
#[derive(Clone)]
pub struct Submitter {
    reconciles: Arc<Queue>,
    webhooks: Arc<Queue>,
}

impl Submitter {
    /// Lets a job wait for a worker. Never blocks.
    ///
    /// # Errors
    /// [`QueueFull`] with the job when too many of its plugin wait.
    pub fn submit(&self, job: Job) -> Result<(), Box<QueueFull>> {
        match &job.work {
            Work::Reconcile(_) => self.reconciles.push(job),
            Work::Admit(_) | Work::Convert(_) => self.webhooks.push(job),
        }
    }
}

impl fmt::Debug for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitter").finish_non_exhaustive()
    }
}

/// The worker threads. Dropping this ends them once the queues are empty.
pub struct Workers {
    submitter: Submitter,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts so many threads for reconciles, and half as many for webhook calls, of which there are fewer; at least
    /// [`MIN_WORKERS`] of both. `done` is called on a worker's thread after each reconcile and must not block for long.
    ///
    /// # Errors
    /// When the operating system starts no more threads.
    pub fn start(reconciles: usize, done: impl Fn(JobDone) + Send + Sync + 'static) -> io::Result<Self> {
        let queue = |workers| Arc::new(Queue::new(workers));
        let submitter = Submitter { reconciles: queue(reconciles), webhooks: queue(reconciles / 2) };
        // Dropped on an error too, which ends the threads that were started before it.
        let mut workers = Self { submitter, threads: Vec::new() };
        let done = Arc::new(done);
        let Submitter { reconciles, webhooks } = workers.submitter.clone();
        for (name, queue) in [("guest", reconciles), ("webhook", webhooks)] {
            for number in 0..queue.lock().schedule.workers() {
                let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
                let thread = thread::Builder::new().name(format!("mortise-{name}-{number}"));
                workers.threads.push(thread.spawn(move || work(&queue, number, &*done))?);
            }
        }
        Ok(workers)
    }

    /// As [`Submitter::submit`].
    ///
    /// # Errors
    /// [`QueueFull`] with the job when too many of its plugin wait.
    pub fn submit(&self, job: Job) -> Result<(), Box<QueueFull>> {
        self.submitter.submit(job)
    }

    /// The way in for those who do not hold the workers.
    pub fn submitter(&self) -> Submitter {
        self.submitter.clone()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.submitter.reconciles.close();
        self.submitter.webhooks.close();
        for thread in self.threads.drain(..) {
            // Panics inside calls are caught; one of the callback was reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// A job that waits, and the time that its plugin is charged for when it ends: of its calls that were given up.
struct Waiting {
    job: Job,
    spent: Duration,
}

/// How a worker came to be free again.
enum Ended {
    /// After a call that took so long.
    Took(Duration),
    /// After a call that took longer than its pace allows; it waits to be made again.
    GaveUp(Waiting),
    /// Without a call, for which it was too late.
    NotCalled,
}

/// Jobs that wait for the same workers.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    schedule: Schedule<Waiting>,
    /// Workers that wait for a job.
    idle: usize,
    closed: bool,
}

impl Queue {
    fn new(workers: usize) -> Self {
        let state = State { schedule: Schedule::new(workers), idle: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) -> Result<(), Box<QueueFull>> {
        let plugin = Arc::clone(job.work.plugin());
        let mut state = self.lock();
        let waiting = Waiting { job, spent: Duration::ZERO };
        state.schedule.push(&plugin, waiting).map_err(|waiting| Box::new(QueueFull(waiting.job)))?;
        self.wake(&state);
        Ok(())
    }

    /// Waits for a job; None when there will be none any more.
    fn take(&self, worker: usize) -> Option<(Waiting, Pace)> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.schedule.next(worker) {
                // The call that ended before may have kept several jobs waiting.
                self.wake(&state);
                return Some(next);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn ended(&self, worker: usize, ended: Ended) {
        let schedule = &mut self.lock().schedule;
        match ended {
            Ended::Took(call) => schedule.ended(worker, Some(call)),
            Ended::NotCalled => schedule.ended(worker, None),
            Ended::GaveUp(waiting) => schedule.gave_up(worker, waiting),
        }
    }

    /// Wakes a worker when there is one and a job for it.
    fn wake(&self, state: &State) {
        if state.idle > 0 && state.schedule.is_ready() {
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

fn work(queue: &Queue, worker: usize, done: &(dyn Fn(JobDone) + Send + Sync)) {
    while let Some((Waiting { job: Job { plugin, work }, spent }, pace)) = queue.take(worker) {
        let ended = match work {
            Work::Reconcile(call) => reconcile(plugin, call, spent, pace, done),
            Work::Admit(admit) => answer(plugin, admit, pace, Work::Admit),
            Work::Convert(convert) => answer(plugin, convert, pace, Work::Convert),
        };
        queue.ended(worker, ended);
    }
}

fn reconcile(plugin: Arc<Plugin>, call: Box<Call>, spent: Duration, pace: Pace, done: &dyn Fn(JobDone)) -> Ended {
    let begin = Instant::now();
    let hurried = hurried(&call.limits, pace);
    let (view, limits) = (call.view.clone(), hurried.unwrap_or(call.limits));
    let CallCompletion { result, reads, logs, dropped_logs, stats } = guarded(
        || plugin.call(call.object.json(), view, &limits),
        |message| CallCompletion {
            result: CallResult::HostFault(message),
            reads: Dependencies::default(),
            logs: Vec::new(),
            dropped_logs: 0,
            stats: CallStats::default(),
        },
    );
    if hurried.is_some() && matches!(result, CallResult::Fault(GuestFault::Deadline { .. })) {
        let job = Job { plugin, work: Work::Reconcile(call) };
        return Ended::GaveUp(Waiting { job, spent: spent + begin.elapsed() });
    }
    let Call { id, controller, object, check, .. } = *call;
    // The check takes time by the size of the outcome, so it is the plugin's too.
    let conclusion = guarded(|| check.conclude(&object, result), Conclusion::HostFault);
    let elapsed = begin.elapsed();
    let elapsed_us = u64::try_from((spent + elapsed).as_micros()).unwrap_or(u64::MAX);
    let object = ObjectRef { kind: object.kind.clone(), name: object.name.clone() };
    done(JobDone {
        id,
        controller,
        object,
        done: CallDone { conclusion, reads, elapsed_us },
        logs,
        dropped_logs,
        stats,
    });
    Ended::Took(elapsed)
}

fn answer<Q: WebhookRequest>(
    plugin: Arc<Plugin>,
    ask: Box<WebhookCall<Q, Q::Answer>>,
    pace: Pace,
    again: fn(Box<WebhookCall<Q, Q::Answer>>) -> Work,
) -> Ended {
    let begin = Instant::now();
    if begin >= ask.until {
        return Ended::NotCalled;
    }
    let hurried = hurried(&ask.limits, pace);
    let Completion { answer, logs, dropped_logs, stats } = guarded(
        || plugin.ask(&ask.question, &hurried.unwrap_or(ask.limits)),
        |message| Completion {
            answer: Ok(Q::host_fault(message)),
            logs: Vec::new(),
            dropped_logs: 0,
            stats: CallStats::default(),
        },
    );
    if hurried.is_some() && matches!(answer, Err(GuestFault::Deadline { .. })) {
        return Ended::GaveUp(Waiting { job: Job { plugin, work: again(ask) }, spent: Duration::ZERO });
    }
    let elapsed = begin.elapsed();
    (ask.answer)(Completion { answer: answer.unwrap_or_else(Q::fault), logs, dropped_logs, stats });
    Ended::Took(elapsed)
}

/// The bounds of a call that may be given up; None when it may take all of its time.
fn hurried(limits: &CallLimits, pace: Pace) -> Option<CallLimits> {
    let deadline_ms = u64::try_from(pace.limit()?.as_millis()).ok()?;
    (deadline_ms < limits.deadline_ms).then_some(CallLimits { deadline_ms, ..*limits })
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
