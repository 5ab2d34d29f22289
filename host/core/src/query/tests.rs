//! Compiling, matching and caching queries.

use super::*;
use crate::object::tests::Sample;

fn query() -> Query {
    Query::all(Kind::new("v1", "Pod"))
}

#[test]
fn equal_queries_are_equal_however_they_are_written() {
    let written = |selector: &str, fields: [&str; 2]| {
        let fields = fields.map(str::to_owned).to_vec();
        Query { selector: Some(selector.to_owned()), fields, ..query() }.compile().unwrap()
    };
    let left = written("a=1,b in (2, 3)", ["spec.x", "status.y"]);
    assert_eq!(left, written("a == 1, b in (3,2)", ["status.y", "spec.x"]));
    assert_ne!(left, written("a=1", ["spec.x", "status.y"]));
    let on_node = |node: &str| {
        let field_selector = vec![("spec.nodeName".to_owned(), node.into())];
        Query { field_selector, ..query() }.compile().unwrap()
    };
    assert_eq!(on_node("a"), on_node("a"));
    assert_ne!(on_node("a"), on_node("b"));
}

fn matches(query: &Query, object: &Object) -> bool {
    query.compile().unwrap().matches_within(object, &Budget::unlimited()).unwrap()
}

#[test]
fn a_query_matches_by_kind_namespace_labels_and_fields() {
    let pod = Sample::pod("shop", "a").label("app", "web").body(r#""spec":{"nodeName":"n"}"#).build();
    for (node, expected) in [("n", true), ("m", false)] {
        let field_selector = vec![("spec.nodeName".to_owned(), node.into())];
        assert_eq!(matches(&Query { field_selector, ..query() }, &pod), expected);
    }
    let check = |namespace: Option<&str>, selector: Option<&str>, expected: bool| {
        let query = Query {
            namespaces: namespace.map(str::to_owned).into_iter().collect(),
            selector: selector.map(str::to_owned),
            ..query()
        };
        assert_eq!(matches(&query, &pod), expected, "{query:?}");
    };
    check(None, None, true);
    check(Some("shop"), Some("app=web"), true);
    check(Some("other"), None, false);
    check(None, Some("app!=web"), false);
    assert!(!matches(&Query::all(Kind::new("v1", "Node")), &pod));
}

#[test]
fn a_malformed_part_is_named() {
    let error = Query { selector: Some("a b".into()), ..query() }.compile().unwrap_err();
    assert!(error.to_string().starts_with("the label selector \"a b\" is invalid at byte 2"), "{error}");
    let error = Query { field_selector: vec![("a..b".into(), "x".into())], ..query() }.compile().unwrap_err();
    assert!(error.to_string().starts_with("the field path \"a..b\" is invalid at byte 2"), "{error}");
    let error = Query { fields: vec!["a..b".into()], ..query() }.compile().unwrap_err();
    assert!(error.to_string().starts_with("the field path \"a..b\" is invalid at byte 2"), "{error}");
}

#[test]
fn the_cache_gives_the_same_compiled_query_again_and_stays_bounded() {
    let cache = QueryCache::default();
    let first = cache.query(&query(), None).unwrap();
    assert!(Arc::ptr_eq(&first, &cache.query(&query(), None).unwrap()));
    for number in 0..1_000 {
        let name = format!("f{number}");
        cache.query(&Query { selector: Some(name.clone()), ..query() }, None).unwrap();
        cache.projection(&[name]).unwrap();
    }
    let tables = cache.0.lock().unwrap();
    assert!(tables.queries.entries.len() <= CACHE_ENTRIES && tables.projections.entries.len() <= CACHE_ENTRIES);
}

#[test]
fn g2_the_cache_holds_no_more_bytes_than_its_bound_however_long_the_queries_are() {
    let cache = QueryCache::default();
    for number in 0..300 {
        let fields: Vec<String> = (0..8).map(|path| format!("f{number}.{path:0900}")).collect();
        let selector = format!("a in (v{number},{})", vec!["v".repeat(60); 100].join(","));
        cache.projection(&fields).unwrap();
        let compiled = cache.query(&Query { selector: Some(selector), fields, ..query() }, None).unwrap();
        assert!(compiled.fields.bytes() > 8 * 900);
        assert!(cache.bytes() <= 2 * CACHE_BYTES, "{} after {number}", cache.bytes());
    }
    let tables = cache.0.lock().unwrap();
    assert!(!tables.queries.entries.is_empty() && tables.queries.entries.len() < 100);
}

#[test]
fn g2_a_query_that_is_larger_than_the_cache_is_compiled_and_not_kept() {
    let cache = QueryCache::default();
    cache.projection(&["status.phase".to_owned()]).unwrap();
    let before = cache.bytes();
    let costly: Vec<String> =
        (0..16u8).map(|number| format!("{}{}", char::from(b'a' + number), ".x".repeat(511))).collect();
    assert!(cache.projection(&costly).unwrap().bytes() > CACHE_BYTES);
    assert_eq!(cache.bytes(), before);
}
