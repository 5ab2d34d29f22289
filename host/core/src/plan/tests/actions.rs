//! Actions: which are refused, and which are missing from a view.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{CERTAIN, MANAGER, child, decode, outcome, primary, refusal, rule, spec};
use crate::contract::{Action, Child, Outcome, PatchKind, Propagation};
use crate::digest::fingerprint;
use crate::eviction::Blocked;
use crate::limits::{MAX_ACTIONS, MAX_DELETES_PER_PLAN};
use crate::manifest::ControllerSpec;
use crate::manifest::writes::WriteVerb;
use crate::object::{Kind, Name, ObjectRef, ResourceVersion};
use crate::plan::{ActionDiff, Applied, Memory, Reserved, Sent, diff_actions, prepare};
use crate::spared::Spared;
use crate::store::Snapshot;
use crate::write::WriteOp;

fn object(api_version: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::new(api_version, kind), name: Name::new("default", name) }
}

fn deployment() -> ObjectRef {
    object("apps/v1", "Deployment", "web")
}

fn patch_of(target: ObjectRef, patch_kind: PatchKind, body: &Value, subresource: Option<&str>) -> Action {
    Action::Patch { target, patch_kind, body: body.to_string().into(), subresource: subresource.map(str::to_owned) }
}

fn merge(body: &Value) -> Action {
    patch_of(deployment(), PatchKind::Merge, body, None)
}

fn apply(object: &Value) -> Action {
    Action::Apply { object: object.to_string().into(), force: false }
}

fn evict(name: &str) -> Action {
    Action::Evict { target: object("v1", "Pod", name) }
}

#[track_caller]
fn refused(action: Action, why: &str) {
    let message = refusal(&spec(), &Outcome { actions: vec![action], ..Outcome::default() });
    assert!(message.starts_with("the outcome was refused: actions[0]: ") && message.contains(why), "{message}");
}

#[test]
fn writes_that_are_not_declared_are_refused_by_name() {
    let secret = object("v1", "Secret", "a");
    let patch = patch_of(secret.clone(), PatchKind::Merge, &json!({}), None);
    refused(patch, "patch of v1/Secret is not declared under writes");
    refused(Action::Evict { target: secret }, "evict of v1/Secret is not declared");
    let delete = Action::Delete { target: object("v1", "Node", "a"), propagation: Propagation::Orphan };
    refused(delete, "delete of v1/Node is not");
    let thing = apply(&json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}));
    refused(thing, "apply of example.com/v1/Thing is not declared");
    let status = patch_of(deployment(), PatchKind::Merge, &json!({}), Some("status"));
    refused(status, "patch of apps/v1/Deployment \"status\" is not declared");
}

#[test]
fn x6_a_patch_changes_no_metadata_but_labels_and_annotations() {
    for field in ["finalizers", "ownerReferences", "resourceVersion", "name"] {
        refused(merge(&json!({"metadata": {field: null}})), &format!("metadata.{field}: a patch may change labels"));
        let path = format!("/metadata/{field}/0");
        let remove = json!([{"op": "remove", "path": path}]);
        refused(patch_of(deployment(), PatchKind::Json, &remove, None), &format!("operation 0: metadata.{field}: "));
        let moved = json!([{"op": "move", "from": path, "path": "/spec/x"}]);
        refused(patch_of(deployment(), PatchKind::Json, &moved, None), &format!("metadata.{field}: "));
    }
    refused(merge(&json!({"metadata": {"labels": {"mortise.dev/x": null}}})), "everything under mortise.dev/ is the");
    refused(merge(&json!({"metadata": {"labels": null}})), "metadata.labels is null, not an object");
    refused(merge(&json!({"metadata": null})), "metadata is null, not an object");
    refused(merge(&json!([])), "the body of a patch is an object");
    let own = json!([{"op": "add", "path": "/metadata/annotations/mortise.dev~1child", "value": "0"}]);
    refused(patch_of(deployment(), PatchKind::Json, &own, None), "metadata.annotations[\"mortise.dev/child\"] is set");
    for whole in ["", "/metadata"] {
        let replace = json!([{"op": "replace", "path": whole, "value": {}}]);
        refused(patch_of(deployment(), PatchKind::Json, &replace, None), "as a whole");
    }
    refused(patch_of(deployment(), PatchKind::Json, &json!([{"op": "add"}]), None), "op and path are missing");
    refused(patch_of(deployment(), PatchKind::Json, &json!({}), None), "a list of operations");
    refused(patch_of(deployment(), PatchKind::Strategic, &json!({"$patch": "delete"}), None), "as a whole");
    let mut of_secrets = spec();
    of_secrets.writes = [rule("v1", "Secret", &[WriteVerb::Patch], &[])].into();
    for directive in
        [json!({"$patch": "replace", "a": "b"}), json!({"$patch": "delete"}), json!({"$retainKeys": ["a"]})]
    {
        for (map, kind) in [("annotations", PatchKind::Strategic), ("labels", PatchKind::Merge)] {
            let patch = patch_of(object("v1", "Secret", "a"), kind, &json!({"metadata": {map: directive}}), None);
            let message = refusal(&of_secrets, &Outcome { actions: vec![patch], ..Outcome::default() });
            let key = directive.as_object().unwrap().keys().next().unwrap();
            assert!(message.contains(&format!("metadata.{map}[{key:?}]: a patch names each label")), "{message}");
        }
    }
    let thing = object("example.com/v1", "Thing", "a");
    refused(patch_of(thing, PatchKind::Strategic, &json!({}), None), "only those take strategic patches");
    let owned = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "finalizers": ["x"]}});
    refused(apply(&owned), "metadata.finalizers is set");
    refused(apply(&json!({"apiVersion": "v1", "kind": "Service"})), "\"\" is not a name that Kubernetes accepts");
}

