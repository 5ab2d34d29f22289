//! Compiles OpenAPI v3 schemas, of definitions and as Kubernetes publishes them. Input: JSON. Output: the graph of nodes.
//! It must not know values.
//!
//! What a client wrote is no deeper than the JSON parser lets through, so the walk needs no bound of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::node::{Checks, ListType, Node, NodeId, Pattern, ScalePaths, Schema, Type};
use super::rule::Rule;
use crate::format;

/// How definitions are named in `$ref`.
const PREFIX: &str = "#/components/schemas/";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Definitions that are a schema or something else; what is a schema in them is checked as one.
const SCHEMA_OR: [&str; 2] = ["JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool"];

struct Compiler<'a> {
    nodes: Vec<Node>,
    definitions: &'a Value,
    known: BTreeMap<&'a str, NodeId>,
    /// Nodes that are a definition with something said besides: they become its copy when all are compiled.
    pending: Vec<(NodeId, NodeId)>,
}

impl Schema {
    /// Compiles a published schema; `definitions` has what `$ref` names below `#/components/schemas`.
    pub(crate) fn compile(schema: &Value, definitions: &Value) -> Self {
        let mut compiler = Compiler::new(definitions);
        let name = schema["x-kubernetes-group-version-kind"].as_array().and_then(|all| all.first());
        let go_type = name.map(|name| format!("{}.{}", text(name, "version"), text(name, "kind")));
        let root = compiler.published(schema, go_type.as_deref());
        compiler.finish(root, true)
    }

    /// Compiles the schema of a definition's version; `definitions` has the published `ObjectMeta` and what it refers to.
    pub(crate) fn custom(schema: &Value, definitions: &Value, scale: Option<ScalePaths>) -> Self {
        let mut compiler = Compiler::new(definitions);
        let root = compiler.resource(schema);
        Self { scale, ..compiler.finish(root, false) }
    }

