//! The objects that field selectors match, and the selectors that are refused.

use super::*;
use crate::object::tests::Sample;

fn object() -> Object {
    let body = r#""spec":{"nodeName":"node-1","replicas":3,"paused":true,"half":0.5,"none":null,"list":[{"a":"b"}],
        "la\"bel":"x","map":{"a.b/c":"dotted"},"large":9223372036854775808,"least":-9223372036854775808},"status":{"nodeName":"node-2"}"#;
    Sample::pod("shop", "a").body(body).build()
}

fn selector(requirements: &[(&str, FieldValue)]) -> FieldSelector {
    let owned = |(path, value): &(&str, FieldValue)| ((*path).to_owned(), value.clone());
    FieldSelector::parse(&requirements.iter().map(owned).collect::<Vec<_>>()).unwrap()
}

fn matches(requirements: &[(&str, FieldValue)]) -> bool {
    matches_within(selector(requirements).requirements(), &object(), &Budget::unlimited()).unwrap()
}

#[test]
fn texts_integers_and_booleans_are_compared_by_type_and_value() {
    let node = || ("spec.nodeName", "node-1".into());
    let replicas = |value| ("spec.replicas", FieldValue::Integer(value));
    for (requirement, expected) in [
        (node(), true),
        (("spec.nodeName", "node-2".into()), false),
        (("status.nodeName", "node-2".into()), true),
        (replicas(3), true),
        (replicas(4), false),
        (("spec.replicas", "3".into()), false),
        (("spec.paused", FieldValue::Boolean(true)), true),
        (("spec.paused", FieldValue::Boolean(false)), false),
        (("spec.paused", "true".into()), false),
        (("spec.least", FieldValue::Integer(i64::MIN)), true),
        (("spec.map[\"a.b/c\"]", "dotted".into()), true),
        (("spec[\"la\\\"bel\"]", "x".into()), true),
        (("metadata.name", "a".into()), true),
    ] {
        assert_eq!(matches(std::slice::from_ref(&requirement)), expected, "{requirement:?}");
    }
    assert!(matches(&[]) && matches(&[node(), replicas(3)]) && !matches(&[node(), replicas(4)]));
    assert!(!matches(&[node(), ("spec.nodeName", "node-2".into())]));
}

#[test]
fn a_path_to_any_other_value_selects_nothing() {
    for path in
        ["spec", "spec.half", "spec.none", "spec.list", "spec.list.a", "spec.large", "spec.nodeName.x", "spec.x", "x"]
    {
        assert_eq!(FieldPath::parse(path).unwrap().value_in(&object()), None, "{path}");
    }
}

#[test]
fn an_object_is_read_within_the_budget() {
    let selector = selector(&[("spec.nodeName", "node-1".into()), ("spec.replicas", FieldValue::Integer(3))]);
    let within = |units| matches_within(selector.requirements(), &object(), &Budget::new(units));
    assert_eq!([15, 31, 32].map(within), [None, None, Some(true)]);
}

#[test]
fn selectors_are_equal_in_any_order_and_invalid_ones_are_refused_with_the_reason() {
    let (a, b) = (("a", FieldValue::Integer(1)), ("b", FieldValue::Boolean(true)));
    assert_eq!(selector(&[a.clone(), b.clone(), a.clone()]), selector(&[b, a]));
    let refused = |requirements: &[(String, FieldValue)]| FieldSelector::parse(requirements).unwrap_err().to_string();
    assert_eq!(
        refused(&[("a..b".to_owned(), "x".into())]),
        "the field path \"a..b\" is invalid at byte 2: a member name is missing"
    );
    let many: Vec<_> = (0..9).map(|number| (format!("f{number}"), FieldValue::Integer(1))).collect();
    assert_eq!(refused(&many), "the field selector has 9 requirements, and 8 are the most");
    let long = "x".repeat(1_025);
    assert_eq!(
        refused(&[("a.b".to_owned(), long.as_str().into())]),
        "the value for the field \"a.b\" has 1025 bytes, and 1024 are the most"
    );
}

#[test]
fn the_values_at_many_paths_are_those_at_each_of_them_in_any_order_of_the_members() {
    let texts = [
        "spec.nodeName",
        "spec.map[\"a.b/c\"]",
        "status.nodeName",
        "spec.list.a",
        "spec.none",
        "spec.replicas",
        "spec",
        "x",
        "spec.nodeName.x",
        "metadata.name",
        "spec.nodeName",
        "spec.half",
        "spec.paused",
    ];
    let paths: Vec<FieldPath> = texts.iter().map(|text| FieldPath::parse(text).unwrap()).collect();
    let object = object();
    let each: Vec<_> = paths.iter().map(|path| path.value_in(&object).map(|value| path.hash_of(&value))).collect();
    assert_eq!(FieldPath::hashes_in(Some(&object), paths.iter()), each);
    assert_eq!(each.iter().flatten().count(), 7);
    assert_eq!(FieldPath::hashes_in(None, paths.iter()), vec![None; paths.len()]);
}
