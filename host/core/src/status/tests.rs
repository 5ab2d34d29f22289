//! The live and the wanted status in, the merge patch out.

use serde_json::json;

use super::*;
use crate::allocations::counted;
use crate::object::tests::decode;

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
    decode(&text.to_string())
}

/// Leaves everything alone.
const NONE: Wanted<'static> = Wanted {
    is_whole: false,
    fields: None,
    conditions: None,
    stalled: None,
    retrying: None,
    reports_progress: false,
    evicting: None,
    generation: 3,
    at_version: false,
};

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
fn x5_an_equal_status_is_not_written() {
    let stamped = stamp(&ready(ConditionStatus::True), None, Some(3), NOW);
    let live = object(json!({"n": 1, "observedGeneration": 3, "conditions": [stamped]}), json!({}));
    let fields = map(json!({"n": 1}));
    let later = Now { mono_ms: 0, unix_ms: NOW.unix_ms + 60_000 };
    let conditions = [ready(ConditionStatus::True)];
    let wanted = Wanted { fields: Some(&fields), conditions: Some(&conditions), ..NONE };
    assert_eq!(patch(&live, "mortise/p", FULL, &wanted, later), None);
}

#[test]
fn the_patch_is_the_difference_and_removes_only_what_is_ours() {
    let live = object(
        json!({"n": 1, "old": true, "theirs": 1, "in": {"a": 1, "b": 2}, "observedGeneration": 3}),
        json!({"f:n": {}, "f:old": {}, "f:in": {"f:a": {}}}),
    );
    let fields = map(json!({"n": 2, "in": {"b": 2}}));
    let wanted = Wanted { fields: Some(&fields), conditions: Some(&[]), ..NONE };
    check(&live, &wanted, json!({"n": 2, "old": null, "in": {"a": null}}));
    check(&live, &NONE, Value::Null);
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
    let expected = json!({"observedGeneration": 3, "conditions": [
        {"type": "Ready", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2001-01-01T00:00:00Z", "observedGeneration": 3},
        {"type": "Theirs", "status": "True"}]});
    check(&live, &Wanted { fields: Some(&fields), conditions: Some(&same), ..NONE }, expected);
    let changed = [ready(ConditionStatus::False)];
    let wanted = Wanted { fields: Some(&fields), conditions: Some(&changed), ..NONE };
    let text = patch(&live, "mortise/p", FULL, &wanted, NOW).unwrap();
    assert!(text.contains("2023-11-14T22:13:20Z"), "{text}");
}

#[test]
fn stalled_and_unready_are_set_by_a_failure_and_removed_after_it() {
    let of_host = |name: &str, status: &str| {
        json!({"type": name, "status": status, "reason": "Trap", "message": "it fell",
            "lastTransitionTime": "2023-11-14T22:13:20Z", "observedGeneration": 3})
    };
    let both = json!([of_host("Ready", "False"), of_host("Stalled", "True")]);
    let live = object(json!({"n": 1}), json!({}));
    check(&live, &Wanted { stalled: Some(("Trap", "it fell")), ..NONE }, json!({"conditions": both}));
    let live = object(json!({"conditions": both}), json!({}));
    assert_eq!(patch(&live, "mortise/p", FULL, &Wanted { stalled: Some(("Trap", "it fell")), ..NONE }, NOW), None);
    check(&live, &NONE, json!({"conditions": []}));
    check(&live, &Wanted { conditions: Some(&[]), ..NONE }, json!({"conditions": []}));
    let live = object(
        json!({"conditions": [{"type": "Stalled", "status": "True"}, {"type": "Ready", "status": "True"}]}),
        json!({"f:conditions": {"k:{\"type\":\"Ready\"}": {}}}),
    );
    check(&live, &NONE, json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    check(&live, &Wanted { conditions: Some(&[]), ..NONE }, json!({"conditions": []}));
}

#[test]
fn ready_is_false_while_stalled_with_the_guests_own_reason_if_it_is_false_already() {
    let stalled = Some(("Trap", "it fell"));
    let (shown, _) = patched(&[], Some(&[ready(ConditionStatus::True)]), None);
    assert_eq!(shown, ["Ready=True R"]);
    for (status, expected) in [
        (ConditionStatus::True, ["Ready=False Trap", "Stalled=True Trap"]),
        (ConditionStatus::Unknown, ["Ready=False Trap", "Stalled=True Trap"]),
        (ConditionStatus::False, ["Ready=False R", "Stalled=True Trap"]),
    ] {
        let live = stamp(&ready(status), None, Some(3), NOW);
        assert_eq!(patched(&[live], None, stalled).0, expected, "live {status:?}");
        assert_eq!(patched(&[], Some(&[ready(status)]), stalled).0, expected, "wanted {status:?}");
    }
    // The next reason replaces the host's own, and success the guest's condition.
    let (_, before) = patched(&[], None, stalled);
    let (shown, _) = patched(&before, None, Some(("Forbidden", "no")));
    assert_eq!(shown, ["Ready=False Forbidden", "Stalled=True Forbidden"]);
    let (shown, _) = patched(&before, Some(&[ready(ConditionStatus::True)]), None);
    assert_eq!(shown, ["Ready=True R"]);
}

#[test]
fn x12_an_object_that_was_stalled_stays_unready_while_it_is_retried() {
    let retried = |before: &[Value], message: &str| {
        let keys = before.iter().map(|condition| (format!("k:{}", json!({"type": condition["type"]})), json!({})));
        let live = object(json!({"conditions": before}), json!({"f:conditions": keys.collect::<Map<_, _>>()}));
        let wanted = Wanted { retrying: Some(message), reports_progress: true, ..NONE };
        let text = patch(&live, "mortise/p", FULL, &wanted, NOW)?;
        let mut patch: Value = serde_json::from_str(&text).unwrap();
        Some(patch["status"]["conditions"].take())
    };
    let shown = |conditions: &Value| -> Vec<String> {
        let text =
            |c: &Value| format!("{}={} {} {}", c["type"], c["status"], c["reason"], c["message"]).replace('"', "");
        conditions.as_array().unwrap().iter().map(text).collect()
    };
    let (_, stalled) = patched(&[], None, Some(("Trap", "it fell")));
    let first = retried(&stalled, "busy").unwrap();
    assert_eq!(shown(&first), ["Ready=False Retrying busy"]);
    let first = first.as_array().unwrap();
    assert_eq!(retried(first, "busy"), None);
    assert_eq!(shown(&retried(first, "still busy").unwrap()), ["Ready=False Retrying still busy"]);
    // The next outcome or stall replaces it.
    assert_eq!(patched(first, Some(&[]), None).0, [""; 0]);
    assert_eq!(patched(first, Some(&[ready(ConditionStatus::True)]), None).0, ["Ready=True R"]);
    assert_eq!(patched(first, None, Some(("Trap", "no"))).0, ["Ready=False Trap", "Stalled=True Trap"]);
    // One that was not stalled keeps what its last outcome said.
    assert_eq!(retried(&[stamp(&ready(ConditionStatus::True), None, Some(3), NOW)], "busy"), None);
}

#[test]
fn evicting_is_removed_with_the_last_blocked_eviction_also_where_conditions_are_no_map_by_type() {
    let evicting = |reason: &str| json!({"type": EVICTING, "status": "False", "reason": reason});
    let live = |reason| object(json!({"conditions": [evicting(reason)]}), json!({"f:conditions": {}}));
    check(&live(BLOCKED), &NONE, json!({"conditions": []}));
    check(&live("Theirs"), &NONE, Value::Null);
}

#[test]
fn another_managers_ready_stays_while_the_object_is_stalled_and_after() {
    let theirs = json!({"type": "Ready", "status": "True", "reason": "Theirs"});
    let live = |conditions: Value| {
        object(json!({"conditions": conditions}), json!({"f:conditions": {"k:{\"type\":\"Stalled\"}": {}}}))
    };
    let stalled = Wanted { stalled: Some(("Trap", "it fell")), reports_progress: true, ..NONE };
    let text = patch(&live(json!([theirs])), "mortise/p", FULL, &stalled, NOW).unwrap();
    let after = serde_json::from_str::<Value>(&text).unwrap()["status"]["conditions"].take();
    assert_eq!((&after[0], &after[1]["type"]), (&theirs, &json!("Stalled")));
    let ended = Wanted { conditions: Some(&[]), reports_progress: true, ..NONE };
    check(&live(after), &ended, json!({"conditions": [theirs]}));
}

/// The conditions after a patch, as text and as JSON. Those in `before` are ours.
#[track_caller]
fn patched(before: &[Value], guests: Option<&[Condition]>, stalled: Option<(&str, &str)>) -> (Vec<String>, Vec<Value>) {
    let keys = before.iter().map(|condition| (format!("k:{}", json!({"type": condition["type"]})), json!({})));
    let owned = json!({"f:conditions": keys.collect::<Map<_, _>>()});
    let live = object(json!({"conditions": before}), owned);
    let wanted = Wanted { conditions: guests, stalled, reports_progress: true, ..NONE };
    let text = patch(&live, "mortise/p", FULL, &wanted, NOW).expect("the conditions change");
    let mut patch: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(after) = patch["status"]["conditions"].take() else { panic!("no conditions in {text}") };
    let shown = |c: &Value| format!("{}={} {}", c["type"], c["status"], c["reason"]).replace('"', "");
    (after.iter().map(shown).collect(), after)
}

#[test]
fn reconciling_is_set_while_ready_is_not_true_and_the_object_is_not_stalled() {
    let unready = [ready(ConditionStatus::False)];
    let (shown, reconciling) = patched(&[], Some(&unready), None);
    assert_eq!(shown, ["Ready=False R", "Reconciling=True R"]);
    let (shown, _) = patched(&reconciling, Some(&[ready(ConditionStatus::True)]), None);
    assert_eq!(shown, ["Ready=True R"]);
    let (shown, _) = patched(&reconciling, None, Some(("Forbidden", "no")));
    assert_eq!(shown, ["Ready=False R", "Stalled=True Forbidden"]);
    let own = Condition { name: RECONCILING.into(), reason: "Own".into(), ..ready(ConditionStatus::False) };
    let (shown, _) = patched(&reconciling, Some(&[ready(ConditionStatus::False), own]), None);
    assert_eq!(shown, ["Ready=False R", "Reconciling=False Own"], "the guest's own takes precedence");
}

#[test]
fn fields_that_the_schema_would_prune_are_not_written() {
    let live = object(json!({}), json!({}));
    let fields = map(json!({"n": 1}));
    let wanted = Wanted { fields: Some(&fields), conditions: Some(&[]), stalled: Some(("A", "b")), ..NONE };
    let narrow = StatusShape { subresource: true, ..StatusShape::default() };
    let text = patch(&live, "mortise/p", narrow, &wanted, NOW).unwrap();
    assert_eq!(&*text, r#"{"metadata":{"uid":"u"},"status":{"n":1}}"#);
    assert_eq!(patch(&live, "mortise/p", StatusShape::default(), &wanted, NOW), None);
}

#[test]
fn p18_a_status_and_a_field_set_of_the_worst_content_are_compared_in_a_few_times_their_text() {
    let smallest: Vec<Value> = (0..50_000).map(|_| json!({"": 0})).collect();
    let owned: Map<String, Value> = (0..20_000).map(|number| (format!("f:{number:x}"), json!({"f:a": {}}))).collect();
    let live = object(json!({"n": 1, "theirs": smallest}), Value::Object(owned));
    let text = live.json().len() + live.own_fields.iter().map(|own| own.fields.len()).sum::<usize>();
    for (n, is_patched) in [(1, false), (2, true)] {
        let fields = map(json!({"n": n}));
        let wanted = Wanted { fields: Some(&fields), conditions: Some(&[]), generation: 0, ..NONE };
        let (count, patch) =
            counted(|| patch(&live, "mortise/p", StatusShape { observed_generation: false, ..FULL }, &wanted, NOW));
        assert_eq!(patch.is_some(), is_patched);
        assert!(count.peak_bytes.unsigned_abs() < 4 * text, "{} bytes for {text}", count.peak_bytes);
    }
}

/// Bytes that a patch takes beside the texts that it is made of.
#[track_caller]
fn takes(status: Value, wanted: &Wanted<'_>, most: usize) -> Value {
    let live = object(status, json!({}));
    let text = live.json().len();
    let (count, patch) = counted(|| patch(&live, "mortise/p", FULL, wanted, NOW));
    assert!(count.peak_bytes.unsigned_abs() < most * text, "{} bytes for {text}", count.peak_bytes);
    serde_json::from_str::<Value>(&patch.expect("it changes")).unwrap()["status"].take()
}

#[test]
fn p18_conditions_of_the_worst_content_are_read_and_kept_in_a_few_times_their_text() {
    let guests = [ready(ConditionStatus::True)];
    let wanted = Wanted { conditions: Some(&guests), ..NONE };
    for item in [json!({}), json!({"": 0}), json!({"type": "x"}), json!(0)] {
        let patch = takes(json!({"conditions": vec![&item; 100_000]}), &wanted, 8);
        let after = patch["conditions"].as_array().unwrap();
        assert_eq!((after.len(), &after[0]), (100_001, &item), "others' conditions stay");
        assert_eq!(after[100_000]["type"], "Ready");
    }
    let shown = object(json!({"conditions": vec![json!({"": 0}); 100_000]}), json!({}));
    let (count, is_shown) = counted(|| shows_stalled(&shown, "a", "b"));
    assert!(!is_shown && count.peak_bytes < 10_000, "{} bytes", count.peak_bytes);
}

#[test]
fn p18_members_that_nobody_wants_any_more_are_removed_in_a_few_times_their_text() {
    let theirs: Map<String, Value> = (0..100_000).map(|number| (format!("{number:x}"), json!(0))).collect();
    let fields = map(json!({"n": {}}));
    let wanted = Wanted { fields: Some(&fields), ..NONE };
    let patch = takes(json!({"n": theirs}), &wanted, 16);
    assert_eq!(patch["n"].as_object().unwrap().len(), 100_000);
    assert!(patch["n"]["1f"].is_null());
}

#[test]
fn x5_a_status_is_compared_to_its_end_however_many_levels_it_has() {
    for levels in [30, 90] {
        let nested = |inner: Value| (0..levels).fold(inner, |inner, _| json!({"a": inner}));
        let live = object(json!({"n": nested(json!({"x": "x".repeat(10_000), "y": 1}))}), json!({}));
        let patched = |inner: Value| {
            let fields = map(json!({"n": nested(inner)}));
            let wanted = Wanted { fields: Some(&fields), conditions: Some(&[]), ..NONE };
            patch(&live, "mortise/p", StatusShape { observed_generation: false, ..FULL }, &wanted, NOW)
        };
        assert_eq!(patched(json!({"x": "x".repeat(10_000), "y": 1})), None, "{levels} levels");
        let text = patched(json!({"x": "x".repeat(10_000)})).expect("a member has to go");
        let change: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(change["status"]["n"], nested(json!({"y": null})), "{levels} levels");
    }
}

#[test]
fn x5_numbers_are_compared_as_the_api_server_stores_them_and_nulls_are_absent() {
    for (live, wanted, change) in [
        (json!({"n": 1}), json!({"n": 1.0}), Value::Null),
        (json!({"n": [1, {"a": 2.0}]}), json!({"n": [1.0, {"a": 2}]}), Value::Null),
        (json!({"n": [1, 2]}), json!({"n": [1]}), json!({"n": [1]})),
        (json!({"n": [1]}), json!({"n": [1, 2]}), json!({"n": [1, 2]})),
        (json!({"n": [{"a": 1, "b": 2}]}), json!({"n": [{"a": 1}]}), json!({"n": [{"a": 1}]})),
        (json!({"n": [{"a": 1}]}), json!({"n": [{"a": 1, "b": 2}]}), json!({"n": [{"a": 1, "b": 2}]})),
        (
            json!({"n": 9_007_199_254_740_993_u64}),
            json!({"n": 9_007_199_254_740_992_u64}),
            json!({"n": 9_007_199_254_740_992_u64}),
        ),
        (json!({}), json!({"n": null}), Value::Null),
        (json!({"n": null}), json!({"n": null}), Value::Null),
        (json!({"n": {"a": 1}}), json!({"n": null}), json!({"n": null})),
        (json!({"n": {"a": 1}}), json!({"n": {"a": null, "b": null}}), json!({"n": {"a": null}})),
        (json!({"n": {"a": 1}}), json!({"n": "text"}), json!({"n": "text"})),
        (json!({"n": "text"}), json!({"n": {"a": 1}}), json!({"n": {"a": 1}})),
        (json!({"n": true}), json!({"n": false}), json!({"n": false})),
        (json!({"n": -1}), json!({"n": -1}), Value::Null),
    ] {
        let object = object(live.clone(), json!({}));
        let fields = map(wanted.clone());
        let wanted_status = Wanted { fields: Some(&fields), ..NONE };
        let shape = StatusShape { subresource: true, ..StatusShape::default() };
        let found = patch(&object, "mortise/p", shape, &wanted_status, NOW);
        let found = found.map_or(Value::Null, |text| serde_json::from_str::<Value>(&text).unwrap()["status"].take());
        assert_eq!(found, change, "{live} {wanted}");
    }
}
