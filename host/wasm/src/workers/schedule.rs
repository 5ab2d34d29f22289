//! Which job an idle worker runs next, and how long it may take. Jobs go in by plugin, and come out one for each idle
//! worker. Threads, guests and clocks are not known here.
//!
//! It is a multilevel feedback queue. A call has the [`Pace`] of its plugin, which bounds its processor time. One that takes
//! longer is given up and queued again with the next pace, to run from its beginning: a guest's call cannot be
//! suspended, but it is a pure function. Of `n` workers one plugin occupies at most n - 1; slow and long calls of all
//! plugins together at most n - 1, long ones n - 2. So for any number of plugins that spin, the calls of one worker end
//! after [`QUICK`], and those of another after [`SLOW`].
//!
//! Within these bounds the plugin that occupies the fewest workers is next, then the one that was served or added
//! longest ago. Of its jobs those of each peer take turns, so that a peer waits for one job of each other one; of a
//! peer's jobs the oldest runs. A job costs O(log plugins), for any number of jobs of one peer.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::limits::REMEMBERED_PLUGINS;

#[cfg(test)]
mod tests;

/// Queued jobs of one plugin and peer. They have no common bound, which one could exhaust: the engine bounds
/// reconciles, and the webhook server its requests. This is four times the largest concurrency of a controller, or 32
/// lists of objects that are converted at once.
pub(super) const QUEUE_LENGTH: usize = 1_024;
/// The processor time of a call of a quick or new plugin. Quick plugins wait for each other, and two such waits stay under
/// the tenth of a second that a person notices. A small call takes 0.1 ms, in an interpreter some ms; a call looks at the
/// clocks every 10 ms. By the wall clock, calls would begin anew just when a machine has too much to do.
const QUICK: Duration = Duration::from_millis(50);
/// That of a call of a slow plugin: half of the default deadline.
const SLOW: Duration = Duration::from_millis(500);
/// Consecutive calls after which a plugin that fits the next quicker pace has it again. So at most one call of nine is
/// given up.
const CALLS_TO_RECOVER: u32 = 8;
const PACES: usize = 3;
/// Fewest workers for reconciles, and for webhook calls, also on a machine with fewer cores: one for each pace.
pub const MIN_WORKERS: usize = PACES;

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

    /// The quickest pace that a call fits.
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

/// Queued jobs, and what each worker runs.
#[derive(Debug)]
pub(super) struct Schedule<J> {
    /// By worker.
    running: Vec<Option<Running>>,
    plugins: BTreeMap<Arc<str>, Entry<J>>,
    /// By pace, the plugins that have a job and may occupy one more worker, the next one first.
    waiting: [BTreeMap<Order, Arc<str>>; PACES],
    /// By pace, the number of workers that run such calls.
    occupied: [usize; PACES],
    turns: u64,
}

/// Workers occupied, and the turn at which the plugin was added or last served, which no other plugin has.
type Order = (usize, u64);

/// Who sent a job, through the webhook port. None for the engine's.
pub(super) type Sender = Option<IpAddr>;

#[derive(Debug)]
struct Running {
    plugin: Arc<str>,
    from: Sender,
    pace: Pace,
}

#[derive(Debug)]
struct Queued<J> {
    from: Sender,
    /// Each peer has one job in a round.
    round: u64,
    /// The quickest that it may have: slower than the plugin's for a job that was given up.
    pace: Pace,
    job: J,
}

#[derive(Debug)]
struct Entry<J> {
    /// By round.
    jobs: VecDeque<Queued<J>>,
    /// That of the job which ran last.
    round: u64,
    running: usize,
    turn: u64,
    pace: Pace,
    /// Consecutive calls that fitted a quicker pace.
    quicker_calls: u32,
}

