//! Which waiting job a free worker runs next, and how long it may take. Jobs go in by plugin, one comes out for each worker that
//! is free. Threads, guests and clocks are not known here.
//!
//! It is a multilevel feedback queue. A call has the [`Pace`] of its plugin, which bounds its time; one that takes longer is
//! given up and comes back with the next pace, to be run from its beginning: a guest's call cannot be suspended, but it is a
//! pure function. Of `n` workers, one plugin occupies at most n - 1; slow and long calls of all plugins together at most
//! n - 1, long ones n - 2. So however many plugins spin, there is a worker whose calls end after [`QUICK`], and one whose calls
//! end after [`SLOW`].
//!
//! Within these bounds the plugin that occupies the fewest workers is next, then the one that was served or came longest ago; its
//! oldest job runs. A job costs O(log plugins), however many jobs wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Jobs of one plugin that may wait. There is no bound on all of them here, because one plugin must not use up what others
/// have: the driver bounds the reconciles that it hands out, and the webhook server its requests. This is four times the
/// largest concurrency of a controller, or 32 lists of objects that are converted at once.
pub(super) const QUEUE_LENGTH: usize = 1_024;
/// The time of a call of a plugin that is quick, or new. Quick plugins wait for each other, and two such
/// waits stay under the tenth of a second that a person notices. A call takes 0.1 ms where a plugin has little to do, and some
/// ms in an interpreter; deadlines are checked every 10 ms.
const QUICK: Duration = Duration::from_millis(50);
/// The time of a call of a slow plugin: half of the deadline that a plugin has without asking for one.
const SLOW: Duration = Duration::from_millis(500);
/// A plugin has the next quicker pace again after so many calls in a row that fit it. So at most one call of nine is given up.
const CALLS_TO_RECOVER: u32 = 8;
/// Plugins without a job whose pace is remembered. Beyond that, all of those are forgotten, and a slow one costs two calls that
/// are given up. Four times the plugins that a host is made for.
const REMEMBERED: usize = 4_096;
const PACES: usize = 3;
/// One worker for each pace.
pub(super) const MIN_WORKERS: usize = PACES;

/// How long a call may take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Pace {
    Quick,
    Slow,
    /// As long as the plugin's deadline allows.
    Long,
}

impl Pace {
    const ALL: [Self; PACES] = [Self::Quick, Self::Slow, Self::Long];

    pub(super) fn limit(self) -> Option<Duration> {
        match self {
            Self::Quick => Some(QUICK),
            Self::Slow => Some(SLOW),
            Self::Long => None,
        }
    }

    /// The quickest one that a call fits.
    fn of(call: Duration) -> Self {
        let fits = |pace: &Self| pace.limit().is_none_or(|limit| call <= limit);
        Self::ALL.into_iter().find(fits).unwrap_or(Self::Long)
    }

    fn slower(self) -> Self {
        if self == Self::Quick { Self::Slow } else { Self::Long }
    }

    fn quicker(self) -> Self {
        if self == Self::Long { Self::Slow } else { Self::Quick }
    }
}

/// Jobs that wait, and who works for whom.
#[derive(Debug)]
pub(super) struct Schedule<J> {
    /// What each worker runs.
    running: Vec<Option<Running>>,
    plugins: BTreeMap<Arc<str>, Entry<J>>,
    /// By pace, the plugins that have a job and may occupy one more worker, the next one first.
    waiting: [BTreeMap<Order, Arc<str>>; PACES],
    /// By pace, the workers that run such calls.
    occupied: [usize; PACES],
    turns: u64,
}

/// Workers occupied, and the turn at which the plugin came or was last served, which no other plugin has.
type Order = (usize, u64);

#[derive(Debug)]
struct Running {
    plugin: Arc<str>,
    pace: Pace,
}

#[derive(Debug)]
struct Entry<J> {
    /// With the quickest pace that each may have: one that was given up has a slower one than its plugin had.
    jobs: VecDeque<(Pace, J)>,
    running: usize,
    turn: u64,
    pace: Pace,
    /// Calls in a row that fitted a quicker pace.
    quicker_calls: u32,
}

impl<J> Entry<J> {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.jobs.is_empty()
    }

    /// The pace of its next job, and its place among those that wait for a worker.
    fn place(&self, workers: usize) -> Option<(Pace, Order)> {
        let (pace, _) = self.jobs.front()?;
        (self.running < workers - 1).then(|| (self.pace.max(*pace), (self.running, self.turn)))
    }

    /// Learns from a call that has ended.
    fn took(&mut self, call: Duration) {
        let pace = Pace::of(call);
        if pace < self.pace {
            self.quicker_calls += 1;
            if self.quicker_calls == CALLS_TO_RECOVER {
                (self.pace, self.quicker_calls) = (self.pace.quicker(), 0);
            }
        } else {
            (self.pace, self.quicker_calls) = (pace, 0);
        }
    }
}

