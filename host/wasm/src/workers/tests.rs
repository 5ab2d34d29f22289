//! Jobs through real threads.

use std::time::Duration;

use mortise_core::contract::Outcome;
use mortise_core::limits::CallLimits;

use super::*;
use crate::engine::{Engine, EngineOptions, Pooling};
use crate::testing::{guest, idle_guest, load, object, view};

fn job(plugin: &Arc<Plugin>, id: u64) -> Job {
    let call = Call {
        id: CallId(id),
        controller: Arc::from("thing/Thing"),
        plugin: Arc::from("thing"),
        digest: plugin.digest().clone(),
        object: object(),
        view: view(),
        limits: CallLimits { deadline_ms: 50, ..CallLimits::default() },
    };
    Job { plugin: plugin.clone(), call: Box::new(call) }
}

fn engine() -> Engine {
    Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap()
}

/// Two workers, and what they finish.
fn workers() -> (Workers, Receiver<JobDone>) {
    let (sender, results) = crossbeam_channel::unbounded();
    (Workers::start(2, move |done| sender.send(done).unwrap()).unwrap(), results)
}

#[test]
fn every_job_is_answered_once_with_its_id() {
    let plugin = Arc::new(load(&engine(), &idle_guest()).unwrap());
    let (workers, results) = workers();
    for id in 0..100 {
        workers.submit(job(&plugin, id)).unwrap();
    }
    let mut ids: Vec<u64> = (0..100)
        .map(|_| {
            let done = results.recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(done.done.result, CallResult::Done(Outcome::default()));
            assert_eq!((&*done.controller, done.object.to_string().as_str()), ("thing/Thing", "Thing n/a"));
            done.id.0
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

#[test]
fn q4_an_endless_plugin_does_not_keep_others_from_running() {
    let engine = engine();
    let endless = Arc::new(load(&engine, &guest("i32.const 8", "(loop $l (br $l)) unreachable")).unwrap());
    let idle = Arc::new(load(&engine, &idle_guest()).unwrap());
    let (workers, results) = workers();
    for id in 0..4 {
        workers.submit(job(&endless, id)).unwrap();
        workers.submit(job(&idle, 100 + id)).unwrap();
    }
    let mut good = 0;
    for _ in 0..8 {
        let done = results.recv_timeout(Duration::from_secs(30)).unwrap();
        match done.done.result {
            CallResult::Done(_) => good += 1,
            CallResult::Fault(fault) => assert_eq!(fault, GuestFault::Deadline { limit_ms: 50 }),
            CallResult::Failed(failure) => panic!("{failure:?}"),
        }
    }
    assert_eq!(good, 4);
}

#[test]
fn dropping_the_workers_finishes_what_was_submitted() {
    let plugin = Arc::new(load(&engine(), &idle_guest()).unwrap());
    let (workers, results) = workers();
    for id in 0..20 {
        workers.submit(job(&plugin, id)).unwrap();
    }
    drop(workers);
    assert_eq!(results.try_iter().count(), 20);
}

#[test]
fn a_panic_of_the_host_ends_the_call_and_not_the_thread() {
    let report = guarded(|| panic!("index out of bounds"));
    let CallResult::Fault(fault) = report.result else { panic!("{:?}", report.result) };
    let message = fault.message();
    assert!(message.contains("index out of bounds") && message.contains("error of mortise"), "{message}");
}
