//! `where` of a controller: the predicate that selects the objects of its kind that it reconciles.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::place::refuse;
use crate::object::{Object, Text};
use crate::refusal::Refusal;
use crate::selector::Selector;

/// More than a controller needs. Annotations are parsed for every object whose labels match.
const MAX_ANNOTATIONS: usize = 16;
/// The API server's bound: a DNS subdomain, a slash, and a name.
const MAX_ANNOTATION_NAME_BYTES: usize = 253 + 1 + 63;

/// Which objects of a kind are reconciled. The default selects all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Predicate {
    /// Labels, in the syntax of `kubectl get -l`.
    pub labels: Selector,
    /// Annotations that must all have exactly these values.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSelection {
    #[serde(default)]
    labels: String,
    #[serde(default)]
    annotations: BTreeMap<Arc<str>, Arc<str>>,
}

impl Predicate {
    pub(super) fn parse(place: &str, raw: RawSelection) -> Result<Self, Refusal> {
        let labels = match Selector::parse(&raw.labels) {
            Ok(labels) => labels,
            Err(error) => return refuse(format!("{place}.labels: {error}")),
        };
        if raw.annotations.len() > MAX_ANNOTATIONS {
            let count = raw.annotations.len();
            return refuse(format!("{place}.annotations: there are {count}, the most is {MAX_ANNOTATIONS}"));
        }
        if let Some(name) = raw.annotations.keys().find(|name| !is_annotation_name(name)) {
            return refuse(format!("{place}.annotations: {name:?} is not an annotation's name"));
        }
        Ok(Self { labels, annotations: raw.annotations })
    }

    /// Whether it selects every object.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.annotations.is_empty()
    }

    /// Whether it selects this object. Annotations are parsed only when the labels match.
    pub fn matches(&self, object: &Object) -> bool {
        self.labels.matches(&object.labels) && (self.annotations.is_empty() || self.match_annotations(object))
    }

    fn match_annotations(&self, object: &Object) -> bool {
        let read = serde_json::from_str::<Annotated<'_>>(object.json()).unwrap_or_default();
        let has = |(name, value): (&Arc<str>, &Arc<str>)| {
            read.metadata.annotations.as_ref().and_then(|all| all.get(&**name)).is_some_and(|found| found.0 == **value)
        };
        self.annotations.iter().all(has)
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.labels.is_everything() {
            parts.push(format!("labels {}", self.labels));
        }
        parts.extend(self.annotations.iter().map(|(name, value)| format!("annotation {name}={value:?}")));
        f.write_str(&parts.join(", "))
    }
}

#[derive(Deserialize, Default)]
struct Annotated<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize, Default)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Text<'a>>>,
}

fn is_annotation_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    !name.is_empty() && name.len() <= MAX_ANNOTATION_NAME_BYTES && name.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::tests::decode;

    fn selection(text: &Value) -> Result<Predicate, Refusal> {
        Predicate::parse("where", serde_json::from_value(text.clone()).unwrap())
    }

    fn object(labels: &Value, annotations: &Value) -> Object {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": {"metadata": {"annotations": {"deep": "no"}}},
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "labels": labels, "annotations": annotations},
        });
        decode(&object.to_string())
    }

    #[test]
    fn labels_and_all_annotations_must_match() {
        let where_ =
            json!({"labels": "tier in (web, api), !legacy", "annotations": {"a.b/on": "true", "why": "a \"b\""}});
        let selection = selection(&where_).unwrap();
        let (web, both) = (json!({"tier": "web"}), json!({"a.b/on": "true", "why": "a \"b\"", "more": "x"}));
        assert!(selection.matches(&object(&web, &both)));
        for (labels, annotations) in [
            (json!({}), both.clone()),
            (json!({"tier": "web", "legacy": ""}), both.clone()),
            (web.clone(), json!({"a.b/on": "true"})),
            (web.clone(), json!({"a.b/on": "True", "why": "a \"b\""})),
            (web.clone(), json!({})),
            (web.clone(), Value::Null),
        ] {
            assert!(!selection.matches(&object(&labels, &annotations)), "{labels} {annotations}");
        }
        assert!(!selection.is_everything());
        assert_eq!(
            selection.to_string(),
            "labels tier in (api,web),!legacy, annotation a.b/on=\"true\", annotation why=\"a \\\"b\\\"\""
        );
    }

    #[test]
    fn an_empty_predicate_selects_everything() {
        for text in [json!({}), json!({"labels": ""}), json!({"annotations": {}})] {
            let selection = selection(&text).unwrap();
            assert!(selection.is_everything() && selection.matches(&object(&json!({}), &Value::Null)), "{text}");
        }
    }

    #[test]
    fn an_invalid_predicate_is_refused_with_its_place() {
        let many: BTreeMap<String, String> = (0..17).map(|n| (n.to_string(), String::new())).collect();
        for (text, words) in [
            (json!({"labels": "tier in web"}), "where.labels: the label selector \"tier in web\" is invalid at byte 8"),
            (json!({"annotations": {"a b": "c"}}), "where.annotations: \"a b\" is not an annotation's name"),
            (json!({"annotations": {"": "c"}}), "where.annotations: \"\" is not"),
            (json!({"annotations": many}), "where.annotations: there are 17, the most is 16"),
        ] {
            let refusal = selection(&text).unwrap_err();
            assert!(refusal.message.contains(words), "{words:?} is not in: {}", refusal.message);
        }
    }
}
