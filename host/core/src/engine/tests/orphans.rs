//! Orphans: one delete for each, and a backoff for each that fails.

use super::*;

/// As many as a directory loses when its volume is unmounted.
const MANY: usize = 100;

/// The plugins whose objects are being deleted.
fn deleting(host: &Host) -> Vec<Arc<str>> {
    host.deletes.iter().map(|(_, target)| Arc::clone(&target.name.name)).collect()
}

#[test]
fn plugins_removed_at_once_cost_one_delete_each_despite_events_of_their_objects() {
    let mut host = Host::serving(MANY);
    (0..MANY).for_each(|number| host.withdraw(number));
    let all: Vec<Arc<str>> = (0..MANY).map(plugin_name).collect();
    assert_eq!(deleting(&host), all);
    // Events while the delete is in flight, and until the watch shows it.
    (0..MANY).for_each(|number| host.annotate(number));
    assert_eq!(deleting(&host), all);
    (0..MANY).for_each(|number| host.end_delete(number, Ok(())));
    (0..MANY).for_each(|number| host.annotate(number));
    (0..MANY).for_each(|number| host.show_gone(number));
    host.pass(3_600_000);
    assert_eq!(host.deletes, []);
}

#[test]
fn a_failed_delete_is_retried_with_backoff_and_affects_no_other_object() {
    let mut host = Host::serving(3);
    (0..3).for_each(|number| host.withdraw(number));
    host.end_delete(0, Ok(()));
    host.end_delete(1, Err(WriteErrorClass::Invalid));
    let mut waited_ms = Vec::new();
    for _ in 0..12 {
        // An event of the object does not shorten the backoff, nor does a source that lists again.
        host.annotate(1);
        host.step(Event::SourcesListed);
        assert_eq!(deleting(&host), [plugin_name(2)]);
        let failed_ms = host.now_ms;
        while !deleting(&host).contains(&plugin_name(1)) {
            host.pass(50);
        }
        waited_ms.push(host.now_ms - failed_ms);
        host.end_delete(1, Err(WriteErrorClass::Invalid));
    }
    assert!(waited_ms.is_sorted() && waited_ms[0] >= 100 && waited_ms[11] >= 5_000, "{waited_ms:?}");
    assert_eq!(host.count_observed(|observation| matches!(observation, Observation::WriteFailed { .. })), 13);
}

#[test]
fn an_orphan_that_was_replaced_by_another_object_is_deleted_too() {
    let mut host = Host::serving(1);
    host.withdraw(0);
    host.end_delete(0, Ok(()));
    host.set_metadata(&plugin_object(&plugin_name(0)), "uid", json!("uid-other"));
    assert_eq!(deleting(&host), [plugin_name(0)]);
}

#[test]
fn a_plugin_that_is_offered_again_gets_a_new_object() {
    let mut host = Host::serving(1);
    host.withdraw(0);
    host.offer(0);
    host.end_delete(0, Ok(()));
    host.show_gone(0);
    host.pass(60_000);
    assert!(host.has_plugin_object(0) && host.deletes.is_empty());
    host.withdraw(0);
    assert_eq!(deleting(&host), [plugin_name(0)], "it can be removed again");
}

#[test]
fn a_host_that_shuts_down_begins_no_delete_and_waits_for_those_in_flight() {
    let mut host = Host::serving(3);
    host.withdraw(0);
    host.step(Event::Shutdown);
    host.withdraw(1);
    assert!(!host.engine.is_drained());
    host.end_delete(0, Err(WriteErrorClass::Unavailable));
    host.pass(60_000);
    assert_eq!(host.deletes, []);
    assert!(host.engine.is_drained());
}
