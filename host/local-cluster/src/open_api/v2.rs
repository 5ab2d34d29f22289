//! The OpenAPI v2 document, made from the v3 documents of all groups. Input: the published documents and custom resources.
//! Output: JSON. It must not know how definitions become v3.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::custom;
use crate::published;
use crate::resource::Resource;

/// The fields after definitions and paths.
const REST: &str = r#""info":{"title":"Kubernetes","version":"unversioned"},"security":[{"BearerToken":[]}],"securityDefinitions":{"BearerToken":{"description":"Bearer Token authentication","in":"header","name":"authorization","type":"apiKey"}},"swagger":"2.0"}"#;

/// The whole document: what is built in is text that is made once, and what definitions add is written after it.
pub(super) fn json<'a>(groups: impl Iterator<Item = &'a Vec<&'a Resource>>) -> String {
    static BUILT_IN: LazyLock<[String; 2]> = LazyLock::new(|| built_in().map(|part| members(&part)));
    let custom = custom(groups).map(|part| members(&part));
    let joined = |index: usize| {
        let parts = [&BUILT_IN[index], &custom[index]].into_iter().filter(|part| !part.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join(",")
    };
    format!("{{\"definitions\":{{{}}},\"paths\":{{{}}},{REST}", joined(0), joined(1))
}

/// The whole document in protobuf, where what follows is added to what is there.
pub(super) fn protobuf<'a>(groups: impl Iterator<Item = &'a Vec<&'a Resource>>) -> Vec<u8> {
    static BUILT_IN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let [definitions, paths] = built_in();
        let rest: Value = serde_json::from_str(&format!("{{{REST}")).expect("the rest of the document is JSON");
        let mut bytes = super::protobuf::document(&rest);
        bytes.extend(super::protobuf::document(&json!({"definitions": definitions, "paths": paths})));
        bytes
    });
    let [definitions, paths] = custom(groups);
    let mut bytes = BUILT_IN.clone();
    bytes.extend(super::protobuf::document(&json!({"definitions": definitions, "paths": paths})));
    bytes
}

/// The members of an object as text, without its braces.
fn members(part: &BTreeMap<String, Value>) -> String {
    let text = json!(part).to_string();
    text[1..text.len() - 1].to_owned()
}

/// Definitions and paths.
type Parts = [BTreeMap<String, Value>; 2];

fn built_in() -> Parts {
    let mut parts = Parts::default();
    for path in published::open_api_paths() {
        let [schemas, operations] = published::parts(path);
        for (name, schema) in schemas {
            parts[0].entry(name.to_owned()).or_insert_with(|| definition(&schema));
        }
        for (url, item) in operations {
            parts[1].insert(url.to_owned(), path_item(&item));
        }
    }
    parts
}

fn custom<'a>(groups: impl Iterator<Item = &'a Vec<&'a Resource>>) -> Parts {
    let mut parts = Parts::default();
    for resource in groups.flatten() {
        let schemas = custom::own_schemas(resource).into_iter().map(|(name, schema)| (name, definition(&schema)));
        parts[0].extend(schemas);
        let paths = custom::own_paths(resource).into_iter().map(|(url, item)| (url, path_item(&item)));
        parts[1].extend(paths);
    }
    parts
}

/// A schema of v3 in the words of v2, which has no choices, no defaults and no null.
fn definition(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let is = |key: &str| fields.get(key) == Some(&Value::Bool(true));
    // What may be anything has no type that a client could check.
    let opaque = is("nullable") || is("x-kubernetes-preserve-unknown-fields");
    let mut new = Map::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            "allOf" => {
                if let Some(name) = value[0]["$ref"].as_str() {
                    new.insert("$ref".to_owned(), local(name).into());
                }
                continue;
            }
            "oneOf" if fields.contains_key("type") || is("x-kubernetes-int-or-string") => continue,
            // Of the types that a scalar may have, the one that carries all.
            "oneOf" => {
                new.insert("type".to_owned(), "string".into());
                continue;
            }
            "default" | "anyOf" | "not" | "nullable" | "writeOnly" => continue,
            "type" if is("nullable") || is("x-kubernetes-int-or-string") => continue,
            "properties" | "items" | "additionalProperties" if opaque => continue,
            "$ref" => local(value.as_str().unwrap_or_default()).into(),
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                properties.map(|(name, schema)| (name.clone(), definition(schema))).collect::<Map<_, _>>().into()
            }
            "items" | "additionalProperties" => definition(value),
            _ => value.clone(),
        };
        new.insert(key.clone(), value);
    }
    Value::Object(new)
}

