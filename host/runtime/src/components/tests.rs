//! Real compile threads with a fake compiler, whose compilations the tests end.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Condvar, Mutex, mpsc};
use std::time::Duration;

use mortise_core::object::Name;

use super::*;
use crate::inputs::{Arrivals, queue};
use crate::supervise::{Failures, supervisor};
use crate::testing::DEADLINE;

/// An origin that has lost its component. Of tenants: each ConfigMap whose name begins so, lost or not to be read.
const GONE: &str = "gone";
/// An origin that cannot be read at the first try.
const FAR: &str = "far";
/// A component that the machine cannot compile at the first two tries.
const UNAVAILABLE: &str = "unavailable";

struct Bench {
    components: Components,
    /// Compilations that have begun.
    begun: Receiver<String>,
    /// Digests of which one compilation may end; None: all.
    may_end: Arc<(Mutex<Option<BTreeSet<String>>>, Condvar)>,
    loaded: Arrivals,
    _failures: Failures,
}

fn digest(name: &str) -> Digest {
    Digest(name.into())
}

fn file(path: &str) -> Origin {
    Origin::File(path.into())
}

fn tenants(namespace: &str, name: &str) -> Origin {
    Origin::Tenant(Name::new(namespace, name))
}

impl Bench {
    fn new() -> Self {
        let (begin, begun) = channel();
        let (begin, tries) = (Mutex::new(begin), Mutex::new(0));
        let may_end = Arc::new((Mutex::new(Some(BTreeSet::new())), Condvar::new()));
        let ends = Arc::clone(&may_end);
        let load = move |job: &Job| {
            // An error means that the test has ended.
            let _ = begin.lock().unwrap().send(job.digest.to_string());
            let (ends, changed) = &*ends;
            let must_wait = |ends: &mut Option<BTreeSet<String>>| match ends {
                Some(ends) => !ends.remove(&*job.digest.0),
                None => false,
            };
            drop(changed.wait_while(ends.lock().unwrap(), must_wait).unwrap());
            let mut tries = tries.lock().unwrap();
            *tries += usize::from(job.origin == file(FAR) || job.origin == file(UNAVAILABLE));
            let is_gone = match &job.origin {
                Origin::Tenant(name) => name.name.starts_with(GONE),
                origin => *origin == file(GONE),
            };
            match &job.origin {
                origin if is_gone => Err(NotLoaded::Changed(origin.clone())),
                origin if *origin == file(FAR) && *tries == 1 => Err(NotLoaded::Unreachable("no answer".to_owned())),
                origin if *origin == file(UNAVAILABLE) && *tries <= 2 => {
                    Err(NotLoaded::Unavailable("the disk is full".to_owned()))
                }
                // A refusal takes the same way as a loaded plugin.
                _ => Err(Refusal::new("Compiled", job.digest.to_string()).into()),
            }
        };
        let (supervisor, failures) = supervisor();
        let (sender, loaded) = queue();
        let components = Components::start_with(Arc::new(load), &sender, &supervisor).unwrap();
        Self { components, begun, may_end, loaded, _failures: failures }
    }

    /// A source offers a component, and the engine has it compiled at once.
    fn compile(&mut self, name: &str, path: &str) {
        self.components.offered(digest(name), file(path));
        assert!(self.components.compile(&digest(name)).is_none());
    }

    #[track_caller]
    fn begins(&self, name: &str) {
        assert_eq!(self.begun.recv_timeout(DEADLINE).as_deref(), Ok(name));
    }

    #[track_caller]
    fn nothing_begins(&self) {
        let begun = self.begun.recv_timeout(Duration::from_millis(200));
        assert_eq!(begun, Err(mpsc::RecvTimeoutError::Timeout));
    }

    /// Occupies both threads.
    fn keep_both_busy(&mut self) {
        for name in ["busy-1", "busy-2"] {
            self.compile(name, name);
            self.begins(name);
        }
    }

