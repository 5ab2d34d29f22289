//! metav1.LabelSelector: which objects a spec means, by their labels.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ValueError;

/// Kubernetes' bound for a label's value, and for its key without the domain.
const MAX_NAME_BYTES: usize = 63;
/// Kubernetes' bound for a domain name.
const MAX_DOMAIN_BYTES: usize = 253;

/// Selects objects by labels, as the `selector` of a Service's or Deployment's spec does. All requirements have to be
/// met; an empty selector matches everything.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::LabelSelector;
///
/// let selector = LabelSelector::deserialize(json!({
///     "matchLabels": {"team": "a"},
///     "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "api"]}],
/// })).unwrap();
/// assert!(selector.matches(&[("team".into(), "a".into()), ("tier".into(), "web".into())].into()));
/// assert!(!selector.matches(&[("team".into(), "a".into())].into()));
///
/// // The host evaluates it, and only objects that match, or did, cause another call.
/// let namespaces = Query::<Object>::of_kind("v1", "Namespace").selector(selector.text().unwrap());
/// # let _ = namespaces;
/// ```
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that an object must have, with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    /// The name of the label.
    pub key: String,
    /// How the label relates to the values.
    pub operator: Operator,
    /// For In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a label relates to the values of a requirement.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// It has one of the values.
    In,
    /// It has none of the values, or is missing.
    NotIn,
    /// It is there.
    Exists,
    /// It is missing.
    DoesNotExist,
}

impl LabelSelector {
    /// Whether labels meet all requirements. `In` without values, which Kubernetes refuses, matches nothing: see
    /// [`Self::text`].
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.is_met_by(labels))
    }

    /// The selector in the syntax of `kubectl get -l`, for [`crate::Query::selector`]; empty when it matches everything.
    ///
    /// # Errors
    /// What Kubernetes refuses: a key or a value that no label can have, which would mean something else in that syntax, or
    /// an `In` or `NotIn` without values.
    ///
    /// ```
    /// use mortise_sdk::LabelSelector;
    ///
    /// let mut selector = LabelSelector::default();
    /// selector.match_labels.insert("tier".into(), "web".into());
    /// assert_eq!(selector.text().unwrap(), "tier=web");
    /// selector.match_labels.insert("tier".into(), "web,!legacy".into());
    /// assert!(selector.text().unwrap_err().message().starts_with("\"web,!legacy\" is no value of the label \"tier\""));
    /// ```
    pub fn text(&self) -> Result<String, ValueError> {
        let mut terms = Vec::new();
        for (key, value) in &self.match_labels {
            terms.push([valid_key(key)?, "=", valid_value(key, value)?].concat());
        }
        for requirement in &self.match_expressions {
            terms.push(requirement.text()?);
        }
        Ok(terms.join(","))
    }
}

impl Requirement {
    fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }

    fn text(&self) -> Result<String, ValueError> {
        let key = valid_key(&self.key)?;
        let values = self.values.iter().map(|value| valid_value(key, value)).collect::<Result<Vec<_>, _>>()?.join(",");
        Ok(match self.operator {
            Operator::In | Operator::NotIn if self.values.is_empty() => {
                return Err(ValueError(["the requirement on the label \"", key, "\" has no values"].concat()));
            }
            Operator::In => [key, " in (", &values, ")"].concat(),
            Operator::NotIn => [key, " notin (", &values, ")"].concat(),
            Operator::Exists => key.to_owned(),
            Operator::DoesNotExist => ["!", key].concat(),
        })
    }
}

/// A label's key: a name, perhaps with the domain of who defines it.
fn valid_key(key: &str) -> Result<&str, ValueError> {
    let (domain, name) = key.rsplit_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_domain = |domain: &str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_part = |part: &str| {
            !part.is_empty() && part.bytes().all(is_letter) && !part.starts_with('-') && !part.ends_with('-')
        };
        domain.len() <= MAX_DOMAIN_BYTES && domain.split('.').all(is_part)
    };
    if is_name(name) && domain.is_none_or(is_domain) {
        return Ok(key);
    }
    Err(ValueError(format!("{key:?} is no key of a label such as \"tier\" or \"example.com/tier\"")))
}

