//! The words of causes, as `field.Error` has them. Input: a field, a value and what is wrong. Output: a cause. It must not
//! know schemas.

use std::fmt::Display;

use serde_json::Value;

use crate::halt::Cause;

fn cause(reason: &'static str, kind: &str, field: impl Display, value: &str, detail: &str) -> Cause {
    let mut message = kind.to_owned();
    for part in [value, detail].into_iter().filter(|part| !part.is_empty()) {
        message.push_str(": ");
        message.push_str(part);
    }
    Cause { reason, message, field: field.to_string() }
}

/// A value as messages show it: Go's `%v` of numbers and booleans, quoted text, JSON of all else.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Number(number) if !number.is_i64() && !number.is_u64() => float(number.as_f64().unwrap_or(0.0)),
        Value::Object(_) | Value::Array(_) => {
            let text = value.to_string();
            text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
        other => other.to_string(),
    }
}

/// A float as Go's `%v` writes it.
pub(crate) fn float(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e21).contains(&value.abs()) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{value}")
}

pub(crate) fn required(field: impl Display, detail: &str) -> Cause {
    cause("FieldValueRequired", "Required value", field, "", detail)
}

pub(crate) fn forbidden(field: impl Display, detail: &str) -> Cause {
    cause("FieldValueForbidden", "Forbidden", field, "", detail)
}

pub(crate) fn invalid(field: impl Display, value: &Value, detail: &str) -> Cause {
    cause("FieldValueInvalid", "Invalid value", field, &shown(value), detail)
}

/// An invalid value that is written already.
pub(crate) fn invalid_written(field: impl Display, written: &str, detail: &str) -> Cause {
    cause("FieldValueInvalid", "Invalid value", field, written, detail)
}

/// An invalid value that is too large to be shown.
pub(crate) fn invalid_omitted(field: impl Display, detail: &str) -> Cause {
    cause("FieldValueInvalid", "Invalid value", field, "", detail)
}

pub(crate) fn type_invalid(field: impl Display, value: &Value, detail: &str) -> Cause {
    cause("FieldValueTypeInvalid", "Invalid value", field, &shown(value), detail)
}

pub(crate) fn duplicate(field: impl Display, value: &Value) -> Cause {
    cause("FieldValueDuplicate", "Duplicate value", field, &shown(value), "")
}

pub(crate) fn duplicate_omitted(field: impl Display) -> Cause {
    cause("FieldValueDuplicate", "Duplicate value", field, "", "")
}

pub(crate) fn not_supported<'a>(
    field: impl Display,
    value: &Value,
    supported: impl IntoIterator<Item = &'a str>,
) -> Cause {
    let words: Vec<String> = supported.into_iter().map(|word| format!("{word:?}")).collect();
    let detail = if words.is_empty() { String::new() } else { format!("supported values: {}", words.join(", ")) };
    cause("FieldValueNotSupported", "Unsupported value", field, &shown(value), &detail)
}

pub(crate) fn too_long(field: impl Display, most: u64) -> Cause {
    let unit = if most == 1 { "byte" } else { "bytes" };
    cause("FieldValueTooLong", "Too long", field, "", &format!("may not be more than {most} {unit}"))
}

pub(crate) fn too_many(field: impl Display, actual: usize, most: u64) -> Cause {
    let unit = if most == 1 { "item" } else { "items" };
    let detail = format!("must have at most {most} {unit}");
    cause("FieldValueTooMany", "Too many", field, &actual.to_string(), &detail)
}

/// Whether a cause keeps rules from being looked at: the object may not have the form that they expect.
pub(crate) fn blocks_rules(cause: &Cause) -> bool {
    matches!(
        cause.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}
