//! Unions of scopes, and what is in them.

use super::*;
use crate::object::tests::Sample;

pub fn scope(namespaces: &[&str], labels: &str) -> Scope {
    Scope { namespaces: namespaces.iter().map(|&name| name.into()).collect(), labels: Selector::parse(labels).unwrap() }
}

#[test]
fn a_union_has_the_namespaces_of_both_and_labels_that_are_equal() {
    for (left, right, both) in [
        ((&["a"][..], ""), (&["b"][..], ""), (&["a", "b"][..], "")),
        ((&["a"], ""), (&[], ""), (&[], "")),
        ((&["a"], "x=1"), (&["b"], "x=1"), (&["a", "b"], "x=1")),
        ((&["a"], "x=1"), (&["a"], "x=2"), (&["a"], "")),
        ((&[], "x=1"), (&[], ""), (&[], "")),
    ] {
        let [left, right, both] = [left, right, both].map(|(namespaces, labels)| scope(namespaces, labels));
        assert_eq!(left.clone().union(&right), both, "{left:?} and {right:?}");
        assert_eq!(right.union(&left), both);
    }
}

#[test]
fn a_scope_has_the_objects_of_its_namespaces_with_its_labels() {
    let web = Sample::pod("a", "x").label("app", "web").build();
    for (namespaces, labels, expected) in [
        (&[][..], "", true),
        (&["a", "b"], "app=web", true),
        (&["b"], "", false),
        (&["a"], "app=db", false),
        (&[], "!app", false),
    ] {
        assert_eq!(scope(namespaces, labels).contains(&web), expected, "{namespaces:?} {labels}");
    }
}

#[test]
fn a_scope_is_described_by_what_narrows_it() {
    assert_eq!(scope(&[], "").to_string(), "");
    assert_eq!(scope(&["a"], "").to_string(), "in the namespace a");
    assert_eq!(scope(&["b", "a"], "x=1").to_string(), "in the namespaces a, b, with the labels x=1");
}

/// "*" for the whole kind, "a" for a namespace, "a?x" for objects with a label there.
pub(crate) fn slice(kind: Kind, text: &str) -> Slice {
    let (namespace, labels) =
        text.split_once('?').map_or((text, None), |(namespace, labels)| (namespace, Some(labels)));
    let namespace = (namespace != "*").then(|| namespace.into());
    Slice { kind, namespace, labels: labels.map(Into::into) }
}
