//! PodDisruptionBudgets: finds the one that blocks an eviction, for the status. The API server decides; this gives the
//! reason.

use mortise_sdk::prelude::*;

use super::Labels;

/// The fields of a budget that are read.
#[derive(Projection)]
#[projection("policy/v1/PodDisruptionBudget")]
pub struct Budget<'a> {
    #[field("metadata.namespace")]
    pub namespace: &'a str,
    #[field("metadata.name")]
    pub name: &'a str,
    #[field("spec.selector")]
    pub selector: Option<Selector>,
    #[field("status.disruptionsAllowed")]
    pub allowed: Option<i32>,
}

/// A label selector, as in policy/v1: an empty one selects every Pod.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    match_labels: Labels,
    match_expressions: Vec<Expression>,
}

#[derive(Deserialize)]
struct Expression {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl Budget<'_> {
    /// Whether it covers a Pod and allows no disruption now. One without a status allows none.
    pub fn blocks(&self, namespace: &str, labels: Option<&Labels>) -> bool {
        let none = Labels::new();
        let selects = |selector: &Selector| selector.selects(labels.unwrap_or(&none));
        self.namespace == namespace
            && self.allowed.unwrap_or_default() <= 0
            && self.selector.as_ref().is_some_and(selects)
    }
}

impl Selector {
    fn selects(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| expression.holds(labels.get(&expression.key)))
    }
}

impl Expression {
    fn holds(&self, found: Option<&String>) -> bool {
        let is_among = found.is_some_and(|found| self.values.contains(found));
        match self.operator.as_str() {
            "In" => is_among,
            "NotIn" => !is_among,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    }
}
