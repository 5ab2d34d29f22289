//! What definitions may say of OpenAPI and of Kubernetes' extensions to it. Input: the schema of a version. Output: causes. It
//! must not know values.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::field::{array, text, truth};
use super::types;
use crate::cel::{Kind, Program};
use crate::halt::Cause;
use crate::schema::cause;
use crate::schema::path::Path;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// Words of JSON Schema that definitions may not use.
const UNSUPPORTED: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// Where a walk is besides its path.
#[derive(Clone, Copy)]
struct Here<'a> {
    /// Why defaults are forbidden here.
    no_defaults: Option<&'a str>,
    /// The place from which values cannot be found again in the object before.
    uncorrelated: Option<&'a str>,
    root: bool,
    /// Whether rules are compiled: not inside junctors, nor where the schema is wrong already.
    rules: bool,
}

/// What is wrong with a schema; rules are looked at if it is sound.
pub(super) fn causes(schema: &Value, path: &str, sound: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let here = Here { no_defaults: None, uncorrelated: None, root: true, rules: sound };
    walk(schema, here, &Path::Base(path), &mut causes);
    causes
}

fn walk(schema: &Value, here: Here<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(fields) = schema.as_object() else { return };
    words(fields, here, path, causes);
    let inner = Here { root: false, ..here };
    let place = path.to_string();
    if let Some(more) = fields.get("additionalProperties").filter(|more| !more.is_null()) {
        let path = path.field("additionalProperties");
        let named = fields.get("properties").and_then(Value::as_object).is_some_and(|named| !named.is_empty());
        if named && *more != true {
            let detail = "additionalProperties and properties are mutual exclusive";
            causes.push(cause::forbidden(path, detail));
        }
        walk(more, inner, &path, causes);
    }
    let properties = path.field("properties");
    for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let top = here.root && matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        let reason = format!("in top-level {name}");
        let here = Here { no_defaults: if top { Some(&reason) } else { here.no_defaults }, ..inner };
        walk(property, here, &properties.key(name), causes);
    }
    let silent = Here { rules: false, ..inner };
    if let Some(not) = fields.get("not") {
        walk(not, silent, &path.field("not"), causes);
    }
    for junctor in ["allOf", "oneOf", "anyOf"] {
        let below = path.field(junctor);
        for (at, part) in array(schema, junctor).iter().enumerate() {
            walk(part, silent, &below.index(at), causes);
        }
    }
    if let Some(items) = fields.get("items").filter(|items| items.is_object()) {
        let lost = text(schema, "x-kubernetes-list-type") != "map";
        let uncorrelated = here.uncorrelated.or(lost.then_some(place.as_str()));
        walk(items, Here { uncorrelated, ..inner }, &path.field("items"), causes);
    }
    map_type(schema, path, causes);
    list_type(schema, path, causes);
    list_keys(schema, path, causes);
    let rules = array(schema, "x-kubernetes-validations");
    // Rules of something are typed by it.
    let kind = if rules.is_empty() { Kind::Dyn } else { types::of(schema, here.root).unwrap_or(Kind::Dyn) };
    for (at, rule) in rules.iter().enumerate() {
        let path = path.field("x-kubernetes-validations");
        check_rule(rule, (schema, &kind), here, &path.index(at), causes);
    }
}

/// Single words and their values.
fn words(fields: &Map<String, Value>, here: Here<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(cause::not_supported(path.field("type"), &kind.into(), TYPES));
    }
    if let Some(reason) = here.no_defaults.filter(|_| fields.get("default").is_some_and(|default| !default.is_null())) {
        causes.push(cause::forbidden(path.field("default"), &format!("must not be set {reason}")));
    }
    for word in UNSUPPORTED.iter().filter(|word| fields.get(**word).is_some_and(|value| !value.is_null())) {
        causes.push(cause::forbidden(path.field(word), &format!("{word} is not supported")));
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        causes.push(cause::forbidden(path.field("type"), detail));
    }
    if fields.get("items").is_some_and(Value::is_array) {
        causes.push(cause::forbidden(path.field("items"), "items must be a schema object and not an array"));
    }
    if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(cause::forbidden(path.field("uniqueItems"), detail));
    }
    if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = path.field("x-kubernetes-preserve-unknown-fields");
        causes.push(cause::invalid(path, &false.into(), "must be true or undefined"));
    }
}

/// An extension that asks for a type.
fn wants_type(schema: &Value, wanted: &str, word: &str, path: &Path<'_>, causes: &mut Vec<Cause>) -> bool {
    let kind = text(schema, "type");
    let detail = format!("must be {wanted} if {word} is specified");
    if kind.is_empty() {
        causes.push(cause::required(path.field("type"), &detail));
    } else if kind != wanted {
        causes.push(cause::invalid(path.field("type"), &kind.into(), &detail));
    }
    kind == wanted
}

fn map_type(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const WORD: &str = "x-kubernetes-map-type";
    let Some(value) = schema.get(WORD).filter(|value| !value.is_null()) else { return };
    wants_type(schema, "object", WORD, path, causes);
    if *value != "atomic" && *value != "granular" {
        causes.push(cause::not_supported(path.field(WORD), value, ["atomic", "granular"]));
    }
}

