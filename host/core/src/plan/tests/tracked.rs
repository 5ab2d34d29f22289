//! Children in any namespace, which the host marks instead of an owner reference.

use super::*;
use crate::left_out::Owned;
use crate::plan::deletes_of_tracked;
use crate::selector::Selector;
use crate::well_known::{OWNER_ANNOTATION, OWNER_UID_LABEL};

/// ConfigMaps may be anywhere.
fn anywhere() -> ControllerSpec {
    let mut spec = spec();
    spec.owns[1].tracked = true;
    spec
}

fn copy_in(namespace: &str) -> Value {
    let metadata = json!({"name": "copy", "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}})
}

fn copies(namespaces: &[&str]) -> Outcome {
    outcome(namespaces.iter().map(|namespace| child(namespace, &copy_in(namespace))).collect())
}

/// The copies as the API server shows them.
fn made(namespaces: &[&str]) -> Vec<Value> {
    let diff = missing(&anywhere(), &copies(namespaces), vec![]).unwrap();
    let body = |(at, op): (usize, &WriteOp)| {
        let WriteOp::Apply { body, .. } = op else { panic!("{op:?}") };
        let mut live: Value = serde_json::from_str(body).unwrap();
        live["metadata"]["uid"] = json!(format!("c-{at}"));
        live["metadata"]["resourceVersion"] = json!("20");
        let fields = json!({"f:data": {"f:a": {}}, "f:metadata": {
            "f:annotations": {"f:mortise.dev/child": {}, "f:mortise.dev/owner": {}},
            "f:labels": {"f:app.kubernetes.io/managed-by": {}, "f:mortise.dev/owner-uid": {}}}});
        live["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply", "fieldsV1": fields}]);
        live
    };
    diff.children.iter().enumerate().map(body).collect()
}

#[track_caller]
fn check(outcome: &Outcome, live: Vec<Value>, expected: Expect) {
    expected.assert_eq(&missing(&anywhere(), outcome, live).map_or_else(|fault| fault.message(), |diff| shown(&diff)));
}

#[test]
fn a_tracked_child_has_a_label_and_an_annotation_and_no_owner_reference() {
    let live = made(&["elsewhere", "default"]);
    for (child, namespace) in live.iter().zip(["elsewhere", "default"]) {
        let metadata = &child["metadata"];
        assert!(metadata["ownerReferences"].is_null(), "{metadata}");
        assert_eq!(metadata["labels"][OWNER_UID_LABEL], "u-1");
        let owner = format!("app.example.com/v1alpha1/PodSet default/web owns ConfigMap {namespace}/copy");
        assert_eq!(metadata["annotations"][OWNER_ANNOTATION], owner);
    }
    check(&copies(&["elsewhere", "default"]), live.clone(), expect![""]);
    check(&copies(&["default"]), live, expect!["delete ConfigMap elsewhere/copy uid=c-0"]);
}

#[test]
fn x3_only_an_object_with_both_marks_of_its_own_is_a_tracked_child() {
    let wanted = copies(&["elsewhere"]);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut live = made(&["elsewhere"]);
        change(&mut live[0]["metadata"]);
        live
    };
    let taken = "taken ConfigMap elsewhere/copy";
    for live in [
        changed(&|metadata| metadata["labels"][OWNER_UID_LABEL] = json!("u-2")),
        changed(&|metadata| metadata["labels"] = json!({})),
        changed(&|metadata| metadata["annotations"] = json!({})),
    ] {
        let diff = missing(&anywhere(), &wanted, live).unwrap();
        assert!(shown(&diff).starts_with(taken), "{}", shown(&diff));
    }
    let controller = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n", "controller": true}]);
    let theirs = changed(&|metadata| metadata["ownerReferences"] = controller.clone());
    check(&wanted, theirs.clone(), expect!["taken ConfigMap elsewhere/copy (of Node n)"]);
    check(&copies(&[]), theirs, expect![""]);
    // A copy of a child, with its marks, in another place: nobody's.
    for (field, value) in [("name", "other"), ("namespace", "third")] {
        check(&copies(&[]), changed(&|metadata| metadata[field] = json!(value)), expect![""]);
    }
}

