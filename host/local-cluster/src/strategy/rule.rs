//! Rules that an object has to keep, as tables. Input: a value and a table. Output: causes, in the table's order. It must not
//! know kinds: their tables are in `validate`.

use serde_json::Value;

use super::field::{self, Causes, Path, at, is_empty, items, text};
use super::format::{self, Format};
use crate::selector::Labels;

/// What must hold at one place.
pub(crate) enum Check {
    /// There is a value; the detail of the refusal.
    Required(&'static str),
    /// The text has a form; an empty one is for `Required`.
    Text(Format),
    /// The text is one of these.
    OneOf(&'static [&'static str]),
    /// The number is not less.
    AtLeast(i64),
    /// The number is between, both inclusive.
    Between(i64, i64),
    /// A number that is not negative, or a percentage.
    IntOrPercent,
    /// A port's number or name.
    Port,
    /// Labels: keys and values.
    Labels,
    /// A `LabelSelector`.
    Selector,
    /// Every item keeps these rules.
    Each(&'static [Rule]),
    /// The object there, if there is one, keeps these rules.
    Within(&'static [Rule]),
    /// No two items have the same text in this field.
    Unique(&'static str),
    /// Quantities by resource name.
    Quantities,
    /// What no table says.
    Code(fn(&Value, &Path<'_>, &mut Causes)),
}

/// A place below a value, empty for the value itself, and what must hold there.
pub(crate) type Rule = (&'static str, Check);

/// Finds what is wrong below a value.
pub(crate) fn check(value: &Value, path: &Path<'_>, rules: &[Rule], causes: &mut Causes) {
    for (name, rule) in rules {
        let found = at(value, name);
        let place = if name.is_empty() { *path } else { Path::Field(path, name) };
        one(found, &place, rule, causes);
    }
}

fn one(value: &Value, path: &Path<'_>, rule: &Check, causes: &mut Causes) {
    match rule {
        Check::Required(detail) if is_empty(value) => causes.required(path, detail),
        Check::Text(form) => {
            let given = text(value);
            if !given.is_empty() {
                causes.invalid_text(path, given, form(given));
            }
        }
        Check::OneOf(supported) if !is_empty(value) && !supported.contains(&text(value)) => {
            causes.not_supported(path, value, supported);
        }
        Check::AtLeast(least) if value.as_i64().is_some_and(|number| number < *least) => {
            causes.invalid(path, value, &format!("must be greater than or equal to {least}"));
        }
        Check::Between(low, high) => between(value, path, *low, *high, causes),
        Check::IntOrPercent => int_or_percent(value, path, causes),
        Check::Port => port(value, path, causes),
        Check::Labels => labels(value, path, causes),
        Check::Selector => selector(value, path, causes),
        Check::Each(rules) => {
            for (index, item) in items(value).iter().enumerate() {
                check(item, &Path::Index(path, index), rules, causes);
            }
        }
        Check::Within(rules) if value.is_object() => check(value, path, rules, causes),
        Check::Unique(field) => unique(value, path, field, causes),
        Check::Quantities => quantities(value, path, causes),
        Check::Code(code) => code(value, path, causes),
        Check::Required(_) | Check::OneOf(_) | Check::AtLeast(_) | Check::Within(_) => {}
    }
}

pub(crate) fn between(value: &Value, path: &Path<'_>, low: i64, high: i64, causes: &mut Causes) {
    if value.as_i64().is_some_and(|number| number < low || number > high) {
        causes.invalid(path, value, &format!("must be between {low} and {high}, inclusive"));
    }
}

fn int_or_percent(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    match value {
        Value::String(text) => causes.invalid_text(path, text, format::percent(text)),
        other => one(other, path, &Check::AtLeast(0), causes),
    }
}

/// Refuses a percentage of more than all.
pub(crate) fn not_over_all(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        causes.invalid(path, value, "must not be greater than 100%");
    }
}

fn port(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    match value {
        Value::String(name) => causes.invalid_text(path, name, format::port_name(name)),
        Value::Number(_) => between(value, path, 1, 65535, causes),
        _ => between(&0.into(), path, 1, 65535, causes),
    }
}

pub(crate) fn labels(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    for (key, value) in value.as_object().into_iter().flatten() {
        causes.invalid_text(path, key, format::qualified(key));
        causes.invalid_text(path, text(value), format::label_value(text(value)));
    }
}

fn selector(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    labels(&value["matchLabels"], &Path::Field(path, "matchLabels"), causes);
    let list = Path::Field(path, "matchExpressions");
    for (index, expression) in items(&value["matchExpressions"]).iter().enumerate() {
        let path = Path::Index(&list, index);
        let (values, operator) = (Path::Field(&path, "values"), &expression["operator"]);
        match text(operator) {
            "In" | "NotIn" if is_empty(&expression["values"]) => {
                causes.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !is_empty(&expression["values"]) => {
                causes.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => causes.invalid(&Path::Field(&path, "operator"), &other.into(), "not a valid selector operator"),
        }
        let key = text(&expression["key"]);
        causes.invalid_text(&Path::Field(&path, "key"), key, format::qualified(key));
        for (index, value) in items(&expression["values"]).iter().enumerate() {
            causes.invalid_text(&Path::Index(&values, index), text(value), format::label_value(text(value)));
        }
    }
}

/// Whether a `LabelSelector` selects these labels; an absent one selects nothing.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    !selector.is_null() && Labels::read(selector).matches(labels)
}

fn unique(value: &Value, path: &Path<'_>, field: &'static str, causes: &mut Causes) {
    let all = items(value);
    for (index, item) in all.iter().enumerate() {
        let name = text(&item[field]);
        let before = all.iter().take(index).any(|other| text(&other[field]) == name);
        if before && !name.is_empty() {
            causes.duplicate(&Path::Field(&Path::Index(path, index), field), &name.into());
        }
    }
}

/// Quantities are not negative; those that count objects are whole.
fn quantities(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    const COUNTED: &[&str] = &[
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    for (name, amount) in value.as_object().into_iter().flatten() {
        let path = Path::Key(path, name);
        causes.invalid_text(&path, name, format::qualified(name));
        let Some(quantity) = field::quantity(amount) else { continue };
        if quantity.sign() < 0 {
            causes.invalid(&path, &quantity.to_string().into(), "must be greater than or equal to 0");
        }
        let counted = COUNTED.contains(&name.as_str()) || name.starts_with("count/");
        if counted && !quantity.is_integer() {
            causes.invalid(&path, amount, "must be an integer");
        }
    }
}
