//! The runs: many seeds with faults, the fewest requests without any, and mutants that have to be found.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::environment::{named, object};
use super::faults::Fault;
use super::guests::{Guest, Program, WAITING, podset_kind};
use super::oracle::Violation;
use super::world::{Mutant, World};

/// Seeds of an ordinary test run; `MORTISE_SEEDS` sets another number.
const SEEDS: u64 = 300;
const CHAOS_MS: u64 = 30_000;
/// Lines of a failing seed's trace; `MORTISE_TRACE` sets another number.
const TRACE_LINES: u64 = 60;
/// Seeds within which every mutant has to be found.
const MUTANT_SEEDS: u64 = 200;

pub fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn run(seed: u64, mutant: Mutant) -> (World, Result<(), Violation>) {
    let mut world = World::new(seed, mutant);
    let result = world.run(CHAOS_MS);
    (world, result)
}

pub fn trace_lines() -> usize {
    usize::try_from(number_from("MORTISE_TRACE").unwrap_or(TRACE_LINES)).unwrap_or(usize::MAX)
}

/// Repeats a failing seed with a trace.
fn trace_of(seed: u64, mutant: Mutant) -> String {
    let mut world = World::new(seed, mutant).traced(trace_lines());
    let violation = world.run(CHAOS_MS).err();
    let lines: Vec<String> = world.trace.into_iter().flatten().collect();
    let violation = violation.map_or_else(|| "it holds when repeated".to_owned(), |violation| violation.to_string());
    format!("seed {seed} breaks a rule (MORTISE_SEED={seed} repeats it)\n{}\n{violation}", lines.join("\n"))
}

#[derive(Default)]
struct Totals {
    steps: u64,
    calls: u64,
    requests: u64,
    faults: BTreeMap<Fault, u64>,
    checks: BTreeMap<&'static str, u64>,
    broken: Option<u64>,
}

