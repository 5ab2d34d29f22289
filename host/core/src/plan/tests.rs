//! An outcome and a view in, the missing writes as text out.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::contract::{Child, Condition, GuestEvent, GuestFault, Outcome};
use crate::eviction::Blocked;
use crate::limits::{MAX_CHILDREN, MAX_DELETES_PER_PLAN};
use crate::manifest::writes::{WriteRule, WriteVerb};
use crate::manifest::{ControllerSpec, OwnedKind, Predicate, Replace, Update};
use crate::object::{Kind, Name, Object, ObjectRef, tests};
use crate::scope::Scope;
use crate::spared::Spared;
use crate::store::Snapshot;
use crate::write::{Precondition, WriteOp};

mod actions;
mod adoption;
mod children;
mod generated;
mod hostile;
mod successors;
mod texts;
mod tracked;

const MANAGER: &str = "mortise/podset";
const NOW_UNIX_MS: u64 = 1_700_000_000_000;

fn decode(value: Value) -> Object {
    tests::decode(&value.to_string())
}

fn primary() -> Object {
    decode(json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "u-1", "resourceVersion": "10", "generation": 2},
    }))
}

fn rule(api_version: &str, kind: &str, verbs: &[WriteVerb], subresources: &[&str]) -> WriteRule {
    let subresources = subresources.iter().map(|&name| name.to_owned()).collect();
    WriteRule { kind: Kind::new(api_version, kind), verbs: verbs.to_vec(), subresources }
}

fn spec() -> ControllerSpec {
    let owned = |api_version, kind, update| OwnedKind {
        kind: Kind::new(api_version, kind),
        update,
        replace: Replace::WhenGone,
        tracked: false,
        adopt: false,
        scope: Scope::default(),
    };
    ControllerSpec {
        primary: Kind::new("app.example.com/v1alpha1", "PodSet"),
        scope: Scope::default(),
        builtin: false,
        selection: Predicate::default(),
        owns: vec![owned("v1", "Pod", Update::Recreate), owned("v1", "ConfigMap", Update::Apply)],
        reads: vec![Kind::new("apps/v1", "Deployment").into(), Kind::new("v1", "Node").into()],
        patterns: Vec::new(),
        writes: [
            rule("apps/v1", "Deployment", &[WriteVerb::Patch, WriteVerb::Delete], &["scale"]),
            rule("v1", "Node", &[WriteVerb::Patch], &[]),
            rule("v1", "Pod", &[WriteVerb::Evict], &[]),
            rule("v1", "Service", &[WriteVerb::Apply, WriteVerb::Patch], &[]),
            rule("v1", "ConfigMap", &[WriteVerb::Apply, WriteVerb::Delete], &[]),
            rule("example.com/v1", "Thing", &[WriteVerb::Patch], &[]),
        ]
        .into(),
        http: [].into(),
        finalize: false,
        concurrency: 1,
        visible: Vec::new(),
    }
}

