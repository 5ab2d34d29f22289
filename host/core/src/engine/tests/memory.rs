//! While memory is short, the plugin that keeps most gives up first, and waits first; it is named, and comes up last after a
//! restart (F32).

use super::*;
use crate::memory::{Level, Pressure};

const MIB: u64 = 1 << 20;

/// A host with four calls at a time and two plugins. Plugin 0 keeps the statuses of so many objects, of 128 KiB each.
fn host_that_keeps(objects: usize) -> Host {
    let mut host = Host::started_as(Config { call_slots: 8, ..config() });
    host.offer(0);
    host.offer(1);
    host.status = Some(json!({"text": "x".repeat(128 << 10)}).to_string().into());
    host.create_objects(0, objects);
    end_all(&mut host);
    host.status = None;
    host.create_objects(1, 5);
    end_all(&mut host);
    host
}

fn end_all(host: &mut Host) {
    while !host.creates.is_empty() {
        host.end_creates();
    }
    host.pass(5_000);
}

fn press(host: &mut Host, level: Level, excess_bytes: u64) {
    host.step(Event::MemoryPressure(Pressure { level, excess_bytes }));
}

fn kept(host: &Host, number: usize) -> u64 {
    host.engine.reconciler.kept_of(&plugin_name(number)) as u64
}

/// Another client changes all objects of a plugin. Returns how many calls follow at once.
fn calls_after_change(host: &mut Host, number: usize, objects: usize) -> usize {
    let before = host.calls;
    for object in 0..objects {
        let name = Name::new("default", &format!("object-{object}"));
        let target = ObjectRef { kind: kind_of(number), name };
        host.set_metadata(&target, "generation", json!(host.version));
    }
    host.calls - before
}

#[test]
fn f32_while_memory_is_short_the_share_that_keeps_most_gives_up_outcomes_and_the_others_nothing() {
    let mut host = host_that_keeps(40);
    let before = [kept(&host, 0), kept(&host, 1)];
    assert!(before[0] > 4 * MIB && before[1] > 0, "{before:?}");
    press(&mut host, Level::Short, MIB);
    let given_up = before[0] - kept(&host, 0);
    assert!((MIB..2 * MIB).contains(&given_up), "no more than is asked for: {given_up}");
    press(&mut host, Level::Short, 100 * MIB);
    assert!(kept(&host, 0) < MIB / 4, "{}", kept(&host, 0));
    assert_eq!([host.reason(0, "Ready"), host.reason(1, "Ready")], ["Serving", "Serving"], "nobody waits");
    press(&mut host, Level::Ample, 0);
    let before = host.calls;
    calls_after_change(&mut host, 0, 40);
    end_all(&mut host);
    assert!(host.calls - before >= 40, "each is called again");
    host.pass(60_000);
    assert!(kept(&host, 0) > 0, "and keeps its outcome again");
}

#[test]
fn f32_while_memory_is_scarce_the_plugin_that_keeps_most_waits_and_is_named_and_others_go_on() {
    let mut host = host_that_keeps(40);
    press(&mut host, Level::Scarce, MIB);
    let [status, reason, message] = host.condition(0, "Ready").unwrap();
    assert_eq!([&*status, &*reason], ["True", "MemoryPressure"]);
    assert!(message.contains("took more than any other"), "{message}");
    assert_eq!(host.reason(1, "Ready"), "Serving");
    assert_eq!(host.count_observed(|observation| matches!(observation, Observation::Throttled { .. })), 1);
    assert_eq!(calls_after_change(&mut host, 0, 40), 0, "it waits");
    assert_eq!(calls_after_change(&mut host, 1, 5), 5, "the other does not");
    for _ in 0..100 {
        host.now_ms += 100;
        press(&mut host, Level::Scarce, MIB);
    }
    assert_eq!(calls_after_change(&mut host, 0, 1), 0, "as long as memory is scarce");
    press(&mut host, Level::Ample, 0);
    host.slow_guests = true;
    host.pass(10_000);
    assert_eq!(host.results.len(), 1, "then one object at a time");
    while let Some(done) = host.results.pop() {
        host.step(done);
        // It sends again what it remembers no more.
        host.end_creates();
        assert!(host.results.len() <= 1, "one ends, one begins");
    }
    host.pass(9 * 60_000);
    assert_eq!(host.reason(0, "Ready"), "MemoryPressure");
    host.pass(60_000);
    assert_eq!(host.reason(0, "Ready"), "Serving", "it has behaved for ten minutes");
    calls_after_change(&mut host, 0, 10);
    assert!(host.results.len() > 1, "{}", host.results.len());
}

