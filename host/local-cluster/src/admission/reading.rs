//! How admission reads its attributes and objects. It must not know plugins.

use serde_json::Value;

use crate::attributes::Attributes;
use crate::halt::{Halt, Status};

/// The group and plural.
pub(super) fn kind(attributes: &Attributes) -> (&str, &str) {
    (&attributes.resource.group, &attributes.resource.plural)
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A refusal that names the object, or the beginning of its name while it has none.
pub(super) fn forbidden(attributes: &Attributes, object: &Value, why: &str) -> Halt {
    let metadata = &object["metadata"];
    let names = [attributes.name.as_str(), text(metadata, "name"), text(metadata, "generateName")];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
    Status::forbidden(&attributes.resource.group, &attributes.resource.plural, name, why).into()
}

/// Several reasons as one text.
pub(super) fn all_of(reasons: &[String]) -> String {
    match reasons {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
