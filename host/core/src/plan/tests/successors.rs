//! Children that are created while their predecessors are being deleted, and how each is found again.

use super::*;
use crate::manifest::OwnedKind;
use crate::plan::found::MAX_PREDECESSORS;

fn at_once() -> ControllerSpec {
    let owns = spec().owns.into_iter().map(|owned| OwnedKind { replace: Replace::AtOnce, ..owned }).collect();
    ControllerSpec { owns, ..spec() }
}

fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object
}

/// The object that a plan creates, as the API server would show it with this UID.
fn successor(diff: &Diff, uid: &str) -> Value {
    let [WriteOp::Create { body, .. } | WriteOp::Apply { body, .. }] = diff.children.as_slice() else {
        panic!("{diff:?}")
    };
    let mut live: Value = serde_json::from_str(body).unwrap();
    live["metadata"]["uid"] = json!(uid);
    live["metadata"]["resourceVersion"] = json!("30");
    live
}

/// The owner with the mark of those whose children may have had successors.
fn marked() -> Object {
    let mut marked: Value = serde_json::from_str(primary().json()).unwrap();
    marked["metadata"]["annotations"] = json!({"mortise.dev/successors": "true"});
    decode(marked)
}

/// What is missing of the children of a marked owner.
fn missing(spec: &ControllerSpec, outcome: &Outcome, live: Vec<Value>) -> Result<Diff, GuestFault> {
    missing_after(CERTAIN, &marked(), spec, outcome, live)
}

#[track_caller]
fn check_at_once(outcome: &Outcome, live: Vec<Value>, expected: Expect) {
    expected.assert_eq(&shown(&missing(&at_once(), outcome, live).unwrap()));
}

#[test]
fn x3_a_successor_has_a_name_of_its_own_which_follows_from_its_predecessors_uid() {
    let wanted = outcome(vec![child("0", &pod("a"))]);
    let first = deleting(created(&wanted).remove(0));
    let diff = missing(&at_once(), &wanted, vec![first.clone()]).unwrap();
    expect!["create Pod default/web-0-f97bcsfc"].assert_eq(&shown(&diff));
    assert_eq!(missing(&at_once(), &wanted, vec![first.clone()]).unwrap(), diff, "a repeated create has the same name");
    assert_eq!(shown(&missing(&spec(), &wanted, vec![first.clone()]).unwrap()), "waits");

    let second = successor(&diff, "p-9");
    check_at_once(&wanted, vec![first.clone(), second.clone()], expect![""]);
    check_at_once(&wanted, vec![second.clone()], expect![""]);
    assert_eq!(shown(&missing(&spec(), &wanted, vec![second.clone()]).unwrap()), "", "a version that waits keeps it");
    check_at_once(
        &outcome(vec![]),
        vec![first.clone(), second.clone()],
        expect!["delete Pod default/web-0-f97bcsfc uid=p-9"],
    );

    let third = missing(&at_once(), &wanted, vec![first.clone(), deleting(second.clone())]).unwrap();
    let later = missing(&at_once(), &wanted, vec![deleting(second.clone())]).unwrap();
    let names = [&third, &later].map(|diff| diff.children[0].target().name.name.clone());
    assert_ne!(names[0], names[1], "each name is of what is seen");
    assert_eq!(shown(&missing(&spec(), &wanted, vec![deleting(second)]).unwrap()), "waits");
    check_at_once(&wanted, vec![], expect!["create Pod default/web-0-kddw55s2"]);
}

#[test]
fn x3_a_child_that_differs_is_deleted_before_its_successor_is_created() {
    let (before, after) = (outcome(vec![child("0", &pod("a"))]), outcome(vec![child("0", &pod("b"))]));
    let live = created(&before).remove(0);
    check_at_once(&after, vec![live.clone()], expect!["delete Pod default/web-0-kddw55s2 uid=p-0"]);
    check_at_once(&after, vec![deleting(live)], expect!["create Pod default/web-0-f97bcsfc"]);
}

#[test]
fn x3_of_two_children_of_one_key_one_is_kept() {
    let wanted = outcome(vec![child("0", &pod("a"))]);
    let first = created(&wanted).remove(0);
    let second = successor(&missing(&at_once(), &wanted, vec![deleting(first.clone())]).unwrap(), "p-9");
    let mut third = second.clone();
    third["metadata"]["name"] = json!("web-0-zzzzzzzz");
    check_at_once(&wanted, vec![first, second.clone()], expect!["delete Pod default/web-0-f97bcsfc uid=p-9"]);
    check_at_once(&wanted, vec![second, third], expect!["delete Pod default/web-0-zzzzzzzz uid=p-9"]);
}

