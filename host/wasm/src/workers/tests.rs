//! Jobs on real threads. Callbacks keep their workers busy, so no order depends on time.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use mortise_core::admission::{AdmissionRequest, Operation, Verdict};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::{Conversion, ConversionRequest};
use mortise_core::webhook::Purpose;
use mortise_core::write::Cause;

use super::*;
use crate::engine::{Engine, EngineOptions, Pooling};
use crate::testing::{NOW_UNIX_MS, OBJECT, check, guest, idle_guest, idle_guest_with, load, object, view};

/// Only a failing test waits this long.
const DEADLINE: Duration = Duration::from_secs(30);

fn plugin() -> Arc<Plugin> {
    plugin_of(&idle_guest())
}

fn plugin_of(wasm: &[u8]) -> Arc<Plugin> {
    let engine = Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap();
    Arc::new(load(&engine, wasm).unwrap())
}

fn job(plugin: &Arc<Plugin>, id: u64) -> Job {
    job_of("thing", plugin, id)
}

fn job_of(name: &str, plugin: &Arc<Plugin>, id: u64) -> Job {
    let object = object();
    let cause = Cause { controller: "thing/Thing".into(), object: object.reference(), digest: plugin.digest().clone() };
    let call = Call {
        id: CallId(id),
        cause,
        plugin: Arc::from(name),
        share: Arc::from(name),
        object,
        view: view(),
        limits: CallLimits::default(),
        check: check(),
    };
    Job { plugin: plugin.clone(), work: Work::Reconcile(Box::new(call)) }
}

fn admission_of(name: &str, plugin: &Arc<Plugin>, respond: impl FnOnce(Completion<Verdict>) + Send + 'static) -> Job {
    let request = AdmissionRequest {
        purpose: Purpose::Validate,
        operation: Operation::Create,
        object: OBJECT.into(),
        old: None,
        now_unix_ms: NOW_UNIX_MS,
        config: "{}".into(),
    };
    let admit = WebhookCall {
        plugin: name.into(),
        from: Ipv4Addr::LOCALHOST.into(),
        begin: Box::new(move || Some(Begun { request: request.clone(), held: Box::new(()) })),
        limits: CallLimits::default(),
        until: Instant::now() + 2 * DEADLINE,
        respond: Box::new(respond),
    };
    Job { plugin: plugin.clone(), work: Work::Admit(Box::new(admit)) }
}

/// Calls from this id on keep their workers busy.
const STUCK: u64 = 10_000;

/// Workers, their results, and the gate: calls from [`STUCK`] on keep their workers busy until it is dropped.
fn workers(count: usize) -> (Workers, Receiver<JobDone>, Sender<()>) {
    let (sender, results) = crossbeam_channel::unbounded();
    let (gate, closed) = crossbeam_channel::bounded::<()>(0);
    let done = move |done: JobDone| {
        let is_stuck = done.id.0 >= STUCK;
        sender.send(done).unwrap();
        if is_stuck {
            // An error means that the gate is open.
            let _ = closed.recv();
        }
    };
    (Workers::start(count, done).unwrap(), results, gate)
}

fn next(results: &Receiver<JobDone>) -> JobDone {
    results.recv_timeout(DEADLINE).expect("a call ends")
}

