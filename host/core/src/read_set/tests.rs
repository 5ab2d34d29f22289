//! Which changes wake a call (W1), and when a call need not be repeated (W2).

use std::collections::BTreeSet;

use super::*;
use crate::object::tests::Sample;
use crate::query::Query;
use crate::store::Store;
use crate::view::{Access, View};

fn pods() -> Kind {
    Kind::new("v1", "Pod")
}

fn primary() -> Arc<Object> {
    Sample::new("Set", "shop", "web").uid("77").shared()
}

fn snapshot(objects: &[Sample]) -> Snapshot {
    Snapshot::of(&[pods(), Kind::new("v1", "Node")], objects.iter().map(Sample::build))
}

/// What a call reads that does these things.
fn read(snapshot: &Snapshot, reads: impl FnOnce(&mut View)) -> ReadSet {
    let access = Access::new(vec![pods(), Kind::new("v1", "Node")], 1 << 20);
    let mut view = View::new(snapshot.clone(), primary(), Arc::new(access), 5, "{}".into());
    reads(&mut view);
    view.into_reads()
}

fn holds(reads: &ReadSet, snapshot: &Snapshot) -> bool {
    reads.holds(&Inputs { snapshot, primary: &primary(), now_unix_ms: 5, config: "{}" })
}

fn pod(name: &str) -> Sample {
    Sample::pod("shop", name)
}