#[test]
fn marks_of_a_kind_that_is_not_tracked_count_in_the_owners_namespace_alone() {
    let none = outcome(vec![]);
    let diff = missing(&spec(), &none, made(&["elsewhere", "default"])).unwrap();
    assert_eq!(shown(&diff), "delete ConfigMap default/copy uid=c-1");
}

#[test]
fn a_child_with_an_owner_reference_becomes_a_tracked_one_and_back() {
    let wanted = copies(&["default"]);
    let by_reference = created(&wanted);
    check(&wanted, by_reference, expect!["patch ConfigMap default/copy"]);
    let diff = missing(&spec(), &wanted, made(&["default"])).unwrap();
    assert_eq!(shown(&diff), "patch ConfigMap default/copy");
}

#[test]
fn a_namespaced_owner_has_cluster_scoped_children_by_an_empty_namespace() {
    let wanted = outcome(vec![child("all", &copy_in(""))]);
    let diff = missing(&anywhere(), &wanted, vec![]).unwrap();
    let [WriteOp::Apply { target, body, .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
    assert_eq!(target.to_string(), "ConfigMap copy");
    let body: Value = serde_json::from_str(body).unwrap();
    assert!(body["metadata"]["namespace"].is_null(), "{body}");
}

#[test]
fn children_with_the_marks_of_an_earlier_version_are_deleted_with_their_owner_and_those_with_a_reference_are_not() {
    let kinds = [Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")];
    let mut live = made(&["elsewhere", "default"]);
    live.extend(created(&outcome(vec![child("0", &pod("a"))])));
    let snapshot = Snapshot::of(&kinds, live.into_iter().map(decode));
    let diff = deletes_of_tracked(&spec(), &primary(), &snapshot);
    assert_eq!(
        shown(&diff),
        "delete ConfigMap default/copy uid=c-1",
        "the manifest says nothing of other namespaces now"
    );
}

#[test]
fn x3_what_a_call_was_not_shown_is_not_deleted() {
    let kinds = [Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")];
    let snapshot = Snapshot::of(&kinds, made(&["default", "elsewhere", "third"]).into_iter().map(decode));
    let all = Selector::default();
    let objects: Vec<_> = snapshot.list(&kinds[1], None, &all).collect();
    let [wanted, room] = [objects[2].reference(), objects[0].reference()];
    let owned = Owned { kind: &kinds[1], objects, home: "default", wanted: Some([&wanted].into()), most_bytes: 20 };
    let (shown_to_guest, left_out) = owned.fit(|_| 10).unwrap();
    let shown_to_guest: Vec<ObjectRef> = shown_to_guest.into_iter().map(|object| object.reference()).collect();
    assert_eq!(shown_to_guest, [room, wanted]);
    let deletes = |outcome: &Outcome| {
        let prepared = prepare(&anywhere(), &primary(), outcome, None).unwrap();
        let (applied, exact, sent) = (&mut Applied::new(), &mut Applied::new(), &mut Sent::new());
        let spared = Spared { left_out: std::slice::from_ref(&left_out), undeletable: None };
        let memory = Memory { applied, exact, sent, blocked: &Blocked::default(), creates: CERTAIN, spared };
        let diff = diff(&prepared, &anywhere(), &primary(), MANAGER, &snapshot, memory, NOW_UNIX_MS);
        assert!(diff.children.is_empty(), "none is created twice: {diff:?}");
        diff.deletes.iter().map(|op| op.target().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        deletes(&copies(&[])),
        ["ConfigMap default/copy", "ConfigMap third/copy"],
        "what it saw and does not want"
    );
    assert_eq!(deletes(&copies(&["default", "elsewhere", "third"])), Vec::<String>::new());
}

#[test]
fn x10_all_tracked_children_are_deleted_with_their_owner_in_batches() {
    let namespaces: Vec<String> = (0..=MAX_DELETES_PER_PLAN).map(|n| format!("n{n}")).collect();
    let namespaces: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    let mut live = made(&namespaces);
    let deletes = |live: &[Value]| {
        let kinds = [Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")];
        let snapshot = Snapshot::of(&kinds, live.iter().cloned().map(decode));
        let diff = deletes_of_tracked(&anywhere(), &primary(), &snapshot);
        (diff.deletes.len(), diff.more_deletes)
    };
    assert_eq!(deletes(&live), (MAX_DELETES_PER_PLAN, true));
    live[0]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(deletes(&live), (MAX_DELETES_PER_PLAN, false), "one that is being deleted needs no second delete");
    let pods = created(&outcome(vec![child("0", &pod("a"))]));
    assert_eq!(deletes(&pods), (0, false), "the garbage collector deletes the others");
}

#[test]
fn g4_a_child_outside_of_the_declared_namespaces_is_refused_and_one_that_is_there_is_not_touched() {
    let mut spec = anywhere();
    spec.owns[1].scope = crate::scope::tests::scope(&["a", "default"], "");
    assert!(prepare(&spec, &primary(), &copies(&["a", "default"]), None).is_ok());
    let message = refusal(&spec, &copies(&["b"]));
    let expected =
        "child \"b\": v1/ConfigMap would be in the namespace \"b\", and is owned in the namespaces a, default alone";
    assert!(message.contains(expected), "{message}");
    // An earlier version made it, and another plugin reads all ConfigMaps.
    let left = made(&["a", "b"]);
    let diff = missing(&spec, &copies(&[]), left).unwrap();
    let deleted: Vec<String> = diff.deletes.iter().map(|op| op.target().to_string()).collect();
    assert_eq!(deleted, ["ConfigMap a/copy"]);
}

#[test]
fn x3_only_an_owner_in_the_hosts_namespace_has_children_there() {
    let of = |host_namespace: &str, or_skip: bool, from_inside: bool| {
        let children =
            ["default", "elsewhere"].map(|namespace| Child { or_skip, ..child(namespace, &copy_in(namespace)) });
        let mut prepared = prepare(&anywhere(), &primary(), &outcome(children.into()), None).unwrap();
        prepared.reserve(&Reserved { namespace: host_namespace.into(), from_inside }, &primary());
        let snapshot = Snapshot::of(&[Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")], []);
        compared(&prepared, &anywhere(), &snapshot, (&mut Applied::new(), &mut Sent::new()))
    };
    let of_host = |host_namespace: &str, or_skip: bool| of(host_namespace, or_skip, false);
    let written =
        |diff: &Diff| diff.children.iter().map(|op| op.target().name.namespace.to_string()).collect::<Vec<_>>();
    let stalled = of_host("elsewhere", false);
    assert_eq!(
        (written(&stalled), stalled.taken.len(), stalled.taken[0].is_reserved),
        (vec!["default".into()], 1, true)
    );
    let skipped = of_host("elsewhere", true);
    assert_eq!((written(&skipped), skipped.taken.len(), skipped.skipped.len()), (vec!["default".into()], 0, 1));
    assert_eq!(written(&of_host("default", false)), ["default", "elsewhere"], "the owner is in the host's namespace");
    assert_eq!(
        written(&of("default", false, true)),
        ["elsewhere"],
        "where plugins have identities, not from inside either"
    );
}

#[test]
fn x3_a_create_of_unknown_result_in_one_namespace_is_not_that_of_a_child_in_another() {
    let there = |namespace: &str| outcome(vec![child("c", &copy_in(namespace))]);
    let creates_of = |namespace: &str| {
        let diff = missing(&anywhere(), &there(namespace), vec![]).unwrap();
        let target = diff.children[0].target().clone();
        let key = (target.kind.clone(), namespace.into(), "c".into());
        UnknownCreates::from([(key, UnknownCreate { target, until_ms: 0 })])
    };
    let mut derived = copy_in("here");
    derived["metadata"].as_object_mut().unwrap().remove("name");
    let wanted = outcome(vec![child("c", &derived)]);
    let elsewhere = creates_of("elsewhere");
    let creates = Creates { inherited: false, unknown: &elsewhere };
    let diff = missing_after(creates, &primary(), &anywhere(), &wanted, vec![]).unwrap();
    assert_eq!(&*diff.children[0].target().name.namespace, "here");
}
