//! Kubernetes label selectors: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`, joined by commas.

use serde_json::{Map, Value};

/// One requirement on labels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    name: String,
    operator: Operator,
}

#[derive(Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Requirement {
    pub(crate) fn holds(&self, labels: &Map<String, Value>) -> bool {
        let value = labels.get(&self.name).and_then(Value::as_str);
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|wanted| wanted != value)),
        }
    }
}

/// Parses a selector.
pub(crate) fn parse(selector: &str) -> Result<Vec<Requirement>, String> {
    split(selector).into_iter().map(|part| requirement(part.trim())).collect()
}

/// The parts between commas outside parentheses.
fn split(selector: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_boundary = |letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth == 0
    };
    let parts: Vec<&str> = selector.split(is_boundary).collect();
    if selector.trim().is_empty() { Vec::new() } else { parts }
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let named = |name: &str, operator| {
        let name = name.trim();
        if name.is_empty() || name.contains([' ', '(', ')', '=', '!']) {
            return Err(format!("{part:?} is no requirement of a label selector"));
        }
        Ok(Requirement { name: name.to_owned(), operator })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(name) = part.strip_prefix('!') {
        return named(name, Operator::Absent);
    }
    if let Some((name, value)) = part.split_once("!=") {
        return named(name, Operator::NotIn(one(value)));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return named(name, Operator::In(one(value)));
    }
    let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) else {
        return named(part, Operator::Exists);
    };
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    match head.trim().rsplit_once(' ') {
        Some((name, "in")) => named(name, Operator::In(values)),
        Some((name, "notin")) => named(name, Operator::NotIn(values)),
        _ => Err(format!("{part:?} is no requirement of a label selector")),
    }
}
