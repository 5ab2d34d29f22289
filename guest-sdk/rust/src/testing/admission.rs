//! Admission natively: what the API server would make of an object with this plugin's defaults and checks. Objects go in,
//! the object as it would be stored or the violations come out. What schemas refuse shows on a cluster alone.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::cluster::{Cluster, tree};
use crate::admission::{Inputs, Operation, Question, Violation};

/// An object that is admitted.
#[derive(Clone, PartialEq, Debug)]
pub struct Admitted {
    /// The object with its defaults.
    pub object: Value,
    /// What kubectl shows beside.
    pub warnings: Vec<String>,
}

/// An object that is refused; written out, one violation a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub violations: Vec<Violation>,
    /// What kubectl shows beside.
    pub warnings: Vec<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.violations.iter().map(Violation::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Refused {}

impl Cluster {
    /// Somebody creates an object: defaults are filled in, then it is checked.
    ///
    /// # Errors
    /// What the plugin finds wrong.
    pub fn create<T: Serialize>(&self, object: &T) -> Result<Admitted, Refused> {
        self.admit(Operation::Create, tree(object), None)
    }

    /// Somebody changes an object.
    ///
    /// # Errors
    /// What the plugin finds wrong.
    pub fn update<T: Serialize>(&self, old: &T, object: &T) -> Result<Admitted, Refused> {
        self.admit(Operation::Update, tree(object), Some(tree(old)))
    }

    /// Somebody deletes an object.
    ///
    /// # Errors
    /// What the plugin finds wrong about that.
    pub fn delete<T: Serialize>(&self, object: &T) -> Result<Admitted, Refused> {
        self.admit(Operation::Delete, tree(object), Some(tree(object)))
    }

    fn admit(&self, operation: Operation, object: Value, old: Option<Value>) -> Result<Admitted, Refused> {
        let inputs = Inputs { now_unix_ms: self.now_unix_ms, config: self.config.to_string() };
        let old = old.map(|old| old.to_string());
        let mut question = Question { operation, object: object.to_string(), old, inputs };
        let is_asked = self.plugin.admission_of(&question).is_some_and(|asked| asked.operations.contains(&operation));
        if !is_asked {
            return Ok(Admitted { object, warnings: Vec::new() });
        }
        if operation != Operation::Delete {
            question.object =
                self.plugin.mutate(&question).map_err(|violations| Refused { violations, warnings: Vec::new() })?;
        }
        let verdict = self.plugin.validate(&question);
        if !verdict.violations.is_empty() {
            return Err(Refused { violations: verdict.violations, warnings: verdict.warnings });
        }
        let object = serde_json::from_str(&question.object).expect("an object that was read and written is JSON");
        Ok(Admitted { object, warnings: verdict.warnings })
    }
}
