//! Status patches: what stands there and what is wanted in, the merge patch out.

use serde_json::json;

use super::*;
use crate::object::Interner;

const NOW: Now = Now { mono_ms: 0, unix_ms: 1_700_000_000_000 };
const FULL: StatusShape = StatusShape {
    subresource: true,
    observed_generation: true,
    conditions: true,
    condition_generation: true,
    conditions_by_type: true,
};

fn object(status: Value, owned: Value) -> Object {
    let text = json!({
        "apiVersion": "a.example.com/v1", "kind": "A",
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1", "generation": 3,
            "managedFields": [{"manager": "mortise/p", "operation": "Update", "subresource": "status",
                "apiVersion": "a.example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": owned}}]},
        "status": status,
    });
    Object::decode(text.to_string().as_bytes(), &mut Interner::default()).unwrap()
}

fn ready(status: ConditionStatus) -> Condition {
    Condition { name: "Ready".into(), status, reason: "R".into(), message: "m".into() }
}

#[track_caller]
fn check(primary: &Object, wanted: &Wanted<'_>, expected: Value) {
    let found = patch(primary, "mortise/p", FULL, wanted, NOW);
    let found = found.map_or(Value::Null, |text| serde_json::from_str::<Value>(&text).unwrap()["status"].take());
    assert_eq!(found, expected);
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn x5_a_status_that_stands_is_not_written_again() {
    let stamped = stamp(&ready(ConditionStatus::True), None, Some(3), NOW);
    let live = object(json!({"n": 1, "observedGeneration": 3, "conditions": [stamped]}), json!({}));
    let fields = map(json!({"n": 1}));
    let later = Now { mono_ms: 0, unix_ms: NOW.unix_ms + 60_000 };
    let conditions = [ready(ConditionStatus::True)];
    let wanted = Wanted {
        fields: Some(&fields),
        conditions: Some(&conditions),
        stalled: None,
        generation: 3,
        ..Wanted::default()
    };
    assert_eq!(patch(&live, "mortise/p", FULL, &wanted, later), None);
}

#[test]
fn the_patch_is_the_difference_and_removes_only_what_is_ours() {
    let live = object(
        json!({"n": 1, "old": true, "theirs": 1, "in": {"a": 1, "b": 2}, "observedGeneration": 3}),
        json!({"f:n": {}, "f:old": {}, "f:in": {"f:a": {}}}),
    );
    let fields = map(json!({"n": 2, "in": {"b": 2}}));
    let wanted =
        Wanted { fields: Some(&fields), conditions: Some(&[]), stalled: None, generation: 3, ..Wanted::default() };
    check(&live, &wanted, json!({"n": 2, "old": null, "in": {"a": null}}));
    check(
        &live,
        &Wanted { fields: None, conditions: None, stalled: None, generation: 3, ..Wanted::default() },
        Value::Null,
    );
}

#[test]
fn x6_the_host_stamps_times_and_generations_and_keeps_the_time_of_an_unchanged_status() {
    let live = object(
        json!({"observedGeneration": 2, "conditions": [
        {"type": "Ready", "status": "True", "reason": "Old", "message": "m", "lastTransitionTime": "2001-01-01T00:00:00Z"},
        {"type": "Theirs", "status": "True"}]}),
        json!({}),
    );
    let fields = Map::new();
    let same = [ready(ConditionStatus::True)];
    check(
        &live,
        &Wanted { fields: Some(&fields), conditions: Some(&same), stalled: None, generation: 3, ..Wanted::default() },
        json!({
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2001-01-01T00:00:00Z", "observedGeneration": 3}, {"type": "Theirs", "status": "True"}]}),
    );
    let turned = [ready(ConditionStatus::False)];
    let wanted =
        Wanted { fields: Some(&fields), conditions: Some(&turned), stalled: None, generation: 3, ..Wanted::default() };
    let text = patch(&live, "mortise/p", FULL, &wanted, NOW).unwrap();
    assert!(text.contains("2023-11-14T22:13:20Z"), "{text}");
}

#[test]
fn stalled_comes_with_a_failure_and_goes_with_it() {
    let live = object(json!({"n": 1}), json!({}));
    let stalled = Wanted {
        fields: None,
        conditions: None,
        stalled: Some(("Trap", "it fell")),
        generation: 3,
        ..Wanted::default()
    };
    check(
        &live,
        &stalled,
        json!({"conditions": [{"type": "Stalled", "status": "True", "reason": "Trap",
        "message": "it fell", "lastTransitionTime": "2023-11-14T22:13:20Z", "observedGeneration": 3}]}),
    );
    let live = object(
        json!({"conditions": [{"type": "Stalled", "status": "True"}, {"type": "Ready", "status": "True"}]}),
        json!({"f:conditions": {"k:{\"type\":\"Ready\"}": {}}}),
    );
    let well = Wanted { fields: None, conditions: None, stalled: None, generation: 3, ..Wanted::default() };
    check(&live, &well, json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    let no_conditions =
        Wanted { fields: None, conditions: Some(&[]), stalled: None, generation: 3, ..Wanted::default() };
    check(&live, &no_conditions, json!({"conditions": []}));
}

/// The conditions that stand after a patch, by type, with their reasons; those that were there are ours.
#[track_caller]
fn told(before: &[Value], guests: Option<&[Condition]>, stalled: Option<(&str, &str)>) -> (Vec<String>, Vec<Value>) {
    let keys = before.iter().map(|condition| (format!("k:{}", json!({"type": condition["type"]})), json!({})));
    let owned = json!({"f:conditions": keys.collect::<Map<_, _>>()});
    let live = object(json!({"conditions": before}), owned);
    let wanted = Wanted { conditions: guests, stalled, tells_progress: true, generation: 3, ..Wanted::default() };
    let text = patch(&live, "mortise/p", FULL, &wanted, NOW).expect("something is to be told");
    let mut patch: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(after) = patch["status"]["conditions"].take() else { panic!("no conditions in {text}") };
    let words = |c: &Value| format!("{}={} {}", c["type"], c["status"], c["reason"]).replace('"', "");
    (after.iter().map(words).collect(), after)
}

#[test]
fn reconciling_stands_beside_a_ready_that_is_not_true_and_goes_with_it_or_when_stalled() {
    let unready = [ready(ConditionStatus::False)];
    let (words, under_way) = told(&[], Some(&unready), None);
    assert_eq!(words, ["Ready=False R", "Reconciling=True R"]);
    let (words, _) = told(&under_way, Some(&[ready(ConditionStatus::True)]), None);
    assert_eq!(words, ["Ready=True R"]);
    let (words, _) = told(&under_way, None, Some(("Forbidden", "no")));
    assert_eq!(words, ["Ready=False R", "Stalled=True Forbidden"], "it gets no further");
    let own = Condition {
        name: RECONCILING.into(),
        status: ConditionStatus::False,
        reason: "Own".into(),
        message: "".into(),
    };
    let (words, _) = told(&under_way, Some(&[ready(ConditionStatus::False), own]), None);
    assert_eq!(words, ["Ready=False R", "Reconciling=False Own"], "a guest that states it means it");
}

#[test]
fn nothing_is_written_that_the_schema_would_prune() {
    let live = object(json!({}), json!({}));
    let fields = map(json!({"n": 1}));
    let wanted = Wanted {
        fields: Some(&fields),
        conditions: Some(&[]),
        stalled: Some(("A", "b")),
        generation: 3,
        ..Wanted::default()
    };
    let narrow = StatusShape { subresource: true, ..StatusShape::default() };
    let text = patch(&live, "mortise/p", narrow, &wanted, NOW).unwrap();
    assert_eq!(&*text, r#"{"metadata":{"uid":"u"},"status":{"n":1}}"#);
    assert_eq!(patch(&live, "mortise/p", StatusShape::default(), &wanted, NOW), None);
}
