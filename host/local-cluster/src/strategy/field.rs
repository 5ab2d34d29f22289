//! Paths of fields and what can be wrong with them, in the API server's words. Input: a place in an object and what is wrong
//! there. Output: causes. It must not know kinds. A path is made of borrowed parts, so that nothing is allocated while all
//! is right.

use std::fmt;

use serde_json::Value;

use crate::halt::Cause;
use crate::quantity::Quantity;

/// A place in an object. A field's name may have dots: `spec.template`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => to.write_str(name),
            Self::Field(parent, name) => write!(to, "{parent}.{name}"),
            Self::Index(parent, at) => write!(to, "{parent}[{at}]"),
            Self::Key(parent, key) => write!(to, "{parent}[{key}]"),
        }
    }
}

/// What is wrong with an object, in the order it was found.
#[derive(Debug, Default)]
pub(crate) struct Causes(pub(crate) Vec<Cause>);

impl Causes {
    fn add(&mut self, reason: &'static str, path: &Path<'_>, what: &str, value: Option<&Value>, detail: &str) {
        let mut message = what.to_owned();
        let detail = Some(detail).filter(|detail| !detail.is_empty());
        for part in value.map(shown).into_iter().chain(detail.map(str::to_owned)) {
            message.push_str(": ");
            message.push_str(&part);
        }
        let cause = Cause { reason, message, field: path.to_string() };
        // Rules that meet at one field may find the same.
        if !self.0.contains(&cause) {
            self.0.push(cause);
        }
    }

    pub(crate) fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.add("FieldValueRequired", path, "Required value", None, detail);
    }

    pub(crate) fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        self.add("FieldValueInvalid", path, "Invalid value", Some(value), detail);
    }

    /// One cause for each of several details of one text.
    pub(crate) fn invalid_text(&mut self, path: &Path<'_>, text: &str, details: Vec<String>) {
        for detail in details {
            self.invalid(path, &text.into(), &detail);
        }
    }

    pub(crate) fn not_supported(&mut self, path: &Path<'_>, value: &Value, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        self.add("FieldValueNotSupported", path, "Unsupported value", Some(value), &detail);
    }

    pub(crate) fn duplicate(&mut self, path: &Path<'_>, value: &Value) {
        self.add("FieldValueDuplicate", path, "Duplicate value", Some(value), "");
    }

    pub(crate) fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.add("FieldValueForbidden", path, "Forbidden", None, detail);
    }

    pub(crate) fn not_found(&mut self, path: &Path<'_>, value: &Value) {
        self.add("FieldValueNotFound", path, "Not found", Some(value), "");
    }

    pub(crate) fn too_long(&mut self, path: &Path<'_>, most: usize) {
        self.add("FieldValueTooLong", path, "Too long", None, &format!("may not be more than {most} bytes"));
    }
}

/// A value as messages show it: what a client left out is an empty text or JSON's null.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

/// The value at a dotted path; null where there is none.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').filter(|part| !part.is_empty()).fold(value, |value, part| &value[part])
}

/// The text of a value; empty where there is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none where there is no list.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The quantity that a value says; what is none was refused when the object was read.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::read(value).ok()
}

/// Whether Go would call a field unset: absent, or an empty text, list or map.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a number or a percentage is nothing.
pub(super) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim_end_matches('%').parse::<i64>() == Ok(0),
        other => other.as_i64().unwrap_or(0) == 0,
    }
}

/// How many of these fields are set.
pub(super) fn how_many(value: &Value, names: &[&str]) -> usize {
    names.iter().filter(|name| !value[**name].is_null()).count()
}

/// The names in a list of objects.
pub(super) fn names(list: &Value) -> impl Iterator<Item = &str> {
    items(list).iter().map(|item| text(&item["name"]))
}
