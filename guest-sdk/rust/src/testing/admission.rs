//! Admission in native tests: from an object to the object with the plugin's defaults, or its violations. Schemas are
//! not checked.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::cluster::{Cluster, tree};
use crate::admission::{Operation, Request, Verdict, Violation};

/// An object that is admitted.
#[derive(Clone, PartialEq, Debug)]
pub struct Admitted {
    /// The object with its defaults.
    pub object: Value,
    /// What kubectl shows.
    pub warnings: Vec<String>,
}

/// An object that is refused. It is displayed with one violation a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub violations: Vec<Violation>,
    /// What kubectl shows besides.
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
    /// Reviews the creation of an object: sets defaults, then checks.
    ///
    /// # Errors
    /// The plugin's violations.
    pub fn create<T: Serialize>(&self, object: &T) -> Result<Admitted, Refused> {
        self.admit(Operation::Create, tree(object), None)
    }

    /// Reviews an update of an object.
    ///
    /// # Errors
    /// The plugin's violations.
    pub fn update<T: Serialize>(&self, old: &T, object: &T) -> Result<Admitted, Refused> {
        self.admit(Operation::Update, tree(object), Some(tree(old)))
    }

    /// Reviews the deletion of an object.
    ///
    /// # Errors
    /// The plugin's violations.
    pub fn delete<T: Serialize>(&self, object: &T) -> Result<Admitted, Refused> {
        self.admit(Operation::Delete, tree(object), Some(tree(object)))
    }

    fn admit(&self, operation: Operation, object: Value, old: Option<Value>) -> Result<Admitted, Refused> {
        let old = old.map(|old| old.to_string());
        let mut request = Request { operation, object: object.to_string(), old, inputs: self.inputs() };
        let admission = self.plugin.admission_of(&request);
        if !admission.is_some_and(|admission| admission.operations.contains(&operation)) {
            return Ok(Admitted { object, warnings: Vec::new() });
        }
        if operation != Operation::Delete {
            request.object =
                self.plugin.mutate(&request).map_err(|violations| Refused { violations, warnings: Vec::new() })?;
        }
        let Verdict { violations, warnings } = self.plugin.validate(&request);
        if !violations.is_empty() {
            return Err(Refused { violations, warnings });
        }
        let object = serde_json::from_str(&request.object).expect("the plugin serialized it");
        Ok(Admitted { object, warnings })
    }
}