#[test]
fn an_object_is_written_in_one_way_at_a_time() {
    let twice = Outcome { actions: vec![merge(&json!({})), merge(&json!({"spec": {}}))], ..Outcome::default() };
    let message = refusal(&spec(), &twice);
    assert!(message.contains("actions[1]: Deployment default/web appears twice"), "{message}");
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    let child = Child::new("a", settings.to_string());
    let outcome = Outcome { children: Some(vec![child]), actions: vec![apply(&settings)], ..Outcome::default() };
    let message = refusal(&spec(), &outcome);
    assert!(message.contains("actions[0]: ConfigMap default/a is a child of this outcome"), "{message}");
    let both = vec![merge(&json!({})), patch_of(deployment(), PatchKind::Merge, &json!({"spec": {}}), Some("scale"))];
    assert!(prepare(&spec(), &primary(), &Outcome { actions: both, ..Outcome::default() }, None).is_ok());
    let many = (0..=MAX_ACTIONS).map(|n| evict(&format!("p{n}"))).collect();
    let message = refusal(&spec(), &Outcome { actions: many, ..Outcome::default() });
    assert!(message.contains("actions: there are 501, the most is 500"), "{message}");
}

/// The actions that are missing from a view of these objects.
fn missing(actions: Vec<Action>, live: Vec<Value>, sent: &Sent, blocked: &Blocked, now_ms: u64) -> ActionDiff {
    missing_of(&spec(), actions, live, sent, blocked, now_ms)
}

fn missing_of(
    spec: &ControllerSpec,
    actions: Vec<Action>,
    live: Vec<Value>,
    sent: &Sent,
    blocked: &Blocked,
    now_ms: u64,
) -> ActionDiff {
    let prepared = prepare(spec, &primary(), &Outcome { actions, ..Outcome::default() }, None).unwrap();
    let snapshot = Snapshot::of(&spec.readable(), live.into_iter().map(decode));
    let (applied, exact) = (&mut Applied::new(), &mut Applied::new());
    let memory =
        Memory { applied, exact, sent: &mut sent.clone(), blocked, creates: CERTAIN, spared: Spared::default() };
    diff_actions(&prepared.actions, spec, MANAGER, &snapshot, memory, now_ms)
}

fn shown(diff: &ActionDiff) -> String {
    let op = |op: &WriteOp| match op {
        WriteOp::Patch { target, patch_kind, body, subresource, only_if } => {
            format!("patch {target} {patch_kind:?} {body} {subresource:?} {only_if:?}")
        }
        WriteOp::Delete { target, uid, propagation } => format!("delete {target} uid={uid} {propagation:?}"),
        WriteOp::Evict { target, uid } => format!("evict {target} uid={uid}"),
        op => format!("{} {}", op.verb(), op.target()),
    };
    let mut lines: Vec<String> = diff.changes.iter().chain(&diff.removals).map(op).collect();
    lines.extend(diff.missing.iter().map(|target| format!("missing {target}")));
    lines.join("\n")
}

