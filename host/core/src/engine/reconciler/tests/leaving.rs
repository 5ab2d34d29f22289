//! A plugin with very many keys is removed, and may come back: it is out at once, and its keys leave in pieces.

use super::*;

const KEYS: usize = 2_000;

/// One that serves so many objects, each of which reads a Secret and its ConfigMaps.
fn crowd() -> Alone {
    let mut alone = Alone::serving(&[]);
    for number in 0..KEYS {
        alone.put(object("PodSet", &format!("set-{number}")));
        while !alone.calls.is_empty() {
            alone.returns_with(wants(0), |view| drop(view.owned(&kind("ConfigMap"), &["data".to_owned()])));
        }
    }
    assert_eq!(alone.reconciler.key_count(), KEYS);
    alone
}

/// How many keys still have a place in the index.
fn left(alone: &Alone) -> usize {
    alone.reconciler.leaving.keys()
}

#[test]
fn q4_the_keys_of_a_plugin_that_is_removed_leave_a_few_at_a_time_and_nothing_of_it_begins_meanwhile() {
    let mut alone = crowd();
    let before = alone.reconciler.kept_of("podset");
    alone.withdraw("podset");
    let (mut steps, mut last) = (1, KEYS);
    while left(&alone) > 0 {
        assert!(last - left(&alone) <= 128, "{} in one step", last - left(&alone));
        last = left(&alone);
        // An input of the same millisecond takes no more of them.
        alone.put(object("PodSet", "set-7"));
        alone.change_secret("set-1999");
        alone.delete("PodSet", &format!("set-{steps}"));
        assert_eq!(left(&alone), last);
        assert!(alone.due_in_ms().is_some_and(|due_ms| due_ms <= 1), "the rest follows at once");
        alone.pass(1);
        steps += 1;
    }
    assert!((KEYS / 128..KEYS / 32).contains(&steps), "{steps} steps");
    assert_eq!((alone.called(), alone.writes()), (vec![], vec![]));
    assert!(before > 0 && alone.reconciler.kept_of("podset") == 0);
    alone.pass(1);
    let left = format!("{:?}", alone.reconciler);
    assert!(alone.reconciler.next_due_ms().is_none() && !left.contains("podset"), "{left}");
}

#[test]
fn l3_a_plugin_that_comes_back_before_its_keys_have_left_has_its_own_and_keeps_them() {
    let mut alone = crowd();
    alone.withdraw("podset");
    alone.serve("podset", "2", &["PodSet"]);
    alone.ready("podset", "PodSet", true);
    assert!(left(&alone) > KEYS / 2);
    let (mut calls, mut steps) = (0, 0);
    while calls < KEYS {
        while !alone.calls.is_empty() {
            assert!(alone.called()[0].starts_with("podset/PodSet 2 set-"), "{:?}", alone.called());
            alone.returns(wants(0));
            calls += 1;
        }
        alone.pass(1);
        steps += 1;
        assert!(steps < 10 * KEYS, "{calls} calls");
    }
    while left(&alone) > 0 {
        alone.pass(1);
    }
    assert_eq!((alone.reconciler.key_count(), alone.called()), (KEYS, vec![]));
    assert!(alone.reconciler.kept_of("podset") > 0);
    alone.change_secret("set-42");
    assert_eq!(alone.called(), ["podset/PodSet 2 set-42"], "W1: what it reads wakes it still");
}

#[test]
fn l3_what_a_removed_plugin_was_writing_leaves_room_for_others() {
    let mut alone = crowd();
    alone.put(object("PodSet", "writing"));
    alone.returns(wants(3));
    assert_eq!(alone.reconciler.in_flight(), (1, 0));
    let ended = |alone: &Alone| alone.observed.iter().filter(|it| matches!(it, Observation::TurnEnded { .. })).count();
    let before = ended(&alone);
    alone.withdraw("podset");
    while left(&alone) > 0 {
        alone.pass(1);
    }
    assert_eq!((alone.reconciler.in_flight(), ended(&alone) - before), ((0, 0), 1));
    // Its result is nobody's.
    alone.accept();
    assert_eq!(alone.writes(), Vec::<String>::new());
}

#[test]
fn a_controller_that_a_version_no_longer_has_leaves_room_for_its_objects_at_once() {
    let mut alone = Alone::new();
    alone.grants = Arc::new(Grants { max_objects: Some(3), ..Grants::default() });
    alone.serve("podset", "1", &["PodSet", "CronSet"]);
    alone.ready("podset", "PodSet", true);
    alone.ready("podset", "CronSet", true);
    for number in 0..KEYS {
        alone.put(object("CronSet", &format!("set-{number}")));
        alone.returns(if number == 0 { wants(3) } else { wants(0) });
        alone.settle();
    }
    alone.serve("podset", "2", &["PodSet"]);
    assert!(left(&alone) > KEYS / 2);
    alone.put(object("PodSet", "web"));
    alone.returns(wants(3));
    assert_eq!(alone.writes(), ["patch ConfigMap web"], "it has room");
}
