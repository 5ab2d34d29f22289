//! What the Lifecycle receives of the keys of a plugin: each right and fault once when it begins and once when it ends.

use super::*;
use crate::permission::Denial;

#[test]
fn l5_a_right_is_reported_once_when_it_is_refused_and_once_when_no_key_is_refused_it() {
    let denied = || {
        let mut alone = Alone::serving(&["a", "b"]);
        for _ in 0..2 {
            alone.returns(wants(1));
            alone.fail(WriteErrorClass::Denied);
        }
        assert_eq!(alone.reported(), ["podset denied patch"], "for both keys");
        alone.pass(10);
        alone.fail(WriteErrorClass::Denied);
        alone.fail(WriteErrorClass::Denied);
        assert_eq!(alone.reported(), NONE, "the same again");
        alone
    };
    let mut used = denied();
    used.pass(20);
    used.accept();
    assert_eq!(used.reported(), ["podset permitted patch"], "one key has used it");
    used.accept();
    assert_eq!(used.reported(), NONE);

    let mut unneeded = denied();
    unneeded.delete("PodSet", "a");
    assert_eq!(unneeded.reported(), NONE, "the other needs it still");
    unneeded.change_secret("b");
    unneeded.returns(wants(0));
    assert_eq!(unneeded.reported(), ["podset permitted patch"]);

    let mut replaced = denied();
    replaced.serve("podset", "2", &["PodSet"]);
    replaced.returns(wants(1));
    assert_eq!(replaced.reported(), NONE, "the Lifecycle has forgotten it as well");
    replaced.fail(WriteErrorClass::Denied);
    assert_eq!(replaced.reported(), ["podset denied patch"]);
}

#[test]
fn l5_once_the_object_that_the_report_names_has_recovered_the_next_fault_is_reported() {
    let mut alone = Alone::serving(&["a", "b"]);
    alone.returns(trap("it traps"));
    alone.returns(trap("it traps"));
    let [faulted] = &alone.reported()[..] else { panic!("one message") };
    let (named, other) = if faulted.contains("default/a") { ("a", "b") } else { ("b", "a") };
    alone.delete("PodSet", named);
    assert_eq!(alone.reported(), NONE, "the other one has not recovered");
    alone.pass(10);
    alone.returns(trap("it traps again"));
    let [faulted] = &alone.reported()[..] else { panic!("one message") };
    assert!(faulted.starts_with(&format!("podset faulted: PodSet default/{other}: ")), "{faulted}");
}

#[test]
fn l5_faults_are_reported_once_when_the_first_key_has_one_and_once_when_none_has() {
    let mut alone = Alone::serving(&["a", "b"]);
    alone.returns(trap(&"x".repeat(10_000)));
    let [faulted] = &alone.reported()[..] else { panic!("one message") };
    assert!(faulted.starts_with("podset faulted: PodSet default/a: "), "{faulted}");
    assert!(faulted.len() < 1_100, "it becomes part of a condition: {}", faulted.len());
    alone.returns(trap("it traps"));
    alone.pass(10);
    alone.returns(trap("it traps again"));
    assert_eq!(alone.reported(), NONE);
    alone.returns(CallResult::Failed(Failure::Retry("not yet".to_owned())));
    assert_eq!(alone.reported(), NONE, "one of two has recovered");
    let other = if alone.reconciler.keys.get(&key_of(&alone, "a")).unwrap().is_faulted { "a" } else { "b" };
    alone.delete("PodSet", other);
    assert_eq!(alone.reported(), ["podset recovered"]);
    alone.put(object("PodSet", "c"));
    alone.returns(trap("it traps"));
    alone.reported();
    alone.serve("podset", "2", &["PodSet"]);
    while !alone.calls.is_empty() {
        alone.returns(wants(0));
    }
    assert_eq!(alone.reported(), NONE, "the Lifecycle has forgotten it as well");
}

fn key_of(alone: &Alone, name: &str) -> Key {
    Key { controller: alone.reconciler.reconcilers_of(&kind("PodSet"))[0], name: Name::new("default", name) }
}

#[test]
fn l5_a_call_that_ends_at_a_kind_has_recovered_from_a_fault() {
    let mut alone = Alone::serving(&["a"]);
    alone.returns(trap("it traps"));
    alone.reported();
    alone.pass(10);
    alone.returns(CallResult::Waits(kind("Widget")));
    assert_eq!(alone.reported(), ["podset recovered", "podset named Widget"]);
}

#[test]
fn g6_what_a_guest_said_is_in_its_objects_events_and_not_in_its_plugin() {
    let password = "the password is hunter2";
    let says = |words: &str| GuestFault::Trap { message: words.to_owned(), detail: words.to_owned() };
    for fault in [says(password), GuestFault::bad_outcome(password)] {
        let mut alone = Alone::serving(&["a"]);
        alone.returns(CallResult::Fault(fault.clone()));
        assert_eq!(alone.notes, [format!("PodSet default/a: {}", fault.message())]);
        let what = fault.without_words();
        let shown = format!(
            "podset faulted: PodSet default/a: {what}; `kubectl describe podset a -n default` and the host's log have what it said"
        );
        assert_eq!(alone.reported(), [shown]);
    }
    let limit = GuestFault::Deadline { limit_ms: 1_000 };
    assert_eq!(limit.without_words(), limit.message(), "a limit is the host's word");
}

#[test]
fn g6_a_denial_shows_no_name_that_the_guest_has_chosen() {
    let denied = |namespace: &str| {
        format!(
            r#"pods "aHVudGVyMg" is forbidden: User "a:b" cannot create resource "pods" in API group ""{namespace}: RBAC: no"#
        )
    };
    let shown = |namespace: &str| Denial::read(&denied(namespace)).unwrap().shown(|known| known == "default");
    let user = r#"User "a:b" cannot create resource "pods" in API group """#;
    assert_eq!(shown(r#" in the namespace "default""#), format!(r#"{user} in the namespace "default""#));
    assert_eq!(shown(r#" in the namespace "aHVudGVyMg""#), format!("{user} in a namespace"));
    assert_eq!(shown(" at the cluster scope"), format!("{user} at the cluster scope"));
    for namespace in ["default", "aHVudGVyMg"] {
        let shown = shown(&format!(r#" in the namespace "{namespace}""#));
        assert!(Denial::read(&shown).is_some(), "the missing rule is read of it: {shown}");
    }
}
