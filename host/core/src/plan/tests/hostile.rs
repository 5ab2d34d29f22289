//! Outcomes that mean harm: JSON nested until a parser's stack ends, and names that address another path. Each is refused whole.

use serde_json::json;

use super::*;
use crate::contract::{Action, PatchKind, Propagation};

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
