//! The threads that guests run on. Submitting a [`Job`] never blocks; its [`JobDone`] comes out through a callback on
//! the worker's thread. Guests never run on the threads that talk to the API server, and a panic of the host during a
//! call costs that call alone.
//!
//! Reconciles have their own workers; admission and conversion have others, so that neither waits for the other.
//! `schedule.rs` decides which job a worker takes (Q4). Plugins have no affinity to workers: a component's warm pool
//! slots serve them all.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mortise_core::call::{Call, CallDone, CallId, Conclusion};
use mortise_core::contract::{CallResult, GuestFault};
use mortise_core::limits::CallLimits;
use mortise_core::write::Cause;
use mortise_core::{admission, conversion};

use crate::deadline::Deadline;
use crate::log::LogLine;
use crate::plugin::request::WebhookRequest;
use crate::plugin::{CallStats, Completion, Plugin};

pub use self::schedule::MIN_WORKERS;
use self::schedule::{Pace, QUEUE_LENGTH, Schedule, Sender};

mod schedule;
#[cfg(test)]
mod tests;

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
    /// A reconcile; its [`JobDone`] is given to the callback of [`Workers::start`].
    Reconcile(Box<Call>),
    /// Admission of an object.
    Admit(Box<WebhookCall<admission::AdmissionRequest, admission::Verdict>>),
    /// Conversion of an object to another version of its kind.
    Convert(Box<WebhookCall<conversion::ConversionRequest, conversion::Conversion>>),
}

/// A request of the API server.
pub struct WebhookCall<Q, R> {
    /// Whose share of the workers it takes: a plugin's, with another one for its conversions.
    pub plugin: Arc<str>,
    /// Who sent it: those that do take turns within the plugin's share.
    pub from: IpAddr,
    /// What the guest is called with, when its call begins, and again when it begins anew. None when nobody waits for
    /// the result any more. So a call that is queued keeps no object.
    pub begin: Box<dyn Fn() -> Option<Begun<Q>> + Send>,
    /// Bounds of the call.
    pub limits: CallLimits,
    /// The webhook server's deadline: a call that would begin later is dropped, and one that has begun ends.
    pub until: Instant,
    /// Called on a worker's thread when the call has ended; must not block.
    pub respond: Box<dyn FnOnce(Completion<R>) + Send>,
}

/// A request whose call begins.
pub struct Begun<Q> {
    /// What the guest is called with.
    pub request: Q,
    /// Dropped when the call has ended.
    pub held: Box<dyn Send>,
}

impl<Q, R> fmt::Debug for WebhookCall<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookCall").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

impl<Q: fmt::Debug> fmt::Debug for Begun<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Work {
    /// Whose share of the workers it takes.
    fn share(&self) -> &Arc<str> {
        match self {
            Self::Reconcile(call) => &call.share,
            Self::Admit(admit) => &admit.plugin,
            Self::Convert(convert) => &convert.plugin,
        }
    }

    fn sender(&self) -> Sender {
        match self {
            Self::Reconcile(_) => None,
            Self::Admit(admit) => Some(admit.from),
            Self::Convert(convert) => Some(convert.from),
        }
    }
}

/// A call that was run.
#[derive(Debug)]
pub struct JobDone {
    /// The call's id.
    pub id: CallId,
    /// The reconcile.
    pub cause: Cause,
    /// The result for the engine.
    pub done: CallDone,
    /// What the guest logged.
    pub logs: Vec<LogLine>,
    /// Log lines over the bound.
    pub dropped_logs: u64,
    /// What the call used.
    pub stats: CallStats,
}

/// Too many calls of one plugin wait. Returns the job.
#[derive(Debug, thiserror::Error)]
#[error("{QUEUE_LENGTH} calls of {} are queued, which is the maximum", .0.work.share())]
pub struct QueueFull(pub Job);

/// Submits jobs from any thread. A job that is submitted after the workers have ended is never run.
#[derive(Clone)]
pub struct Submitter {
    reconciles: Arc<Queue>,
    webhooks: Arc<Queue>,
}

impl Submitter {
    /// Queues a job. Never blocks.
    ///
    /// # Errors
    /// [`QueueFull`] with the job when too many of its plugin wait.
    pub fn submit(&self, job: Job) -> Result<(), Box<QueueFull>> {
        let queue = match &job.work {
            Work::Reconcile(_) => &self.reconciles,
            Work::Admit(_) | Work::Convert(_) => &self.webhooks,
        };
        queue.push(vec![job]).pop().map_or(Ok(()), |full| Err(Box::new(full)))
    }