#[test]
fn every_job_ends_once_with_its_id() {
    let (plugin, (workers, results, _gate)) = (plugin(), workers(2));
    for id in 0..100 {
        workers.submitter().submit(job(&plugin, id)).unwrap();
    }
    let mut ids: Vec<u64> = (0..100)
        .map(|_| {
            let done = next(&results);
            assert!(matches!(done.done.conclusion, Conclusion::Wants(_)), "{:?}", done.done);
            assert_eq!((&*done.cause.controller, done.cause.object.to_string().as_str()), ("thing/Thing", "Thing n/a"));
            done.id.0
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

#[cfg(target_os = "linux")]
#[test]
fn q4_reconciles_get_less_of_a_contended_core_than_what_others_wait_for() {
    use rustix::process::getpriority_process;
    let (sender, nices) = crossbeam_channel::unbounded();
    let nice = move || sender.send(getpriority_process(None).unwrap()).unwrap();
    let done = nice.clone();
    let (plugin, workers) = (plugin(), Workers::start(1, move |_| done()).unwrap());
    workers.submitter().submit(job(&plugin, 1)).unwrap();
    let own = getpriority_process(None).unwrap();
    assert_eq!(nices.recv_timeout(DEADLINE), Ok(NICE.max(own)));
    workers.submitter().submit(admission_of("thing", &plugin, move |_| nice())).unwrap();
    assert_eq!(nices.recv_timeout(DEADLINE), Ok(own), "a review");
}

#[test]
fn q4_a_plugin_whose_calls_do_not_end_delays_no_other_also_where_one_worker_was_requested() {
    let (plugin, (workers, results, gate)) = (plugin(), workers(1));
    for id in STUCK..STUCK + 256 {
        workers.submitter().submit(job_of("stuck", &plugin, id)).unwrap();
    }
    assert!((1..MIN_WORKERS).all(|_| next(&results).id >= CallId(STUCK)));
    for id in 0..100 {
        workers.submitter().submit(job_of("good", &plugin, id)).unwrap();
        assert_eq!(next(&results).id, CallId(id));
    }
    drop(gate);
    for _ in MIN_WORKERS - 1..256 {
        next(&results);
    }
}

#[test]
fn q4_neither_reconciles_nor_admissions_wait_for_the_other() {
    let (plugin, (workers, results, gate)) = (plugin(), workers(1));
    let (sender, responses) = crossbeam_channel::unbounded();
    let (opened, closed) = crossbeam_channel::bounded::<()>(0);
    let reconcile = |name: &str, id: u64| {
        workers.submitter().submit(job_of(name, &plugin, id)).unwrap();
        assert_eq!(next(&results).id, CallId(id));
    };
    let admit = |name: &str, id: u64| {
        let (sender, closed) = (sender.clone(), closed.clone());
        let respond = move |_| {
            sender.send(()).unwrap();
            if id >= STUCK {
                // An error means that the gate is open.
                let _ = closed.recv();
            }
        };
        workers.submitter().submit(admission_of(name, &plugin, respond)).unwrap();
        responses.recv_timeout(DEADLINE).expect("an admission ends");
    };
    // After a quick call each plugin may occupy a worker.
    let names: Vec<String> = (0..MIN_WORKERS).map(|plugin| plugin.to_string()).collect();
    for id in [0, STUCK] {
        names.iter().for_each(|name| reconcile(name, id));
    }
    admit("good", 0);
    drop(gate);
    for id in [0, STUCK] {
        names.iter().for_each(|name| admit(name, id));
    }
    reconcile("good", 0);
    drop(opened);
}

/// Between the times of a quick and a slow call.
const DEADLINE_MS: u64 = 120;
/// The time of a call that is given up once and made again.
const BOTH: Duration = Duration::from_millis(50 + DEADLINE_MS);

#[test]
fn q4_a_reconcile_that_spins_is_given_up_for_others_and_ends_once_with_its_own_deadline() {
    let plugin = plugin_of(&guest("i32.const 8", "(loop $l (br $l)) unreachable"));
    let (workers, results, _gate) = workers(1);
    let mut job = job(&plugin, 1);
    let Work::Reconcile(call) = &mut job.work else { unreachable!("it is a reconcile") };
    call.limits.deadline_ms = DEADLINE_MS;
    workers.submitter().submit(job).unwrap();
    let done = next(&results);
    assert_eq!(done.done.conclusion, Conclusion::Fault(GuestFault::Deadline { limit_ms: DEADLINE_MS }));
    assert!(Duration::from_micros(done.done.elapsed_us) >= BOTH, "{:?}", done.done);
    drop(workers);
    assert_eq!(results.try_iter().count(), 0);
}

/// A component whose conversion has this body, and returns no text at 64.
fn converting(body: &str) -> Arc<Plugin> {
    plugin_of(&idle_guest_with(&format!(
        r#"(core module $more (func (export "more") (param i32 i32 i32 i32) (result i32) {body}))
           (core instance $more (instantiate $more))
           (func $more (param "object" string) (param "to-api-version" string) (result (result string (error string)))
             (canon lift (core func $more "more") (memory $memory) (realloc $realloc)))
           (instance $more (export "convert" (func $more)))
           (export "mortise:plugin/conversion@0.2.0" (instance $more)))"#
    )))
}

/// Converts with this deadline; returns how the call ended, and how often it began.
fn converted(plugin: &Arc<Plugin>, deadline_ms: u64) -> (Completion<Conversion>, usize) {
    let (workers, _results, _gate) = workers(1);
    let (sender, responses) = crossbeam_channel::unbounded();
    let request = ConversionRequest {
        object: OBJECT.into(),
        to_api_version: "example.com/v2".into(),
        now_unix_ms: NOW_UNIX_MS,
        config: "{}".into(),
    };
    let begins = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&begins);
    let convert = WebhookCall {
        plugin: "thing".into(),
        from: Ipv4Addr::LOCALHOST.into(),
        begin: Box::new(move || {
            begun.fetch_add(1, Ordering::SeqCst);
            Some(Begun { request: request.clone(), held: Box::new(Arc::clone(&begun)) })
        }),
        limits: CallLimits { deadline_ms, ..CallLimits::default() },
        until: Instant::now() + 2 * DEADLINE,
        respond: Box::new(move |completion| sender.send(completion).unwrap()),
    };
    let job = Job { plugin: Arc::clone(plugin), work: Work::Convert(Box::new(convert)) };
    workers.submitter().submit(job).unwrap();
    let completion = responses.recv_timeout(DEADLINE).expect("a conversion ends");
    drop(workers);
    assert_eq!(Arc::strong_count(&begins), 1, "nothing is held of a call that has ended");
    (completion, begins.load(Ordering::SeqCst))
}

#[test]
fn q4_a_conversion_that_spins_is_given_up_for_others_and_ends_once_with_its_own_deadline() {
    let (completion, begins) = converted(&converting("(loop $l (br $l)) unreachable"), DEADLINE_MS);
    assert_eq!(completion.result, Conversion::Fault(GuestFault::Deadline { limit_ms: DEADLINE_MS }));
    assert_eq!(begins, 2);
}

#[cfg(target_os = "linux")]
#[test]
fn q4_a_call_that_waits_for_a_core_is_not_given_up() {
    use crate::testing::{busy, contended};

    const MANY: u32 = 200_000_000;
    let of = |loops| converting(&format!("{} i32.const 64", busy(loops)));
    let on = |threads, plugin: &Arc<Plugin>| contended(threads, || converted(plugin, 10_000));
    let stats = on(0, &of(MANY)).0.stats;
    let quick = Duration::from_millis(50);
    // Two fifths of what a quick call may take.
    let loops = f64::from(MANY) * (2 * quick / 5).div_duration_f64(stats.elapsed - stats.waited);
    let (plugin, late) = (of(loops as u32), Instant::now() + DEADLINE);
    loop {
        let (Completion { result, stats, .. }, begins) = on(12, &plugin);
        assert_eq!((result, begins), (Conversion::Object(String::new()), 1), "{stats:?}");
        // Its thread may have had no turn for a while, in which nobody looks at the clocks.
        if stats.elapsed > 3 * quick {
            return;
        }
        assert!(Instant::now() < late, "the core was never contended: {stats:?}");
    }
}

#[test]
fn q4_a_queued_call_that_nobody_waits_for_is_not_made() {
    let (plugin, (workers, _results, _gate)) = (plugin(), workers(1));
    let (sender, responses) = crossbeam_channel::unbounded();
    let mut job = admission_of("thing", &plugin, |_| panic!("it was called"));
    let Work::Admit(call) = &mut job.work else { unreachable!("it is an admission") };
    call.begin = Box::new(|| None);
    workers.submitter().submit(job).unwrap();
    workers.submitter().submit(admission_of("thing", &plugin, move |_| sender.send(()).unwrap())).unwrap();
    responses.recv_timeout(DEADLINE).expect("the next one is called");
}

#[test]
fn a_full_queue_returns_the_job_and_names_the_plugin_and_the_bound() {
    let plugin = plugin();
    // Without workers.
    let queue = Queue::new(1);
    let fits = (0..QUEUE_LENGTH as u64).map(|id| job(&plugin, id));
    let others = [job(&plugin, 7_777), job_of("other", &plugin, 1)];
    let full: Vec<QueueFull> = queue.push(fits.chain(others).collect());
    let [QueueFull(Job { work: Work::Reconcile(call), .. })] = &*full else { panic!("{full:?}") };
    assert_eq!(call.id, CallId(7_777));
    assert_eq!(full[0].to_string(), "1024 calls of thing are queued, which is the maximum");
}

#[test]
fn dropping_the_workers_runs_the_queued_jobs() {
    let (plugin, (workers, results, _gate)) = (plugin(), workers(2));
    for id in 0..20 {
        workers.submitter().submit(job(&plugin, id)).unwrap();
    }
    drop(workers);
    assert_eq!(results.try_iter().count(), 20);
}

#[test]
fn a_panic_of_the_host_ends_the_call_and_not_the_thread() {
    let message = guarded(|| panic!("index out of bounds"), |message| message);
    assert!(message.contains("index out of bounds") && message.contains("the plugin is not at fault"), "{message}");
}
