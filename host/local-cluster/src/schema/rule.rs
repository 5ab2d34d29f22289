//! One rule of `x-kubernetes-validations`. Input: its JSON. Output: what it says, with its programs compiled when they are
//! first needed. It must not know values.

use std::sync::OnceLock;

use serde_json::Value;

use crate::cel::Program;

/// A rule as the definition has it.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    pub(crate) rule: String,
    pub(crate) message: String,
    pub(crate) message_expression: String,
    pub(crate) reason: String,
    pub(crate) field_path: String,
    pub(crate) optional_old_self: bool,
    program: OnceLock<Result<Program, String>>,
    message_program: OnceLock<Result<Program, String>>,
}

impl Rule {
    pub(crate) fn read(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: value.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            ..Self::default()
        }
    }

    pub(crate) fn program(&self) -> Result<&Program, &str> {
        self.program.get_or_init(|| Program::compile(&self.rule)).as_ref().map_err(String::as_str)
    }

    /// The program that makes the message; none is there where none is written.
    pub(crate) fn message_program(&self) -> Option<Result<&Program, &str>> {
        if self.message_expression.is_empty() {
            return None;
        }
        let made = self.message_program.get_or_init(|| Program::compile(&self.message_expression));
        Some(made.as_ref().map_err(String::as_str))
    }

    /// The rule in messages.
    pub(crate) fn shown(&self) -> &str {
        if self.message.is_empty() { &self.rule } else { &self.message }
    }
}
