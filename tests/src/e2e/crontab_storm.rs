//! CronTabs of every minute, with a host that is killed at random and an independent watcher of their Jobs: every
//! minute has exactly one Job of each.
//!
//! `MORTISE_E2E_CRONTABS` (5) and `MORTISE_E2E_CRON_MINUTES` (1) scale it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::crontab::{minute_now, shown};
use super::world::{World, count_from_env};
use crate::simulation::random::Random;

const CRONTABS: usize = 5;
const MINUTES: usize = 1;
/// Lifetime and downtime of the host. The downtime plus a start is shorter than the deadline.
const LIVES_MS: (u64, u64) = (3_000, 40_000);
const AWAY_MS: u64 = 10_000;
/// Seconds after its tick for which a Job may still be started.
const DEADLINE_S: u64 = 50;
const SCHEDULED_AT: &str = "stable.example.com/scheduled-at";

/// The UIDs of all Jobs so far, by CronTab and tick.
type Seen = BTreeMap<(String, String), BTreeSet<String>>;

fn watch(world: &World) -> (Arc<Mutex<Seen>>, tokio::task::JoinHandle<()>) {
    let seen = Arc::new(Mutex::new(Seen::new()));
    let jobs: Api<Job> = Api::namespaced(world.client.clone(), &world.namespace);
    let into = Arc::clone(&seen);
    let task = world.follow(jobs, move |event| {
        if let watcher::Event::Apply(job) | watcher::Event::InitApply(job) | watcher::Event::Delete(job) = event {
            let owner = job.owner_references().first().map(|owner| owner.name.clone()).unwrap_or_default();
            let tick = job.annotations().get(SCHEDULED_AT).cloned().unwrap_or_default();
            into.lock().unwrap().entry((owner, tick)).or_default().insert(job.uid().unwrap_or_default());
        }
    });
    (seen, task)
}

/// Name and creation time of each CronTab, and the newest tick in its status.
fn crontabs(world: &World) -> Vec<(String, String, String)> {
    let api = world.api("stable.example.com/v1beta1", "CronTab", Some(&world.namespace));
    let list = world.block_on(api.list(&ListParams::default())).unwrap().items;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let row = |tab: &kube::api::DynamicObject| {
        let created = serde_json::to_value(tab.creation_timestamp()).unwrap();
        (tab.name_any(), text(&created), text(&tab.data["status"]["lastScheduleTime"]))
    };
    list.iter().map(row).collect()
}

#[test]
fn every_minute_has_one_job_of_each_however_often_the_host_is_killed() {
    let (count, minutes) =
        (count_from_env("MORTISE_E2E_CRONTABS", CRONTABS), count_from_env("MORTISE_E2E_CRON_MINUTES", MINUTES));
    let mut world = World::with_plugin("crontab-storm", "crontab");
    let (seen, task) = watch(&world);
    for number in 0..count {
        world.apply(&json!({
            "apiVersion": "stable.example.com/v1beta1", "kind": "CronTab",
            "metadata": {"name": format!("tab-{number}"), "namespace": world.namespace},
            "spec": {"cronSpec": "* * * * *", "image": "cron", "startingDeadlineSeconds": DEADLINE_S, "historyLimit": 1},
        }));
    }
    let last = minute_now() + minutes as u64;
    let (mut random, mut kills) = (Random::new(1), 0);
    while minute_now() < last {
        let lives = Instant::now() + Duration::from_millis(random.between(LIVES_MS.0, LIVES_MS.1));
        while Instant::now() < lives && minute_now() < last {
            std::thread::sleep(Duration::from_millis(50));
        }
        world.kill_host();
        kills += 1;
        std::thread::sleep(Duration::from_millis(random.between(0, AWAY_MS)));
        world.start_host();
    }
    let rows = world.until("each has the last minute in its status", || {
        let rows = crontabs(&world);
        rows.iter().all(|(.., newest)| *newest >= shown(last)).then_some(rows)
    });
    world.kill_host();
    task.abort();
    let seen = seen.lock().unwrap();
    let (mut jobs, mut missed, mut doubled) = (0, Vec::new(), Vec::new());
    assert_eq!(rows.len(), count);
    for (name, created, _) in &rows {
        for tick in (last - minutes as u64..=last).map(shown).filter(|tick| tick > created) {
            match seen.get(&(name.clone(), tick.clone())).map_or(0, BTreeSet::len) {
                0 => missed.push(format!("{name} at {tick}")),
                1 => jobs += 1,
                _ => doubled.push(format!("{name} at {tick}")),
            }
        }
    }
    println!(
        "crontabs: {count} for {minutes} minutes, {kills} kills, {jobs} Jobs: {} doubled, {} missed",
        doubled.len(),
        missed.len()
    );
    assert_eq!((doubled, missed), (Vec::new(), Vec::new()));
}
