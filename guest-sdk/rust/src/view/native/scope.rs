//! Which objects of a kind a controller sees.

use serde_json::{Map, Value};

use super::selector;
use super::tree::text;
use crate::object::Kind;

/// What is declared of one kind.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    /// Empty: every namespace.
    pub(crate) namespaces: Vec<&'static str>,
    /// Empty: any labels.
    labels: &'static str,
}

impl Scope {
    pub(crate) fn new(kind: Kind, namespaces: &[&'static str], labels: &'static str) -> Self {
        Self { kind, namespaces: namespaces.to_vec(), labels }
    }

    /// As in the host, two declarations of one kind unite, and labels that differ do not narrow it.
    pub(crate) fn unite(&mut self, other: &Self) {
        if self.namespaces.is_empty() || other.namespaces.is_empty() {
            self.namespaces.clear();
        } else {
            self.namespaces.extend(&other.namespaces);
            self.namespaces.sort_unstable();
            self.namespaces.dedup();
        }
        if self.labels != other.labels {
            self.labels = "";
        }
    }

    pub(crate) fn is_of(&self, api_version: &str, kind: &str) -> bool {
        self.kind.api_version == api_version && self.kind.kind == kind
    }

    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(&namespace)
    }

    /// Whether it has an object of its kind.
    pub(crate) fn contains(&self, object: &Value) -> Result<bool, String> {
        let none = Map::new();
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object).unwrap_or(&none);
        let has_labels = selector::parse(self.labels)?.iter().all(|requirement| requirement.holds(labels));
        Ok(has_labels && self.has_namespace(text(object, "/metadata/namespace")))
    }

    /// "in the namespaces a, b, with the labels app=web", as the host describes it.
    pub(crate) fn words(&self) -> String {
        let place = place(&self.namespaces);
        let labels = (!self.labels.is_empty()).then(|| format!("with the labels {}", self.labels));
        place.into_iter().chain(labels).collect::<Vec<_>>().join(", ")
    }
}

/// "in the namespace a"; None for all.
pub(crate) fn place(namespaces: &[&str]) -> Option<String> {
    match namespaces {
        [] => None,
        [only] => Some(format!("in the namespace {only}")),
        several => {
            let mut sorted = several.to_vec();
            sorted.sort_unstable();
            Some(format!("in the namespaces {}", sorted.join(", ")))
        }
    }
}