fn phase(phase: &str, ip: &str) -> String {
    format!(r#""status":{{"phase":"{phase}","ip":"{ip}"}}"#)
}

fn own_phases(view: &mut View) {
    view.owned(&pods(), &["status.phase".to_owned()]).unwrap();
}

fn list(selector: Option<&str>, namespace: Option<&str>, fields: &[&str]) -> Query {
    Query {
        selector: selector.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
        fields: fields.iter().map(|&field| field.to_owned()).collect(),
        ..Query::all(pods())
    }
}

/// Whether a set is woken by the change from one object to another, and whether it still holds after it: a set that is
/// not woken must hold, and one that was woken must be found by one of the change's interests.
fn check(reads: impl Fn(&mut View), before: Option<Sample>, after: Option<Sample>, expected: bool) {
    let other = || Sample::pod("elsewhere", "bystander");
    let world = |object: &Option<Sample>| {
        let objects = object.iter().map(Sample::build).chain([other().build()]);
        Snapshot::of(&[pods(), Kind::new("v1", "Node")], objects)
    };
    let old = world(&before);
    let set = read(&old, reads);
    assert!(holds(&set, &old));
    let change = Change { before: before.as_ref().map(Sample::shared), after: after.as_ref().map(Sample::shared) };
    assert_eq!(set.touches(&change), expected);
    assert_eq!(holds(&set, &world(&after)), !expected);
    assert_eq!(set.is_outdated(&world(&after)), expected);
    let interests: BTreeSet<Interest> = set.interests().collect();
    assert!(!expected || change.interests().iter().any(|interest| interests.contains(interest)));
}

#[test]
fn w1_an_object_that_was_read_wakes_when_it_comes_changes_or_goes() {
    let get = |view: &mut View| {
        view.get(&pod("a").build().reference()).unwrap();
    };
    check(get, None, Some(pod("a")), true);
    check(get, Some(pod("a")), Some(pod("a").version(2).label("x", "y")), true);
    check(get, Some(pod("a")), None, true);
    check(get, Some(pod("a")), Some(pod("a").version(2)), false);
    check(get, None, Some(pod("b")), false);
}

#[test]
fn w1_children_wake_when_they_come_or_go_or_change_owner() {
    let ours = || pod("a").owner("77");
    check(own_phases, None, Some(ours()), true);
    check(own_phases, Some(ours()), None, true);
    check(own_phases, Some(ours()), Some(pod("a").version(2)), true);
    check(own_phases, Some(ours()), Some(pod("a").version(2).owner("78")), true);
    check(own_phases, Some(pod("a").owner("78")), Some(ours().version(2)), true);
    check(own_phases, None, Some(pod("a").owner("78")), false);
}

#[test]
fn w1_children_wake_only_for_fields_that_were_read() {
    let ours = |version, state: &str, ip: &str| pod("a").owner("77").version(version).body(&phase(state, ip));
    check(own_phases, Some(ours(1, "Pending", "1")), Some(ours(2, "Running", "1")), true);
    check(own_phases, Some(ours(1, "Running", "1")), Some(ours(2, "Running", "2")), false);
}

#[test]
fn w1_queries_wake_when_an_object_matches_before_or_after() {
    let query = |query: Query| move |view: &mut View| _ = view.list(&query).unwrap();
    let web = || pod("a").label("app", "web");
    let by_label = || query(list(Some("app=web"), None, &[]));
    check(by_label(), None, Some(web()), true);
    check(by_label(), Some(web()), Some(pod("a").version(2)), true);
    check(by_label(), Some(web()), Some(web().label("app", "db").version(2)), true);
    check(by_label(), Some(pod("a").label("app", "db")), Some(web().version(2)), true);
    check(by_label(), None, Some(pod("a").label("app", "db")), false);
    check(query(list(Some("app!=web"), None, &[])), Some(web()), Some(pod("a").version(2)), true);
    check(query(list(None, Some("shop"), &[])), None, Some(pod("a")), true);
    check(query(list(None, Some("other"), &[])), None, Some(pod("a")), false);
    check(query(list(None, None, &[])), Some(pod("a")), None, true);
    check(query(list(None, None, &["spec.x"])), Some(pod("a")), Some(pod("a").version(2).label("x", "y")), false);
}

#[test]
fn w1_a_query_for_names_does_not_wake_for_content() {
    let keys = |view: &mut View| drop(view.keys(&list(Some("app=web"), None, &[])).unwrap());
    let web = || pod("a").label("app", "web");
    check(keys, Some(web()), Some(web().version(2).body(&phase("Failed", ""))), false);
    check(keys, Some(web()), None, true);
    check(keys, None, Some(web()), true);
}

#[test]
fn w1_clock_and_configuration_wake_for_no_object() {
    let reads = |view: &mut View| {
        view.now_unix_ms();
        view.config();
    };
    check(reads, None, Some(pod("a").owner("77")), false);
}

#[test]
fn w2_a_call_holds_until_the_reconciled_object_differs_in_more_than_its_version() {
    let snapshot = snapshot(&[]);
    let set = read(&snapshot, |_| ());
    let with = |primary: &Object| {
        set.holds(&Inputs { snapshot: &snapshot, primary, now_unix_ms: 9, config: "changed, but never asked for" })
    };
    assert!(with(&Sample::new("Set", "shop", "web").uid("77").version(50).build()));
    let changed = Sample::new("Set", "shop", "web").uid("77").label("a", "b").build();
    assert!(!with(&changed));
    assert!(set.answers_hold(&Inputs { snapshot: &snapshot, primary: &changed, now_unix_ms: 9, config: "" }));
}

#[test]
fn w2_a_set_that_asked_for_the_time_stops_holding_when_time_moves() {
    let snapshot = snapshot(&[]);
    let set = read(&snapshot, |view| {
        view.now_unix_ms();
    });
    let at = |now_unix_ms| set.holds(&Inputs { snapshot: &snapshot, primary: &primary(), now_unix_ms, config: "{}" });
    assert!(at(5));
    assert!(!at(6));
}

#[test]
fn a_change_while_a_call_ran_makes_its_read_set_outdated() {
    let with_child = snapshot(&[pod("a").owner("77").body(&phase("Pending", "1"))]);
    let set = read(&with_child, |view| {
        own_phases(view);
        view.now_unix_ms();
        view.config();
    });
    assert!(!set.is_outdated(&with_child));
    let child = |state: &str, ip: &str| snapshot(&[pod("a").owner("77").version(2).body(&phase(state, ip))]);
    assert!(!set.is_outdated(&child("Pending", "2")));
    assert!(set.is_outdated(&child("Running", "1")));
    assert!(set.is_outdated(&snapshot(&[])));
}

#[test]
fn an_answer_that_was_too_large_does_not_count_as_outdated() {
    let snapshot = snapshot(&[pod("a")]);
    let access = Access::new(vec![pods()], 10);
    let mut view = View::new(snapshot.clone(), primary(), Arc::new(access), 5, "{}".into());
    view.list(&Query::all(pods())).unwrap_err();
    let set = view.into_reads();
    assert!(!set.is_outdated(&snapshot) && !holds(&set, &snapshot));
}

#[test]
fn w2_an_empty_answer_is_not_the_answer_of_an_absent_object_nor_of_another_order() {
    let a = || pod("a").label("app", "web");
    let b = || pod("b").label("app", "web");
    let one = snapshot(&[a(), b()]);
    let set = read(&one, |view| drop(view.list(&list(Some("app=web"), None, &[])).unwrap()));
    assert!(holds(&set, &snapshot(&[b(), a()])));
    assert!(!holds(&set, &snapshot(&[a()])));
    assert!(!holds(&set, &snapshot(&[])));
}

#[test]
fn interests_are_the_narrowest_that_an_index_can_answer() {
    let snapshot = snapshot(&[]);
    let check = |reads: &dyn Fn(&mut View), expected: &str| {
        let interests: Vec<_> = read(&snapshot, reads).interests().map(|interest| format!("{interest:?}")).collect();
        assert_eq!(interests.join(" "), expected);
    };
    check(&own_phases, r#"Owner("77", v1/Pod)"#);
    check(&|view| drop(view.list(&list(None, None, &[])).unwrap()), "Kind(v1/Pod)");
    check(&|view| drop(view.list(&list(Some("a!=b"), None, &[])).unwrap()), "Kind(v1/Pod)");
    check(&|view| drop(view.keys(&list(None, Some("shop"), &[])).unwrap()), r#"Namespace(v1/Pod, "shop")"#);
    check(&|view| drop(view.list(&list(Some("a=b"), Some("shop"), &[])).unwrap()), r#"Label(v1/Pod, "a", "b")"#);
    check(&|view| _ = view.now_unix_ms(), "");
}

#[test]
fn the_interests_of_a_change_are_those_of_both_sides_each_once() {
    let change = Change {
        before: Some(pod("a").owner("1").label("x", "1").label("y", "1").shared()),
        after: Some(pod("a").owner("2").label("x", "1").label("y", "2").version(2).shared()),
    };
    let interests = change.interests();
    let unique: BTreeSet<_> = interests.iter().cloned().collect();
    assert_eq!(unique.len(), interests.len());
    let text: Vec<_> = unique.iter().skip(1).map(|interest| format!("{interest:?}")).collect();
    let expected = r#"Owner("1", v1/Pod) Owner("2", v1/Pod) Label(v1/Pod, "x", "1") Label(v1/Pod, "y", "1") Label(v1/Pod, "y", "2") Namespace(v1/Pod, "shop") Kind(v1/Pod)"#;
    assert_eq!(text.join(" "), expected);
    assert!(Change::default().interests().is_empty());
}

#[test]
fn a_question_that_is_asked_again_counts_once_however_many_there_are() {
    let world = snapshot(&[]);
    for questions in [1, FEW_QUESTIONS, FEW_QUESTIONS + 1, 10 * FEW_QUESTIONS] {
        let set = read(&world, |view| {
            for number in (0..questions).chain(0..questions) {
                view.get(&pod(&number.to_string()).build().reference()).unwrap();
            }
        });
        assert_eq!(set.questions().len(), questions);
    }
}

#[test]
fn beyond_its_bound_a_set_remembers_kinds_and_any_change_of_them_counts() {
    let mut store = Store::new();
    for kind in [pods(), Kind::new("v1", "Node")] {
        store.begin_list(&kind);
        store.end_list(&kind, crate::object::ResourceVersion(0));
    }
    let before = store.snapshot();
    let set = read(&before, |view| {
        view.now_unix_ms();
        for number in 0..MAX_QUESTIONS + 10 {
            view.get(&pod(&number.to_string()).build().reference()).unwrap();
        }
    });
    assert_eq!(set.questions().len(), 1, "the time is still a question of its own");
    assert_eq!(set.interests().collect::<Vec<_>>(), [Interest::Kind(pods())]);
    assert!(holds(&set, &before));
    let node = store.apply(Sample::new("Node", "", "n").build());
    assert!(!set.touches(&node) && holds(&set, &store.snapshot()));
    let unasked = store.apply(pod("unasked").build());
    assert!(set.touches(&unasked) && !holds(&set, &store.snapshot()));
}

#[test]
fn g2_a_set_of_long_questions_remembers_kinds_before_it_has_many_bytes() {
    let world = snapshot(&[]);
    let long = |number: usize| list(None, None, &[&format!("f{number}.{}", "x".repeat(1_000))]);
    let mut most = 0;
    let mut collapsed_at = None;
    for questions in (0..400).step_by(20) {
        let set = read(&world, |view| (0..questions).for_each(|number| drop(view.list(&long(number)).unwrap())));
        most = most.max(set.bytes());
        assert!(set.bytes() <= MAX_QUESTION_BYTES, "{questions} questions take {} bytes", set.bytes());
        assert!(holds(&set, &world));
        if set.questions().is_empty() && questions > 0 {
            collapsed_at.get_or_insert(questions);
            assert_eq!(set.interests().collect::<Vec<_>>(), [Interest::Kind(pods())]);
        }
    }
    assert!(most > MAX_QUESTION_BYTES / 2, "{most}");
    assert!(collapsed_at.is_some_and(|questions| questions < MAX_QUESTIONS), "{collapsed_at:?}");
}

#[test]
fn g2_names_that_no_object_can_have_count_with_their_length() {
    let world = snapshot(&[]);
    let set = read(&world, |view| {
        view.now_unix_ms();
        view.get(&pod(&"n".repeat(MAX_QUESTION_BYTES)).build().reference()).unwrap();
        view.config();
    });
    assert_eq!(set.questions().len(), 2, "only the time and the configuration are remembered by themselves");
    assert!(set.bytes() < 1_000, "{}", set.bytes());
}
