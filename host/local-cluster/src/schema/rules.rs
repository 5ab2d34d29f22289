//! Looks at objects by `x-kubernetes-validations`. Input: an object, and the one before it. Output: the causes of rules that
//! do not hold. It must not know the language of rules.

use serde_json::{Value, json};

use super::cause;
use super::node::{Place, Schema, Type, same_item};
use super::path::Path;
use super::rule::Rule;
use crate::cel::{self, Bound, as_key};
use crate::halt::Cause;

/// How long a message that an expression makes may be; a longer one is not used.
const MAX_MESSAGE: usize = 5 * 1024;

/// A value with the one at the same place before, and whether nothing changed around it.
#[derive(Clone, Copy)]
struct Seen<'a> {
    value: &'a Value,
    old: Option<&'a Value>,
    unchanged: bool,
}

impl Schema {
    /// The rules that do not hold.
    pub(super) fn broken_rules(&self, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
        let seen = Seen { value: object, old, unchanged: old == Some(object) };
        walk(self.root(), seen, &Path::Root, causes);
    }
}

fn walk(place: Place<'_>, seen: Seen<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if seen.value.is_null() {
        return;
    }
    let node = place.node;
    if !node.rules.is_empty() {
        let value = as_seen(place, seen.value, path.is_root());
        let old = seen.old.map(|old| as_seen(place, old, path.is_root()));
        for rule in &node.rules {
            causes.extend(broken(place, rule, &value, old.as_ref(), seen, path));
        }
    }
    match seen.value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(below) = place.field(name).filter(|below| below.node.go_type.is_none()) else { continue };
                let old = seen.old.and_then(|old| old.get(name));
                let seen =
                    Seen { value, old, unchanged: if old.is_some() { old == Some(value) } else { seen.unchanged } };
                let is_property = node.properties.contains_key(name.as_str());
                let path = if is_property { path.field(name) } else { path.key(name) };
                walk(below, seen, &path, causes);
            }
        }
        Value::Array(items) => {
            let Some(below) = place.items() else { return };
            for (at, value) in items.iter().enumerate() {
                let old = same_item(&node.list_type, value, seen.old);
                let unchanged = if old.is_some() { old == Some(value) } else { seen.unchanged };
                walk(below, Seen { value, old, unchanged }, &path.index(at), causes);
            }
        }
        _ => {}
    }
}

/// A value as rules see it: fields that the schema does not know are not there, names that are no identifiers are written
/// otherwise, and of the object's metadata there is only the name.
fn as_seen(place: Place<'_>, value: &Value, root: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let is_map = place.node.properties.is_empty() && place.node.additional.is_some();
            let seen = fields.iter().filter_map(|(name, value)| {
                if root && name == "metadata" {
                    let known = ["name", "generateName"].into_iter();
                    let known = known.filter_map(|key| Some((key.to_owned(), value.get(key)?.clone())));
                    return Some((name.clone(), Value::Object(known.collect())));
                }
                let is_type = (root || place.node.embedded_resource) && matches!(name.as_str(), "apiVersion" | "kind");
                match place.field(name) {
                    // A null that may not be is a field that is not there.
                    Some(below) if value.is_null() && !below.node.nullable => None,
                    Some(below) => {
                        let key = if is_map { name.clone() } else { as_key(name) };
                        Some((key, as_seen(below, value, false)))
                    }
                    None if is_type => Some((name.clone(), value.clone())),
                    None => None,
                }
            });
            Value::Object(seen.collect())
        }
        Value::Array(items) => match place.items() {
            Some(below) => items.iter().map(|item| as_seen(below, item, false)).collect(),
            None => value.clone(),
        },
        Value::String(text) if place.node.kind == Type::String => match &*place.node.format {
            "date-time" => cel::typed("timestamp", text),
            "date" => cel::typed("timestamp", &format!("{text}T00:00:00Z")),
            "duration" => cel::typed("duration", text),
            "byte" => cel::typed("bytes", text),
            _ => value.clone(),
        },
        // A whole number is a double where the schema says number.
        Value::Number(number) if place.node.kind == Type::Number => json!(number.as_f64()),
        other => other.clone(),
    }
}

fn broken(
    place: Place<'_>,
    rule: &Rule,
    value: &Value,
    old: Option<&Value>,
    seen: Seen<'_>,
    path: &Path<'_>,
) -> Option<Cause> {
    if rule.rule.is_empty() {
        return None;
    }
    let kind = Value::from(type_name(place));
    let program = match rule.program() {
        Ok(program) => program,
        Err(error) => return Some(cause::invalid(shown(path), &kind, &format!("rule compile error: {error}"))),
    };
    let uses_old = program.uses("oldSelf");
    if uses_old && old.is_none() && !rule.optional_old_self {
        return None;
    }
    let mut bound = vec![("self", Bound::Value(value))];
    if rule.optional_old_self {
        bound.push(("oldSelf", Bound::Optional(old)));
    } else if let Some(old) = old {
        bound.push(("oldSelf", Bound::Value(old)));
    }
    match program.evaluate_bound(&bound) {
        Ok(Value::Bool(true)) => return None,
        Ok(_) => {}
        Err(error) => {
            let detail = if error.starts_with("no such overload") {
                format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    rule.shown()
                )
            } else {
                format!("{error} evaluating rule: {}", rule.shown())
            };
            return Some(cause::invalid(shown(path), &kind, &detail));
        }
    }
    if !uses_old && seen.unchanged {
        return None;
    }
    Some(failed(rule, seen.value, &bound, path))
}

/// A path as a cause has it: that of the root is none.
fn shown(path: &Path<'_>) -> String {
    if path.is_root() { super::validate::NO_FIELD.to_owned() } else { path.to_string() }
}

fn failed(rule: &Rule, value: &Value, bound: &[(&str, Bound<'_>)], path: &Path<'_>) -> Cause {
    let made = rule.message_program().and_then(Result::ok).and_then(|program| program.evaluate_bound(bound).ok());
    let made = made.as_ref().and_then(Value::as_str).map(str::trim);
    let made = made.filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n'));
    let detail = match made {
        Some(text) => text.to_owned(),
        None if rule.message.is_empty() => format!("failed rule: {}", rule.rule),
        None => rule.message.clone(),
    };
    let place = rule.field_path.replace("['", "[").replace("']", "]");
    let field = match place.as_str() {
        "" => path.to_string(),
        below if path.is_root() => below.trim_start_matches('.').to_owned(),
        below => format!("{path}.{}", below.trim_start_matches('.')),
    };
    let field = if field.is_empty() { shown(path) } else { field };
    let whole = value.is_object() || value.is_array();
    match rule.reason.as_str() {
        "FieldValueForbidden" => cause::forbidden(field, &detail),
        "FieldValueRequired" => cause::required(field, &detail),
        "FieldValueDuplicate" if whole => cause::duplicate_omitted(field),
        "FieldValueDuplicate" => cause::duplicate(field, value),
        _ if whole => cause::invalid_omitted(field, &detail),
        _ => cause::invalid(field, value, &detail),
    }
}

fn type_name(place: Place<'_>) -> &'static str {
    match place.node.kind {
        Type::Any => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}