#[test]
fn f32_a_plugin_that_was_named_is_known_after_another_restart_that_found_it_coming_up() {
    let mut before = host_that_keeps(40);
    press(&mut before, Level::Scarce, MIB);
    for _ in 0..2 {
        let mut host = Host::new(Config { call_slots: 8, ..config() });
        host.version = before.version;
        host.objects = before.objects;
        host.held_compilations = Some(Vec::new());
        host.step(Event::Started);
        host.annotate(0);
        host.offer(0);
        host.step(Event::SourcesListed);
        host.pass(120_000);
        let [status, reason, message] = host.condition(0, "Ready").unwrap();
        assert_eq!([&*status, &*reason], ["False", "MemoryPressure"]);
        assert_eq!(message, "its component is being compiled");
        before = host;
    }
    let compiled = before.held_compilations.take().unwrap().remove(0);
    before.step(compiled);
    before.pass(2_000);
    let [status, reason, message] = before.condition(0, "Ready").unwrap();
    assert_eq!([&*status, &*reason], ["True", "MemoryPressure"]);
    assert!(message.contains("one of its objects is called at a time"), "{message}");
}

#[test]
fn f32_a_plugin_that_keeps_little_is_not_blamed_for_memory_that_something_else_takes() {
    let mut host = host_that_keeps(10);
    assert!(kept(&host, 0) < 4 * MIB);
    press(&mut host, Level::Scarce, 100 * MIB);
    assert_eq!([host.reason(0, "Ready"), host.reason(1, "Ready")], ["Serving", "Serving"]);
    assert!(calls_after_change(&mut host, 0, 10) >= 10);
}

#[test]
fn f32_after_a_restart_the_plugin_that_was_named_comes_up_last_and_is_called_one_object_at_a_time() {
    let mut before = host_that_keeps(40);
    press(&mut before, Level::Scarce, MIB);
    assert_eq!(before.reason(0, "Ready"), "MemoryPressure");

    let mut host = Host::new(Config { call_slots: 8, ..config() });
    host.version = before.version;
    host.objects = before.objects;
    host.held_compilations = Some(Vec::new());
    host.step(Event::Started);
    (0..2).for_each(|number| host.annotate(number));
    (0..2).for_each(|number| host.offer(number));
    host.step(Event::SourcesListed);
    let mut compiled = host.held_compilations.take().unwrap().into_iter();
    host.step(compiled.next().unwrap());
    host.pass(10_000);
    let waits = host.why_unready(0).expect("the other is being compiled");
    assert!(waits.contains("it waits until the other plugins serve"), "{waits}");
    host.step(compiled.next().unwrap());
    assert_eq!(host.why_unready(1), None);
    host.slow_guests = true;
    host.create_objects(0, 10);
    host.pass(2_000);
    assert_eq!((host.why_unready(0), host.reason(0, "Ready")), (None, "MemoryPressure".to_owned()));
    assert_eq!(host.results.len(), 1);
    host.slow_guests = false;
    while let Some(done) = host.results.pop() {
        host.step(done);
    }
    host.pass(11 * 60_000);
    assert_eq!(host.reason(0, "Ready"), "Serving");
}

#[test]
fn f32_a_plugin_that_never_serves_does_not_keep_the_one_that_was_named_from_serving() {
    let mut before = host_that_keeps(40);
    press(&mut before, Level::Scarce, MIB);
    let mut host = Host::started();
    host.version = before.version;
    host.objects = before.objects;
    (0..2).for_each(|number| host.annotate(number));
    host.held_compilations = Some(Vec::new());
    (0..2).for_each(|number| host.offer(number));
    let first = host.held_compilations.take().unwrap().remove(0);
    host.step(first);
    host.pass(59_000);
    assert!(host.why_unready(0).is_some());
    host.pass(2_000);
    assert_eq!(host.why_unready(0), None);
}

#[test]
fn f32_a_component_that_the_machine_cannot_compile_now_is_not_refused_and_its_condition_says_why_it_waits() {
    let mut host = Host::started();
    host.held_compilations = Some(Vec::new());
    host.offer(0);
    host.step(Event::CompileDelayed(component(0, 1), "the disk is full".to_owned()));
    host.pass(2_000);
    let [status, reason, message] = host.condition(0, "Compiled").unwrap();
    assert_eq!([&*status, &*reason], ["Unknown", "CompilerUnavailable"]);
    assert!(message.contains("the disk is full; the component is not at fault"), "{message}");
    assert_eq!(host.count_observed(|observation| matches!(observation, Observation::Refused { .. })), 0);
    let compiled = host.held_compilations.take().unwrap().remove(0);
    host.step(compiled);
    assert_eq!((host.why_unready(0), host.reason(0, "Compiled")), (None, "Compiled".to_owned()));
}