impl<J> Entry<J> {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.jobs.is_empty()
    }

    /// The pace of its next job, and its place among the waiting plugins.
    fn place(&self, workers: usize) -> Option<(Pace, Order)> {
        let next = self.jobs.front()?;
        (self.running < workers - 1).then(|| (self.pace.max(next.pace), (self.running, self.turn)))
    }

    /// Queues a job, in the round after the last one of its peer.
    fn push(&mut self, from: Sender, job: J) -> Result<(), J> {
        let of_peer = |queued: &&Queued<J>| queued.from == from;
        if self.jobs.len() >= QUEUE_LENGTH && self.jobs.iter().filter(of_peer).count() >= QUEUE_LENGTH {
            return Err(job);
        }
        let last = self.jobs.iter().rev().find(of_peer).map_or(self.round, |queued| queued.round);
        let place = self.jobs.partition_point(|queued| queued.round <= last + 1);
        self.jobs.insert(place, Queued { from, round: last + 1, pace: Pace::Quick, job });
        Ok(())
    }

    /// Updates the pace after a call.
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
    /// For at least [`MIN_WORKERS`] workers, numbered from 0.
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

    /// Queues a job.
    ///
    /// # Errors
    /// The job, when [`QUEUE_LENGTH`] jobs of its plugin and peer wait.
    pub(super) fn push(&mut self, plugin: &Arc<str>, from: Sender, job: J) -> Result<(), J> {
        if !self.plugins.contains_key(plugin) {
            self.turns += 1;
            let (jobs, turn) = (VecDeque::new(), self.turns);
            let entry = Entry { jobs, round: 0, running: 0, turn, pace: Pace::Quick, quicker_calls: 0 };
            self.plugins.insert(Arc::clone(plugin), entry);
        }
        self.update(plugin, |entry| entry.push(from, job))
    }

    /// The next job of an idle worker, and its pace. None while every queued job waits for one of its own plugin or
    /// pace to end.
    pub(super) fn next(&mut self, worker: usize) -> Option<(J, Pace)> {
        let (pace, plugin) = self.next_plugin()?;
        let plugin = Arc::clone(plugin);
        self.turns += 1;
        let turn = self.turns;
        let Queued { from, job, .. } = self.update(&plugin, |entry| {
            (entry.running, entry.turn) = (entry.running + 1, turn);
            let next = entry.jobs.pop_front()?;
            entry.round = next.round;
            Some(next)
        })?;
        self.occupied[pace as usize] += 1;
        self.running[worker] = Some(Running { plugin, from, pace });
        Some((job, pace))
    }

    /// Whether an idle worker would get a job.
    pub(super) fn is_ready(&self) -> bool {
        self.next_plugin().is_some()
    }

    /// A worker is idle again, after a call of this duration or without one.
    pub(super) fn ended(&mut self, worker: usize, call: Option<Duration>) {
        self.release(worker, |entry, _, _| {
            if let Some(call) = call {
                entry.took(call);
            }
        });
    }

    /// A worker is idle again, after a call that took longer than its pace allows. The job becomes its plugin's next.
    pub(super) fn gave_up(&mut self, worker: usize, job: J) {
        self.release(worker, |entry, from, pace| {
            (entry.pace, entry.quicker_calls) = (entry.pace.max(pace.slower()), 0);
            entry.jobs.push_front(Queued { from, round: entry.round, pace: pace.slower(), job });
        });
    }

    fn release(&mut self, worker: usize, learn: impl FnOnce(&mut Entry<J>, Sender, Pace)) {
        let Some(Running { plugin, from, pace }) = self.running[worker].take() else { return };
        self.occupied[pace as usize] -= 1;
        let idle = self.update(&plugin, |entry| {
            entry.running -= 1;
            learn(entry, from, pace);
            entry.is_idle().then_some(entry.pace)
        });
        match idle {
            // The same as a new plugin.
            Some(Pace::Quick) => drop(self.plugins.remove(&plugin)),
            // A slow plugin that is forgotten costs two calls that are given up.
            Some(_) if self.plugins.len() > REMEMBERED_PLUGINS => self.plugins.retain(|_, entry| !entry.is_idle()),
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

    /// Changes a plugin's entry, and its place among the waiting plugins.
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
