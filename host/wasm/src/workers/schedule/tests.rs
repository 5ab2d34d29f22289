//! The schedule alone, with simulated workers, guests and time.

use super::*;

/// The longest deadline that a plugin may have.
const DEADLINE_MS: u64 = 10_000;
const QUICK_MS: u64 = QUICK.as_millis() as u64;
const SLOW_MS: u64 = SLOW.as_millis() as u64;

/// A job: its plugin, and when it was queued.
type Queued = (Arc<str>, u64);

/// Workers whose calls take the time in their plugins' names: "12 ms, a".
struct Host {
    schedule: Schedule<Queued>,
    now: u64,
    /// By worker, its job, the pace and the end of the call.
    running: Vec<Option<(Queued, Pace, u64)>>,
    /// By plugin, how long each job took in the queue and in its calls.
    latencies: BTreeMap<Arc<str>, Vec<u64>>,
}

fn length_ms(plugin: &str) -> u64 {
    plugin.split_once(" ms").expect("a plugin's name begins with its time").0.parse().expect("a number")
}

impl Host {
    fn new(workers: usize) -> Self {
        let schedule = Schedule::new(workers);
        let running = (0..schedule.workers()).map(|_| None).collect();
        Self { schedule, now: 0, running, latencies: BTreeMap::new() }
    }

    fn push(&mut self, plugin: &str) {
        let plugin: Arc<str> = plugin.into();
        self.schedule.push(&plugin, None, (Arc::clone(&plugin), self.now)).expect("the queue is not full");
        self.fill();
    }

    fn push_many(&mut self, plugin: &str, jobs: usize) {
        (0..jobs).for_each(|_| self.push(plugin));
    }

    fn fill(&mut self) {
        for worker in 0..self.running.len() {
            if self.running[worker].is_some() {
                continue;
            }
            let Some((job, pace)) = self.schedule.next(worker) else { break };
            let ends = self.now + pace.limit_ms().min(length_ms(&job.0));
            self.running[worker] = Some((job, pace, ends));
        }
        self.check();
    }

    /// The bounds hold at every moment.
    fn check(&self) {
        let workers = self.running.len();
        let running = || self.running.iter().flatten();
        for ((plugin, _), ..) in running() {
            assert!(running().filter(|((other, _), ..)| other == plugin).count() < workers, "{plugin} has all workers");
        }
        for pace in Pace::ALL {
            let such = running().filter(|(_, other, _)| *other >= pace).count();
            assert!(such <= workers - pace as usize, "{such} of {workers} workers at {pace:?}");
        }
    }

    /// Advances the time.
    fn until(&mut self, then: u64) {
        while let Some(end) = self.running.iter().flatten().map(|(.., ends)| *ends).min().filter(|end| *end <= then) {
            self.now = end;
            for worker in 0..self.running.len() {
                let Some((job, pace, _)) = self.running[worker].take_if(|(.., ends)| *ends == end) else { continue };
                let length_ms = length_ms(&job.0);
                if length_ms > pace.limit_ms() {
                    self.schedule.gave_up(worker, job);
                } else {
                    self.schedule.ended(worker, Some(Duration::from_millis(length_ms)));
                    self.latencies.entry(job.0).or_default().push(end - job.1);
                }
            }
            self.fill();
        }
        self.now = then;
    }

    /// Queues a job of this plugin every 100 ms; returns the longest latency.
    fn longest(&mut self, plugin: &str, for_ms: u64) -> u64 {
        let end = self.now + for_ms;
        self.latencies.remove(plugin);
        while self.now < end {
            self.push(plugin);
            self.until(self.now + 100);
        }
        assert!(self.schedule.plugins.get(plugin).is_none_or(Entry::is_idle), "{plugin} has jobs that never end");
        *self.latencies[plugin].iter().max().expect("a job ended")
    }
}

impl Pace {
    fn limit_ms(self) -> u64 {
        self.limit().map_or(DEADLINE_MS, |limit| limit.as_millis() as u64)
    }
}

#[test]
fn q4_a_plugin_that_spins_delays_no_other_also_where_one_worker_was_asked_for() {
    for (requested, workers) in [(0, 3), (1, 3), (3, 3), (8, 8)] {
        let mut host = Host::new(requested);
        assert_eq!(host.running.len(), workers);
        host.push_many("10000 ms, spins", 256);
        assert_eq!(host.longest("1 ms, quick", 60_000), 1, "of {workers}");
    }
}

