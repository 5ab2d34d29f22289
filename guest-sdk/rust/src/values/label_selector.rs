//! metav1.LabelSelector: which objects a spec means, by their labels.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selects objects by labels, as the `selector` of a Service's or Deployment's spec does. All requirements have to be
/// met; an empty selector matches everything.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::LabelSelector;
///
/// let selector: LabelSelector = serde_json::from_value(json!({
///     "matchLabels": {"team": "a"},
///     "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "api"]}],
/// })).unwrap();
/// assert!(selector.matches(&[("team".into(), "a".into()), ("tier".into(), "web".into())].into()));
/// assert!(!selector.matches(&[("team".into(), "a".into())].into()));
///
/// // The host evaluates it, and only objects that match, or did, cause another call.
/// let namespaces = Query::<Object>::of_kind("v1", "Namespace").selector(&selector);
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
    /// Whether labels meet all requirements. `In` without values matches nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.is_met_by(labels))
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

    /// In the syntax of `kubectl get -l`, which has no empty set: the same requirement in other words, or None for one
    /// that everything meets.
    fn text(&self) -> Option<String> {
        let key = self.key.as_str();
        let set = |operator: &str| Some([key, operator, &self.values.join(","), ")"].concat());
        match self.operator {
            Operator::In if self.values.is_empty() => Some([key, ",!", key].concat()),
            Operator::NotIn if self.values.is_empty() => None,
            Operator::In => set(" in ("),
            Operator::NotIn => set(" notin ("),
            Operator::Exists => Some(key.to_owned()),
            Operator::DoesNotExist => Some(["!", key].concat()),
        }
    }
}

/// The syntax of `kubectl get -l`, which [`crate::Query::selector`] takes.
impl From<&LabelSelector> for String {
    fn from(selector: &LabelSelector) -> Self {
        let labels = selector.match_labels.iter().map(|(key, value)| [key, "=", value].concat());
        labels.chain(selector.match_expressions.iter().filter_map(Requirement::text)).collect::<Vec<_>>().join(",")
    }
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
        let text = String::from(&selector);
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
            ("In", &[], false, false, false),
            ("NotIn", &["1"], false, true, true),
            ("NotIn", &[], true, true, true),
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
        assert!(selector.matches(&BTreeMap::new()) && String::from(&selector).is_empty());
        assert_eq!(serde_json::to_value(&selector).unwrap(), json!({}));
        assert!(serde_json::from_value::<LabelSelector>(json!({"matchLabels": {"a": 1}})).is_err());
    }
}
