//! Values that the host makes: when a Secret needs a write for them, and what is refused. What they are does not matter.

use super::*;
use crate::contract::{Generated, Handling};
use crate::generated::Recipe;
use crate::generated::tests::{Counting, completed_body};
use crate::scope::Scope;
use crate::well_known::GENERATED_ANNOTATION;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

fn secret_spec() -> ControllerSpec {
    let owned = |kind, update| OwnedKind {
        kind: Kind::new("v1", kind),
        update,
        replace: Replace::WhenGone,
        tracked: false,
        adopt: false,
        scope: Scope::default(),
    };
    ControllerSpec { owns: vec![owned("Secret", Update::Apply), owned("Pod", Update::Recreate)], ..spec() }
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "data": {"user": "YQ=="}})
}

fn value(at: &str, recipe: Recipe) -> Generated {
    Generated { at: at.into(), recipe, rotation: "".into() }
}

fn password() -> Generated {
    value("data.password", Recipe::Alphanumeric(32))
}

fn certificate() -> Generated {
    value("data", Recipe::Tls { names: vec!["a.example.com".into()], lifetime_seconds: 3 * 24 * 3_600 })
}

fn with(generated: Vec<Generated>) -> Child {
    Child { generated, ..child("s", &secret()) }
}

fn of(child: Child, live: Option<&Value>, now_unix_ms: u64) -> Diff {
    let prepared = prepare(&secret_spec(), &primary(), &outcome(vec![child]), None).unwrap();
    let snapshot = Snapshot::of(&[Kind::new("v1", "Secret")], live.cloned().map(decode));
    let (applied, exact, sent) = (&mut Applied::new(), &mut Applied::new(), &mut Sent::new());
    let memory =
        Memory { applied, exact, sent, blocked: &Blocked::default(), creates: CERTAIN, spared: Spared::default() };
    diff(&prepared, &secret_spec(), &primary(), MANAGER, &snapshot, memory, now_unix_ms)
}

/// The fieldsV1 of an apply of this value.
fn fields_of(value: &Value) -> Value {
    let Value::Object(members) = value else { return json!({}) };
    members.iter().map(|(name, value)| (format!("f:{name}"), fields_of(value))).collect()
}

/// The Secret after a write, as the API server shows it.
fn written(op: &WriteOp, live: Option<&Value>) -> Value {
    let WriteOp::Apply { body, draws: Some(draws), .. } = op else { panic!("{op:?}") };
    stored(serde_json::from_str(&completed_body(body, live, draws, &mut Counting::default())).unwrap())
}

/// An object that was applied, as the API server shows it.
fn stored(mut object: Value) -> Value {
    let mut fields = fields_of(&object);
    fields.as_object_mut().unwrap().retain(|field, _| field != "f:apiVersion" && field != "f:kind");
    fields["f:metadata"].as_object_mut().unwrap().retain(|field, _| field != "f:name" && field != "f:namespace");
    object["metadata"]["uid"] = json!("s-1");
    object["metadata"]["resourceVersion"] = json!("20");
    object["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply", "fieldsV1": fields}]);
    object
}

fn created(child: Child) -> Value {
    let diff = of(child, None, NOW_UNIX_MS);
    let [op @ WriteOp::Apply { only_if: Precondition::Absent, body, .. }] = diff.children.as_slice() else {
        panic!("it is created with its values in one request: {diff:?}")
    };
    assert!(!body.contains("password"), "the values come when it is sent: {body}");
    written(op, None)
}