impl Totals {
    fn add(&mut self, seed: u64, world: &World, failed: bool) {
        self.steps += world.steps;
        self.calls += world.calls;
        self.requests += world.requests.len() as u64;
        for (fault, count) in &world.faults.injected {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (rule, count) in &world.oracle.checks {
            *self.checks.entry(rule).or_default() += count;
        }
        if failed {
            self.broken = Some(self.broken.map_or(seed, |before| before.min(seed)));
        }
    }
}

/// Runs seeds on every core until one fails.
fn run_seeds(first: u64, count: u64) -> Totals {
    let (next, totals) = (AtomicU64::new(first), Mutex::new(Totals::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || totals.lock().unwrap().broken.is_some() {
                return;
            }
            let (world, result) = run(seed, Mutant::None);
            totals.lock().unwrap().add(seed, &world, result.is_err());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    totals.into_inner().unwrap()
}

#[test]
fn every_rule_holds_under_every_fault_and_the_cluster_converges_afterwards() {
    let (first, count) = match number_from("MORTISE_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number_from("MORTISE_SEEDS").unwrap_or(SEEDS)),
    };
    let totals = run_seeds(first, count);
    if let Some(seed) = totals.broken {
        panic!("{}", trace_of(seed, Mutant::None));
    }
    println!("{count} seeds, {} steps, {} calls, {} requests", totals.steps, totals.calls, totals.requests);
    println!("faults injected: {:?}", totals.faults);
    println!("rules checked: {:#?}", totals.checks);
    // Without checks and faults every rule would hold.
    if count >= SEEDS {
        assert!(totals.faults.len() >= 22, "some faults were never injected: {:?}", totals.faults);
        assert!(totals.checks.len() >= 12, "some rules were never checked: {:?}", totals.checks);
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let fingerprint = || {
        let (world, _) = run(7, Mutant::None);
        (world.steps, world.calls, world.requests, world.cluster.version(), world.now_ms)
    };
    assert_eq!(fingerprint(), fingerprint());
}

/// Finds the first seed that finds a mutant.
#[track_caller]
fn check_caught(mutant: Mutant) {
    let found = (1..=MUTANT_SEEDS).find_map(|seed| run(seed, mutant).1.err().map(|violation| (seed, violation)));
    let Some((seed, violation)) = found else { panic!("{mutant:?} was not found within {MUTANT_SEEDS} seeds") };
    println!("{mutant:?} was found by seed {seed}: {violation}");
}

#[test]
fn r2_a_host_that_does_not_wait_for_its_own_writes_is_found() {
    check_caught(Mutant::NoOwnWrites);
}

#[test]
fn x3_a_host_that_generates_names_is_found() {
    check_caught(Mutant::GeneratedNames);
}

#[test]
fn x3_a_host_that_takes_a_write_of_unknown_result_for_a_failed_one_is_found() {
    check_caught(Mutant::UnknownIsFailed);
}

#[test]
fn x4_a_host_that_deletes_without_a_uid_is_found() {
    check_caught(Mutant::NoUidPrecondition);
}

/// A quiet host with the podset plugin.
fn podset_host() -> World {
    podset_host_of(1)
}

fn podset_host_of(version: u32) -> World {
    let mut world = World::new(1, Mutant::None);
    world.offer(Guest::new(Program::PodSet, version), "{}");
    world.start().unwrap();
    world.rest(60_000).unwrap();
    world
}

fn delete_pod(world: &mut World) {
    let pod = world.cluster.list(&super::cluster::pod()).next().map(super::cluster::reference).unwrap();
    world.cluster.delete(&pod).unwrap();
}

/// The requests that a change causes until the cluster is quiet again.
fn cost(world: &mut World, act: impl FnOnce(&mut World)) -> Vec<String> {
    let before = world.requests.len();
    act(world);
    world.rest(60_000).unwrap();
    world.check_quiet().unwrap();
    assert_eq!(world.refused, Vec::<String>::new(), "the API server has refused something");
    world.requests[before..].to_vec()
}

#[test]
fn x11_without_faults_everything_costs_the_fewest_requests_possible() {
    let mut world = podset_host();
    let set = named(&podset_kind(), "web");
    let created = cost(&mut world, |world| {
        world.cluster.put(object(&podset_kind(), "web", &json!({"replicas": 3}))).unwrap();
    });
    assert_eq!(created.len(), 4, "three Pods and a status: {created:#?}");
    let scaled = cost(&mut world, |world| assert!(world.cluster.edit(&set, &json!({"spec": {"replicas": 4}}))));
    assert_eq!(scaled.len(), 2, "a Pod and a status: {scaled:#?}");
    let shrunk = cost(&mut world, |world| assert!(world.cluster.edit(&set, &json!({"spec": {"replicas": 3}}))));
    assert_eq!(shrunk.len(), 2, "a delete and a status: {shrunk:#?}");
    let healed = cost(&mut world, delete_pod);
    assert_eq!(healed.len(), 3, "a mark, a Pod of another name, and a status: {healed:#?}");
    let healed = cost(&mut world, delete_pod);
    assert_eq!(healed.len(), 2, "a Pod and a status: {healed:#?}");
    let restarted = cost(&mut world, |world| world.crash().unwrap());
    assert_eq!(restarted, Vec::<String>::new());

    let mut waiting = podset_host_of(WAITING);
    waiting.cluster.put(object(&podset_kind(), "web", &json!({"replicas": 3}))).unwrap();
    waiting.rest(60_000).unwrap();
    let healed = cost(&mut waiting, delete_pod);
    assert_eq!(healed.len(), 1, "a Pod of the same name when the first is gone: {healed:#?}");
}

#[test]
fn x9_pods_that_are_deleted_for_minutes_are_replaced_without_an_open_breaker() {
    let mut world = podset_host();
    world.cluster.put(object(&podset_kind(), "web", &json!({"replicas": 3}))).unwrap();
    world.rest(60_000).unwrap();
    world.log = Some(Vec::new());
    for _ in 0..200 {
        delete_pod(&mut world);
        world.rest(1_500).unwrap();
        assert_eq!(world.cluster.list(&super::cluster::pod()).count(), 3);
    }
    let opened: Vec<String> =
        world.log.take().into_iter().flatten().filter(|line| line.starts_with("breaker")).collect();
    assert_eq!(opened, Vec::<String>::new());
}

#[test]
fn x5_a_converged_host_calls_each_object_once_at_a_restart_and_none_while_idle() {
    let mut world = podset_host();
    for name in ["a", "b", "c"] {
        world.cluster.put(object(&podset_kind(), name, &json!({"replicas": 2}))).unwrap();
    }
    world.run_until(120_000).unwrap();
    world.converge().unwrap();
}