    /// Ends a compilation. True if there is an event for the engine.
    fn end(&mut self, name: &str) -> bool {
        let (ends, changed) = &*self.may_end;
        ends.lock().unwrap().as_mut().expect("the test has not ended").insert(name.to_owned());
        changed.notify_all();
        let Some(Input::Loaded(ended, loaded)) = self.loaded.blocking_recv() else { panic!("not of a compile thread") };
        assert_eq!(ended, digest(name));
        match self.components.loaded(ended, loaded) {
            Some(Event::Compiled(digest, Err(refusal))) => {
                assert_eq!((refusal.reason, refusal.message), ("Compiled", digest.to_string()));
                true
            }
            Some(Event::CompileDelayed(digest, why)) => {
                assert_eq!((&*digest.0, &*why), (name, "the disk is full"));
                false
            }
            Some(event) => panic!("the fake compiler loads nothing: {event:?}"),
            None => false,
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        *self.may_end.0.lock().unwrap() = None;
        self.may_end.1.notify_all();
    }
}

#[test]
fn of_a_plugin_that_is_replaced_a_hundred_times_what_runs_and_the_newest_are_compiled() {
    let mut bench = Bench::new();
    for version in 0..100 {
        let name = format!("v{version}");
        bench.compile(&name, "plugin.wasm");
        if version > 0 {
            bench.components.unload(&digest(&format!("v{}", version - 1)));
        }
        // One for each thread.
        if version < COMPILERS {
            bench.begins(&name);
        }
    }
    assert_eq!([bench.end("v0"), bench.end("v1")], [false, false], "they are unloaded");
    bench.begins("v99");
    assert!(bench.end("v99"));
    bench.nothing_begins();
    assert_eq!(bench.components.known.len(), 1);
}

#[test]
fn a_queued_component_that_is_unloaded_is_not_compiled_until_it_is_queued_again() {
    let mut bench = Bench::new();
    bench.keep_both_busy();
    bench.compile("a", "a");
    bench.compile("b", "b");
    bench.components.unload(&digest("a"));
    bench.end("busy-1");
    bench.begins("b");
    bench.compile("a", "a");
    bench.end("busy-2");
    bench.begins("a");
    assert_eq!([bench.end("a"), bench.end("b")], [true, true]);
    bench.nothing_begins();
}

#[test]
fn a_component_that_is_unloaded_and_offered_again_while_it_compiles_is_compiled_and_reported_once() {
    let mut bench = Bench::new();
    for name in ["a", "busy"] {
        bench.compile(name, name);
        bench.begins(name);
    }
    bench.components.unload(&digest("a"));
    bench.compile("a", "a");
    assert_eq!([bench.end("a"), bench.end("busy")], [true, true]);
    bench.nothing_begins();
}

#[test]
fn a_digest_of_two_plugins_is_compiled_from_the_second_origin_when_the_first_has_lost_it() {
    let mut bench = Bench::new();
    bench.compile("a", GONE);
    bench.begins("a");
    bench.components.offered(digest("a"), file("second.wasm"));
    assert!(!bench.end("a"));
    bench.begins("a");
    assert!(bench.end("a"));
    bench.nothing_begins();
}

#[test]
fn a_lost_component_is_compiled_when_it_is_offered_again_and_not_reported_before() {
    let mut bench = Bench::new();
    bench.compile("a", GONE);
    bench.begins("a");
    assert!(!bench.end("a"));
    bench.nothing_begins();
    bench.components.offered(digest("a"), file("back.wasm"));
    bench.begins("a");
    assert!(bench.end("a"));
}

#[test]
fn an_unreachable_origin_is_read_again_and_no_refusal() {
    let mut bench = Bench::new();
    bench.compile("a", FAR);
    bench.begins("a");
    assert!(!bench.end("a"));
    // On the other thread: the first one pauses.
    bench.begins("a");
    assert!(bench.end("a"));
}

#[test]
fn a_refused_component_may_be_compiled_again() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.compile("a", "a");
        bench.begins("a");
        assert!(bench.end("a"));
    }
}

#[test]
fn a_component_without_an_origin_is_refused() {
    let mut bench = Bench::new();
    let Some(Event::Compiled(_, Err(refusal))) = bench.components.compile(&digest("a")) else { panic!("not refused") };
    assert_eq!(refusal.reason, "ComponentLost");
}

#[test]
fn g11_what_one_tenant_has_lost_or_denies_is_read_where_another_has_it() {
    let mut bench = Bench::new();
    bench.components.offered(digest("shared"), tenants("team-a", GONE));
    bench.components.offered(digest("shared"), tenants("team-b", "there"));
    assert!(bench.components.compile(&digest("shared")).is_none());
    bench.begins("shared");
    assert!(!bench.end("shared"), "the first has it no more");
    bench.begins("shared");
    assert!(bench.end("shared"), "and the other one has it");
}