fn valid_value<'a>(key: &str, value: &'a str) -> Result<&'a str, ValueError> {
    if value.is_empty() || is_name(value) {
        return Ok(value);
    }
    Err(ValueError(format!(
        "{value:?} is no value of the label {key:?}: it has letters, digits, '-', '_' and '.', at most 63"
    )))
}

fn is_name(name: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    name.len() <= MAX_NAME_BYTES
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::native::selector;

    fn check(expression: Value, labels: &[(&str, &str)], expected: bool) {
        let selector: LabelSelector = serde_json::from_value(json!({"matchExpressions": [expression]})).unwrap();
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(selector.matches(&labels), expected, "{selector:?} {labels:?}");
        let text = selector.text().unwrap();
        let tree = json!(labels);
        let holds = selector::parse(&text).unwrap().iter().all(|each| each.holds(tree.as_object().unwrap()));
        assert_eq!(holds, expected, "{text} {labels:?}");
    }

    #[test]
    fn every_operator_means_the_same_here_and_in_a_query() {
        let expression = |operator: &str, values: &[&str]| json!({"key": "a", "operator": operator, "values": values});
        for (operator, values, one, two, none) in [
            ("In", &["1", "2"][..], true, true, false),
            ("In", &["1"], true, false, false),
            ("NotIn", &["1"], false, true, true),
            ("Exists", &[], true, true, false),
            ("DoesNotExist", &[], false, false, true),
        ] {
            check(expression(operator, values), &[("a", "1")], one);
            check(expression(operator, values), &[("a", "2"), ("b", "1")], two);
            check(expression(operator, values), &[("b", "1")], none);
        }
    }

    #[test]
    fn an_empty_selector_matches_everything_and_is_an_empty_text() {
        let selector = LabelSelector::default();
        assert!(selector.matches(&BTreeMap::new()) && selector.text().unwrap().is_empty());
        assert_eq!(serde_json::to_value(&selector).unwrap(), json!({}));
        assert!(serde_json::from_value::<LabelSelector>(json!({"matchLabels": {"a": 1}})).is_err());
    }

    #[test]
    fn what_no_label_can_be_is_an_error_and_no_other_selector() {
        let long = "a".repeat(64);
        for (key, value) in [
            ("a", "x,!b"),
            ("a", "x)"),
            ("a", "-x"),
            ("a", &*long),
            ("", "x"),
            ("a,b", "x"),
            ("a=b", "x"),
            ("A.com/a", "x"),
            ("a/b/c", "x"),
            ("/a", "x"),
            (&*long, "x"),
        ] {
            let of_label = LabelSelector {
                match_labels: [(key.to_owned(), value.to_owned())].into(),
                match_expressions: Vec::new(),
            };
            assert!(of_label.text().is_err(), "{key:?} {value:?}");
            for operator in [Operator::In, Operator::NotIn] {
                let requirement = Requirement { key: key.to_owned(), operator, values: vec![value.to_owned()] };
                let selector = LabelSelector { match_expressions: vec![requirement], ..LabelSelector::default() };
                assert!(selector.text().is_err(), "{key:?} {value:?}");
            }
        }
        for operator in [Operator::In, Operator::NotIn] {
            let empty = Requirement { key: "a".to_owned(), operator, values: Vec::new() };
            let selector = LabelSelector { match_expressions: vec![empty], ..LabelSelector::default() };
            assert_eq!(selector.text().unwrap_err().message(), "the requirement on the label \"a\" has no values");
        }
        let valid = LabelSelector {
            match_labels: [("example.com/A_b.c".to_owned(), String::new())].into(),
            match_expressions: Vec::new(),
        };
        assert_eq!(valid.text().unwrap(), "example.com/A_b.c=");
    }
}
