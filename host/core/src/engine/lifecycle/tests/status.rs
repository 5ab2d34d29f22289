//! What a Plugin object shows of messages, and how often it is written.

use super::*;

#[test]
fn the_delete_of_an_object_is_sent_once_until_it_fails_and_then_with_backoff() {
    let mut alone = Alone::serving();
    alone.gone("podset");
    alone.edit("podset");
    assert_eq!(alone.sent.len(), 1);
    alone.log();
    alone.fail();
    alone.edit("podset");
    assert_eq!(alone.log(), ["failed podset"]);
    alone.pass(99);
    assert_eq!(alone.log(), NONE);
    alone.pass(20);
    assert_eq!(alone.log(), ["delete podset"]);
    let name = alone.accept();
    alone.with(Lifecycle::on_sources_listed);
    assert_eq!(alone.log(), NONE, "the view shows it still");
    alone.show(&name);
    assert!(alone.lifecycle.orphans.is_empty() && alone.log().is_empty());
}

#[test]
fn l5_a_digest_is_pinned_only_where_the_spec_names_it() {
    let mut alone = Alone::serving();
    assert_eq!(alone.condition("podset", "Verified"), "True DigestKnown");
    alone.want("podset", json!({"digest": "1"}));
    alone.settle();
    assert_eq!(alone.condition("podset", "Verified"), "True DigestPinned");
    alone.want("podset", json!({}));
    alone.settle();
    assert_eq!(alone.condition("podset", "Verified"), "True DigestKnown");
}

#[test]
fn l5_a_right_that_is_refused_shows_at_once_and_for_a_moment_after_it_is_given() {
    let mut alone = Alone::serving();
    let denied = |permission| ToLifecycle::Denied { plugin: "podset".into(), permission, message: "no".to_owned() };
    alone.take(denied(to_patch()));
    assert_eq!(alone.log(), [STATUS, "event Forbidden"]);
    alone.settle();
    assert_eq!(alone.condition("podset", "Permitted"), "False Forbidden");
    assert_eq!(alone.ready("podset"), "True Serving", "other keys may not need it");
    alone.take(denied(to_patch()));
    assert_eq!(alone.log(), NONE, "the same again");
    let permitted = |verb| {
        let permission = Permission { verb, ..to_patch() };
        ToLifecycle::Permitted { plugin: "podset".into(), permission }
    };
    alone.take(permitted("create"));
    alone.pass(3_000);
    assert_eq!(alone.log(), NONE, "that is another right");
    alone.take(permitted("patch"));
    alone.pass(2_999);
    assert_eq!(alone.log(), NONE);
    alone.pass(1);
    alone.settle();
    assert_eq!(
        (alone.log(), alone.condition("podset", "Permitted")),
        (vec![STATUS.to_owned()], "True Allowed".to_owned())
    );
    // L1: a version that takes over has been refused nothing yet.
    alone.take(denied(to_patch()));
    alone.serve("podset", "2", "PodSet");
    assert_eq!(alone.condition("podset", "Permitted"), "True Allowed");
}

#[test]
fn g8_requests_that_are_not_granted_show_with_the_grant_and_for_a_moment_after_it_is_given() {
    let mut alone = Alone::serving();
    let not_granted =
        |message: Option<&str>| ToLifecycle::NotGranted { plugin: "podset".into(), message: message.map(Into::into) };
    alone.take(not_granted(Some("add \"https://a\"")));
    assert_eq!(alone.log(), [STATUS, "event NotGranted"]);
    alone.settle();
    assert_eq!(alone.condition("podset", "Permitted"), "False NotGranted");
    assert_eq!(alone.ready("podset"), "True Serving", "all else of it is done");
    alone.take(not_granted(None));
    alone.pass(2_999);
    assert_eq!(alone.log(), NONE);
    alone.pass(1);
    alone.settle();
    assert_eq!(alone.condition("podset", "Permitted"), "True Allowed");
}

#[test]
fn l5_a_fault_shows_once_until_a_while_after_the_last_key_has_recovered() {
    let mut alone = Alone::serving();
    let faulted = |message: &str| ToLifecycle::Faulted { plugin: "podset".into(), message: message.to_owned() };
    alone.take(faulted("it traps"));
    assert_eq!(alone.log(), [STATUS, "event GuestFault"]);
    alone.settle();
    assert_eq!(alone.ready("podset"), "True GuestFault");
    for _ in 0..100 {
        alone.take(ToLifecycle::Recovered { plugin: "podset".into() });
        alone.pass(20);
        alone.take(faulted("it traps"));
    }
    alone.pass(3_000);
    assert_eq!(alone.log(), NONE, "a plugin that faults every other call is no flood of writes");
    alone.take(ToLifecycle::Recovered { plugin: "podset".into() });
    alone.pass(3_000);
    alone.settle();
    assert_eq!(
        (alone.log(), alone.ready("podset")),
        (vec![STATUS.to_owned(), "event Serving".to_owned()], "True Serving".to_owned())
    );
    alone.take(faulted("it traps"));
    alone.serve("podset", "2", "PodSet");
}

