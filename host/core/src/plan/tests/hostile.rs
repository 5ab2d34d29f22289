//! Outcomes that mean harm: JSON nested until a parser's stack ends, and names that address another path. Each is refused whole.

use serde_json::json;

use super::*;
use crate::allocations::counted;
use crate::contract::{Action, PatchKind, Propagation};
use crate::limits::MAX_STATUS_BYTES;

/// Deeper than any stack of a recursive parser, and smaller than any bound on bytes.
const DEPTH: usize = 100_000;

fn deep() -> String {
    ["[".repeat(DEPTH), "]".repeat(DEPTH)].concat()
}

fn acting(action: Action) -> Outcome {
    Outcome { actions: vec![action], ..Outcome::default() }
}

#[test]
fn h15_json_that_is_nested_without_end_is_refused_wherever_a_guest_can_return_it() {
    let deep = deep();
    let target = ObjectRef { kind: Kind::new("apps/v1", "Deployment"), name: Name::new("default", "web") };
    let settings =
        |data: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{data}}}"#);
    let patch = |patch_kind, body: String| {
        acting(Action::Patch { target: target.clone(), patch_kind, body: body.into(), subresource: None })
    };
    for (place, harmful) in [
        ("child \"deep\"", outcome(vec![Child::new("deep", settings(&deep))])),
        ("status", Outcome { status: Some(format!(r#"{{"a":{deep}}}"#).into()), ..Outcome::default() }),
        ("actions[0]", acting(Action::Apply { object: settings(&deep).into(), force: false })),
        ("actions[0]", patch(PatchKind::Merge, format!(r#"{{"spec":{deep}}}"#))),
        ("actions[0]", patch(PatchKind::Strategic, format!(r#"{{"spec":{deep}}}"#))),
        ("actions[0]", patch(PatchKind::Json, format!(r#"[{{"op":"add","path":"/spec/a","value":{deep}}}]"#))),
    ] {
        let message = refusal(&spec(), &harmful);
        assert!(message.starts_with(&format!("the outcome was refused: {place}: it is not JSON")), "{message}");
        assert!(message.len() < 1_000, "it repeats the text: {} bytes", message.len());
    }
}

#[test]
fn q4_a_child_of_very_many_members_is_written_without_a_tree_of_it() {
    const MEMBERS: usize = 20_000;
    let members: serde_json::Map<_, _> = (0..MEMBERS).map(|number| (format!("k{number:05}"), json!(0))).collect();
    let wanted = outcome(vec![child("0", &json!({"apiVersion": "v1", "kind": "Pod", "spec": members}))]);
    let prepared = prepare(&spec(), &primary(), &wanted, None).unwrap();
    let snapshot = Snapshot::of(&[Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")], []);
    let (count, diff) = counted(|| compared(&prepared, &spec(), &snapshot, (&mut Applied::new(), &mut Sent::new())));
    let [WriteOp::Create { body, .. }] = &diff.children[..] else { panic!("{:?}", shown(&diff)) };
    assert!(body.len() > 10 * MEMBERS);
    assert!(count.allocations < 500, "{} allocations for a child of {MEMBERS} members", count.allocations);
}

#[test]
fn h15_a_live_object_that_is_nested_without_end_is_compared_and_written_like_any_other() {
    let deep = deep();
    let wanted = outcome(vec![child("a", &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}))]);
    let mut live: Value = created(&wanted).remove(0);
    live["data"] = json!("DEEP");
    // A tree of it would end the stack of this test when it is dropped.
    let text = live.to_string().replace("\"DEEP\"", &deep);
    let prepared = prepare(&spec(), &primary(), &wanted, None).unwrap();
    let kinds = [Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")];
    let snapshot = Snapshot::of(&kinds, [tests::decode(&text)]);
    let (applied, exact, sent) = (&mut Applied::new(), &mut Applied::new(), &mut Sent::new());
    let memory =
        Memory { applied, exact, sent, blocked: &Blocked::default(), creates: CERTAIN, spared: Spared::default() };
    let diff = diff(&prepared, &spec(), &primary(), MANAGER, &snapshot, memory, NOW_UNIX_MS);
    let kinds: Vec<&str> = diff.children.iter().map(WriteOp::verb).collect();
    assert_eq!(kinds, ["patch"], "an apply: it may differ, and cannot be compared");
}

/// An Event about a Node, which has this name, or about a Pod in this namespace.
fn about(name: Name) -> Outcome {
    let kind = if name.namespace.is_empty() { "Node" } else { "Pod" };
    let regarding = Some(ObjectRef { kind: Kind::new("v1", kind), name });
    let event = GuestEvent { warning: false, reason: "Said".to_owned(), message: String::new(), regarding };
    Outcome { events: vec![event], ..Outcome::default() }
}

#[test]
fn g2_every_text_of_an_outcome_is_taken_at_its_bound_and_refused_one_beyond_it() {
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let said = |name: String, reason: String| {
        let status = crate::contract::ConditionStatus::True;
        let condition = Condition { name, status, reason, message: String::new() };
        Outcome { conditions: vec![condition], ..Outcome::default() }
    };
    let event = |reason: String| {
        let event = GuestEvent { warning: false, reason, message: String::new(), regarding: None };
        Outcome { events: vec![event], ..Outcome::default() }
    };
    let status = |text: String| Outcome { status: Some(text.into()), ..Outcome::default() };
    let named = |name: &str| {
        let metadata = json!({"name": name, "namespace": "default"});
        outcome(vec![child("a", &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))])
    };
    type Make<'a> = &'a dyn Fn(String) -> Outcome;
    let places: [(&str, usize, Make<'_>); 8] = [
        ("the name of an Event's object", 253, &|name| about(Name::new("", &name))),
        ("the namespace of an Event's object", 253, &|namespace| about(Name::new(&namespace, "a"))),
        ("the reason of an Event", 128, &event),
        ("the type of a condition", 316, &|name| said(format!("{}/{}", &name[..253], &name[254..]), "R".to_owned())),
        ("the reason of a condition", 128, &|reason| said("Ready".to_owned(), reason)),
        ("the key of a child", 253, &|key| outcome(vec![child(&key, &config_map)])),
        ("the name of a child", 253, &|name| named(&name)),
        ("a status", MAX_STATUS_BYTES, &|text| status(format!(r#"{{"a":"{}"}}"#, &text[8..]))),
    ];
    for (place, most, make) in places {
        let at = prepare(&spec(), &primary(), &make("a".repeat(most)), None);
        assert!(at.is_ok(), "{place}: {:?}", at.map(|_| ()));
        let message = refusal(&spec(), &make("a".repeat(most + 1)));
        assert!(message.len() < 1_000, "{place}: {} bytes", message.len());
    }
    for name in ["", ".", "..", "a/b", "a%2Fb"] {
        let message = refusal(&spec(), &about(Name::new("default", name)));
        assert!(message.contains("is not a name that Kubernetes accepts"), "{name:?}: {message}");
    }
    let message = refusal(&spec(), &about(Name::new("default", &"n".repeat(4 << 20))));
    assert!(message.contains("events: one is about Pod") && message.len() < 200, "{message}");
    assert!(prepare(&spec(), &primary(), &about(Name::new("", "system:node")), None).is_ok(), "as of a ClusterRole");
}

#[test]
fn g2_a_key_of_a_secret_that_a_request_names_is_one_that_a_secret_can_have() {
    let spec = ControllerSpec {
        http: vec![crate::manifest::http::HttpRule {
            origin: crate::http::Origin::parse("https://a.example").unwrap(),
            methods: vec![crate::http::Method::Get],
            secrets: vec!["token".into()],
        }]
        .into(),
        ..spec()
    };
    let requests = |key: &str| {
        let header = crate::http::SecretHeader {
            name: "authorization".into(),
            prefix: "Bearer ".into(),
            secret: "token".into(),
            key: key.into(),
        };
        let request = crate::http::Request {
            secret_headers: vec![header],
            ..crate::http::Request::get("zone", "https://a.example/")
        };
        Outcome { requests: vec![request], ..Outcome::default() }
    };
    assert!(prepare(&spec, &primary(), &requests(&"k".repeat(253)), None).is_ok());
    for key in ["k".repeat(254), "k".repeat(4 << 20), "a/b".to_owned(), "..".to_owned()] {
        let message = refusal(&spec, &requests(&key));
        assert!(message.contains("is not a key that Secret token can have") && message.len() < 300, "{message}");
    }
}

#[test]
fn h15_a_name_is_never_a_path() {
    let long = "a".repeat(254);
    for name in ["..", ".", "../x", "a/b", "a%2Fb", "a?b", "a#b", "a\0b", "a\nb", "\u{1b}[31m", "A", "ä", &long] {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        let message = refusal(&spec(), &outcome(vec![child("a", &object)]));
        assert!(message.starts_with("the outcome was refused: child \"a\": "), "{name:?}: {message}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
        let kind = Kind::new("v1", "ConfigMap");
        for at in [Name::new("default", name), Name::new(name, "a")] {
            let target = ObjectRef { kind: kind.clone(), name: at };
            let message = refusal(&spec(), &acting(Action::Delete { target, propagation: Propagation::Background }));
            assert!(
                message.contains("is not a name that Kubernetes accepts") || message.contains("delete of"),
                "{name:?}: {message}"
            );
            assert!(!message.chars().any(char::is_control), "{message:?}");
        }
        let message = refusal(&spec(), &acting(Action::Apply { object: object.to_string().into(), force: false }));
        assert!(message.contains("is not a name that Kubernetes accepts"), "{name:?}: {message}");
    }
}