fn local(reference: &str) -> String {
    reference.replace("#/components/schemas/", "#/definitions/")
}

fn path_item(item: &Value) -> Value {
    let fields = item.as_object().into_iter().flatten();
    let new = fields.map(|(key, value)| {
        let value = if key == "parameters" { parameters(value).into() } else { operation(value) };
        (key.clone(), value)
    });
    new.collect::<Map<_, _>>().into()
}

/// Parameters whose schema lies in themselves.
fn parameters(of: &Value) -> Vec<Value> {
    let parameters = of.as_array().into_iter().flatten();
    let parameter = |parameter: &Value| {
        let mut fields = parameter.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(schema)) = fields.remove("schema") {
            fields.extend(schema.into_iter().filter(|(key, _)| key != "default"));
        }
        Value::Object(fields)
    };
    parameters.map(parameter).collect()
}

fn operation(of: &Value) -> Value {
    let Some(fields) = of.as_object() else { return of.clone() };
    let (mut consumes, mut produces) = (vec!["*/*".to_owned()], Vec::new());
    let mut new = fields.clone();
    let mut parameters = parameters(&of["parameters"]);
    if let Some(body) = new.remove("requestBody") {
        let (types, schema) = content(&body);
        let mut parameter = json!({"in": "body", "name": "body", "schema": schema});
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        parameters.insert(0, parameter);
        consumes = types;
    }
    let responses = of["responses"].as_object().into_iter().flatten().map(|(code, response)| {
        let (types, schema) = content(response);
        let mut short = json!({"description": response["description"]});
        if !types.is_empty() {
            short["schema"] = schema;
            produces = types;
        }
        (code.clone(), short)
    });
    let responses: Map<_, _> = responses.collect();
    new.insert("responses".to_owned(), responses.into());
    new.insert("consumes".to_owned(), consumes.into());
    new.insert("produces".to_owned(), produces.into());
    new.insert("schemes".to_owned(), json!(["https"]));
    if !parameters.is_empty() {
        new.insert("parameters".to_owned(), parameters.into());
    }
    Value::Object(new)
}

/// The media types of a body, and its schema, which is the same in all.
fn content(of: &Value) -> (Vec<String>, Value) {
    let all = of["content"].as_object();
    let schema = all.and_then(|all| all.values().next()).map_or(Value::Null, |media| definition(&media["schema"]));
    (all.into_iter().flatten().map(|(media, _)| media.clone()).collect(), schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_of_v3_become_those_of_v2() {
        let cases = [
            (
                json!({"allOf": [{"$ref": "#/components/schemas/a"}], "default": {}, "description": "x"}),
                json!({"$ref": "#/definitions/a", "description": "x"}),
            ),
            (
                json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
                json!({"type": "string", "format": "int-or-string"}),
            ),
            (
                json!({"type": "object", "additionalProperties": {"default": "", "type": "string"}}),
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
            ),
            (
                json!({"type": "object", "properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": true}),
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            ),
        ];
        for (old, new) in cases {
            assert_eq!(definition(&old), new, "{old}");
        }
    }

    #[test]
    fn the_built_in_document_has_what_clients_look_for() {
        let document: Value = serde_json::from_str(&json([].iter())).unwrap();
        let pod = &document["definitions"]["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["properties"]["spec"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert_eq!(
            (&patch["x-kubernetes-action"], &patch["x-kubernetes-group-version-kind"]["kind"]),
            (&json!("patch"), &json!("Pod"))
        );
        assert_eq!(
            patch["parameters"][0]["schema"]["$ref"],
            "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
        );
        assert!(patch["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == "fieldValidation"));
    }
}
