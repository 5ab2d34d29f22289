//! The leader election under faults: several hosts, one Lease on a model API server, and a seed. Hosts die, are stopped and go
//! on, give the lead back and come anew; requests are late, their answers are lost, and they land after their sender has given
//! them up. What must hold at each moment: whatever write a host sends, none lands while another host may write.
//!
//! It runs `core::lease` alone. What a host does with its claim the driver's own tests tell, and the runs beside this one.

use std::collections::BTreeMap;

use mortise_core::lease::{Act, Claim, Election, LEASE_DURATION_MS, Lease, RETRY_MS, Unwritten};
use mortise_core::limits::WRITE_TIMEOUT_MS;
use mortise_core::time::Now;
use serde_json::{Value, json};

use super::random::Random;

/// How soon a host gives a request about the Lease up.
const REQUEST_MS: u64 = 5_000;
/// Longest that a Lease may have no holder who may write when nothing is wrong: one that died had it for fifteen seconds after
/// it was seen by the others, who look every two seconds and up to a fifth more, and may have lost a request just before. The
/// requests that are answered on the way, four at most, take their time too.
const TAKEN_OVER_MS: u64 = LEASE_DURATION_MS + 2 * (RETRY_MS + RETRY_MS / 5) + REQUEST_MS + 4 * (ANSWER_MS + TICK_MS);
/// How long an answer takes when nothing is wrong.
const ANSWER_MS: u64 = 20;

/// How finely time is looked at. Nothing that matters here is shorter.
const TICK_MS: u64 = 10;
/// How long it takes, on average, until something goes wrong again.
const ACCIDENT_MS: u64 = 4_000;

/// What a host waits for.
#[derive(Clone, Debug)]
enum Waits {
    Until(u64),
    Read { answer_ms: u64, answer: Result<Option<Lease>, ()> },
    Written { sent_ms: u64, answer_ms: u64, answer: Result<Lease, Unwritten> },
}

#[derive(Debug)]
struct Host {
    election: Election,
    /// What it knows of the time is the clock of its own machine.
    clock_ahead_ms: u64,
    waits: Waits,
    /// It does nothing before then: it is stopped.
    stopped_until_ms: u64,
}

/// A write of the Lease on its way.
#[derive(Clone, Debug)]
struct Landing {
    lease: Value,
    creates: bool,
}

/// One run.
#[derive(Debug)]
pub struct Contest {
    random: Random,
    now_ms: u64,
    lease: Option<Value>,
    version: u64,
    hosts: BTreeMap<u64, Host>,
    started: u64,
    landings: BTreeMap<(u64, u64), Landing>,
    sent: u64,
    /// The last moment at which a write of each host may land.
    writes_until_ms: BTreeMap<u64, u64>,
    /// When a host could write last.
    led_ms: u64,
    /// Whether anything goes wrong.
    pub faults: bool,
    /// A mistake, to show that mistakes are found: claims count from when the answer came.
    pub counts_from_answer: bool,
    /// How often another host came to lead.
    pub changes: u64,
    leader: Option<u64>,
}

impl Contest {
    /// So many hosts that have just begun.
    pub fn new(seed: u64, hosts: usize) -> Self {
        let mut contest = Self {
            random: Random::new(seed),
            now_ms: 1_000_000,
            lease: None,
            version: 0,
            hosts: BTreeMap::new(),
            started: 0,
            landings: BTreeMap::new(),
            sent: 0,
            writes_until_ms: BTreeMap::new(),
            led_ms: 1_000_000,
            faults: true,
            counts_from_answer: false,
            changes: 0,
            leader: None,
        };
        for _ in 0..hosts {
            contest.start();
        }
        contest
    }

    fn start(&mut self) {
        self.started += 1;
        let election = Election::new("mortise-system", "mortise", &format!("host-{}", self.started));
        let clock_ahead_ms = self.random.below(1_000_000_000);
        let waits = Waits::Until(self.now_ms + clock_ahead_ms);
        self.hosts.insert(self.started, Host { election, clock_ahead_ms, waits, stopped_until_ms: 0 });
    }