#[test]
fn g11_a_tenant_that_offers_what_another_waits_for_neither_delays_it_nor_is_read_instead() {
    let mut bench = Bench::new();
    for (name, tenant) in [("first", "team-c"), ("heavy", "team-a"), ("shared", "team-b")] {
        bench.components.offered(digest(name), tenants(tenant, "there"));
        assert!(bench.components.compile(&digest(name)).is_none());
    }
    bench.begins("first");
    // The host may list and watch the ConfigMaps of team-a, and not get them.
    (0..3).for_each(|_| bench.components.offered(digest("shared"), tenants("team-a", GONE)));
    assert!(bench.end("first"));
    bench.begins("heavy");
    bench.components.offered(digest("shared"), tenants("team-a", GONE));
    assert!(bench.end("heavy"));
    bench.begins("shared");
    bench.components.offered(digest("shared"), tenants("team-a", GONE));
    assert!(bench.end("shared"), "team-b's is read");
    bench.nothing_begins();
}

#[test]
fn g11_a_tenant_that_was_first_and_cannot_be_read_is_tried_after_the_others_however_often_it_changes() {
    let mut bench = Bench::new();
    let change = |bench: &mut Bench| {
        for name in ["gone-1", "gone-2"] {
            bench.components.offered(digest("shared"), tenants("team-a", name));
        }
    };
    change(&mut bench);
    assert!(bench.components.compile(&digest("shared")).is_none());
    bench.begins("shared");
    bench.components.offered(digest("shared"), tenants("team-b", "there"));
    change(&mut bench);
    assert!(!bench.end("shared"), "team-a's cannot be read");
    change(&mut bench);
    bench.begins("shared");
    change(&mut bench);
    assert!(bench.end("shared"), "team-b has it");
    bench.nothing_begins();
}

#[test]
fn g11_what_its_only_tenant_has_lost_is_read_at_once_where_the_next_one_offers_it() {
    let mut bench = Bench::new();
    bench.components.offered(digest("shared"), tenants("team-a", GONE));
    assert!(bench.components.compile(&digest("shared")).is_none());
    bench.begins("shared");
    assert!(!bench.end("shared"));
    bench.nothing_begins();
    bench.components.offered(digest("shared"), tenants("team-b", "there"));
    bench.begins("shared");
    assert!(bench.end("shared"), "team-a's is not read again");
}

#[test]
fn g11_what_the_host_offers_too_waits_no_longer_in_the_turn_of_tenants() {
    let mut bench = Bench::new();
    for (name, tenant) in [("first", "team-a"), ("shared", "team-b")] {
        bench.components.offered(digest(name), tenants(tenant, "there"));
        assert!(bench.components.compile(&digest(name)).is_none());
    }
    bench.begins("first");
    bench.nothing_begins();
    bench.components.offered(digest("shared"), file("there"));
    bench.begins("shared");
    bench.components.offered(digest("shared"), tenants("team-a", "there"));
    assert_eq!(*bench.components.known[&digest("shared")].origin(), file("there"), "the host's stays the first");
    assert!(bench.end("shared") && bench.end("first"));
}

#[test]
fn g11_a_tenant_that_renames_its_config_map_a_hundred_times_is_remembered_by_the_newest_and_others_keep_theirs() {
    let mut bench = Bench::new();
    let offer = |bench: &mut Bench, origin| bench.components.offered(digest("shared"), origin);
    offer(&mut bench, tenants("team-b", "only"));
    offer(&mut bench, file("own"));
    (0..100).for_each(|number| offer(&mut bench, tenants("team-a", &number.to_string())));
    let origins = &bench.components.known[&digest("shared")].origins;
    assert_eq!(origins.len(), MAX_PLUGINS + 2);
    assert_eq!(origins[0], tenants("team-a", "84"));
    assert_eq!(origins[MAX_PLUGINS - 1..], [tenants("team-a", "99"), tenants("team-b", "only"), file("own")]);
}

#[test]
fn f32_what_the_machine_cannot_compile_is_tried_again_until_it_can_and_others_are_compiled_meanwhile() {
    let mut bench = Bench::new();
    bench.compile("a", UNAVAILABLE);
    for pause in 0..2 {
        bench.begins("a");
        assert!(!bench.end("a"), "it is delayed");
        let others = format!("other-{pause}");
        bench.compile(&others, "other.wasm");
        bench.begins(&others);
        assert!(bench.end(&others));
    }
    bench.begins("a");
    assert!(bench.end("a"), "it has a result");
}

#[test]
fn a_component_that_waits_for_the_machine_and_is_unloaded_is_not_compiled_again() {
    let mut bench = Bench::new();
    bench.compile("a", UNAVAILABLE);
    bench.begins("a");
    bench.end("a");
    bench.components.unload(&digest("a"));
    assert_eq!(bench.components.jobs.next_due(), None);
}
