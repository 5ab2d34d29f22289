//! CronTabs of every minute, for days, with a host that dies at random and stays down for a while: the real component,
//! the real engine, a model of everything else. At the end every minute has exactly one Job.
//!
//! `MORTISE_SIM_CRONTABS` and `MORTISE_SIM_HOURS` scale it; 200 for 240 hours are ten million calls, which take a
//! release build half an hour.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Value, json};

use super::cluster::{Life, job};
use super::environment::object;
use super::guests::{Guest, Program, crontab_kind};
use super::tests::number_from;
use super::world::{BEGIN_UNIX_MS, Mutant, World};

const CRONTABS: u64 = 5;
const HOURS: u64 = 4;
const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
/// Longest downtime: shorter than the interval of ticks, so that none is missed.
const AWAY_MS: u64 = 50 * SECOND_MS;
/// Lifetime: longer than the interval of ticks, for the same reason.
const LIVES_MS: (u64, u64) = (65 * SECOND_MS, 40 * MINUTE_MS);
/// Time from a start to the first write, and to the repetition of a lost one.
const TO_ACT_MS: u64 = 20 * SECOND_MS;

/// The minutes of each CronTab that have a Job.
#[derive(Default)]
struct Counts {
    minutes: BTreeMap<String, BTreeMap<u64, u32>>,
}

impl Counts {
    fn add(&mut self, lives: impl IntoIterator<Item = Life>) {
        for life in lives.into_iter().filter(|life| life.target.kind == job()) {
            let (owner, key) = (life.owner.expect("Jobs are children"), life.child_key.expect("children have keys"));
            let minutes = self.minutes.entry(owner.target.name.name.to_string()).or_default();
            match minutes.entry(key.parse().expect("the key is a minute")) {
                Entry::Vacant(free) => drop(free.insert(1)),
                Entry::Occupied(mut taken) => *taken.get_mut() += 1,
            }
        }
    }
}

/// A world with CronTabs and a host that serves them.
fn world(crontabs: u64, spec: &Value) -> World {
    let mut world = World::new(number_from("MORTISE_SEED").unwrap_or(1), Mutant::None);
    world.oracle.is_asleep = true;
    world.offer(Guest::new(Program::CronTab, 1), "{}");
    world.start().unwrap();
    world.run_until(2 * SECOND_MS).unwrap();
    for number in 0..crontabs {
        world.cluster.put(object(&crontab_kind(), &format!("tab-{number}"), spec)).unwrap();
    }
    world
}

#[test]
fn every_minute_of_days_has_one_job_however_often_the_host_dies() {
    let crontabs = number_from("MORTISE_SIM_CRONTABS").unwrap_or(CRONTABS);
    let hours = number_from("MORTISE_SIM_HOURS").unwrap_or(HOURS);
    let mut world = world(crontabs, &json!({"cronSpec": "* * * * *", "image": "cron", "startingDeadlineSeconds": 55}));
    let (end_ms, mut kills, mut counts) = (hours * 60 * MINUTE_MS, 0_u64, Counts::default());
    loop {
        let dies_ms = world.now_ms + world.random.between(LIVES_MS.0, LIVES_MS.1);
        if dies_ms >= end_ms {
            break;
        }
        world.run_until(dies_ms).unwrap();
        world.die();
        kills += 1;
        let away_ms = world.random.between(0, AWAY_MS);
        world.run_until(dies_ms + away_ms).unwrap();
        counts.add(world.cluster.forget());
        world.requests.clear();
        world.start().unwrap();
    }
    world.run_until(end_ms + TO_ACT_MS).unwrap();
    assert_eq!(world.refused, [""; 0]);
    counts.add(std::mem::take(&mut world.cluster.lives).into_values());
    let first = BEGIN_UNIX_MS / MINUTE_MS;
    let (mut missed, mut doubled) = (0, 0);
    for number in 0..crontabs {
        let minutes = &counts.minutes[&format!("tab-{number}")];
        missed += (first + 1..=first + hours * 60).filter(|minute| !minutes.contains_key(minute)).count();
        doubled += minutes.values().filter(|times| **times > 1).count();
    }
    let jobs: usize = counts.minutes.values().map(BTreeMap::len).sum();
    println!(
        "crontabs: {crontabs} for {hours} hours, {kills} kills, {jobs} Jobs, {} calls: {doubled} doubled, {missed} missed",
        world.calls
    );
    assert_eq!((doubled, missed), (0, 0));
    assert_eq!(jobs as u64, crontabs * hours * 60, "and no others");
}