    /// Lets time pass, and says what went wrong.
    pub fn run(&mut self, duration_ms: u64) -> Result<(), String> {
        let end_ms = self.now_ms + duration_ms;
        while self.now_ms < end_ms {
            self.now_ms += TICK_MS;
            if self.faults && self.random.below(ACCIDENT_MS / TICK_MS) == 0 {
                self.accident();
            }
            while let Some(entry) = self.landings.first_entry().filter(|entry| entry.key().0 <= self.now_ms) {
                let landing = entry.remove();
                let _ = self.land(&landing);
            }
            let numbers: Vec<u64> = self.hosts.keys().copied().collect();
            for number in numbers {
                self.turn(number);
                self.write(number)?;
            }
            if !self.faults && self.now_ms - self.led_ms > TAKEN_OVER_MS {
                return Err(format!("nobody could write from {} to {}", self.led_ms, self.now_ms));
            }
        }
        Ok(())
    }

    /// From now on nothing goes wrong any more, whoever is stopped goes on, and no write lands that was given up: a renewal by a
    /// host that has died would be another fifteen seconds of waiting for it.
    pub fn calm(&mut self) {
        self.faults = false;
        self.landings.clear();
        self.led_ms = self.now_ms;
        for host in self.hosts.values_mut() {
            host.stopped_until_ms = 0;
        }
    }

    fn accident(&mut self) {
        let numbers: Vec<u64> = self.hosts.keys().copied().collect();
        // The leader is the one whose accidents matter.
        let number = match self.leader.filter(|number| self.hosts.contains_key(number)) {
            Some(leader) if self.random.chance(600) => leader,
            _ => self.random.pick(&numbers).expect("there are always hosts"),
        };
        match self.random.below(4) {
            0 => {
                self.hosts.remove(&number);
                self.start();
            }
            1 => self.release(number),
            _ => {
                let stopped_ms = self.random.between(1, 60_000);
                if let Some(host) = self.hosts.get_mut(&number) {
                    host.stopped_until_ms = self.now_ms + stopped_ms;
                }
            }
        }
    }

    /// A host is told to end. What it has begun to write has ended before it gives the lead back.
    fn release(&mut self, number: u64) {
        if self.writes_until_ms.get(&number).is_some_and(|until_ms| *until_ms > self.now_ms) {
            return;
        }
        let Some(mut host) = self.hosts.remove(&number) else { return };
        let now = Now { mono_ms: self.now_ms + host.clock_ahead_ms, unix_ms: self.now_ms };
        if let Some(lease) = host.election.release(now) {
            self.send(Landing { lease, creates: false });
        }
        self.start();
    }

    /// A host does what it has to, if it is not stopped and has heard what it waited for.
    fn turn(&mut self, number: u64) {
        let Some(mut host) = self.hosts.remove(&number) else { return };
        if host.stopped_until_ms <= self.now_ms {
            let clock_ms = self.now_ms + host.clock_ahead_ms;
            let is_due = match &host.waits {
                Waits::Until(due_ms) => *due_ms <= clock_ms,
                Waits::Read { answer_ms, .. } | Waits::Written { answer_ms, .. } => *answer_ms <= self.now_ms,
            };
            if is_due {
                let random = self.random.next();
                match std::mem::replace(&mut host.waits, Waits::Until(0)) {
                    Waits::Until(_) => {}
                    Waits::Read { answer, .. } => host.election.on_read(clock_ms, random, answer),
                    Waits::Written { sent_ms, answer, .. } => {
                        let sent_ms = if self.counts_from_answer { clock_ms } else { sent_ms };
                        host.election.on_written(sent_ms, clock_ms, random, answer);
                    }
                }
                let act = host.election.next(Now { mono_ms: clock_ms, unix_ms: self.now_ms });
                host.waits = self.begin(act, clock_ms);
            }
        }
        self.hosts.insert(number, host);
    }

    fn begin(&mut self, act: Act, clock_ms: u64) -> Waits {
        let (lease, creates) = match act {
            Act::WaitUntil(due_ms) => return Waits::Until(due_ms),
            Act::Read => {
                let (answer_ms, lost) = self.answer();
                let read = self.lease.as_ref().map(|lease| Lease::parse(lease.to_string().as_bytes()).unwrap());
                return Waits::Read { answer_ms, answer: if lost { Err(()) } else { Ok(read) } };
            }
            Act::Create(lease) => (lease, true),
            Act::Replace(lease) => (lease, false),
        };
        let landing = Landing { lease, creates };
        let (answer_ms, lost) = self.answer();
        let answer = if lost {
            // It may have landed, or may yet, when its sender has long gone on.
            self.send(landing);
            Err(Unwritten::Unknown)
        } else {
            self.land(&landing)
        };
        Waits::Written { sent_ms: clock_ms, answer_ms, answer }
    }

