//! What is wrong with the values of an object, in the words of the API server. Input: an object, and the one before it.
//! Output: causes. It must not know what is decided on them.
//!
//! What was wrong before at the same place, and did not change, is let through.

use serde_json::{Map, Value};

use super::cause::{self, float};
use super::node::{Checks, NodeId, Place, Schema, Type, same_item};
use super::path::Path;
use crate::halt::Cause;

/// The field that causes have which belong to no field: how Go prints a path that is none.
pub(super) const NO_FIELD: &str = "<nil>";

/// What one walk found: causes, and how many checks were made, by which the best of several schemas is chosen.
#[derive(Default)]
struct Found {
    causes: Vec<Cause>,
    checks: u32,
}

impl Found {
    fn add(&mut self, cause: Cause) {
        if !self.causes.contains(&cause) {
            self.causes.push(cause);
        }
    }

    fn merge(&mut self, other: Self) {
        other.causes.into_iter().for_each(|cause| self.add(cause));
        self.checks += other.checks;
    }

    fn add_unplaced(&mut self, detail: &str) {
        self.add(cause::invalid(NO_FIELD, &Value::String(String::new()), detail));
    }
}

impl Schema {
    /// What is wrong with an object; with the old one, what was wrong before and did not change is let through.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        if self.published {
            return Vec::new();
        }
        let mut causes = value(self.root(), object, old, &Path::Root).causes;
        self.scale_fields(object, &mut causes);
        self.embedded(object, &mut causes);
        causes.extend(self.duplicates(object, old));
        if self.has_rules {
            if causes.iter().any(cause::blocks_rules) {
                let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                              complete validation";
                causes.push(cause::invalid(NO_FIELD, &Value::Null, detail));
            } else {
                self.broken_rules(object, old, &mut causes);
            }
        }
        causes
    }

    /// What is wrong with a value alone, such as a default; paths begin with `base`.
    pub(crate) fn validate_value(&self, object: &Value, base: &str) -> Vec<Cause> {
        value(self.root(), object, None, &Path::Base(base)).causes
    }

    fn scale_fields(&self, object: &Value, causes: &mut Vec<Cause>) {
        let Some(scale) = &self.scale else { return };
        for path in [&scale.spec_replicas, &scale.status_replicas] {
            let pointer = path.replace('.', "/");
            let Some(found) = object.pointer(&pointer) else { continue };
            let detail = match found.as_i64() {
                None => {
                    let detail = format!(
                        "{path} accessor error: {} is of the type {}, expected int64",
                        cause::shown(found).trim_matches('"'),
                        go_name(found)
                    );
                    causes.push(cause::invalid(path, &0.into(), &detail));
                    continue;
                }
                Some(number) if number < 0 => "should be a non-negative integer",
                Some(number) if number > i64::from(i32::MAX) => "should be less than or equal to 2147483647",
                Some(_) => continue,
            };
            causes.push(cause::invalid(path, found, detail));
        }
    }
}

/// How Go names the type of a decoded value.
fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Looks at a value that has an old one beside it.
fn value(place: Place<'_>, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Found {
    let mut found = plain(place, value, old, path);
    if !found.causes.is_empty() && old == Some(value) {
        found.causes.clear();
    }
    found
}

/// Looks at a value by all that one node says.
fn plain(place: Place<'_>, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Found {
    let node = place.node;
    let mut found = Found::default();
    if node.kind != Type::Any || node.int_or_string {
        match wrong_type(place, value, path) {
            Some(cause) => found.add(cause),
            None => found.checks += 1,
        }
        found.checks += 1;
    }
    let checks = node.checks.as_deref();
    if value.is_null() {
        if let Some(checks) = checks {
            listed(checks, value, path, &mut found);
        }
        return found;
    }
    if let Some(checks) = checks {
        junctors(place, checks, value, old, path, &mut found);
    }
    match value {
        Value::String(text) => {
            if let Some(cause) = checks.and_then(|checks| wrong_string(checks, text, path)) {
                found.add(cause);
            }
            if checks.and_then(|checks| checks.format).is_some_and(|fits| !fits(text)) {
                let detail = format!("{path} in body must be of type {}: {text:?}", node.format);
                found.add(cause::type_invalid(path, value, &detail));
            }
        }
        Value::Number(_) => wrong_number(place, value, path, &mut found),
        Value::Array(items) => list(place, items, old, path, &mut found),
        _ => {}
    }
    if let Some(checks) = checks {
        listed(checks, value, path, &mut found);
    }
    if let Value::Object(fields) = value {
        object(place, fields, old, path, &mut found);
    }
    // Junctors, what fits the JSON type, the list of values, and the node itself.
    found.checks += 4;
    found
}

fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Any => "integer,string",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong_type(place: Place<'_>, value: &Value, path: &Path<'_>) -> Option<Cause> {
    let node = place.node;
    let is_whole = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = match node.kind {
        _ if value.is_null() => node.nullable,
        Type::Any => value.is_string() || value.is_number() && is_whole(),
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => value.is_number() && is_whole(),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
    };
    // A format that strings have says what a string is; its own check follows.
    if fits || value.is_string() && node.kind == Type::String {
        return None;
    }
    let fraction = node.kind == Type::Integer && value.is_number() && !node.format.is_empty();
    let (is, wanted) = if fraction { ("float64", &*node.format) } else { (json_type(value), type_name(node.kind)) };
    let detail = format!("{path} in body must be of type {wanted}: {is:?}");
    Some(cause::type_invalid(path, &is.into(), &detail))
}

fn listed(checks: &Checks, value: &Value, path: &Path<'_>, found: &mut Found) {
    let allowed = &checks.one_of_these;
    let same = |allowed: &Value| allowed == value || value.is_number() && allowed.as_f64() == value.as_f64();
    if allowed.is_empty() || !value.is_null() && allowed.iter().any(same) {
        return;
    }
    let words: Vec<String> =
        allowed.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned)).collect();
    found.add(cause::not_supported(path, value, words.iter().map(String::as_str)));
}

/// The first of a string's checks that fails.
fn wrong_string(checks: &Checks, text: &str, path: &Path<'_>) -> Option<Cause> {
    let value = || Value::String(text.to_owned());
    if checks.max_length.is_some() || checks.min_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(most) = checks.max_length.filter(|most| length > *most) {
            return Some(cause::too_long(path, most));
        }
        if let Some(least) = checks.min_length.filter(|least| length < *least) {
            let detail = format!("{path} in body should be at least {least} chars long");
            return Some(cause::invalid(path, &value(), &detail));
        }
    }
    let pattern = checks.pattern.as_ref()?;
    let source = &pattern.source;
    let detail = match pattern.matches(text) {
        Some(true) => return None,
        Some(false) => format!("{path} in body should match '{source}'"),
        None => format!("{path} in body should match '{source}, but pattern is invalid: error parsing regexp'"),
    };
    Some(cause::invalid(path, &value(), &detail))
}