    /// Queues reconciles, and wakes workers once for all of them. Never blocks. Returns those of which too many of their
    /// plugin wait.
    pub fn submit_reconciles(&self, jobs: Vec<Job>) -> Vec<QueueFull> {
        self.reconciles.push(jobs)
    }
}

impl fmt::Debug for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitter").finish_non_exhaustive()
    }
}

/// The nice value of the threads that run reconciles. Where cores are contended, one of them gets a fifth of what the event loop,
/// the requests and reviews get: these are what another plugin waits for, and what they do is bounded. It still gets twice what
/// a compiler gets.
const NICE: i32 = 7;

/// The worker threads. Dropping this ends them once the queues are empty.
pub struct Workers {
    submitter: Submitter,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts this many threads for reconciles, and half as many for webhook calls, of which there are fewer; at least
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
        for (name, nice, queue) in [("guest", Some(NICE), reconciles), ("webhook", None, webhooks)] {
            for number in 0..queue.lock().schedule.workers() {
                let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
                let thread = thread::Builder::new().name(format!("mortise-{name}-{number}"));
                workers.threads.push(thread.spawn(move || {
                    if let Some(nice) = nice {
                        yield_to_others(nice);
                    }
                    work(&queue, number, &*done);
                })?);
            }
        }
        Ok(workers)
    }

    /// Submits to these workers.
    pub fn submitter(&self) -> &Submitter {
        &self.submitter
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.submitter.reconciles.close();
        self.submitter.webhooks.close();
        for thread in self.threads.drain(..) {
            // Panics inside calls are caught; the panic hook has reported one of the callback.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// A queued job.
struct Waiting {
    job: Job,
    /// Time of its calls that were given up, which its plugin is charged for too.
    spent: Duration,
}

/// How a worker's turn ended.
enum Ended {
    /// The call took this long, without the time in which its thread waited for a processor.
    Took(Duration),
    /// The call took longer than its pace allows and is queued again.
    GaveUp(Waiting),
    /// There was no call: its deadline had passed, or nobody waited for it.
    NotCalled,
}

/// The jobs of one group of workers.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    schedule: Schedule<Waiting>,
    /// Workers that wait for a job.
    idle: usize,
    /// One of them was woken and does not run yet. When it takes a job it wakes the next one, so until then nobody is
    /// woken: each needless wake is a system call.
    waking: bool,
    closed: bool,
}

impl Queue {
    fn new(workers: usize) -> Self {
        let state = State { schedule: Schedule::new(workers), idle: 0, waking: false, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, jobs: Vec<Job>) -> Vec<QueueFull> {
        let mut state = self.lock();
        let mut refused = Vec::new();
        for job in jobs {
            let (plugin, sender) = (Arc::clone(job.work.share()), job.work.sender());
            let waiting = Waiting { job, spent: Duration::ZERO };
            refused
                .extend(state.schedule.push(&plugin, sender, waiting).map_err(|waiting| QueueFull(waiting.job)).err());
        }
        self.wake(&mut state);
        refused
    }

    /// Ends the worker's last turn and waits for a job; None once the queue is closed and empty.
    fn take(&self, worker: usize, ended: Option<Ended>) -> Option<(Waiting, Pace)> {
        let mut state = self.lock();
        match ended {
            Some(Ended::Took(call)) => state.schedule.ended(worker, Some(call)),
            Some(Ended::NotCalled) => state.schedule.ended(worker, None),
            Some(Ended::GaveUp(waiting)) => state.schedule.gave_up(worker, waiting),
            None => {}
        }
        loop {
            if let Some(next) = state.schedule.next(worker) {
                // The call that ended before may have held back several jobs.
                self.wake(&mut state);
                return Some(next);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            state.waking = false;
        }
    }

    /// Wakes an idle worker if there is a job for it.
    fn wake(&self, state: &mut State) {
        if state.idle > 0 && !state.waking && state.schedule.is_ready() {
            state.waking = true;
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// This thread alone gets less of a contended core; on other systems than Linux that is a matter of the whole process.
#[cfg(target_os = "linux")]
fn yield_to_others(nice: i32) {
    use rustix::process::{getpriority_process, setpriority_process};
    let set = getpriority_process(None).and_then(|own| setpriority_process(None, own.max(nice)));
    if let Err(error) = set {
        tracing::debug!(%error, "reconciles run at the priority of the host");
    }
}

#[cfg(not(target_os = "linux"))]
fn yield_to_others(_: i32) {}

fn work(queue: &Queue, worker: usize, done: &(dyn Fn(JobDone) + Send + Sync)) {
    let mut ended = None;
    while let Some((Waiting { job: Job { plugin, work }, spent }, pace)) = queue.take(worker, ended.take()) {
        ended = Some(match work {
            Work::Reconcile(call) => reconcile(plugin, call, spent, pace, done),
            Work::Admit(admit) => respond(plugin, admit, pace, Work::Admit),
            Work::Convert(convert) => respond(plugin, convert, pace, Work::Convert),
        });
    }
}

fn reconcile(plugin: Arc<Plugin>, call: Box<Call>, spent: Duration, pace: Pace, done: &dyn Fn(JobDone)) -> Ended {
    let begin = Instant::now();
    let hurried = hurried(&call.limits, pace);
    let (view, limits) = (call.view.clone(), hurried.unwrap_or(call.limits));
    // Of its whole deadline: a machine that is too slow for a pace is none that cannot run the call.
    let until = Deadline::latest(&call.limits, begin);
    let Completion { result, reads, logs, dropped_logs, stats } = guarded(
        || plugin.call_until(call.object.json(), view, &limits, until),
        |message| Completion::without_call(CallResult::HostFault(message)),
    );
    if hurried.is_some() && matches!(result, CallResult::Fault(GuestFault::Deadline { .. })) {
        let job = Job { plugin, work: Work::Reconcile(call) };
        return Ended::GaveUp(Waiting { job, spent: spent + begin.elapsed() });
    }
    let Call { id, cause, object, check, .. } = *call;
    // The check takes longer for a larger outcome, so the plugin is charged for it.
    let conclusion = guarded(|| check.conclude(&object, result), Conclusion::HostFault);
    let elapsed = begin.elapsed();
    let elapsed_us = u64::try_from((spent + elapsed).as_micros()).unwrap_or(u64::MAX);
    done(JobDone { id, cause, done: CallDone { conclusion, reads, elapsed_us }, logs, dropped_logs, stats });
    Ended::Took(elapsed.saturating_sub(stats.waited))
}

fn respond<Q: WebhookRequest>(
    plugin: Arc<Plugin>,
    call: Box<WebhookCall<Q, Q::Response>>,
    pace: Pace,
    again: fn(Box<WebhookCall<Q, Q::Response>>) -> Work,
) -> Ended {
    let begin = Instant::now();
    if begin >= call.until {
        return Ended::NotCalled;
    }
    let (hurried, mut begun) = (hurried(&call.limits, pace), None);
    let called = guarded(
        || {
            let Begun { request, .. } = begun.insert((call.begin)()?);
            // The API server waits for this long and sends no request again, so a call that ended sooner, by the wall
            // clock, would only turn a late answer into none.
            Some(plugin.review(request, &hurried.unwrap_or(call.limits), call.until))
        },
        |message| Some(Completion::without_call(Ok(Q::host_fault(message)))),
    );
    let Some(Completion { result, reads, logs, dropped_logs, stats }) = called else { return Ended::NotCalled };
    if hurried.is_some() && matches!(result, Err(GuestFault::Deadline { .. })) {
        return Ended::GaveUp(Waiting { job: Job { plugin, work: again(call) }, spent: Duration::ZERO });
    }
    let took = begin.elapsed().saturating_sub(stats.waited);
    (call.respond)(Completion { result: result.unwrap_or_else(Q::fault), reads, logs, dropped_logs, stats });
    Ended::Took(took)
}

/// The limits of a call whose pace is shorter than its deadline, so that it may be given up.
fn hurried(limits: &CallLimits, pace: Pace) -> Option<CallLimits> {
    let deadline_ms = u64::try_from(pace.limit()?.as_millis()).ok()?;
    (deadline_ms < limits.deadline_ms).then_some(CallLimits { deadline_ms, ..*limits })
}

/// Runs a call; a panic of the host becomes a host fault, never the guest's trap. The call's store is its own, so
/// nothing that it touched is used again.
fn guarded<R>(call: impl FnOnce() -> R, host_fault: impl FnOnce(String) -> R) -> R {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        host_fault(format!(
            "mortise itself panicked while it ran this call ({}); the plugin is not at fault; please report it with the \
             lines above it in the host's log",
            text.unwrap_or("no message")
        ))
    })
}
