//! The OpenAPI v3 document of a group and version that definitions serve. Input: their resources. Output: the document, in
//! the shape that apiextensions-apiserver builds. It must not know which groups there are.

use serde_json::{Map, Value, json};

use crate::resource::Resource;
use crate::{etag, published};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
/// A built-in resource whose operations have the parameters that those of every resource have.
const EXAMPLE: &str = "apis/apps/v1";

/// The hash of the document: it follows from the definitions, and making it is less work than the document.
pub(super) fn hash(resources: &[&Resource]) -> String {
    let definitions = resources.iter().filter_map(|resource| resource.custom.as_ref());
    let text: Vec<String> = definitions
        .map(|version| {
            format!("{} {} {}", version.name, version.definition["metadata"]["uid"], version.definition["spec"])
        })
        .collect();
    etag::hash(text.join("\n").as_bytes())
}

/// The whole document.
pub(super) fn document(resources: &[&Resource]) -> Value {
    let mut schemas = Map::new();
    for name in ["ObjectMeta", "ListMeta", "DeleteOptions", "Status", "Patch"] {
        extend(&mut schemas, published::with_references(EXAMPLE, &format!("{META}.{name}")));
    }
    if resources.iter().any(|resource| resource.subresource("scale").is_some()) {
        extend(&mut schemas, published::with_references(EXAMPLE, SCALE));
    }
    let mut paths = Map::new();
    for resource in resources {
        schemas.extend(own_schemas(resource));
        paths.extend(own_paths(resource));
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": paths, "components": {"schemas": schemas},
    })
}

fn extend(schemas: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        schemas.extend(more);
    }
}

/// The name of a kind's schema, such as `com.example.stable.v1.CronTab`.
fn model(resource: &Resource, kind: &str) -> String {
    let group: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", group.join("."), resource.version)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A reference with a description beside it.
fn described(name: &str, about: &str) -> Value {
    json!({"allOf": [reference(name)], "description": about})
}

fn kinds(resource: &Resource, kind: &str) -> Value {
    json!([{"group": *resource.group, "version": *resource.version, "kind": kind}])
}

/// The schemas of the kind and of its list.
pub(super) fn own_schemas(resource: &Resource) -> [(String, Value); 2] {
    let mut schema = declared(resource);
    if schema.is_null() {
        schema = json!({"type": "object"});
    } else {
        add_metadata(&mut schema);
        embed(&mut schema);
    }
    schema["x-kubernetes-group-version-kind"] = kinds(resource, &resource.kind);
    let selectable = resource.custom.iter().flat_map(|version| &version.selectable);
    let selectable: Vec<Value> = selectable.map(|path| json!({"fieldPath": **path})).collect();
    let about = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        resource.plural
    );
    let name = model(resource, &resource.kind);
    let metadata = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
    let mut list = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind), "type": "object", "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": reference(&name), "description": about},
            "metadata": described(&format!("{META}.ListMeta"), metadata),
            "apiVersion": type_meta("apiVersion"), "kind": type_meta("kind"),
        },
        "x-kubernetes-group-version-kind": kinds(resource, &resource.list_kind),
    });
    if !selectable.is_empty() {
        for schema in [&mut schema, &mut list] {
            schema["x-kubernetes-selectable-fields"] = json!(selectable);
        }
    }
    [(name, schema), (model(resource, &resource.list_kind), list)]
}

/// The schema as the definition has it; null when it has none that is an object.
fn declared(resource: &Resource) -> Value {
    let Some(version) = &resource.custom else { return Value::Null };
    let versions = version.definition["spec"]["versions"].as_array().into_iter().flatten();
    let found = versions.into_iter().find(|of| of["name"] == *version.name);
    let schema = found.map_or(&Value::Null, |of| &of["schema"]["openAPIV3Schema"]);
    if schema.is_object() { schema.clone() } else { Value::Null }
}

fn type_meta(field: &str) -> Value {
    let about = published::field_description(EXAMPLE, "Deployment", field);
    json!({"type": "string", "description": about})
}

const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn add_metadata(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("metadata".to_owned(), described(&format!("{META}.ObjectMeta"), METADATA));
        properties.insert("apiVersion".to_owned(), type_meta("apiVersion"));
        properties.insert("kind".to_owned(), type_meta("kind"));
    }
}

/// Gives embedded resources the fields that every resource has.
fn embed(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(embed);
    }
    for key in ["items", "additionalProperties"] {
        fields.get_mut(key).into_iter().for_each(embed);
    }
    if schema["x-kubernetes-embedded-resource"] != true {
        return;
    }
    add_metadata(schema);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"].map(Value::from) {
        if !required.contains(&name) {
            required.push(name);
        }
    }
    schema["required"] = required.into();
}