impl<J> Schedule<J> {
    /// For so many workers, which are numbered from 0, and no fewer than [`MIN_WORKERS`].
    pub(super) fn new(workers: usize) -> Self {
        Self {
            running: (0..workers.max(MIN_WORKERS)).map(|_| None).collect(),
            plugins: BTreeMap::new(),
            waiting: Default::default(),
            occupied: [0; PACES],
            turns: 0,
        }
    }

    pub(super) fn workers(&self) -> usize {
        self.running.len()
    }

    /// Adds a job.
    ///
    /// # Errors
    /// The job, when [`QUEUE_LENGTH`] jobs of its plugin wait.
    pub(super) fn push(&mut self, plugin: &Arc<str>, job: J) -> Result<(), J> {
        if !self.plugins.contains_key(plugin) {
            self.turns += 1;
            let (jobs, turn) = (VecDeque::new(), self.turns);
            let entry = Entry { jobs, running: 0, turn, pace: Pace::Quick, quicker_calls: 0 };
            self.plugins.insert(Arc::clone(plugin), entry);
        }
        self.update(plugin, |entry| {
            if entry.jobs.len() >= QUEUE_LENGTH {
                return Err(job);
            }
            entry.jobs.push_back((Pace::Quick, job));
            Ok(())
        })
    }

    /// The job that a free worker runs now, and at which pace. None while all jobs wait for running ones of their own plugin
    /// or pace to end.
    pub(super) fn next(&mut self, worker: usize) -> Option<(J, Pace)> {
        let (pace, plugin) = self.next_plugin()?;
        let plugin = Arc::clone(plugin);
        self.turns += 1;
        let turn = self.turns;
        let (_, job) = self.update(&plugin, |entry| {
            (entry.running, entry.turn) = (entry.running + 1, turn);
            entry.jobs.pop_front()
        })?;
        self.occupied[pace as usize] += 1;
        self.running[worker] = Some(Running { plugin, pace });
        Some((job, pace))
    }

    /// Whether a free worker would get a job.
    pub(super) fn is_ready(&self) -> bool {
        self.next_plugin().is_some()
    }

    /// A worker is free again, after a call that took so long, or without one.
    pub(super) fn ended(&mut self, worker: usize, call: Option<Duration>) {
        self.release(worker, |entry, _| {
            if let Some(call) = call {
                entry.took(call);
            }
        });
    }

    /// A worker is free again, after a call that took longer than its pace allows. The job comes back as its plugin's next.
    pub(super) fn gave_up(&mut self, worker: usize, job: J) {
        self.release(worker, |entry, pace| {
            (entry.pace, entry.quicker_calls) = (entry.pace.max(pace.slower()), 0);
            entry.jobs.push_front((pace.slower(), job));
        });
    }

    fn release(&mut self, worker: usize, learn: impl FnOnce(&mut Entry<J>, Pace)) {
        let Some(Running { plugin, pace }) = self.running[worker].take() else { return };
        self.occupied[pace as usize] -= 1;
        let idle = self.update(&plugin, |entry| {
            entry.running -= 1;
            learn(entry, pace);
            entry.is_idle().then_some(entry.pace)
        });
        match idle {
            // As if it were new.
            Some(Pace::Quick) => drop(self.plugins.remove(&plugin)),
            Some(_) if self.plugins.len() > REMEMBERED => self.plugins.retain(|_, entry| !entry.is_idle()),
            _ => {}
        }
    }

    fn next_plugin(&self) -> Option<(Pace, &Arc<str>)> {
        let occupied = |pace: Pace| self.occupied[pace as usize..].iter().sum::<usize>();
        let has_room = |pace: &Pace| occupied(*pace) < self.workers() - *pace as usize;
        let with_room = Pace::ALL.into_iter().take_while(has_room);
        let first = |pace: Pace| self.waiting[pace as usize].first_key_value().map(|first| (pace, first));
        let next = with_room.filter_map(first).min_by_key(|(_, (order, _))| **order);
        next.map(|(pace, (_, plugin))| (pace, plugin))
    }

    /// Changes a plugin's entry, and its place among those that wait.
    fn update<R>(&mut self, plugin: &Arc<str>, change: impl FnOnce(&mut Entry<J>) -> R) -> R {
        let workers = self.running.len();
        let entry = self.plugins.get_mut(plugin).expect("a plugin with a job has an entry");
        if let Some((pace, order)) = entry.place(workers) {
            self.waiting[pace as usize].remove(&order);
        }
        let result = change(entry);
        if let Some((pace, order)) = entry.place(workers) {
            self.waiting[pace as usize].insert(order, Arc::clone(plugin));
        }
        result
    }
}