fn wrong_number(place: Place<'_>, value: &Value, path: &Path<'_>, found: &mut Found) {
    let node = place.node;
    let number = value.as_f64().unwrap_or(0.0);
    let (least, most) = match (node.kind, &*node.format) {
        (Type::Integer, "int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        (Type::Integer, _) => (-9.223_372_036_854_776e18, 9.223_372_036_854_776e18),
        (Type::Number, "float") => (-f64::from(f32::MAX), f64::from(f32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    if number < least || number > most || node.kind == Type::Integer && number.fract() != 0.0 {
        let kind = type_name(node.kind);
        let detail = match &*node.format {
            "" => format!("Checked value must be of type {kind} (default format) in {path}"),
            format => format!("Checked value must be of type {kind} with format {format} in {path}"),
        };
        found.add_unplaced(&detail);
    }
    let Some(checks) = node.checks.as_deref() else { return };
    if let Some(factor) = checks.multiple_of {
        let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
        let detail = if factor <= 0.0 {
            Some(format!("factor MultipleOf declared for {path} must be positive: {}", float(factor)))
        } else if (quotient - quotient.round()).abs() > 1e-9 * quotient.abs().max(1.0) {
            Some(format!("{path} in body should be a multiple of {}", float(factor)))
        } else {
            None
        };
        if let Some(detail) = detail {
            found.add(cause::invalid(path, value, &detail));
        }
    }
    let bounds = [
        (checks.minimum, checks.exclusive_minimum, ["greater than or equal to", "greater than"], -1.0),
        (checks.maximum, checks.exclusive_maximum, ["less than or equal to", "less than"], 1.0),
    ];
    for (bound, exclusive, words, sign) in bounds {
        let Some(bound) = bound else { continue };
        let beyond = (number - bound) * sign;
        if beyond > 0.0 || exclusive && beyond == 0.0 {
            let words = words[usize::from(exclusive)];
            let bound = if value.is_i64() && bound.fract() == 0.0 { format!("{bound:.0}") } else { float(bound) };
            found.add(cause::invalid(path, value, &format!("{path} in body should be {words} {bound}")));
        }
    }
}

fn list(place: Place<'_>, items: &[Value], old: Option<&Value>, path: &Path<'_>, found: &mut Found) {
    if let Some(below) = place.items() {
        for (at, item) in items.iter().enumerate() {
            let path = path.index(at);
            // Without an old item nothing of this one was there before.
            let one = match same_item(&place.node.list_type, item, old) {
                Some(old) => value(below, item, Some(old), &path),
                None => plain(below, item, None, &path),
            };
            found.merge(one);
        }
    }
    let Some(checks) = place.node.checks.as_deref() else { return };
    let size = items.len() as u64;
    if let Some(least) = checks.min_items.filter(|least| size < *least) {
        let detail = format!("{path} in body should have at least {least} items");
        found.add(cause::invalid(path, &size.into(), &detail));
    }
    if let Some(most) = checks.max_items.filter(|most| size > *most) {
        found.add(cause::too_many(path, items.len(), most));
    }
    if checks.unique_items && items.iter().enumerate().any(|(at, item)| items[..at].contains(item)) {
        let detail = format!("{path} in body shouldn't contain duplicates");
        found.add(cause::invalid(path, &"".into(), &detail));
    }
}

fn object(place: Place<'_>, fields: &Map<String, Value>, old: Option<&Value>, path: &Path<'_>, found: &mut Found) {
    let node = place.node;
    if let Some(checks) = node.checks.as_deref() {
        let size = fields.len() as u64;
        if let Some(least) = checks.min_properties.filter(|least| size < *least) {
            let detail = format!("{path} in body should have at least {least} properties");
            found.add(cause::invalid(path, &size.into(), &detail));
        }
        if let Some(most) = checks.max_properties.filter(|most| size > *most) {
            found.add(cause::too_many(path, fields.len(), most));
        }
        if checks.no_more_properties {
            for name in fields.keys().filter(|name| !node.properties.contains_key(name.as_str())) {
                let detail = format!("{path}.{name} in body is a forbidden property");
                found.add(cause::invalid(path, &name.as_str().into(), &detail));
            }
        }
    }
    for (name, field) in fields {
        let Some(below) = place.field(name) else { continue };
        if below.node.go_type.is_some() {
            // Metadata is checked by its own rules; a definition may only narrow its names.
            names(below, field, old.and_then(|old| old.get(name)), &path.field(name), found);
            continue;
        }
        let is_type = path.is_root() && matches!(name.as_str(), "apiVersion" | "kind");
        let old = old.and_then(|old| old.get(name)).filter(|_| !is_type);
        found.merge(match old {
            Some(old) => value(below, field, Some(old), &path.field(name)),
            None => plain(below, field, None, &path.field(name)),
        });
    }
    for name in &node.required {
        if !fields.contains_key(&**name) {
            found.add(cause::required(path.field(name), ""));
        }
    }
}

fn names(place: Place<'_>, metadata: &Value, old: Option<&Value>, path: &Path<'_>, found: &mut Found) {
    for name in ["name", "generateName"] {
        let (Some(below), Some(field)) = (place.field(name), metadata.get(name)) else { continue };
        found.merge(value(below, field, old.and_then(|old| old.get(name)), &path.field(name)));
    }
}

/// `anyOf`, `oneOf`, `allOf` and `not`.
fn junctors(place: Place<'_>, checks: &Checks, value: &Value, old: Option<&Value>, path: &Path<'_>, found: &mut Found) {
    let by = |id: &NodeId| plain(place.at(*id), value, old, path);
    if !checks.any_of.is_empty() {
        let (valid, best) = alternatives(checks.any_of.iter().map(by), 1);
        if valid == 0 {
            found.add_unplaced(&format!("{:?} must validate at least one schema (anyOf)", path.to_string()));
        }
        found.merge(best);
    }
    if !checks.one_of.is_empty() {
        let (valid, best) = alternatives(checks.one_of.iter().map(by), usize::MAX);
        if valid != 1 {
            let what = if valid == 0 { "Found none valid" } else { &format!("Found {valid} valid alternatives") };
            found
                .add_unplaced(&format!("{:?} must validate one and only one schema (oneOf). {what}", path.to_string()));
        }
        if valid < 2 {
            found.merge(best);
        }
    }
    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for one in checks.all_of.iter().map(by) {
            valid += usize::from(one.causes.is_empty());
            found.merge(one);
        }
        if valid != checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            found.add_unplaced(&format!("{:?} must validate all the schemas (allOf){none}", path.to_string()));
        }
    }
    if checks.not.as_ref().is_some_and(|not| by(not).causes.is_empty()) {
        found.add_unplaced(&format!("{:?} must not validate the schema (not)", path.to_string()));
    }
}

/// How many of several schemas fit, up to so many, and what to say: of the first that fits, or of the one that came closest.
fn alternatives(all: impl Iterator<Item = Found>, enough: usize) -> (usize, Found) {
    let mut valid = 0;
    let mut best: Option<Found> = None;
    for one in all {
        if one.causes.is_empty() {
            valid += 1;
            if valid == 1 {
                best = Some(one);
            }
            if valid == enough {
                break;
            }
        } else if valid == 0 && best.as_ref().is_none_or(|best| one.checks > best.checks) {
            best = Some(one);
        }
    }
    (valid, best.unwrap_or_default())
}
