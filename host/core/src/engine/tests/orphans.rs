//! Plugin objects whose plugins are gone: one request each, and patience with each that fails.

use super::*;

/// As many as a directory loses when its volume is unmounted.
const MANY: usize = 100;

fn asked(host: &Host) -> Vec<Arc<str>> {
    host.deletes.iter().map(|(_, target)| Arc::clone(&target.name.name)).collect()
}

#[test]
fn plugins_that_go_at_once_cost_one_delete_each_whatever_happens_to_their_objects_meanwhile() {
    let mut host = Host::serving(MANY);
    (0..MANY).for_each(|number| host.withdraw(number));
    let all: Vec<Arc<str>> = (0..MANY).map(plugin_name).collect();
    assert_eq!(asked(&host), all);
    // While a delete is under way, and until the watch has shown it, an event of its object is no reason for another.
    (0..MANY).for_each(|number| host.touch(number));
    assert_eq!(asked(&host), all);
    (0..MANY).for_each(|number| host.end_delete(number, Ok(())));
    (0..MANY).for_each(|number| host.touch(number));
    (0..MANY).for_each(|number| host.show_gone(number));
    host.pass(3_600_000);
    assert_eq!(asked(&host), Vec::<Arc<str>>::new());
}

#[test]
fn a_delete_that_failed_is_tried_again_later_and_later_and_concerns_no_other_object() {
    let mut host = Host::serving(3);
    (0..3).for_each(|number| host.withdraw(number));
    host.end_delete(0, Ok(()));
    host.end_delete(1, Err(WriteErrorClass::Invalid));
    let mut waited_ms = Vec::new();
    for _ in 0..12 {
        // What happens to the object meanwhile does not cut its patience short, nor does a source that lists anew.
        host.touch(1);
        host.step(Event::SourcesListed);
        assert_eq!(asked(&host), [plugin_name(2)]);
        let failed_ms = host.now_ms;
        while !asked(&host).contains(&plugin_name(1)) {
            host.pass(50);
        }
        waited_ms.push(host.now_ms - failed_ms);
        host.end_delete(1, Err(WriteErrorClass::Invalid));
    }
    assert!(waited_ms.is_sorted() && waited_ms[0] >= 100 && waited_ms[11] >= 5_000, "{waited_ms:?}");
    let failures = host.observed.iter().filter(|observed| matches!(observed, Observation::WriteFailed { .. })).count();
    assert_eq!(failures, 13, "each is told");
}

#[test]
fn a_plugin_object_that_another_has_replaced_is_deleted_as_what_it_is_now() {
    let mut host = Host::serving(1);
    host.withdraw(0);
    host.end_delete(0, Ok(()));
    host.replace(0, "uid-other");
    assert_eq!(asked(&host), [plugin_name(0)]);
}

#[test]
fn a_plugin_that_comes_back_keeps_its_object_or_gets_a_new_one() {
    let mut host = Host::serving(1);
    host.withdraw(0);
    host.offer(0);
    host.end_delete(0, Ok(()));
    host.show_gone(0);
    host.pass(60_000);
    assert!(host.objects.contains_key(&plugin_object(&plugin_name(0))), "its object is there again");
    assert_eq!(asked(&host), Vec::<Arc<str>>::new());
    host.withdraw(0);
    assert_eq!(asked(&host), [plugin_name(0)], "its second end is told as well");
}

#[test]
fn a_host_that_ends_begins_no_delete_and_waits_for_those_that_it_began() {
    let mut host = Host::serving(3);
    host.withdraw(0);
    host.step(Event::Shutdown);
    host.withdraw(1);
    assert!(!host.engine.is_drained());
    host.end_delete(0, Err(WriteErrorClass::Unavailable));
    host.pass(60_000);
    assert_eq!(asked(&host), Vec::<Arc<str>>::new());
    assert!(host.engine.is_drained());
}