#[track_caller]
fn check(actions: Vec<Action>, live: Vec<Value>, expected: Expect) {
    expected.assert_eq(&shown(&missing(actions, live, &Sent::new(), &Blocked::default(), 0)));
}

fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "d-1", "resourceVersion": "7"},
        "spec": {"replicas": 1, "list": ["a"]}})
}

fn live_pod(name: &str, deleted_at: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "resourceVersion": "8", "deletionTimestamp": deleted_at}})
}

#[test]
fn x5_a_patch_that_would_change_nothing_is_not_missing() {
    check(
        vec![merge(&json!({"spec": {"replicas": 2}}))],
        vec![web()],
        expect![[r#"patch Deployment default/web Merge {"spec":{"replicas":2}} None Is("d-1")"#]],
    );
    let replace = json!([{"op": "replace", "path": "/spec/replicas", "value": 1}]);
    let same = [
        merge(&json!({"spec": {"replicas": 1.0, "absent": null}})),
        patch_of(deployment(), PatchKind::Strategic, &json!({"spec": {"replicas": 1}}), None),
        patch_of(deployment(), PatchKind::Json, &replace, None),
    ];
    for action in same {
        check(vec![action], vec![web()], expect![""]);
    }
    let tested =
        json!([{"op": "test", "path": "/spec/replicas", "value": 5}, {"op": "remove", "path": "/spec/replicas"}]);
    check(
        vec![patch_of(deployment(), PatchKind::Json, &tested, None)],
        vec![web()],
        expect![[
            r#"patch Deployment default/web Json [{"op":"test","path":"/spec/replicas","value":5},{"op":"remove","path":"/spec/replicas"}] None Is("d-1")"#
        ]],
    );
    check(vec![merge(&json!({}))], vec![], expect!["missing Deployment default/web"]);
}

#[test]
fn x5_a_patch_that_cannot_be_compared_is_sent_once_per_version_of_the_object() {
    let lists = patch_of(deployment(), PatchKind::Strategic, &json!({"spec": {"list": ["a"]}}), None);
    let scale = patch_of(deployment(), PatchKind::Merge, &json!({"spec": {"replicas": 1}}), Some("scale"));
    let service = patch_of(object("v1", "Service", "a"), PatchKind::Merge, &json!({"spec": {}}), None);
    for (action, is_watched) in [(lists, true), (scale, true), (service, false)] {
        let none = Blocked::default();
        let first = missing(vec![action.clone()], vec![web()], &Sent::new(), &none, 0);
        let [WriteOp::Patch { target, body, subresource, .. }] = first.changes.as_slice() else { panic!("{first:?}") };
        let sent = |version| {
            Sent::from([((target.clone(), subresource.clone()), (fingerprint(&[body]), ResourceVersion(version)))])
        };
        assert_eq!(missing(vec![action.clone()], vec![web()], &sent(7), &none, 0), ActionDiff::default());
        let later = missing(vec![action], vec![web()], &sent(6), &none, 0);
        assert_eq!(later.changes.len(), usize::from(is_watched), "a change of the object shows only in a watched kind");
    }
}

#[test]
fn x4_deletes_and_evictions_carry_the_uid_that_was_seen() {
    let delete = Action::Delete { target: deployment(), propagation: Propagation::Foreground };
    check(vec![delete.clone()], vec![web()], expect!["delete Deployment default/web uid=d-1 Foreground"]);
    check(vec![delete], vec![], expect![""]);
    let actions = vec![evict("a"), evict("deleting"), evict("absent")];
    let live = vec![live_pod("a", None), live_pod("deleting", Some("2026-01-01T00:00:00Z"))];
    check(actions, live, expect!["evict Pod default/a uid=uid-a"]);
}

#[test]
fn a_blocked_eviction_waits_and_delays_no_other() {
    let mut blocked = Blocked::default();
    blocked.refuse(&object("v1", "Pod", "a"), "The disruption budget web", 0);
    let at = |now_ms| {
        let live = vec![live_pod("a", None), live_pod("b", None)];
        missing(vec![evict("a"), evict("b")], live, &Sent::new(), &blocked, now_ms).removals.len()
    };
    assert_eq!((at(4_999), at(5_000)), (1, 2));
}

#[test]
fn x10_the_removals_of_one_plan_are_bounded() {
    let names: Vec<String> = (0..MAX_DELETES_PER_PLAN + 5).map(|n| format!("p{n}")).collect();
    let actions = names.iter().map(|name| evict(name)).collect();
    let live = names.iter().map(|name| live_pod(name, None)).collect();
    let diff = missing(actions, live, &Sent::new(), &Blocked::default(), 0);
    assert_eq!((diff.removals.len(), diff.more), (MAX_DELETES_PER_PLAN, true));
}

#[test]
fn an_apply_is_compared_with_the_fields_of_our_manager() {
    let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"},
        "data": {"k": "1"}});
    check(vec![apply(&wanted)], vec![], expect!["patch ConfigMap default/a"]);
    let live = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value, "theirs": "x"},
            "metadata": {"name": "a", "namespace": "default", "uid": "c", "resourceVersion": "5", "managedFields":
                [{"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {"f:k": {}}}}]}})
    };
    check(vec![apply(&wanted)], vec![live("1")], expect![""]);
    check(vec![apply(&wanted)], vec![live("2")], expect!["patch ConfigMap default/a"]);
}

#[test]
fn x5_an_action_outside_of_the_declared_namespaces_is_sent_once_like_one_on_a_kind_that_is_not_read() {
    let mut spec = spec();
    spec.reads[0].scope = crate::scope::tests::scope(&["elsewhere"], "");
    let patch = || vec![merge(&json!({"spec": {"replicas": 1}}))];
    // The cache has it, as another plugin reads it, and already as the patch wants it.
    let first = missing_of(&spec, patch(), vec![web()], &Sent::new(), &Blocked::default(), 0);
    assert!(shown(&first).starts_with("patch Deployment default/web Merge"), "{}", shown(&first));
    assert!(first.missing.is_empty());
    let delete = Outcome {
        actions: vec![Action::Delete { target: deployment(), propagation: Propagation::Background }],
        ..Outcome::default()
    };
    let message = refusal(&spec, &delete);
    assert!(message.contains("does not declare the kind, or its namespace, under reads"), "{message}");
}

#[test]
fn g9_an_action_says_nothing_about_an_object_that_the_plugin_may_not_read() {
    let mut spec = spec();
    spec.visible = vec![(deployment().kind, crate::scope::tests::scope(&["elsewhere"], "").into())];
    let tested = json!([{"op": "test", "path": "/spec/replicas", "value": 1}]);
    let patch = || vec![patch_of(deployment(), PatchKind::Json, &tested, None)];
    let sent = |live: Vec<Value>| shown(&missing_of(&spec, patch(), live, &Sent::new(), &Blocked::default(), 0));
    let there = sent(vec![web()]);
    assert!(there.starts_with("patch Deployment default/web Json"), "{there}");
    assert_eq!(there, sent(Vec::new()), "the API server answers, and not the cache");
    let action = Action::Delete { target: deployment(), propagation: Propagation::Background };
    let message = refusal(&spec, &Outcome { actions: vec![action], ..Outcome::default() });
    assert!(message.contains("the plugin's ServiceAccount may not read it there"), "{message}");
}

/// Forty copies of an object into itself have a trillion times its bytes, and twenty of a chain into its end are nested a
/// million times, which no stack of a thread holds.
#[test]
fn a_patch_that_multiplies_its_object_is_sent_and_not_carried_out_by_the_host() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "3"},
        "a": {"b": "text"}});
    let snapshot = Snapshot::of(&[Kind::new("v1", "Node")], [decode(node)]);
    let wide = (0..40).map(|at| json!({"op": "copy", "from": "/a", "path": format!("/a/{at}")}));
    let deep = (0..20).map(
        |at| json!({"op": "move", "from": format!("/a{at}"), "path": format!("/a{}", "/a".repeat(1 << at.min(6)))}),
    );
    for body in [Value::from_iter(wide), Value::from_iter(deep)] {
        let node = ObjectRef { kind: Kind::new("v1", "Node"), name: Name::new("", "n") };
        let actions = vec![patch_of(node, PatchKind::Json, &body, None)];
        let prepared = prepare(&spec(), &primary(), &Outcome { actions, ..Outcome::default() }, None).unwrap();
        let (applied, exact, sent) = (&mut Applied::new(), &mut Applied::new(), &mut Sent::new());
        let memory =
            Memory { applied, exact, sent, blocked: &Blocked::default(), creates: CERTAIN, spared: Spared::default() };
        let diff = diff_actions(&prepared.actions, &spec(), MANAGER, &snapshot, memory, 0);
        let [WriteOp::Patch { body: patch, .. }] = diff.changes.as_slice() else { panic!("{diff:?}") };
        assert_eq!(**patch, body.to_string());
    }
    let nested = json!([{"op": "add", "path": "/a".repeat(129), "value": 1}]);
    refused(patch_of(deployment(), PatchKind::Json, &nested, None), "operation 0: a pointer has at most 128 members");
}

