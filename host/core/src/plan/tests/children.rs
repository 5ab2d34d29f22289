//! What an outcome can say of one child beyond its fields: kept, created once, left out, after others, exact maps.

use super::*;
use crate::allocations::{Count, counted};
use crate::contract::Handling;

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data})
}

fn handled(handling: Handling, key: &str, object: &Value) -> Child {
    Child { handling, ..child(key, object) }
}

fn in_group(group: u32, child: Child) -> Child {
    Child { group, ..child }
}

/// The API server's record that our manager owns the fields of a child.
fn owned(mut live: Vec<Value>, fields: &Value) -> Vec<Value> {
    for object in &mut live {
        let mut fields = fields.clone();
        fields["f:metadata"] = json!({
            "f:annotations": {"f:mortise.dev/child": {}}, "f:labels": {"f:app.kubernetes.io/managed-by": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u-1\"}": {}},
        });
        object["metadata"]["managedFields"] = json!([{
            "manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }]);
    }
    live
}

#[test]
fn a_kept_child_is_neither_created_nor_changed_nor_deleted() {
    let before = outcome(vec![child("0", &pod("a")), child("c", &config(json!({"a": "1"})))]);
    let kept = |kind: &str, key: &str| handled(Handling::Keep, key, &json!({"apiVersion": "v1", "kind": kind}));
    let wanted = outcome(vec![kept("Pod", "0"), kept("ConfigMap", "c")]);
    check(&wanted, created(&before), expect![""]);
    check(&wanted, vec![], expect![""]);
    let named = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chosen"}});
    check(&outcome(vec![kept("ConfigMap", "n")]), created(&outcome(vec![child("n", &named)])), expect![""]);
    let fields = handled(Handling::Keep, "c", &config(json!({})));
    check(
        &outcome(vec![fields]),
        vec![],
        expect![[
            r#"the outcome was refused: child "c": data: a child that is kept as it is has only apiVersion, kind and metadata"#
        ]],
    );
}

#[test]
fn a_child_that_is_created_once_is_not_changed_after() {
    for (key, kind, before, after) in
        [("0", "Pod", pod("a"), pod("b")), ("c", "ConfigMap", config(json!({"a": "1"})), config(json!({"a": "2"})))]
    {
        let once = |object: &Value| outcome(vec![handled(Handling::CreateOnce, key, object)]);
        let diff = missing(&spec(), &once(&before), vec![]).unwrap();
        let [WriteOp::Create { target, body }] = diff.children.as_slice() else { panic!("{diff:?}") };
        assert_eq!(&*target.kind.kind, kind);
        assert!(!body.contains("mortise.dev/desired"), "{body}");
        check(&once(&after), created(&once(&before)), expect![""]);
        let gone = missing(&spec(), &outcome(vec![]), created(&once(&before))).unwrap();
        assert_eq!(gone.deletes.len(), 1, "one that is not wanted any more is deleted");
    }
}

#[test]
fn x3_a_child_that_may_be_left_out_stalls_nothing_while_its_name_is_taken() {
    let either = |or_skip: bool| outcome(vec![Child { or_skip, ..child("0", &pod("a")) }, child("1", &pod("a"))]);
    let mut live = created(&either(true));
    live[0]["metadata"]["ownerReferences"] = json!([]);
    check(&either(true), live.clone(), expect!["skipped Pod default/web-0-kddw55s2"]);
    check(&either(false), live, expect!["taken Pod default/web-0-kddw55s2"]);
}

#[test]
fn a_group_is_written_when_the_children_of_lower_groups_are_as_wanted_and_available() {
    // The order in which the guest names them does not count.
    let wanted = outcome(vec![
        in_group(2, child("c", &config(json!({})))),
        in_group(1, child("0", &pod("a"))),
        child("1", &pod("a")),
    ]);
    check(&wanted, vec![], expect!["create Pod default/web-1-46kknmcr"]);
    let first = outcome(vec![child("1", &pod("a"))]);
    check(&wanted, created(&first), expect![""]);
    let ready = |mut live: Vec<Value>| {
        live[0]["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        live
    };
    check(&wanted, ready(created(&first)), expect!["create Pod default/web-0-kddw55s2"]);
    // A higher group that exists is not deleted when a lower one fails, and one that is not wanted is.
    let all = outcome(vec![
        child("1", &pod("a")),
        child("0", &pod("a")),
        child("c", &config(json!({}))),
        child("d", &config(json!({}))),
    ]);
    check(&wanted, created(&all), expect!["delete ConfigMap default/web-d-dfljdwgm uid=p-3"]);
    // Nor is it changed: the lower group comes first.
    let changed = outcome(vec![child("1", &pod("b")), in_group(1, child("0", &pod("b")))]);
    let live = ready(created(&outcome(vec![child("1", &pod("a")), child("0", &pod("a"))])));
    check(&changed, live, expect!["delete Pod default/web-1-46kknmcr uid=p-0"]);
    let alone = outcome(vec![in_group(7, child("0", &pod("a")))]);
    check(&alone, vec![], expect!["create Pod default/web-0-kddw55s2"]);
}

#[test]
fn a_child_that_is_left_out_or_kept_and_absent_holds_up_no_group() {
    let kept = handled(Handling::Keep, "c", &json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    let skipped = Child { or_skip: true, ..child("0", &pod("a")) };
    let mut live = created(&outcome(vec![skipped.clone()]));
    live[0]["metadata"]["ownerReferences"] = json!([]);
    let wanted = outcome(vec![kept, skipped, in_group(1, child("1", &pod("a")))]);
    check(
        &wanted,
        live,
        expect![[r#"
        create Pod default/web-1-46kknmcr
        skipped Pod default/web-0-kddw55s2"#]],
    );
}

#[test]
fn an_exact_map_has_the_wanted_members_alone() {
    let exact = |paths: &[&str]| {
        let exact = paths.iter().map(|&path| path.into()).collect();
        outcome(vec![Child { exact, ..child("c", &config(json!({"a": "1"}))) }])
    };
    let mut live = owned(created(&exact(&["data"])), &json!({"f:data": {"f:a": {}}}));
    check(&exact(&["data", "binaryData"]), live.clone(), expect![""]);
    live[0]["data"]["theirs"] = json!("2");
    live[0]["binaryData"] = json!({"b": "AA=="});
    check(&exact(&[]), live.clone(), expect![""]);
    let diff = missing(&spec(), &exact(&["data", "binaryData"]), live.clone()).unwrap();
    let [WriteOp::Patch { body, only_if, .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
    assert_eq!(&**body, r#"{"binaryData":{"b":null},"data":{"theirs":null}}"#);
    assert_eq!(*only_if, Precondition::Is("p-0".into()));
    for (path, message) in [
        ("metadata.labels", "metadata.labels: others have members of metadata too"),
        ("data..x", "the field path \"data..x\" is invalid at byte 5: a member name is missing"),
    ] {
        assert!(refusal(&spec(), &exact(&[path])).contains(message), "{path}");
    }
    let pods = outcome(vec![Child { exact: vec!["spec".into()], ..child("0", &pod("a")) }]);
    assert!(refusal(&spec(), &pods).contains("only a child that is changed in place"));
}

#[test]
fn the_exact_maps_of_a_child_are_few_and_counted() {
    let exact = |paths: Vec<String>| {
        let exact = paths.iter().map(|path| path.as_str().into()).collect();
        outcome(vec![Child { exact, ..child("c", &config(json!({}))) }])
    };
    let deep = |members: usize| vec!["a"; members].join(".");
    let bytes = |wanted: &Outcome| prepare(&spec(), &primary(), wanted, None).unwrap().bytes();
    let (none, most) = (bytes(&exact(vec![])), bytes(&exact(vec![deep(16); 16])));
    assert!((16 * 31..2_048).contains(&(most - none)), "as text: {none} and {most} bytes");
    assert!(
        refusal(&spec(), &exact(vec!["data".to_owned(); 17])).contains("exact: there are 17 paths, the most is 16")
    );
    assert!(refusal(&spec(), &exact(vec![deep(17)])).contains("exact: a path has 17 members, the most is 16"));
}

/// Plans of one exact ConfigMap with a member that others set, with what a key remembers of earlier ones.
fn plans_of_exact(live: Vec<Value>, sent: &mut Sent) -> [Diff; 2] {
    let wanted = outcome(vec![Child { exact: vec!["data".into()], ..child("c", &config(json!({"a": "1"}))) }]);
    let prepared = prepare(&spec(), &primary(), &wanted, None).unwrap();
    let snapshot = Snapshot::of(&[Kind::new("v1", "ConfigMap")], live.into_iter().map(decode));
    let exact = &mut Applied::new();
    [(); 2].map(|()| compared(&prepared, &spec(), &snapshot, (exact, sent)))
}

fn with_theirs(value: &str) -> Vec<Value> {
    let wanted = outcome(vec![child("c", &config(json!({"a": "1"})))]);
    let mut live = owned(created(&wanted), &json!({"f:data": {"f:a": {}}}));
    live[0]["data"]["theirs"] = json!(value);
    live
}

#[test]
fn x5_a_removal_that_the_api_server_takes_back_is_sent_once_for_each_version() {
    let live = with_theirs("default");
    let mut sent = Sent::new();
    let [first, second] = plans_of_exact(live.clone(), &mut sent);
    let [WriteOp::Patch { target, body, .. }] = first.children.as_slice() else { panic!("{first:?}") };
    assert_eq!(second.children, first.children, "it is sent until it succeeds");
    sent.insert((target.clone(), None), (crate::digest::fingerprint(&[body]), crate::object::ResourceVersion(20)));
    let [first, second] = plans_of_exact(live.clone(), &mut sent);
    assert_eq!((first.children, second.children), (vec![], vec![]));
    assert!(second.parsing.bytes < first.parsing.bytes, "each version is looked at once");
    let mut later = live;
    later[0]["metadata"]["resourceVersion"] = json!("30");
    assert_eq!(plans_of_exact(later, &mut sent)[0].children.len(), 1);
}

#[test]
fn x5_a_plan_that_applies_a_child_removes_nothing_of_it() {
    let wanted = outcome(vec![Child { exact: vec!["data".into()], ..child("c", &config(json!({"a": "2"}))) }]);
    let diff = missing(&spec(), &wanted, with_theirs("2")).unwrap();
    let [WriteOp::Apply { .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
}

#[test]
fn a_rolling_replacement_does_not_count_the_groups_that_wait_for_it() {
    let mut rolling = spec();
    rolling.owns[0].update = Update::RollingRecreate { max_unavailable: 1 };
    let ready = |mut live: Vec<Value>| {
        live[0]["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        live
    };
    let shown_of = |wanted: &Outcome, live| shown(&missing(&rolling, wanted, live).unwrap());
    let live = ready(created(&outcome(vec![child("0", &pod("a"))])));
    let kept = handled(Handling::Keep, "k", &json!({"apiVersion": "v1", "kind": "Pod"}));
    let absent = outcome(vec![child("0", &pod("b")), in_group(1, child("1", &pod("b"))), in_group(2, kept)]);
    assert_eq!(shown_of(&absent, live), "delete Pod default/web-0-kddw55s2 uid=p-0");
    // Nor one that is there and unavailable.
    let both = |image: &str| outcome(vec![child("0", &pod(image)), in_group(1, child("1", &pod("a")))]);
    let all = outcome(vec![child("0", &pod("a")), child("1", &pod("a"))]);
    assert_eq!(shown_of(&both("b"), ready(created(&all))), "delete Pod default/web-0-kddw55s2 uid=p-0");
    assert_eq!(shown_of(&both("a"), ready(created(&all))), "");
}

#[test]
fn x5_a_plan_without_writes_allocates_nothing_for_each_child() {
    let allocations = |children: usize| {
        let wanted = outcome((0..children).map(|key| child(&key.to_string(), &pod("a"))).collect());
        let (spec, kinds) = (spec(), [Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")]);
        let prepared = prepare(&spec, &primary(), &wanted, None).unwrap();
        let snapshot = Snapshot::of(&kinds, created(&wanted).into_iter().map(decode));
        let (mut exact, mut sent) = (Applied::new(), Sent::new());
        let (Count { allocations, .. }, diff) =
            counted(|| compared(&prepared, &spec, &snapshot, (&mut exact, &mut sent)));
        assert_eq!(shown(&diff), "");
        allocations
    };
    let (few, many) = (allocations(10), allocations(100));
    // Two lists of the children grow, by doubling.
    assert!(many <= few + 10, "{few} for ten children, {many} for a hundred");
}

/// An applied ConfigMap with so many members and the fields of its apply, in a snapshot.
fn large(members: usize) -> (Prepared, Snapshot) {
    let data: serde_json::Map<_, _> = (0..members).map(|number| (format!("k{number:05}"), json!("0"))).collect();
    let wanted =
        outcome(vec![Child { exact: vec!["data".into()], ..child("c", &config(Value::Object(data.clone()))) }]);
    let fields: serde_json::Map<_, _> = data.keys().map(|name| (format!("f:{name}"), json!({}))).collect();
    let live = owned(created(&wanted), &json!({"f:data": fields}));
    let prepared = prepare(&spec(), &primary(), &wanted, None).unwrap();
    (prepared, Snapshot::of(&[Kind::new("v1", "ConfigMap")], live.into_iter().map(decode)))
}

#[test]
fn q4_what_takes_long_to_compare_is_compared_before_and_the_loop_parses_little() {
    let compare = |(prepared, snapshot): &(Prepared, Snapshot)| {
        compared(prepared, &spec(), snapshot, (&mut Applied::new(), &mut Sent::new()))
    };
    let small = large(100);
    assert_eq!(compare(&small).children, []);
    assert!(compare(&small).parsing.bytes > 1_000, "it is compared where it is asked");
    let large = large(5_000);
    let alone = compare(&large);
    assert!(alone.parsing.is_unfinished && alone.parsing.bytes == 0);
    assert_eq!(alone.children.len(), 1, "in doubt it is applied");
    let (prepared, snapshot) = &large;
    compare_beforehand(prepared, "mortise/other", snapshot);
    assert!(compare(&large).parsing.is_unfinished, "another manager owns other fields");
    compare_beforehand(prepared, MANAGER, snapshot);
    let known = compare(&large);
    assert_eq!((known.children, known.parsing), (vec![], Parsing::default()), "nothing is parsed, nor missing");
    let (changed, _) = self::large(5_001);
    compare_beforehand(&changed, MANAGER, snapshot);
    let differs = compare(&(changed, snapshot.clone()));
    assert!(differs.children.len() == 1 && !differs.parsing.is_unfinished);
}

#[test]
fn children_of_very_much_text_are_created_by_several_plans() {
    let large = |key: usize| child(&key.to_string(), &pod(&"x".repeat(100 << 10)));
    let wanted = outcome((0..10).map(large).collect());
    let first = missing(&spec(), &wanted, vec![]).unwrap();
    assert_eq!((first.children.len(), first.waits), (6, true), "those of half a MiB, and one");
    let mut live = created(&wanted);
    let second = missing(&spec(), &wanted, live.clone()).unwrap();
    assert_eq!((second.children.len(), second.waits), (4, false));
    live.extend(created(&outcome((6..10).map(large).collect())));
    assert_eq!(missing(&spec(), &wanted, live).unwrap().children, []);
}
