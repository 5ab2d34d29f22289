//! Expressions of admission: what they can read, and conditions that must all hold. Input: attributes and objects. Output:
//! values, or what is wrong with an expression. It must not know policies and webhooks.

use serde_json::{Value, json};

use super::matching::Objects;
use super::reading::{kind, text};
use super::review;
use crate::Cluster;
use crate::attributes::Attributes;
use crate::cel::Program;
use crate::context::Context;
use crate::halt::Halt;
use crate::resource::{Resource, Storage};

/// What expressions can read.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) object: Value,
    old: Value,
    request: Value,
    namespace: Value,
    pub(super) params: Value,
    variables: Value,
}

impl Scope {
    pub(super) fn new(
        cluster: &Cluster,
        context: &Context<'_>,
        attributes: &Attributes,
        target: &Resource,
        objects: Objects<'_>,
    ) -> Result<Self, Halt> {
        let mut request = review::request(cluster, context, attributes, target, objects, "")?;
        let object = request["object"].take();
        let old = request["oldObject"].take();
        let of = cluster.store.get(&Storage::new("", "namespaces"), "", &attributes.namespace);
        let is_namespace = kind(attributes) == ("", "namespaces");
        let namespace = of.filter(|_| !is_namespace).map_or(Value::Null, |found| found.value.clone());
        Ok(Self { object, old, request, namespace, params: Value::Null, variables: json!({}) })
    }

    pub(super) fn evaluate(&self, expression: &str) -> Result<Value, String> {
        let program = Program::compile(expression)?;
        let variables = [
            ("object", &self.object),
            ("oldObject", &self.old),
            ("request", &self.request),
            ("namespaceObject", &self.namespace),
            ("params", &self.params),
            ("variables", &self.variables),
        ];
        let value = program.evaluate(&variables);
        value.map_err(|error| format!("expression '{}' resulted in error: {error}", expression.trim()))
    }

    /// Adds the variables of a policy, each of which may read those before it. One that fails is missing: only expressions
    /// that read it fail with it.
    pub(super) fn define(&mut self, variables: &[Value]) {
        for variable in variables {
            if let Ok(value) = self.evaluate(text(variable, "expression")) {
                self.variables[text(variable, "name")] = value;
            }
        }
    }

    /// Whether all conditions hold. One that does not hold counts more than one that fails.
    pub(super) fn holds(&self, conditions: &[Value]) -> Result<bool, String> {
        let mut errors = Vec::new();
        for condition in conditions {
            match self.evaluate(text(condition, "expression")) {
                Ok(Value::Bool(false)) => return Ok(false),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(super::reading::all_of(&errors)) }
    }
}