fn pod(image: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn child(key: &str, object: &Value) -> Child {
    Child::new(key, object.to_string())
}

fn outcome(children: Vec<Child>) -> Outcome {
    Outcome { children: Some(children), ..Outcome::default() }
}

fn missing(spec: &ControllerSpec, outcome: &Outcome, live: Vec<Value>) -> Result<Diff, GuestFault> {
    missing_after(CERTAIN, &primary(), spec, outcome, live)
}

/// Every create of the past is seen.
const CERTAIN: Creates<'_> = Creates { inherited: false, unknown: &UnknownCreates::new() };

fn missing_after(
    creates: Creates<'_>,
    primary: &Object,
    spec: &ControllerSpec,
    outcome: &Outcome,
    live: Vec<Value>,
) -> Result<Diff, GuestFault> {
    let prepared = prepare(spec, primary, outcome, None)?;
    let kinds = [Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")];
    let snapshot = Snapshot::of(&kinds, live.into_iter().map(decode));
    let (applied, exact, sent) = (&mut Applied::new(), &mut Applied::new(), &mut Sent::new());
    let memory = Memory { applied, exact, sent, blocked: &Blocked::default(), creates, spared: Spared::default() };
    Ok(diff(&prepared, spec, primary, MANAGER, &snapshot, memory, NOW_UNIX_MS))
}

/// Compares with what earlier diffs and writes left: which exact maps are clean, and the patches.
fn compared(
    prepared: &Prepared,
    spec: &ControllerSpec,
    snapshot: &Snapshot,
    (exact, sent): (&mut Applied, &mut Sent),
) -> Diff {
    let memory = Memory {
        applied: &mut Applied::new(),
        exact,
        sent,
        blocked: &Blocked::default(),
        creates: CERTAIN,
        spared: Spared::default(),
    };
    diff(prepared, spec, &primary(), MANAGER, snapshot, memory, NOW_UNIX_MS)
}

fn refusal(spec: &ControllerSpec, outcome: &Outcome) -> String {
    prepare(spec, &primary(), outcome, None).unwrap_err().message()
}

/// The children that a first plan creates, as the API server would show them.
fn created(outcome: &Outcome) -> Vec<Value> {
    let diff = missing(&spec(), outcome, vec![]).unwrap();
    let body = |(index, op): (usize, &WriteOp)| {
        let (WriteOp::Create { body, .. } | WriteOp::Apply { body, .. }) = op else { panic!("{op:?}") };
        let mut live: Value = serde_json::from_str(body).unwrap();
        live["metadata"]["uid"] = json!(format!("p-{index}"));
        live["metadata"]["resourceVersion"] = json!((20 + index).to_string());
        live
    };
    diff.children.iter().enumerate().map(body).collect()
}

#[track_caller]
fn check(outcome: &Outcome, live: Vec<Value>, expected: Expect) {
    expected.assert_eq(&missing(&spec(), outcome, live).map_or_else(|fault| fault.message(), |diff| shown(&diff)));
}

fn shown(diff: &Diff) -> String {
    let op = |op: &WriteOp| match op {
        WriteOp::Delete { target, uid, .. } => format!("delete {target} uid={uid}"),
        op => format!("{} {}", op.verb(), op.target()),
    };
    let mut lines: Vec<String> = diff.children.iter().chain(&diff.deletes).map(op).collect();
    lines.extend(diff.taken.iter().map(|taken| format!("taken {taken}")));
    lines.extend(diff.skipped.iter().map(|taken| format!("skipped {taken}")));
    if diff.waits {
        let why =
            [(diff.unsure, "is unsure"), (diff.unmarked, "marks its owner")].into_iter().find(|(holds, _)| *holds);
        lines.push(why.map_or("waits", |(_, why)| why).to_owned());
    }
    if diff.more_deletes {
        lines.push("more deletes".to_owned());
    }
    lines.join("\n")
}

#[test]
fn x3_names_follow_from_owner_uid_kind_and_key_alone() {
    let wanted = outcome(vec![child("0", &pod("a")), child("1", &pod("a"))]);
    check(
        &wanted,
        vec![],
        expect![[r#"
            create Pod default/web-0-kddw55s2
            create Pod default/web-1-46kknmcr"#]],
    );
}

#[test]
fn x5_a_child_that_is_as_wanted_is_not_written() {
    let wanted = outcome(vec![child("0", &pod("a")), child("1", &pod("a"))]);
    check(&wanted, created(&wanted), expect![""]);
}

#[test]
fn x4_a_child_that_is_not_wanted_is_deleted_by_its_uid() {
    let before = outcome(vec![child("0", &pod("a")), child("1", &pod("a"))]);
    check(
        &outcome(vec![child("0", &pod("a"))]),
        created(&before),
        expect!["delete Pod default/web-1-46kknmcr uid=p-1"],
    );
    check(
        &outcome(vec![]),
        created(&before),
        expect![[r#"
        delete Pod default/web-0-kddw55s2 uid=p-0
        delete Pod default/web-1-46kknmcr uid=p-1"#]],
    );
    check(&Outcome::default(), created(&before), expect![""]);
}

#[test]
fn a_recreated_child_that_differs_is_deleted_first() {
    let before = outcome(vec![child("0", &pod("a"))]);
    let after = outcome(vec![child("0", &pod("b"))]);
    check(&after, created(&before), expect!["delete Pod default/web-0-kddw55s2 uid=p-0"]);
    let mut deleting = created(&before);
    deleting[0]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check(&after, deleting, expect!["waits"]);
}

#[test]
fn x2_a_child_that_is_changed_in_place_is_applied() {
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}});
    let wanted = outcome(vec![child("c", &config("1"))]);
    check(&wanted, vec![], expect!["patch ConfigMap default/web-c-2gw7pwk2"]);
    let mut live = created(&wanted);
    live[0]["metadata"]["managedFields"] = json!([{
        "manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}, "f:metadata": {
            "f:annotations": {"f:mortise.dev/child": {}}, "f:labels": {"f:app.kubernetes.io/managed-by": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u-1\"}": {}}}},
    }]);
    check(&wanted, live.clone(), expect![""]);
    check(&outcome(vec![child("c", &config("2"))]), live, expect!["patch ConfigMap default/web-c-2gw7pwk2"]);
}

#[test]
fn x3_an_object_of_another_owner_is_never_written() {
    let wanted = outcome(vec![child("0", &pod("a"))]);
    let mut foreign = created(&wanted);
    foreign[0]["metadata"]["ownerReferences"][0]["uid"] = json!("u-2");
    check(&wanted, foreign, expect!["taken Pod default/web-0-kddw55s2 (of PodSet web)"]);
}

#[test]
fn x6_an_outcome_has_no_status_for_a_built_in_kind() {
    let builtin = ControllerSpec { builtin: true, ..spec() };
    let status = Outcome { status: Some("{}".into()), ..Outcome::default() };
    let message = refusal(&builtin, &status);
    assert!(message.contains("status: app.example.com/v1alpha1/PodSet is a built-in kind"), "{message}");
    assert!(refusal(&builtin, &condition("Ready")).contains("conditions: "));
    assert!(prepare(&spec(), &primary(), &status, None).is_ok());
    assert!(prepare(&builtin, &primary(), &outcome(vec![child("0", &pod("a"))]), None).is_ok());
}

#[test]
fn x3_children_that_kubernetes_itself_created_are_left_alone() {
    let builtin = ControllerSpec { builtin: true, ..spec() };
    let wanted = outcome(vec![child("0", &pod("a")), child("1", &pod("a"))]);
    let mut live = created(&wanted);
    live[1]["metadata"]["annotations"].as_object_mut().unwrap().remove("mortise.dev/child");
    let missing = |wanted: &Outcome| shown(&missing(&builtin, wanted, live.clone()).unwrap());
    assert_eq!(missing(&outcome(vec![])), "delete Pod default/web-0-kddw55s2 uid=p-0", "the other has no key");
    assert_eq!(missing(&wanted), "taken Pod default/web-1-46kknmcr (of PodSet web)");
}

#[test]
fn x6_metadata_of_the_host_is_refused_by_name() {
    let with = |field: &str, value: Value| {
        let mut pod = pod("a");
        pod["metadata"] = json!({field: value});
        outcome(vec![child("0", &pod)])
    };
    check(
        &with("ownerReferences", json!([])),
        vec![],
        expect![[
            r#"the outcome was refused: child "0": metadata.ownerReferences is set: it belongs to the host or to the API server"#
        ]],
    );
    check(
        &with("namespace", json!("kube-system")),
        vec![],
        expect![[
            r#"the outcome was refused: child "0": metadata.namespace is "kube-system": a child lives in its owner's namespace, "default"; for children elsewhere write "namespaces": "any" at v1/Pod under owns"#
        ]],
    );
    check(
        &with("name", json!("../x")),
        vec![],
        expect![[r#"the outcome was refused: child "0": "../x" is not a name that Kubernetes accepts"#]],
    );
    check(
        &with("generateName", json!("x-")),
        vec![],
        expect![[
            r#"the outcome was refused: child "0": metadata.generateName is set: it belongs to the host or to the API server"#
        ]],
    );
    check(
        &with("labels", json!({"mortise.dev/child": "7"})),
        vec![],
        expect![[
            r#"the outcome was refused: child "0": metadata.labels["mortise.dev/child"] is set: everything under mortise.dev/ is the host's"#
        ]],
    );
    let secret = json!({"apiVersion": "v1", "kind": "Secret"});
    check(
        &outcome(vec![child("0", &secret)]),
        vec![],
        expect![[
            r#"the outcome was refused: child "0": v1/Secret is not among the kinds that the manifest declares under owns"#
        ]],
    );
    check(
        &outcome(vec![child("0", &pod("a")), child("0", &pod("b"))]),
        vec![],
        expect![[r#"the outcome was refused: child "0": the key appears twice for v1/Pod"#]],
    );
    let garbage = outcome(vec![Child::new("0", "{")]);
    check(
        &garbage,
        vec![],
        expect![[
            r#"the outcome was refused: child "0": it is not JSON: EOF while parsing an object at line 1 column 1"#
        ]],
    );
}

#[test]
fn x6_metadata_of_the_wrong_type_is_refused_and_not_replaced() {
    for (field, value) in
        [("name", json!(5)), ("namespace", json!(["a"])), ("labels", json!("x")), ("annotations", json!(1))]
    {
        let mut pod = pod("a");
        pod["metadata"] = json!({field: value});
        let message = refusal(&spec(), &outcome(vec![child("0", &pod)]));
        assert!(message.contains(&format!("metadata.{field} is {value}, not ")), "{message}");
    }
}

fn condition(name: &str) -> Outcome {
    let status = crate::contract::ConditionStatus::True;
    let condition = Condition { name: name.into(), status, reason: "Said".into(), message: String::new() };
    Outcome { conditions: vec![condition], ..Outcome::default() }
}

#[test]
fn x6_the_hosts_own_condition_and_kinds_that_are_not_declared_are_refused_by_name() {
    assert!(refusal(&spec(), &condition("Stalled")).contains("conditions: Stalled is the host's own"));
    assert!(refusal(&spec(), &condition("not ready")).contains("both have to be CamelCase words"));
    assert!(prepare(&spec(), &primary(), &condition("example.com/Synced"), None).is_ok());

    let about = |kind: &str| Outcome {
        events: vec![GuestEvent {
            warning: false,
            reason: "Said".to_owned(),
            message: String::new(),
            regarding: Some(ObjectRef { kind: Kind::new("v1", kind), name: Name::new("default", "a") }),
        }],
        ..Outcome::default()
    };
    let message = refusal(&spec(), &about("Secret"));
    assert!(message.contains("Secret default/a, which the manifest does not declare"), "{message}");
    assert!(prepare(&spec(), &primary(), &about("Pod"), None).is_ok());
}

#[test]
fn x10_an_outcome_is_bounded() {
    let many: Vec<Child> = (0..=MAX_CHILDREN).map(|index| child(&index.to_string(), &pod("a"))).collect();
    check(
        &outcome(many.clone()),
        vec![],
        expect!["the outcome was refused: children: there are 5001, one object may have 5000"],
    );
    let diff = missing(&spec(), &outcome(vec![]), created(&outcome(many[..150].to_vec()))).unwrap();
    assert_eq!((diff.deletes.len(), diff.more_deletes), (MAX_DELETES_PER_PLAN, true));
    let events = vec![GuestEvent { warning: false, reason: "A".into(), message: String::new(), regarding: None }; 17];
    check(
        &Outcome { events, ..Outcome::default() },
        vec![],
        expect!["the outcome was refused: events: there are 17, the most is 16"],
    );
}

#[test]
fn finalized_is_refused_without_a_finalizer_and_without_a_deletion() {
    let outcome = Outcome { finalized: true, ..Outcome::default() };
    assert!(refusal(&spec(), &outcome).contains("the manifest declares no finalizer"));
    let spec = ControllerSpec { finalize: true, ..spec() };
    assert!(refusal(&spec, &outcome).contains("the object is not being deleted"));
}

#[test]
fn a_requeue_is_clamped_to_a_second_and_a_day() {
    for (requested_ms, clamped_ms) in [(0, 1_000), (5_000, 5_000), (u32::MAX, 86_400_000)] {
        let outcome = Outcome { requeue_after_ms: Some(requested_ms), ..Outcome::default() };
        assert_eq!(prepare(&spec(), &primary(), &outcome, None).unwrap().requeue_after_ms, Some(clamped_ms));
    }
}

#[test]
fn a_known_child_is_prepared_as_a_new_one() {
    let (one, two) = (pod("one"), pod("two"));
    let first = outcome(vec![child("0", &one), child("1", &one), child("2", &two)]);
    let known = prepare(&spec(), &primary(), &first, None).unwrap();
    for next in [
        vec![child("0", &one), child("1", &one), child("2", &two)],
        vec![child("1", &one), child("0", &one)],
        vec![child("0", &two), child("1", &one), child("2", &two), child("3", &one)],
    ] {
        let next = outcome(next);
        let anew = prepare(&spec(), &primary(), &next, None).unwrap();
        assert_eq!(prepare(&spec(), &primary(), &next, Some(&known)).unwrap(), anew);
    }
    let twice = outcome(vec![child("1", &two), child("1", &one)]);
    assert!(prepare(&spec(), &primary(), &twice, Some(&known)).is_err(), "keys of known children are compared too");
}
