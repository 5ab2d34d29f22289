//! Whether a schema is structural: what a value is made of is said apart from what must hold of it. Input: the schema of a
//! version. Output: causes. It must not know values.

use regex::Regex;
use serde_json::Value;

use super::field::{array, text, truth};
use crate::halt::Cause;
use crate::schema::cause;
use crate::schema::path::Path;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The junctors that have several schemas.
const JUNCTORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// What schemas inside junctors may not say, with why.
const FORBIDDEN: [(&str, &str); 10] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// What keeps a schema from being structural.
pub(super) fn causes(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let path = Path::Base(path);
    node(schema, Level::Root, &path, &mut causes);
    complete(schema, Some(schema), &path, &path, &mut causes);
    causes.sort_by_cached_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

fn node(schema: &Value, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let kind = text(schema, "type");
    let items = schema.get("items").filter(|items| items.is_object());
    match items {
        Some(items) => node(items, Level::Item, &path.field("items"), causes),
        None if kind == "array" => causes.push(cause::required(path.field("items"), "must be specified")),
        None => {}
    }
    let properties = path.field("properties");
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        node(property, Level::Field, &properties.key(name), causes);
    }
    let embedded = truth(schema, "x-kubernetes-embedded-resource");
    let int_or_string = truth(schema, "x-kubernetes-int-or-string");
    let preserves = truth(schema, "x-kubernetes-preserve-unknown-fields");
    if let Some(more) = schema.get("additionalProperties").filter(|more| !more.is_null()) {
        let path = path.field("additionalProperties");
        if level == Level::Root {
            causes.push(cause::forbidden(path, "must not be used at the root"));
        }
        if embedded {
            causes.push(cause::forbidden(path, "must not be used if x-kubernetes-embedded-resource is set"));
        }
        if more.is_object() {
            node(more, Level::Field, &path, causes);
        }
    }
    for (set, name) in [(preserves, "preserve-unknown-fields"), (embedded, "embedded-resource")] {
        if int_or_string && set {
            let path = format!("{path}.x-kubernetes-{name}");
            causes.push(cause::invalid(path, &true.into(), "must be false if x-kubernetes-int-or-string is true"));
        }
    }
    let skip = if is_int_or_string(&schema["anyOf"]) {
        Skip::AnyOf
    } else if is_int_or_string(&schema["allOf"][0]["anyOf"]) {
        Skip::FirstAllOf
    } else {
        Skip::Nothing
    };
    validations(schema, skip, path, causes);
    check_type(kind, level, (embedded, int_or_string || preserves), path, causes);
    check_metadata(schema, level, embedded, path, causes);
    let empty = schema["properties"].as_object().is_none_or(serde_json::Map::is_empty);
    if embedded && !preserves && empty {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(cause::required(path.field("properties"), detail));
    }
}

fn check_type(kind: &str, level: Level, (embedded, may_lack): (bool, bool), path: &Path<'_>, causes: &mut Vec<Cause>) {
    let path = path.field("type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            cause::required(path, detail)
        } else {
            cause::invalid(path, &kind.into(), detail)
        });
    } else if kind.is_empty() && !may_lack {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(cause::required(path, detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(cause::invalid(path, &kind.into(), "must be object at the root"));
    }
}

fn check_metadata(schema: &Value, level: Level, embedded: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let properties = path.field("properties");
    if level != Level::Root && !embedded {
        return;
    }
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(found) = schema["properties"].get(name) else { continue };
        if text(found, "type") != wanted {
            let path = properties.key(name);
            causes.push(cause::invalid(path.field("type"), &text(found, "type").into(), &format!("must be {wanted}")));
        }
    }
    let Some(metadata) = schema["properties"]["metadata"].as_object().filter(|_| level == Level::Root) else { return };
    let only = |name: &String| matches!(name.as_str(), "name" | "generateName");
    let narrow = metadata.iter().all(|(key, value)| match key.as_str() {
        "type" => true,
        "properties" => value.as_object().is_some_and(|fields| fields.keys().all(only)),
        _ => false,
    });
    if !narrow {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(cause::forbidden(properties.key("metadata"), detail));
    }
}

fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == serde_json::json!([{"type": "integer"}, {"type": "string"}])
}

/// The types of int-or-string may be said where types may not be said otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    AnyOf,
    FirstAllOf,
}

fn validations(schema: &Value, skip: Skip, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for junctor in JUNCTORS {
        if junctor == "anyOf" && skip == Skip::AnyOf {
            continue;
        }
        let below = path.field(junctor);
        for (at, part) in array(schema, junctor).iter().enumerate() {
            let first = junctor == "allOf" && at == 0 && skip == Skip::FirstAllOf;
            nested(part, if first { Skip::AnyOf } else { Skip::Nothing }, &below.index(at), causes);
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        nested(not, Skip::Nothing, &path.field("not"), causes);
    }
    let pattern = text(schema, "pattern");
    if let Some(error) =
        Some(pattern).filter(|pattern| !pattern.is_empty()).and_then(|pattern| Regex::new(pattern).err())
    {
        let error = error.to_string();
        let error = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let detail = format!("must be a valid regular expression, but isn't: error parsing regexp: {error}");
        causes.push(cause::invalid(path.field("pattern"), &pattern.into(), &detail));
    }
}

/// A schema inside a junctor.
fn nested(schema: &Value, skip: Skip, path: &Path<'_>, causes: &mut Vec<Cause>) {
    validations(schema, skip, path, causes);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(items, Skip::Nothing, &path.field("items"), causes);
    }
    let properties = path.field("properties");
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        nested(property, Skip::Nothing, &properties.key(name), causes);
    }
    for (word, why) in FORBIDDEN {
        let said = match schema.get(word) {
            None | Some(Value::Null | Value::Bool(false)) => word == "additionalProperties" && schema[word] == false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(_) => true,
        };
        if said {
            causes.push(cause::forbidden(path.field(word), why));
        }
    }
    if schema["properties"].get("metadata").is_some() {
        causes.push(cause::forbidden(properties.key("metadata"), "must not be specified in a nested context"));
    }
}

/// Whether all that junctors speak of is there outside of them.
fn complete(schema: &Value, outside: Option<&Value>, of: &Path<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(outside) = outside else {
        causes.push(cause::required(of, &format!("because it is defined in {path}")));
        return;
    };
    for junctor in JUNCTORS {
        let below = path.field(junctor);
        for (at, part) in array(schema, junctor).iter().enumerate() {
            complete_nested(part, outside, of, &below.index(at), causes);
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        complete_nested(not, outside, of, &path.field("not"), causes);
    }
}

fn complete_nested(schema: &Value, outside: &Value, of: &Path<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    complete(schema, Some(outside), of, path, causes);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        let (of, path) = (of.field("items"), path.field("items"));
        match outside.get("items").filter(|items| items.is_object()) {
            Some(outside) => complete_nested(items, outside, &of, &path, causes),
            None => complete(items, None, &of, &path, causes),
        }
    }
    let (of, path) = (of.field("properties"), path.field("properties"));
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let (of, path) = (of.key(name), path.key(name));
        match outside["properties"].get(name) {
            Some(outside) => complete_nested(property, outside, &of, &path, causes),
            None => complete(property, None, &of, &path, causes),
        }
    }
}