#[test]
fn x3_an_action_on_a_config_map_that_brings_a_plugin_is_refused_in_any_namespace() {
    let mut spec = spec();
    let config_map = Kind::new("v1", "ConfigMap");
    spec.writes = [rule("v1", "ConfigMap", &[WriteVerb::Apply, WriteVerb::Patch, WriteVerb::Delete], &[])].into();
    let target = ObjectRef { kind: config_map.clone(), name: Name::new("team-a", "podset") };
    let live = |labels: Value| {
        decode(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "podset", "namespace": "team-a", "uid": "t", "resourceVersion": "3", "labels": labels},
        }))
    };
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "podset", "namespace": "team-a"}, "data": {"a": "b"}});
    let actions = || {
        [
            Action::Apply { object: applied.to_string().into(), force: true },
            patch_of(target.clone(), PatchKind::Merge, &json!({"data": {"a": "b"}}), None),
            patch_of(target.clone(), PatchKind::Merge, &json!({"metadata": {"labels": {"a": "b"}}}), None),
            Action::Delete { target: target.clone(), propagation: Propagation::Background },
        ]
    };
    let counted = |action: Action, labels: Value, is_granted: bool| {
        let outcome = Outcome { actions: vec![action], ..Outcome::default() };
        let mut prepared = prepare(&spec, &primary(), &outcome, None).unwrap();
        if !is_granted {
            prepared.reserve(&Reserved { namespace: "mortise-system".into(), from_inside: true }, &primary());
        }
        let snapshot = Snapshot::of(std::slice::from_ref(&config_map), [live(labels)]);
        let (applied, exact, sent) = (&mut Applied::new(), &mut Applied::new(), &mut Sent::new());
        let memory =
            Memory { applied, exact, sent, blocked: &Blocked::default(), creates: CERTAIN, spared: Spared::default() };
        let diff = diff_actions(&prepared.actions, &spec, MANAGER, &snapshot, memory, 0);
        (diff.sources.len(), diff.changes.len() + diff.removals.len())
    };
    for action in actions() {
        assert_eq!(counted(action.clone(), json!({"mortise.dev/plugin": "true"}), false), (1, 0), "{action:?}");
        assert_eq!(counted(action.clone(), json!({"mortise.dev/plugin": "true"}), true), (0, 1), "{action:?}");
        assert_eq!(counted(action.clone(), json!({"app": "podset"}), false), (0, 1), "{action:?}");
    }
    // No content of a plugin makes one.
    let label = json!({"metadata": {"labels": {"mortise.dev/plugin": "true"}}});
    let mut labelled = applied.clone();
    json_patch::merge(&mut labelled, &label);
    let pointer = json!([{"op": "add", "path": "/metadata/labels/mortise.dev~1plugin", "value": "true"}]);
    let object = labelled.to_string().into();
    for action in [
        Action::Apply { object, force: true },
        patch_of(target.clone(), PatchKind::Merge, &label, None),
        patch_of(target.clone(), PatchKind::Strategic, &label, None),
        patch_of(target.clone(), PatchKind::Json, &pointer, None),
    ] {
        let message = refusal(&spec, &Outcome { actions: vec![action], ..Outcome::default() });
        assert!(message.contains("everything under mortise.dev/ is the host's"), "{message}");
    }
    labelled["metadata"]["namespace"] = json!("default");
    let message = refusal(&spec, &outcome(vec![child("c", &labelled)]));
    assert!(message.contains("everything under mortise.dev/ is the host's"), "{message}");
}