    /// When a request is answered, and whether its answer is lost.
    fn answer(&mut self) -> (u64, bool) {
        match self.random.below(100) {
            0..4 if self.faults => (self.now_ms + REQUEST_MS, true),
            4..10 if self.faults => (self.now_ms + self.random.between(100, REQUEST_MS), false),
            _ => (self.now_ms + self.random.between(1, ANSWER_MS), false),
        }
    }

    /// A write of which its sender will not hear lands at some time, or never.
    fn send(&mut self, landing: Landing) {
        self.sent += 1;
        if self.random.chance(700) {
            let delay_ms = self.random.between(1, 20_000);
            self.landings.insert((self.now_ms + delay_ms, self.sent), landing);
        }
    }

    fn land(&mut self, landing: &Landing) -> Result<Lease, Unwritten> {
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let fits = match &self.lease {
            None => landing.creates,
            Some(live) => !landing.creates && version(live) == version(&landing.lease),
        };
        if !fits {
            return Err(Unwritten::Refused);
        }
        self.version += 1;
        let mut lease = landing.lease.clone();
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let kept = Lease::parse(lease.to_string().as_bytes()).expect("a Lease that a host has written");
        self.lease = Some(lease);
        Ok(kept)
    }

    /// A host that may write does, as late as it may; the write lands as late as it can.
    fn write(&mut self, number: u64) -> Result<(), String> {
        let Some(host) = self.hosts.get(&number) else { return Ok(()) };
        let claim = Claim::of(host.election.claim_until_ms());
        if host.stopped_until_ms > self.now_ms || !claim.allows_writes(self.now_ms + host.clock_ahead_ms) {
            return Ok(());
        }
        let mut others = self.writes_until_ms.iter().filter(|(other, _)| **other != number);
        if let Some((other, until_ms)) = others.rfind(|(_, until_ms)| **until_ms > self.now_ms) {
            return Err(format!(
                "host {number} writes at {}, and a write of host {other} may land until {until_ms}",
                self.now_ms
            ));
        }
        self.writes_until_ms.insert(number, self.now_ms + WRITE_TIMEOUT_MS);
        self.led_ms = self.now_ms;
        if self.leader.replace(number) != Some(number) {
            self.changes += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds of an ordinary test run; `MORTISE_SEEDS` asks for another number.
    const SEEDS: u64 = 40;
    /// How long the faults of one run last, in simulated time.
    const CHAOS_MS: u64 = 300_000;

    #[test]
    fn x7_no_write_of_a_host_lands_while_another_may_write_and_somebody_leads_when_all_is_well() {
        let seeds = std::env::var("MORTISE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
        let mut changes = 0;
        for seed in 1..=seeds {
            let mut contest = Contest::new(seed, 3);
            let ran = contest.run(CHAOS_MS).and_then(|()| {
                contest.calm();
                contest.run(60_000)
            });
            ran.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
            changes += contest.changes;
        }
        println!("{seeds} seeds, {changes} times another host came to lead");
        assert!(changes >= 3 * seeds, "the lead changed {changes} times only, which shows little");
    }

    #[test]
    fn x7_a_host_that_counts_its_claim_from_the_answer_is_found() {
        let found = (1..=SEEDS).find_map(|seed| {
            let mut contest = Contest::new(seed, 3);
            contest.counts_from_answer = true;
            contest.run(CHAOS_MS).err().map(|violation| (seed, violation))
        });
        let (seed, violation) = found.expect("the mistake was not found");
        println!("found by seed {seed}: {violation}");
    }

    #[test]
    fn x7_hosts_that_nothing_befalls_keep_their_leader() {
        let mut contest = Contest::new(1, 3);
        contest.calm();
        contest.run(600_000).unwrap();
        assert_eq!(contest.changes, 1);
    }
}
