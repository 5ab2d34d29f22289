//! The schema of one kind, compiled from OpenAPI: what fields there are, how lists merge, what is allowed. Input: an OpenAPI
//! v3 schema, of a definition or published. Output: a graph of nodes that the modules below walk beside a value. It must
//! not know requests or the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::halt::Cause;

/// A compiled schema. Recursive schemas refer to their own nodes.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// The root is the first.
    nodes: Vec<Node>,
}

/// Where a node lies in its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(pub(crate) usize);

/// The JSON type that a node wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// Nothing is said: any value.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// How two lists become one (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The whole list is one value.
    #[default]
    Atomic,
    /// Scalars that are there once.
    Set,
    /// Objects that these fields identify.
    Map(Vec<Arc<str>>),
}

/// One node: what is said of the values at one place.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: Type,
    pub(crate) nullable: bool,
    pub(crate) properties: BTreeMap<Arc<str>, NodeId>,
    /// The values of a map (`additionalProperties`).
    pub(crate) additional: Option<NodeId>,
    pub(crate) items: Option<NodeId>,
    pub(crate) required: Vec<Arc<str>>,
    pub(crate) default: Option<Value>,
    pub(crate) preserve_unknown_fields: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_type: ListType,
    /// `x-kubernetes-map-type: atomic`: the whole object is one value.
    pub(crate) atomic_map: bool,
    /// `x-kubernetes-patch-merge-key`, of strategic merge patches.
    pub(crate) merge_key: Option<Arc<str>>,
    /// `x-kubernetes-patch-strategy`, such as `merge` or `merge,retainKeys`.
    pub(crate) patch_strategy: Option<Arc<str>>,
}

/// A node in its schema: what walks beside a value. Where a schema says nothing, there is no place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    schema: &'a Schema,
    pub(crate) node: &'a Node,
}

impl Schema {
    /// A schema that accepts anything.
    pub(crate) fn anything() -> Self {
        Self { nodes: vec![Node { preserve_unknown_fields: true, ..Node::default() }] }
    }

    /// Compiles an OpenAPI v3 schema; `definitions` has what `$ref` names below `#/components/schemas`.
    pub(crate) fn compile(_schema: &Value, _definitions: &Value) -> Self {
        Self::anything()
    }

    /// Fills in the defaults of fields that are absent.
    pub(crate) fn default(&self, _object: &mut Value) {}

    /// Drops fields that the schema does not know, and gives their paths, such as `spec.template.foo`.
    pub(crate) fn prune(&self, _object: &mut Value) -> Vec<String> {
        Vec::new()
    }

    /// What is wrong with an object; with the old one, what was wrong before and did not change is let through.
    pub(crate) fn validate(&self, _object: &Value, _old: Option<&Value>) -> Vec<Cause> {
        Vec::new()
    }

    /// The place of the whole object.
    pub(crate) fn root(&self) -> Place<'_> {
        Place { schema: self, node: &self.nodes[0] }
    }
}

impl<'a> Place<'a> {
    fn at(self, id: NodeId) -> Self {
        Self { schema: self.schema, node: &self.schema.nodes[id.0] }
    }

    /// The place of a field, or of a map's value.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        self.node.properties.get(name).copied().or(self.node.additional).map(|id| self.at(id))
    }

    /// The place of a list's items.
    pub(crate) fn items(self) -> Option<Self> {
        self.node.items.map(|id| self.at(id))
    }
}
