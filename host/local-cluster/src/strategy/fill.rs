//! Defaults as tables of paths and values. Input: an object and a table. Output: the object, with what was unset filled in. It
//! must not know kinds: their tables are in `default`.

use serde_json::{Map, Value, json};

/// What an unset field becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    Text(&'static str),
    Number(i64),
    /// A number for which zero means unset.
    NonZero(i64),
    Flag(bool),
    /// An empty object.
    Object,
    /// A list of one text.
    List(&'static str),
}

/// A path and what is filled in there. Its parents must be there. `a[]` means each item of a list, `a(k=v)` an object that
/// has this text in this field, `a(!k)` one that lacks it.
pub(crate) type Default = (&'static str, Fill);

impl Fill {
    fn value(self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(number) | Self::NonZero(number) => number.into(),
            Self::Flag(flag) => flag.into(),
            Self::Object => json!({}),
            Self::List(text) => json!([text]),
        }
    }

    fn replaces(self, found: Option<&Value>) -> bool {
        match (found, self) {
            (None | Some(Value::Null), _) => true,
            // An empty text is a value where it is the default.
            (Some(Value::String(text)), Self::Text(_)) => text.is_empty(),
            (Some(Value::Array(items)), Self::List(_)) => items.is_empty(),
            (Some(found), Self::NonZero(_)) => found.as_i64() == Some(0),
            _ => false,
        }
    }
}

/// Fills in what is unset.
pub(crate) fn fill<'a>(value: &mut Value, defaults: impl IntoIterator<Item = &'a Default>) {
    for (path, fill) in defaults {
        visit(value, path, &mut |fields, name| {
            if fill.replaces(fields.get(name)) {
                fields.insert(name.to_owned(), fill.value());
            }
        });
    }
}

/// Calls with each object that the path leads to, and the path's last name.
pub(crate) fn visit(value: &mut Value, path: &str, act: &mut dyn FnMut(&mut Map<String, Value>, &str)) {
    let Some(fields) = value.as_object_mut() else { return };
    // A condition may have dots in it, as labels' keys do: none of the tables' does.
    let Some((segment, rest)) = path.split_once('.') else { return act(fields, path) };
    let (segment, condition) = segment.split_once('(').unwrap_or((segment, ""));
    let name = segment.strip_suffix("[]").unwrap_or(segment);
    let Some(child) = fields.get_mut(name) else { return };
    if name.len() < segment.len() {
        for item in child.as_array_mut().into_iter().flatten() {
            if holds(item, condition) {
                visit(item, rest, act);
            }
        }
    } else if holds(child, condition) {
        visit(child, rest, act);
    }
}

fn holds(value: &Value, condition: &str) -> bool {
    let condition = condition.trim_end_matches(')');
    match (condition.split_once('='), condition.strip_prefix('!')) {
        (Some((key, wanted)), _) => value[key] == wanted,
        (None, Some(key)) => value[key].is_null(),
        (None, None) => true,
    }
}

/// The object at a dotted path, made where it is absent; nothing where another value is in the way.
pub(crate) fn object<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let mut value = value;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        value = value.as_object_mut()?.entry(name).or_insert(Value::Null);
        if value.is_null() {
            *value = json!({});
        }
    }
    value.as_object_mut()
}

/// The value at a dotted path, if every step is there.
pub(crate) fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(value, |value, name| value.get_mut(name))
}

/// Sets a field at a dotted path, or removes it.
pub(crate) fn set(value: &mut Value, path: &str, new: Option<Value>) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    match new {
        Some(new) => {
            if let Some(fields) = object(value, parent) {
                fields.insert(name.to_owned(), new);
            }
        }
        None => {
            if let Some(fields) = at_mut(value, parent).and_then(Value::as_object_mut) {
                fields.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unset_under_its_condition_is_filled_in() {
        let mut value = json!({"a": [{"k": "x"}, {"k": "y", "n": 0}, 3], "o": {"s": "", "m": {}}});
        fill(
            &mut value,
            &[
                ("a[](k=y).n", Fill::NonZero(2)),
                ("a[](k=x).f", Fill::Flag(true)),
                ("a[](!f).l", Fill::List("e")),
                ("o.s", Fill::Text("d")),
                ("o.m.x", Fill::Object),
                ("p.q", Fill::Number(1)),
                ("o", Fill::Number(1)),
            ],
        );
        let wanted =
            json!({"a": [{"k": "x", "f": true}, {"k": "y", "n": 2, "l": ["e"]}, 3], "o": {"s": "d", "m": {"x": {}}}});
        assert_eq!(value, wanted);
        set(&mut value, "o.s.t", Some(json!(1)));
        set(&mut value, "z.y", Some(json!(1)));
        set(&mut value, "a", None);
        assert_eq!(value, json!({"o": {"s": "d", "m": {"x": {}}}, "z": {"y": 1}}));
    }
}