#[test]
fn x5_a_secret_that_has_its_values_needs_no_write() {
    let live = created(with(vec![password(), certificate()]));
    assert_eq!(of(with(vec![password(), certificate()]), Some(&live), NOW_UNIX_MS + DAY_MS).children, []);
    let mut theirs = live.clone();
    theirs["data"]["password"] = json!("bWluZQ==");
    theirs["data"]["other"] = json!("YQ==");
    assert_eq!(of(with(vec![password(), certificate()]), Some(&theirs), NOW_UNIX_MS).children, []);
    let exact = |child: Child| Child { exact: vec!["data".into()], ..child };
    let diff = of(exact(with(vec![password(), certificate()])), Some(&theirs), NOW_UNIX_MS);
    let [WriteOp::Patch { body, .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
    assert_eq!(&**body, r#"{"data":{"other":null}}"#, "the values belong to the map");
}

#[test]
fn x5_text_for_a_secret_is_compared_where_the_api_server_puts_it() {
    let texts = json!({"apiVersion": "v1", "kind": "Secret", "data": {"user": "YQ=="}, "stringData": {"word": "b"}});
    let wanted = || Child { exact: vec!["data".into()], ..child("s", &texts) };
    let diff = of(wanted(), None, NOW_UNIX_MS);
    let [WriteOp::Apply { body, .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["data"], &body["stringData"]), (&json!({"user": "YQ==", "word": "Yg=="}), &Value::Null));
    let live = stored(body);
    assert_eq!(of(wanted(), Some(&live), NOW_UNIX_MS).children, []);
    let mut changed = live;
    changed["data"]["word"] = json!("Yw==");
    assert_eq!(of(wanted(), Some(&changed), NOW_UNIX_MS).children.len(), 1, "what somebody changed is set back");
}

#[test]
fn a_write_follows_what_is_wanted_and_what_is_there() {
    let child = || with(vec![password(), certificate()]);
    let live = created(child());
    let uid = || Precondition::Is("s-1".into());
    let needs = |child: Child, live: &Value, now_unix_ms: u64| {
        let diff = of(child, Some(live), now_unix_ms);
        let [WriteOp::Apply { force: true, only_if, draws, .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
        assert_eq!(*only_if, uid());
        draws.as_ref().map(|draws| draws.wanted.len())
    };
    let rotated = Generated { rotation: "2".into(), ..password() };
    assert_eq!(needs(with(vec![rotated, certificate()]), &live, NOW_UNIX_MS), Some(2));
    assert_eq!(needs(with(vec![password()]), &live, NOW_UNIX_MS), Some(1), "the record and the fields are too many");
    assert_eq!(needs(with(vec![]), &live, NOW_UNIX_MS), None, "an ordinary apply removes all values");
    assert_eq!(needs(child(), &live, NOW_UNIX_MS + 2 * DAY_MS), Some(2), "the certificate is due");
    let changed = Child { object: secret().to_string().replace("YQ==", "Yg==").into(), ..child() };
    assert_eq!(needs(changed, &live, NOW_UNIX_MS), Some(2), "an apply without the values would remove them");
    for key in ["password", "tls.crt", "tls.key", "ca.crt"] {
        let mut removed = live.clone();
        removed["data"].as_object_mut().unwrap().remove(key);
        assert_eq!(needs(child(), &removed, NOW_UNIX_MS), Some(2), "somebody has removed {key}");
    }
    let mut unrecorded = live.clone();
    unrecorded["metadata"]["annotations"].as_object_mut().unwrap().remove(GENERATED_ANNOTATION);
    assert_eq!(needs(child(), &unrecorded, NOW_UNIX_MS), Some(2));
    assert_eq!(of(child(), Some(&live), NOW_UNIX_MS).renew_at_ms, Some(NOW_UNIX_MS + 2 * DAY_MS));
}

#[test]
fn a_secret_that_is_created_once_gets_its_values_once() {
    let once = |rotation: &str| {
        let password = Generated { rotation: rotation.into(), ..password() };
        Child { handling: Handling::CreateOnce, ..with(vec![password]) }
    };
    let mut live = created(once(""));
    live["data"].as_object_mut().unwrap().remove("password");
    assert_eq!(of(once("2"), Some(&live), NOW_UNIX_MS).children, []);
}

#[test]
fn a_generated_value_is_of_a_secret_at_a_key_of_its_own() {
    let refused = |child: Child| refusal(&secret_spec(), &outcome(vec![child]));
    let pod = Child { generated: vec![password()], ..child("0", &pod("a")) };
    assert!(refused(pod).contains("v1/Pod has generated values; only a v1/Secret may"));
    let recreated = OwnedKind {
        kind: Kind::new("v1", "Secret"),
        update: Update::Recreate,
        replace: Replace::WhenGone,
        tracked: false,
        adopt: false,
        scope: Scope::default(),
    };
    let spec = ControllerSpec { owns: vec![recreated], ..spec() };
    let message = refusal(&spec, &outcome(vec![with(vec![password()])]));
    assert!(message.contains("only a child that is changed in place"), "{message}");
    for (at, why) in [
        ("data.user", r#"the object has data["user"] too; leave it out"#),
        ("data", "expected data.KEY"),
        ("data.a.b", "expected data.KEY"),
        ("stringData.a", "expected data.KEY"),
        ("data[\"a b\"]", "expected data.KEY"),
    ] {
        let message = refused(with(vec![value(at, Recipe::Bytes(32))]));
        assert!(message.contains(&format!("the generated value at {at:?}: ")) && message.contains(why), "{message}");
    }
    let twice = refused(with(vec![certificate(), value("data[\"tls.crt\"]", Recipe::Bytes(32))]));
    assert!(twice.contains("another generated value has the key \"tls.crt\""), "{twice}");
}