fn list_type(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const WORD: &str = "x-kubernetes-list-type";
    let Some(value) = schema.get(WORD).filter(|value| !value.is_null()) else { return };
    let (items, below) = (&schema["items"], path.field("items"));
    if wants_type(schema, "array", WORD, path, causes) && *value == "set" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (word, allowed) = match text(items, "type") {
            "array" => (WORD, matches!(text(items, WORD), "" | "atomic")),
            "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") == "atomic"),
            _ => (WORD, true),
        };
        if !allowed {
            causes.push(cause::invalid(below.field(word), &items[WORD], detail));
        }
    }
    if !matches!(value.as_str(), Some("atomic" | "set" | "map")) {
        causes.push(cause::not_supported(path.field(WORD), value, ["atomic", "set", "map"]));
    }
    if matches!(value.as_str(), Some("set" | "map")) && truth(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {}", text(schema, WORD));
        causes.push(cause::forbidden(below.field("nullable"), &detail));
    }
}

fn list_keys(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const WORD: &str = "x-kubernetes-list-map-keys";
    let (kind, keys) = (text(schema, "x-kubernetes-list-type"), array(schema, WORD));
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match kind {
        "map" => {}
        _ if keys.is_empty() => return,
        "" => return causes.push(cause::required(path.field("x-kubernetes-list-type"), detail)),
        _ => return causes.push(cause::invalid(path.field("x-kubernetes-list-type"), &kind.into(), detail)),
    }
    if keys.is_empty() {
        causes.push(cause::required(path.field(WORD), "must not be empty if x-kubernetes-list-type is map"));
    }
    let (items, below) = (&schema["items"], path.field("items"));
    if !items.is_object() {
        return causes.push(cause::required(below, "must have a schema if x-kubernetes-list-type is map"));
    }
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return causes.push(cause::invalid(below.field("type"), &text(items, "type").into(), detail));
    }
    let properties = below.field("properties");
    for (at, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let place = properties.key(name);
        if keys[..at].contains(key) {
            causes.push(cause::invalid(path.field(WORD), &schema[WORD], "must not contain duplicate entries"));
        }
        let Some(property) = items["properties"].get(name) else {
            let detail = "entries must all be names of item properties";
            causes.push(cause::invalid(path.field(WORD), &schema[WORD], detail));
            continue;
        };
        if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            causes.push(cause::invalid(place.field("type"), &text(items, "type").into(), detail));
        }
        let required = array(items, "required").contains(key);
        if !required && property["default"].is_null() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(cause::required(place.field("default"), detail));
        }
        if truth(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(cause::forbidden(place.field("nullable"), detail));
        }
    }
}

fn check_rule(rule: &Value, (schema, kind): (&Value, &Kind), here: Here<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let has_lines = |text: &str| text.contains(['\n', '\r']);
    if source.is_empty() {
        causes.push(cause::required(path.field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        causes.push(cause::invalid(path.field("message"), &message.into(), "must be non-empty if specified"));
    } else if has_lines(message.trim()) {
        causes.push(cause::invalid(path.field("message"), &message.into(), "must not contain line breaks"));
    } else if has_lines(source) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        causes.push(cause::required(path.field("message"), detail));
    }
    let reason = text(rule, "reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        causes.push(cause::not_supported(path.field("reason"), &reason.into(), REASONS));
    }
    let place = text(rule, "fieldPath");
    if !place.is_empty() && !types::has_path(schema, place) {
        causes.push(cause::invalid(path.field("fieldPath"), &place.into(), "must be a valid path"));
    }
    if here.rules && !source.is_empty() {
        expressions(rule, kind, here, path, causes);
    }
}

/// What is wrong with a rule's expressions.
fn expressions(rule: &Value, kind: &Kind, here: Here<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let old = if truth(rule, "optionalOldSelf") { Kind::Optional(Arc::new(kind.clone())) } else { kind.clone() };
    let variables = [("self", kind.clone()), ("oldSelf", old)];
    let compiled = |key: &str, wanted: &Kind, otherwise: &str| {
        let program = Program::compile(text(rule, key).trim())?;
        match program.kind(&variables) {
            Err(faults) => Err(format!("compilation failed: {faults}")),
            Ok(found) if !found.may_be(wanted) => Err(otherwise.to_owned()),
            Ok(_) => Ok(program),
        }
    };
    let program = match compiled("rule", &Kind::Bool, "cel expression must evaluate to a bool") {
        Ok(program) => program,
        Err(error) => return causes.push(cause::invalid_written(path.field("rule"), &in_go(rule), &error)),
    };
    let optional = rule.get("optionalOldSelf").filter(|optional| !optional.is_null());
    match (program.uses("oldSelf"), here.uncorrelated, optional) {
        (true, Some(place), _) => {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {place}");
            causes.push(cause::invalid(path.field("rule"), &text(rule, "rule").trim().into(), &detail));
        }
        (false, _, Some(optional)) => {
            let detail = "may not be set if oldSelf is not used in rule";
            causes.push(cause::invalid(path.field("optionalOldSelf"), optional, detail));
        }
        _ => {}
    }
    if text(rule, "messageExpression").trim().is_empty() {
        return;
    }
    let otherwise = "messageExpression must evaluate to a string";
    if let Err(error) = compiled("messageExpression", &Kind::String, otherwise) {
        let error = if error == otherwise { error } else { format!("messageExpression {error}") };
        causes.push(cause::invalid_written(path.field("messageExpression"), &in_go(rule), &error));
    }
}

/// A rule as Go's internal type is written.
fn in_go(rule: &Value) -> String {
    let escaped =
        |value: Value| value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let said = |key: &str| escaped(text(rule, key).into());
    let reason = rule.get("reason").filter(|reason| reason.as_str().is_some_and(|reason| !reason.is_empty()));
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        said("rule"),
        said("message"),
        said("messageExpression"),
        escaped(reason.cloned().unwrap_or_default()),
        said("fieldPath"),
        escaped(rule.get("optionalOldSelf").cloned().unwrap_or_default()),
    )
}
