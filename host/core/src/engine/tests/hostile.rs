//! One object or one API server that misbehaves: what fails again and again delays nobody else, what is postponed does not
//! come back all at once, and an object that no parser can hold is reconciled by its text.

use super::*;
use crate::limits::WRITE_TIMEOUT_MS;

/// An hour, in which a key that always fails may try some times.
const HOUR_MS: u64 = 3_600_000;

/// Ends the creates in flight: those whose owner has this name fail, the others succeed. How many failed.
fn end_creates_except(host: &mut Host, owner: &str, class: WriteErrorClass) -> usize {
    let mut failures = 0;
    for (id, plugin) in std::mem::take(&mut host.creates) {
        if host.bodies[&id].1["metadata"]["ownerReferences"][0]["name"] == owner {
            failures += 1;
            host.bodies.remove(&id);
            host.step(Event::Wrote(id, failed(class)));
        } else {
            let others = std::mem::replace(&mut host.creates, vec![(id, plugin)]);
            host.end_creates();
            host.creates.extend(others);
        }
    }
    failures
}

/// The API server has none of the objects that are read live.
fn end_live_reads(host: &mut Host) {
    for target in std::mem::take(&mut host.live_reads) {
        host.step(Event::LiveRead(target.into(), Ok(None)));
    }
}

fn children(host: &Host) -> usize {
    host.objects.values().filter(|object| object["kind"] == "ConfigMap").count()
}

#[test]
fn f10_one_object_whose_writes_always_fail_delays_no_other_and_is_tried_less_and_less() {
    // A 500 may have been carried out; a 422 was not.
    for (class, most) in [(WriteErrorClass::Unknown, HOUR_MS / 2_000 + 20), (WriteErrorClass::Invalid, 30)] {
        let mut host = Host::serving(1);
        host.create_objects(0, 20);
        // With one slot for calls and none shared, the nineteen others are behind the first.
        let mut failures = 0;
        for _ in 0..40 {
            failures += end_creates_except(&mut host, "object-0", class);
            end_live_reads(&mut host);
        }
        assert_eq!(children(&host), 19, "{class:?}: no time has passed");
        let end_ms = host.now_ms + HOUR_MS;
        while host.now_ms < end_ms {
            host.pass(500);
            failures += end_creates_except(&mut host, "object-0", class);
            end_live_reads(&mut host);
        }
        assert!((5..=usize::try_from(most).unwrap()).contains(&failures), "{class:?}: {failures} tries in an hour");
        assert_eq!(children(&host), 19);
    }
}

#[test]
fn p17_f7_writes_that_the_api_server_postponed_come_back_no_sooner_and_not_at_the_same_time() {
    const RETRY_AFTER_MS: u64 = 10_000;
    let mut host = Host::started_as(Config { call_slots: 64, ..config() });
    host.offer(0);
    host.create_objects(0, 40);
    let mut refused = 0;
    while !host.creates.is_empty() {
        refused += host.creates.len();
        let class = WriteErrorClass::TooManyRequests { retry_after_ms: RETRY_AFTER_MS };
        host.fail_creates(class, |_| true);
    }
    assert_eq!(refused, 40, "no object's write was repeated");
    host.pass(RETRY_AFTER_MS - 1);
    assert_eq!(host.creates.len(), 0);
    let mut sent = Vec::new();
    for _ in 0..RETRY_AFTER_MS / 10 + 10 {
        host.pass(1);
        sent.push(host.creates.len());
        host.end_creates();
    }
    let most = sent.iter().max().copied().unwrap_or_default();
    assert_eq!((sent.iter().sum::<usize>(), children(&host)), (40, 40));
    assert!(most <= 5, "{most} of 40 writes in one millisecond");
}

#[test]
fn h15_an_object_that_is_nested_beyond_every_parser_is_reconciled_by_its_text() {
    const DEPTH: usize = 50_000;
    let mut host = Host::serving(1);
    let target = object_ref(0);
    let shallow = json!({
        "apiVersion": &*target.kind.api_version, "kind": &*target.kind.kind, "spec": "DEEP",
        "metadata": {"name": &*target.name.name, "namespace": "default", "uid": "u-1", "resourceVersion": "100"},
    });
    let spec = ["[".repeat(DEPTH), "]".repeat(DEPTH)].concat();
    let text = shallow.to_string().replace("\"DEEP\"", &spec);
    let object = Object::decode(text.as_bytes(), &mut Interner::default()).unwrap();
    host.version = 100;
    host.objects.insert(target.clone(), shallow);
    host.step(Event::Watch(target.kind.into(), WatchEvent::Applied(Box::new(object))));
    host.end_creates();
    host.pass(WRITE_TIMEOUT_MS);
    assert_eq!((host.calls > 0, children(&host)), (true, 1));
}

#[test]
fn q4_a_source_that_changes_every_second_costs_twenty_writes_of_its_plugin_object_a_minute() {
    let mut host = Host::serving(1);
    let shown = |host: &Host| host.objects[&plugin_object(&plugin_name(0))].clone();
    let (mut writes, mut last) = (0, shown(&host));
    for second in 0..180 {
        host.offer_component(0, component(0, 2 + second % 2));
        host.pass(1_000);
        let now = shown(&host);
        writes += usize::from(now["metadata"]["resourceVersion"] != last["metadata"]["resourceVersion"]);
        last = now;
    }
    assert!((60..=80).contains(&writes), "{writes} in three minutes: a minute's burst, and twenty in each");
    host.pass(60_000);
    let serving = shown(&host)["status"]["digest"].clone();
    assert_eq!(serving, json!(&*component(0, 3).0), "what is shown in the end is so");
}