#[test]
fn q4_however_many_plugins_spin_others_wait_for_none_of_them_once_they_are_known() {
    for workers in [3, 4, 9] {
        for spinning in [workers - 1, workers, workers + 1, 100] {
            let mut host = Host::new(workers);
            for plugin in 0..spinning {
                host.push_many(&format!("10000 ms, {plugin}"), 10);
            }
            // All of them are new, and queued before it.
            let known_ms = spinning as u64 * (QUICK_MS + SLOW_MS);
            assert!(host.longest("1 ms, quick", known_ms) <= spinning as u64 * QUICK_MS + 1, "{spinning} on {workers}");
            assert_eq!(host.longest("1 ms, quick", 60_000), 1, "{spinning} on {workers}");
            for new in 0..10 {
                assert_eq!(host.longest(&format!("2 ms, {new}"), 100), 2, "{spinning} on {workers}");
            }
            // It is given up once, and no other plugin uses its worker.
            assert_eq!(host.longest("90 ms, slow", 10_000), QUICK_MS + 90, "{spinning} on {workers}");
        }
    }
}

#[test]
fn q4_quick_plugins_that_begin_to_spin_all_at_once_hold_their_workers_for_the_time_of_a_quick_call() {
    let mut host = Host::new(3);
    host.push("1 ms, quick");
    host.until(1_000);
    for plugin in 0..3 {
        host.push(&format!("10000 ms, {plugin}"));
    }
    assert_eq!(host.schedule.occupied, [3, 0, 0]);
    assert!(host.longest("1 ms, quick", 1_000) <= QUICK_MS + 1);
}

#[test]
fn q4_slow_plugins_leave_a_worker_to_quick_ones_and_take_turns_with_each_other() {
    let mut host = Host::new(3);
    let slow = ["a", "b", "c", "d"].map(|plugin| format!("200 ms, {plugin}"));
    for plugin in &slow {
        host.push_many(plugin, 100);
    }
    host.until(1_000);
    assert_eq!(host.longest("1 ms, quick", 9_000), 1);
    let served = slow.map(|plugin| host.latencies[plugin.as_str()].len());
    assert!(served.iter().all(|served| (20..=25).contains(served)), "two workers for ten seconds: {served:?}");
}

#[test]
fn a_plugin_recovers_a_quicker_pace_after_some_calls_that_fit_it() {
    let mut entry: Entry<()> =
        Entry { jobs: VecDeque::new(), round: 0, running: 0, turn: 0, pace: Pace::Quick, quicker_calls: 0 };
    let mut pace_after = |calls: u32, length: Duration| {
        (0..calls).for_each(|_| entry.took(length));
        entry.pace
    };
    let long = SLOW + Duration::from_millis(1);
    assert_eq!(pace_after(1, long), Pace::Long);
    assert_eq!(pace_after(CALLS_TO_RECOVER - 1, QUICK), Pace::Long);
    assert_eq!(pace_after(1, SLOW), Pace::Slow);
    assert_eq!(pace_after(CALLS_TO_RECOVER - 1, QUICK), Pace::Slow);
    assert_eq!(pace_after(1, SLOW), Pace::Slow, "the count starts again");
    assert_eq!(pace_after(CALLS_TO_RECOVER, QUICK), Pace::Quick);
}

#[test]
fn a_job_that_was_given_up_is_next_of_its_plugin_and_keeps_its_slower_pace() {
    let mut schedule = Schedule::new(3);
    let plugin: Arc<str> = "plugin".into();
    for job in 0..20 {
        schedule.push(&plugin, None, job).unwrap();
    }
    let (given_up, _) = schedule.next(0).unwrap();
    schedule.gave_up(0, given_up);
    // Its other calls were quick meanwhile.
    schedule.plugins.get_mut(&plugin).unwrap().pace = Pace::Quick;
    assert_eq!(schedule.next(0), Some((given_up, Pace::Slow)));
}

#[test]
fn a_thousand_plugins_with_a_job_each_are_served_in_order() {
    let mut schedule = Schedule::new(4);
    for job in 0..1_000 {
        schedule.push(&format!("plugin {job}").into(), None, job).unwrap();
    }
    assert_eq!(drain(&mut schedule), (0..1_000).collect::<Vec<_>>());
    assert!(schedule.plugins.is_empty() && schedule.waiting.iter().all(BTreeMap::is_empty));
    assert_eq!(schedule.occupied, [0; PACES]);
}