/// One operation to describe: the HTTP method, the action and the verb of its name.
type Verb = (&'static str, &'static str, &'static str);

const COLLECTION: [Verb; 3] =
    [("get", "list", "list"), ("post", "post", "create"), ("delete", "deletecollection", "deletecollection")];
const OBJECT: [Verb; 4] =
    [("get", "get", "read"), ("put", "put", "replace"), ("delete", "delete", "delete"), ("patch", "patch", "patch")];
const PART: [Verb; 3] = [("get", "get", "read"), ("put", "put", "replace"), ("patch", "patch", "patch")];

/// The operations of a resource by URL path.
pub(super) fn own_paths(resource: &Resource) -> Vec<(String, Value)> {
    let root = format!("/apis/{}/{}", resource.api_version(), resource.plural);
    let example = "/apis/apps/v1/namespaces/{namespace}/deployments";
    let mut paths = Vec::new();
    let base = if resource.namespaced {
        let verb = ("get", "list", "list");
        let mut all = item(resource, "", "/apis/apps/v1/deployments", &[verb]);
        let id = format!("list{}{}ForAllNamespaces", prefix(resource), resource.kind);
        all["get"]["operationId"] = id.into();
        paths.push((root, all));
        format!("/apis/{}/namespaces/{{namespace}}/{}", resource.api_version(), resource.plural)
    } else {
        root
    };
    paths.push((base.clone(), item(resource, "", example, &COLLECTION)));
    paths.push((format!("{base}/{{name}}"), item(resource, "", &format!("{example}/{{name}}"), &OBJECT)));
    for part in ["status", "scale"] {
        if resource.subresource(part).is_some() {
            let path = format!("/{{name}}/{part}");
            paths.push((format!("{base}{path}"), item(resource, part, &format!("{example}{path}"), &PART)));
        }
    }
    paths
}

/// What the names of a resource's operations have after their verb, such as `StableExampleComV1`.
fn prefix(resource: &Resource) -> String {
    let group = resource.group.strip_suffix(".k8s.io").unwrap_or(&resource.group);
    format!("{}{}", identifier(group, true), identifier(&resource.version, true))
}

/// Letters and digits alone, with a capital where something else was.
fn identifier(text: &str, mut capital: bool) -> String {
    let mut name = String::new();
    for character in text.chars() {
        match character {
            _ if !character.is_alphanumeric() => capital = true,
            _ if std::mem::take(&mut capital) => name.extend(character.to_uppercase()),
            _ => name.push(character),
        }
    }
    name
}

/// The operations at one URL path, with the parameters of an example.
fn item(resource: &Resource, part: &str, example: &str, verbs: &[Verb]) -> Value {
    let example = published::operations(EXAMPLE, example);
    let mut item = Map::new();
    for verb in verbs {
        item.insert(verb.0.to_owned(), operation(resource, part, &example[verb.0]["parameters"], *verb));
    }
    let mut parameters = example["parameters"].as_array().cloned().unwrap_or_default();
    parameters.retain(|parameter| resource.namespaced || parameter["name"] != "namespace");
    for parameter in &mut parameters {
        if parameter["name"] == "name" {
            parameter["description"] = format!("name of the {}", resource.kind).into();
        }
    }
    item.insert("parameters".to_owned(), parameters.into());
    Value::Object(item)
}

fn operation(resource: &Resource, part: &str, parameters: &Value, (_, action, verb): Verb) -> Value {
    let kind = &resource.kind;
    let own = if part == "scale" { SCALE.to_owned() } else { model(resource, kind) };
    let (sent, received) = match action {
        "list" => (None, model(resource, &resource.list_kind)),
        "get" => (None, own),
        "post" | "put" => (Some(own.clone()), own),
        "patch" => (Some(format!("{META}.Patch")), own),
        "delete" => (Some(format!("{META}.DeleteOptions")), format!("{META}.Status")),
        _ => (None, format!("{META}.Status")),
    };
    let content = |name: &str, types: &[&str]| -> Value {
        types
            .iter()
            .map(|media| ((*media).to_owned(), json!({"schema": reference(name)})))
            .collect::<Map<_, _>>()
            .into()
    };
    let plain = ["application/json", "application/yaml"];
    let codes: &[(&str, &str)] = match action {
        "post" => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        "put" => &[("200", "OK"), ("201", "Created")],
        "delete" => &[("200", "OK"), ("202", "Accepted")],
        _ => &[("200", "OK")],
    };
    let response = |(code, about): &(&str, &str)| {
        ((*code).to_owned(), json!({"description": about, "content": content(&received, &plain)}))
    };
    let mut responses: Map<_, _> = codes.iter().map(response).collect();
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    let group = resource.group.strip_suffix(".k8s.io").unwrap_or(&resource.group);
    let mut operation = json!({
        "description": description(kind, part, verb), "operationId": format!("{verb}{}{scope}{kind}{}", prefix(resource), identifier(part, true)),
        "tags": [format!("{}_{}", identifier(group, false), identifier(&resource.version, false))],
        "responses": responses, "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kinds(resource, kind)[0],
    });
    if parameters.is_array() {
        operation["parameters"] = parameters.clone();
    }
    if let Some(sent) = sent {
        let patches = ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
        let types: &[&str] = if action == "patch" { &patches } else { &plain };
        operation["requestBody"] = json!({"content": content(&sent, types)});
        if action != "delete" {
            operation["requestBody"]["required"] = true.into();
        }
    }
    operation
}

fn description(kind: &str, part: &str, verb: &str) -> String {
    let of = if part.is_empty() { String::new() } else { format!(" {part} of") };
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    match verb {
        "list" => format!("list{of} objects of kind {kind}"),
        "patch" => format!("partially update{of} the specified {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "read" | "replace" => format!("{verb}{of} the specified {kind}"),
        _ => format!("{verb}{of} {article} {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_operations_have_no_points() {
        assert_eq!(identifier("stable.example.com", true), "StableExampleCom");
        assert_eq!(identifier("stable.example.com", false), "stableExampleCom");
    }

    #[test]
    fn an_embedded_resource_has_metadata() {
        let mut schema = json!({"properties": {"a": {"type": "array", "items": {"x-kubernetes-embedded-resource": true, "type": "object"}}}});
        embed(&mut schema);
        let items = &schema["properties"]["a"]["items"];
        assert_eq!(items["required"], json!(["kind", "apiVersion"]));
        assert!(items["properties"]["metadata"]["allOf"].is_array());
    }
}
