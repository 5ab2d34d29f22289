//! PodDisruptionBudgets, as far as one has to know them to say which of them a Pod waits for. Whether an eviction is allowed
//! is not decided here: the API server decides, and this says why.

use mortise_sdk::prelude::*;

use super::Labels;

/// What matters about a budget.
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

/// A label selector, as policy/v1 reads it: an empty one selects every Pod.
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
    /// Whether it is about a Pod and lets none go now. One whose status is not known yet lets none go either.
    pub fn holds_back(&self, namespace: &str, labels: Option<&Labels>) -> bool {
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