#[test]
fn q4_a_throttled_plugin_is_ready_with_that_reason_until_it_was_below_its_budget_for_a_minute() {
    let mut alone = Alone::serving();
    let throttled = || ToLifecycle::Throttled { plugin: "podset".into(), message: "60 creates a minute".to_owned() };
    alone.take(throttled());
    assert_eq!(alone.log(), ["throttled podset", STATUS, "event Throttled"]);
    alone.settle();
    assert_eq!(alone.ready("podset"), "True Throttled");
    alone.pass(30_000);
    alone.take(throttled());
    alone.pass(59_999);
    assert_eq!(alone.log(), NONE, "shown and counted once");
    assert_eq!(alone.lifecycle.next_due_ms(), Some(alone.now.mono_ms + 1));
    alone.pass(1);
    alone.settle();
    assert_eq!(
        (alone.log(), alone.ready("podset")),
        (vec![STATUS.to_owned(), "event Serving".to_owned()], "True Serving".to_owned())
    );
}

#[test]
fn x5_one_write_of_an_object_is_in_flight_and_the_next_waits_until_the_view_shows_it() {
    let mut alone = Alone::serving();
    let fault = |message: &str| ToLifecycle::Faulted { plugin: "podset".into(), message: message.to_owned() };
    alone.take(fault("the first"));
    alone.log();
    alone.take(fault("the second"));
    let name = alone.accept();
    alone.take(fault("the third"));
    assert_eq!(alone.log(), NONE);
    alone.show(&name);
    assert_eq!(alone.log(), [STATUS], "what came meanwhile is one write");
    alone.fail();
    assert_eq!(alone.log(), ["failed podset"]);
    alone.pass(99);
    assert_eq!(alone.log(), NONE);
    alone.pass(20);
    alone.settle();
    assert_eq!(alone.log(), [STATUS]);
    assert!(alone.objects["podset"].to_string().contains("the third"));
}

#[test]
fn x5_an_object_whose_event_was_lost_is_written_again_with_backoff() {
    let mut alone = Alone::serving();
    alone.take(ToLifecycle::Faulted { plugin: "podset".into(), message: "it traps".to_owned() });
    alone.log();
    alone.store.progress(plugin_object::kind(), ResourceVersion(1_000));
    for _ in 0..3 {
        alone.accept();
        assert_eq!(alone.log(), NONE);
        alone.pass(99);
        assert_eq!(alone.log(), NONE);
        alone.pass(20);
        assert_eq!(alone.log()[0], STATUS);
    }
}

#[test]
fn messages_about_a_plugin_that_is_gone_change_nothing() {
    let mut alone = Alone::serving();
    alone.take(ToLifecycle::Throttled { plugin: "podset".into(), message: "over".to_owned() });
    let write = alone.sent.pop_front().unwrap();
    alone.gone("podset");
    alone.settle();
    alone.log();
    let plugin: Arc<str> = "podset".into();
    alone.take(ToLifecycle::Denied { plugin: Arc::clone(&plugin), permission: to_patch(), message: "no".to_owned() });
    alone.take(ToLifecycle::Permitted { plugin: Arc::clone(&plugin), permission: to_patch() });
    alone.take(ToLifecycle::Faulted { plugin: Arc::clone(&plugin), message: "no".to_owned() });
    alone.take(ToLifecycle::Recovered { plugin: Arc::clone(&plugin) });
    alone.take(ToLifecycle::Throttled { plugin: Arc::clone(&plugin), message: "over".to_owned() });
    alone.wrote(write, Err(WriteErrorClass::Unavailable));
    alone.take(ToLifecycle::KindsReleased);
    alone.take(ToLifecycle::MayWrite);
    alone.pass(24 * 3_600_000);
    assert_eq!((alone.log(), alone.lifecycle.next_due_ms()), (vec![], None));
    let left = format!("{:?}", alone.lifecycle);
    for name in ["podset", "PodSet", "ConfigMap"] {
        assert!(!left.contains(name), "{name} is kept: {left}");
    }
}