#[test]
fn a_successor_that_is_changed_in_place_is_applied_under_its_own_name() {
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}});
    let wanted = outcome(vec![Child { exact: vec!["data".into()], ..child("c", &config("1")) }]);
    let first = deleting(created(&wanted).remove(0));
    let created = missing(&at_once(), &wanted, vec![first.clone()]).unwrap();
    let second = successor(&created, "c-9");
    let name = second["metadata"]["name"].as_str().unwrap().to_owned();
    let diff = missing(&at_once(), &wanted, vec![first, second]).unwrap();
    let [WriteOp::Apply { target, body, .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
    assert!(*target.name.name == *name && body.contains(&name), "{body}");
    assert!(diff.written.contains_key(target), "{diff:?}");
    assert_eq!(diff.deletes, []);
}

#[test]
fn a_child_with_a_chosen_name_waits_until_the_name_is_free() {
    let mut named = pod("a");
    named["metadata"] = json!({"name": "chosen"});
    let wanted = outcome(vec![child("0", &named)]);
    check_at_once(&wanted, vec![deleting(created(&wanted).remove(0))], expect!["waits"]);
}

#[test]
fn x3_a_child_has_no_successor_before_its_owner_is_marked() {
    let wanted = outcome(vec![child("0", &pod("a"))]);
    let live = vec![deleting(created(&wanted).remove(0))];
    assert_eq!(
        shown(&missing_after(CERTAIN, &primary(), &at_once(), &wanted, live.clone()).unwrap()),
        "marks its owner"
    );
    assert_eq!(shown(&missing_after(CERTAIN, &primary(), &spec(), &wanted, live).unwrap()), "waits");
    let first = shown(&missing_after(CERTAIN, &primary(), &at_once(), &wanted, vec![]).unwrap());
    assert_eq!(first, "create Pod default/web-0-kddw55s2");
}

#[test]
fn x3_a_missing_child_waits_while_another_hosts_creates_may_be_under_way() {
    let wanted = outcome(vec![child("0", &pod("a"))]);
    let creates = Creates { inherited: true, unknown: &UnknownCreates::new() };
    let live = created(&wanted);
    for view in [vec![], vec![deleting(live[0].clone())]] {
        for spec in [at_once(), spec()] {
            assert_eq!(shown(&missing_after(creates, &marked(), &spec, &wanted, view.clone()).unwrap()), "is unsure");
        }
    }
    let waiting = |view| shown(&missing_after(creates, &primary(), &spec(), &wanted, view).unwrap());
    assert_eq!(
        (&*waiting(vec![]), &*waiting(vec![deleting(live[0].clone())])),
        ("create Pod default/web-0-kddw55s2", "waits")
    );
    let unmarked = |view| shown(&missing_after(creates, &primary(), &at_once(), &wanted, view).unwrap());
    assert_eq!(unmarked(vec![]), "create Pod default/web-0-kddw55s2", "theirs has this name too");
    assert_eq!(unmarked(vec![deleting(live[0].clone())]), "is unsure", "theirs could follow it under its name");
    assert_eq!(shown(&missing_after(creates, &marked(), &at_once(), &wanted, live).unwrap()), "");
}

#[test]
fn x3_a_create_of_unknown_result_is_repeated_under_its_name_and_none_follows_it_under_another() {
    let wanted = outcome(vec![child("0", &pod("a"))]);
    let first = deleting(created(&wanted).remove(0));
    let create = missing(&at_once(), &wanted, vec![first.clone()]).unwrap();
    let (target, second) = (create.children[0].target().clone(), successor(&create, "p-9"));
    let create = UnknownCreate { target, until_ms: 0 };
    let unknown = UnknownCreates::from([((create.target.kind.clone(), "default".into(), "0".into()), create)]);
    let creates = Creates { inherited: false, unknown: &unknown };
    let after = |live| shown(&missing_after(creates, &marked(), &at_once(), &wanted, live).unwrap());
    assert_eq!(after(vec![first.clone()]), "create Pod default/web-0-f97bcsfc");
    assert_eq!(after(vec![]), "create Pod default/web-0-f97bcsfc", "its predecessor is gone");
    assert_eq!(after(vec![second.clone()]), "", "it was carried out");
    assert_eq!(after(vec![deleting(second)]), "is unsure", "another attempt may follow it");
}

#[test]
fn x3_a_key_has_a_bounded_number_of_objects_that_terminate_and_waits_beyond() {
    let wanted = outcome(vec![child("0", &pod("a"))]);
    let mut live = vec![deleting(created(&wanted).remove(0))];
    for number in 1..=MAX_PREDECESSORS {
        let diff = missing(&at_once(), &wanted, live.clone()).unwrap();
        live.push(deleting(successor(&diff, &format!("p-{}", 100 + number))));
    }
    assert_eq!(live.len(), 17);
    check_at_once(&wanted, live.clone(), expect!["waits"]);
    live.remove(3);
    assert!(shown(&missing(&at_once(), &wanted, live).unwrap()).starts_with("create Pod default/web-0-"));
}
