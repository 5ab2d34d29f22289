//! What each plugin may write in a minute: over it, its keys wait, its Plugin object says so, and nothing else waits.

use super::*;

/// The children of a plugin that are there.
fn children(host: &Host, number: usize) -> usize {
    let owner = &*kind_of(number).kind;
    host.objects.values().filter(|object| object["metadata"]["ownerReferences"][0]["kind"] == owner).count()
}

fn ready_reason(host: &Host, number: usize) -> Value {
    let conditions = &host.objects[&plugin_object(&plugin_name(number))]["status"]["conditions"];
    let ready = conditions.as_array().unwrap().iter().find(|condition| condition["type"] == "Ready").unwrap();
    ready["reason"].clone()
}

/// Every create that is under way succeeds, and those that it makes room for, while the time stands still.
fn settle(host: &mut Host) {
    while !host.creates.is_empty() {
        host.end_creates();
    }
}

#[test]
fn q4_a_plugin_that_is_over_its_budget_is_slowed_and_shown_and_delays_no_other() {
    let mut host = Host::started_as(Config {
        call_slots: 8,
        write_budget: WriteBudget { writes_per_minute: 1_000, creates_per_minute: 60 },
        ..config()
    });
    host.offer(0);
    host.offer(1);
    host.create_objects(0, 100);
    settle(&mut host);
    // What had begun when the sixtieth went out goes out too, and that is paid for.
    let begun = children(&host, 0);
    assert!((60..100).contains(&begun), "{begun} of 100 children");
    assert_eq!(ready_reason(&host, 0), "Throttled");
    let throttled = |seen: &&Observation| matches!(seen, Observation::Throttled { .. });
    assert_eq!(host.observed.iter().filter(throttled).count(), 1, "told once");
    host.create_objects(1, 10);
    settle(&mut host);
    assert_eq!((children(&host, 1), ready_reason(&host, 1)), (10, json!("Serving")), "another plugin does not wait");
    // One a second from here on, and nothing is lost.
    for _ in 0..110 {
        host.pass(1_000);
        settle(&mut host);
    }
    assert_eq!(children(&host, 0), 100);
    host.pass(120_000);
    assert_eq!(ready_reason(&host, 0), "Serving", "and that it is over has passed");
}