#[test]
fn q4_a_job_waits_only_for_those_of_its_own_plugin_and_each_plugin_has_its_own_bound() {
    let mut schedule = Schedule::new(3);
    let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
    let last = QUEUE_LENGTH as i32;
    for job in 0..last {
        schedule.push(&many, None, job).unwrap();
    }
    assert_eq!(schedule.push(&many, None, 7_777), Err(7_777));
    assert_eq!(schedule.next(0), Some((0, Pace::Quick)));
    schedule.push(&one, None, -1).unwrap();
    assert_eq!(schedule.next(1), Some((-1, Pace::Quick)));
    for job in 1..last {
        schedule.ended(0, Some(Duration::ZERO));
        assert_eq!(schedule.next(0), Some((job, Pace::Quick)), "the oldest first");
    }
}

fn peer(number: u8) -> Sender {
    Some(IpAddr::from([10, 0, 0, number]))
}

/// Runs the queued jobs one after another; returns them in this order.
fn drain<J>(schedule: &mut Schedule<J>) -> Vec<J> {
    std::iter::from_fn(|| {
        let job = schedule.next(0);
        schedule.ended(0, Some(Duration::ZERO));
        job.map(|(job, _)| job)
    })
    .collect()
}

#[test]
fn q4_a_peers_job_waits_for_one_of_each_other_peer_however_many_these_have_queued() {
    let (mut schedule, plugin) = (Schedule::new(3), Arc::<str>::from("plugin"));
    for job in 0..QUEUE_LENGTH {
        for number in 1..=4 {
            schedule.push(&plugin, peer(number), (number, job)).unwrap();
        }
    }
    assert_eq!(schedule.push(&plugin, peer(1), (1, QUEUE_LENGTH)), Err((1, QUEUE_LENGTH)), "it has its part");
    let (first, _) = schedule.next(0).unwrap();
    assert_eq!(first, (1, 0));
    for job in 0..3 {
        schedule.push(&plugin, peer(5), (5, job)).unwrap();
    }
    schedule.ended(0, Some(Duration::ZERO));
    let order: Vec<(u8, usize)> = drain(&mut schedule);
    let honest: Vec<usize> = (0..order.len()).filter(|place| order[*place].0 == 5).collect();
    // Three are left of the round that has begun, then four of the others for each.
    assert_eq!(honest, [7, 12, 17]);
    for number in 1..=5 {
        assert!(order.iter().filter(|(from, _)| *from == number).is_sorted(), "the oldest of {number} first");
    }
}

/// Their queues are short at any moment, and they come back at once.
#[test]
fn q4_peers_that_queue_a_job_whenever_theirs_has_run_take_turns_with_one_that_has_queued_many() {
    let (mut schedule, plugin) = (Schedule::new(3), Arc::<str>::from("plugin"));
    let push = |schedule: &mut Schedule<u8>, number| schedule.push(&plugin, peer(number), number).unwrap();
    (0..100).for_each(|_| push(&mut schedule, 100));
    (0..20).for_each(|number| push(&mut schedule, number));
    let mut ran = 0;
    for _ in 0..21 * 50 {
        let (number, _) = schedule.next(0).unwrap();
        if number == 100 {
            ran += 1;
        } else {
            push(&mut schedule, number);
        }
        schedule.ended(0, Some(Duration::ZERO));
    }
    assert!((49..=51).contains(&ran), "{ran} of 1,050");
}

#[test]
fn remembered_paces_are_bounded() {
    let mut schedule = Schedule::new(3);
    for plugin in 0..=REMEMBERED_PLUGINS {
        schedule.push(&plugin.to_string().into(), None, ()).unwrap();
        schedule.next(0);
        schedule.ended(0, Some(SLOW));
    }
    assert!(schedule.plugins.len() <= REMEMBERED_PLUGINS);
}

/// Pseudo-random numbers (xorshift).
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[test]
fn q4_the_bounds_hold_and_every_job_ends_for_random_jobs() {
    for seed in 1..=50 {
        let mut random = numbers(seed);
        let mut host = Host::new(3 + random(4) as usize);
        for _ in 0..500 {
            let plugin = random(12);
            host.push(&format!("{} ms, {plugin}", plugin * 60));
            host.until(host.now + random(200));
        }
        host.until(host.now + 500 * DEADLINE_MS);
        assert_eq!(host.latencies.values().map(Vec::len).sum::<usize>(), 500, "seed {seed}");
    }
}
