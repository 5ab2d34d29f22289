//! Jobs through real threads.

use std::time::Duration;

use crossbeam_channel::Receiver;
use mortise_core::call::Conclusion;
use mortise_core::contract::GuestFault;
use mortise_core::limits::CallLimits;

use super::*;
use crate::engine::{Engine, EngineOptions, Pooling};
use crate::testing::{check, guest, idle_guest, load, object, view};

fn job(plugin: &Arc<Plugin>, id: u64) -> Job {
    job_of("thing", plugin, id)
}

fn job_of(name: &str, plugin: &Arc<Plugin>, id: u64) -> Job {
    let call = Call {
        id: CallId(id),
        controller: Arc::from("thing/Thing"),
        plugin: Arc::from(name),
        digest: plugin.digest().clone(),
        object: object(),
        view: view(),
        limits: CallLimits { deadline_ms: ENDLESS_MS, ..CallLimits::default() },
        check: check(),
    };
    Job { plugin: plugin.clone(), work: Work::Reconcile(Box::new(call)) }
}

/// How long an endless call runs: far longer than submitting a dozen jobs takes on a machine that does other things too,
/// because the order of the answers is only told when all of them waited.
const ENDLESS_MS: u64 = 300;

fn engine() -> Engine {
    Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap()
}

/// Workers, and what they finish.
fn workers(count: usize) -> (Workers, Receiver<JobDone>) {
    let (sender, results) = crossbeam_channel::unbounded();
    (Workers::start(count, move |done| sender.send(done).unwrap()).unwrap(), results)
}

#[test]
fn every_job_is_answered_once_with_its_id() {
    let plugin = Arc::new(load(&engine(), &idle_guest()).unwrap());
    let (workers, results) = workers(2);
    for id in 0..100 {
        workers.submit(job(&plugin, id)).unwrap();
    }
    let mut ids: Vec<u64> = (0..100)
        .map(|_| {
            let done = results.recv_timeout(Duration::from_secs(30)).unwrap();
            assert!(matches!(done.done.conclusion, Conclusion::Wants(_)), "{:?}", done.done);
            assert_eq!((&*done.controller, done.object.to_string().as_str()), ("thing/Thing", "Thing n/a"));
            done.id.0
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

/// Which of the two plugins each finished call was of, in the order in which they ended.
fn order(results: &Receiver<JobDone>, calls: usize) -> Vec<&'static str> {
    (0..calls)
        .map(|_| match results.recv_timeout(Duration::from_secs(30)).unwrap().done.conclusion {
            Conclusion::Wants(_) => "good",
            Conclusion::Fault(GuestFault::Deadline { limit_ms: ENDLESS_MS }) => "endless",
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Submits eight calls of a plugin that never returns and, while they run and wait, four of one that returns at once.
fn beside_an_endless_plugin(count: usize) -> Vec<&'static str> {
    let engine = engine();
    let endless = Arc::new(load(&engine, &guest("i32.const 8", "(loop $l (br $l)) unreachable")).unwrap());
    let good = Arc::new(load(&engine, &idle_guest()).unwrap());
    let (workers, results) = workers(count);
    for id in 0..8 {
        workers.submit(job_of("endless", &endless, id)).unwrap();
    }
    for id in 100..104 {
        workers.submit(job_of("good", &good, id)).unwrap();
    }
    order(&results, 12)
}

fn ended_before_the_last_good_one(order: &[&str]) -> usize {
    let last = order.iter().rposition(|plugin| *plugin == "good").unwrap();
    order[..last].iter().filter(|plugin| **plugin == "endless").count()
}

#[test]
fn q4_beside_an_endless_plugin_another_waits_for_the_calls_that_run_and_not_for_those_that_wait() {
    let order = beside_an_endless_plugin(2);
    // Two endless calls run when the good ones come. The first worker that is free takes all of those, unless the machine
    // stalls for longer than a deadline; six endless calls that waited before them end later.
    assert!(ended_before_the_last_good_one(&order) <= 3, "{order:?}");
}

#[test]
fn q4_a_single_worker_serves_plugins_in_turn() {
    let order = beside_an_endless_plugin(1);
    assert_eq!(order[..8], ["endless", "good"].repeat(4), "{order:?}");
}

#[test]
fn q4_a_call_waits_for_no_worker_while_another_is_idle() {
    let engine = engine();
    let endless = Arc::new(load(&engine, &guest("i32.const 8", "(loop $l (br $l)) unreachable")).unwrap());
    let good = Arc::new(load(&engine, &idle_guest()).unwrap());
    let (workers, results) = workers(2);
    // Whatever the plugin's name: none of them is bound to the worker that is occupied.
    for (id, name) in (0..).zip(["a", "b", "c", "d", "e", "f", "g", "h"]) {
        workers.submit(job_of("endless", &endless, id)).unwrap();
        workers.submit(job_of(name, &good, 100 + id)).unwrap();
        assert_eq!(order(&results, 2), ["good", "endless"], "{name}");
    }
}

#[test]
fn a_full_queue_gives_the_job_back() {
    let engine = engine();
    let plugin = Arc::new(load(&engine, &idle_guest()).unwrap());
    // Nobody takes from it.
    let queue = Queue::new(1);
    for id in 0..QUEUE_LENGTH as u64 {
        queue.push(job(&plugin, id)).unwrap();
    }
    let full = queue.push(job(&plugin, 7_777)).unwrap_err();
    assert!(full.to_string().contains("1024 calls wait"), "{full}");
    assert!(matches!(&full.0.work, Work::Reconcile(call) if call.id == CallId(7_777)));
}

#[test]
fn dropping_the_workers_finishes_what_was_submitted() {
    let plugin = Arc::new(load(&engine(), &idle_guest()).unwrap());
    let (workers, results) = workers(2);
    for id in 0..20 {
        workers.submit(job(&plugin, id)).unwrap();
    }
    drop(workers);
    assert_eq!(results.try_iter().count(), 20);
}

#[test]
fn a_panic_of_the_host_ends_the_call_and_not_the_thread() {
    let message = guarded(|| panic!("index out of bounds"), |message| message);
    assert!(message.contains("index out of bounds") && message.contains("the plugin is not at fault"), "{message}");
}