    /// Compiles a part of a definition's schema, to check defaults with.
    pub(crate) fn part(schema: &Value, definitions: &Value) -> Self {
        let mut compiler = Compiler::new(definitions);
        let root = compiler.structural(schema);
        compiler.finish(root, false)
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn truth(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn kind(schema: &Value) -> Type {
    match text(schema, "type") {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    }
}

/// What definitions and published schemas say in the same words.
fn common(schema: &Value) -> Node {
    let optional = |key: &str| Some(text(schema, key)).filter(|text| !text.is_empty()).map(Into::into);
    let names = |key: &str| {
        let names = schema.get(key).and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(Into::into).collect::<Vec<Arc<str>>>()
    };
    Node {
        kind: kind(schema),
        nullable: truth(schema, "nullable"),
        required: names("required"),
        default: schema.get("default").filter(|default| !default.is_null()).cloned(),
        preserve_unknown_fields: truth(schema, "x-kubernetes-preserve-unknown-fields"),
        embedded_resource: truth(schema, "x-kubernetes-embedded-resource"),
        list_type: match text(schema, "x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map(names("x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        },
        atomic_map: text(schema, "x-kubernetes-map-type") == "atomic",
        merge_key: optional("x-kubernetes-patch-merge-key"),
        patch_strategy: optional("x-kubernetes-patch-strategy"),
        ..Node::default()
    }
}

impl<'a> Compiler<'a> {
    fn new(definitions: &'a Value) -> Self {
        Self { nodes: vec![Node::default()], definitions, known: BTreeMap::new(), pending: Vec::new() }
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    fn finish(mut self, root: NodeId, published: bool) -> Schema {
        for (wrapper, target) in std::mem::take(&mut self.pending) {
            let definition = self.nodes[target.0].clone();
            let own = std::mem::replace(&mut self.nodes[wrapper.0], definition);
            let node = &mut self.nodes[wrapper.0];
            node.default = own.default.or(node.default.take());
            node.merge_key = own.merge_key.or(node.merge_key.take());
            node.patch_strategy = own.patch_strategy.or(node.patch_strategy.take());
            node.atomic_map |= own.atomic_map;
            if own.go_type.is_some() {
                // A definition that is another one or something else keeps its own type.
                (node.kind, node.go_type) = (own.kind, own.go_type);
            }
        }
        self.nodes[0] = self.nodes[root.0].clone();
        for at in 0..self.nodes.len() {
            let has = |(_, id): &(&Arc<str>, &NodeId)| self.nodes[id.0].default.is_some();
            let found = self.nodes[at].properties.iter().filter(has).map(|(name, id)| (name.clone(), *id)).collect();
            self.nodes[at].defaulted = found;
        }
        let has_rules = self.nodes.iter().any(|node| !node.rules.is_empty());
        Schema { nodes: self.nodes, published, has_rules, scale: None }
    }

    /// A node of a published schema; `go_type` is the definition's, if it is one.
    fn published(&mut self, schema: &'a Value, go_type: Option<&str>) -> NodeId {
        let id = self.add(Node::default());
        self.fill_published(id, schema, go_type);
        id
    }

    fn fill_published(&mut self, id: NodeId, schema: &'a Value, go_type: Option<&str>) {
        let mut node = common(schema);
        node.go_type = go_type.map(Into::into);
        node.format = text(schema, "format").into();
        if &*node.format == "int-or-string" {
            node.int_or_string = true;
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                node.properties.insert(name.as_str().into(), self.property(property));
            }
        }
        node.additional = schema.get("additionalProperties").filter(|more| more.is_object()).map(|s| self.property(s));
        node.items = schema.get("items").map(|items| self.property(items));
        if go_type.and_then(|name| name.rsplit('.').next()).is_some_and(|name| SCHEMA_OR.contains(&name)) {
            let of = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
            if let Some(target) = self.definition(of) {
                self.pending.push((id, target));
                self.nodes[id.0] = node;
                return;
            }
        }
        // An object of which nothing is said holds anything: RawExtension, FieldsV1, JSON.
        let open = matches!(node.kind, Type::Object | Type::Any);
        node.preserve_unknown_fields |= open && node.properties.is_empty() && node.additional.is_none();
        self.nodes[id.0] = node;
    }

    /// The node of a field: the definition's own, unless the field says more than the definition.
    fn property(&mut self, schema: &'a Value) -> NodeId {
        let all_of = schema.get("allOf").and_then(Value::as_array).and_then(|all| all.first());
        let reference = schema.get("$ref").or_else(|| all_of.and_then(|first| first.get("$ref")));
        let name = reference.and_then(Value::as_str).and_then(|reference| reference.strip_prefix(PREFIX));
        let Some(name) = name else { return self.published(schema, None) };
        let Some(target) = self.definition(name) else { return self.published(schema, None) };
        let own = common(schema);
        let plain = own.default.is_none() && own.merge_key.is_none() && own.patch_strategy.is_none() && !own.atomic_map;
        if plain {
            return target;
        }
        let wrapper = self.add(own);
        self.pending.push((wrapper, target));
        wrapper
    }

    fn definition(&mut self, name: &'a str) -> Option<NodeId> {
        if let Some(id) = self.known.get(name) {
            return Some(*id);
        }
        let schema = self.definitions.get(name)?;
        let id = self.add(Node::default());
        self.known.insert(name, id);
        let mut parts = name.rsplit('.');
        let (kind, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        self.fill_published(id, schema, Some(&format!("{package}.{kind}")));
        Some(id)
    }

    /// A whole resource: its apiVersion and kind are there, its metadata is that of all objects.
    fn resource(&mut self, schema: &Value) -> NodeId {
        let id = self.structural(schema);
        if !self.nodes[id.0].embedded_resource {
            self.nodes[id.0].embedded_resource = true;
            self.embed(id, schema);
        }
        // Only resources inside resources are asked for their kind; that of the root was looked at before.
        id
    }

    /// Gives a resource the schema of all objects' metadata, with what the definition says of the name.
    fn embed(&mut self, id: NodeId, schema: &Value) {
        let Some(target) = self.definition(OBJECT_META) else { return };
        let mut metadata = self.nodes[target.0].clone();
        for name in ["name", "generateName"] {
            if let Some(own) = schema["properties"]["metadata"]["properties"].get(name) {
                let own = self.structural(own);
                metadata.properties.insert(name.into(), own);
            }
        }
        let metadata = self.add(metadata);
        self.nodes[id.0].properties.insert("metadata".into(), metadata);
    }

    /// A node of a definition's schema.
    fn structural(&mut self, schema: &Value) -> NodeId {
        let id = self.add(Node::default());
        let mut node = common(schema);
        node.int_or_string = truth(schema, "x-kubernetes-int-or-string");
        if node.int_or_string {
            node.kind = Type::Any;
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                node.properties.insert(name.as_str().into(), self.structural(property));
            }
        }
        node.additional = match schema.get("additionalProperties") {
            Some(more @ Value::Object(_)) => Some(self.structural(more)),
            Some(Value::Bool(true)) => Some(self.add(Node { preserve_unknown_fields: true, ..Node::default() })),
            _ => None,
        };
        node.items = schema.get("items").filter(|items| items.is_object()).map(|items| self.structural(items));
        if format::is_known(text(schema, "type"), text(schema, "format")) {
            node.format = text(schema, "format").into();
        }
        node.checks = self.checks(schema, &node);
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        node.rules = rules.map(|rule| Arc::new(Rule::read(rule))).collect();
        let embedded = node.embedded_resource;
        self.nodes[id.0] = node;
        if embedded {
            self.embed(id, schema);
        }
        id
    }

    fn checks(&mut self, schema: &Value, node: &Node) -> Option<Box<Checks>> {
        const WORDS: [&str; 19] = [
            "maximum",
            "minimum",
            "multipleOf",
            "maxLength",
            "minLength",
            "pattern",
            "maxItems",
            "minItems",
            "uniqueItems",
            "maxProperties",
            "minProperties",
            "enum",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "format",
            "exclusiveMaximum",
            "exclusiveMinimum",
        ];
        let fields: &Map<String, Value> = schema.as_object()?;
        let closed = fields.get("additionalProperties") == Some(&Value::Bool(false));
        if !closed && !WORDS.iter().any(|word| fields.contains_key(*word)) {
            return None;
        }
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let mut parts = |key: &str| -> Vec<NodeId> {
            let parts = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            parts.map(|part| self.structural(part)).collect()
        };
        let (all_of, any_of, one_of) = (parts("allOf"), parts("anyOf"), parts("oneOf"));
        let pattern = Some(text(schema, "pattern")).filter(|pattern| !pattern.is_empty());
        Some(Box::new(Checks {
            format: format::of(&node.format),
            maximum: number("maximum"),
            exclusive_maximum: truth(schema, "exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: truth(schema, "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: pattern.map(Pattern::new),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: truth(schema, "uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            one_of_these: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            all_of,
            any_of,
            one_of,
            not: schema.get("not").map(|not| self.structural(not)),
            no_more_properties: closed,
        }))
    }
}
