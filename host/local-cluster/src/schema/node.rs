//! The graph of a compiled schema: what is said of the values at each place. It must not know how it is walked.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use regex::Regex;
use serde_json::Value;

use super::rule::Rule;

/// A compiled schema. Recursive schemas refer to their own nodes.
#[derive(Debug)]
pub(crate) struct Schema {
    /// The root is the first.
    pub(super) nodes: Vec<Node>,
    /// Whether it is of a built-in kind, whose values are checked by its own strategy.
    pub(super) published: bool,
    /// Whether any node has rules.
    pub(super) has_rules: bool,
    /// The paths of the scale subresource: what it reads must be in order in the object.
    pub(super) scale: Option<ScalePaths>,
}

/// Where the scale subresource finds its fields, with the leading dot.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
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
#[derive(Clone, Debug, Default)]
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
    /// Formats of strings and numbers, such as `int32`; empty where none is known.
    pub(crate) format: Arc<str>,
    /// The Go type of a published definition, such as `v1.PodSpec`: what it decodes follows Go's rules.
    pub(crate) go_type: Option<Arc<str>>,
    /// The properties that have defaults.
    pub(crate) defaulted: Vec<(Arc<str>, NodeId)>,
    pub(crate) checks: Option<Box<Checks>>,
    /// `x-kubernetes-validations`.
    pub(crate) rules: Vec<Arc<Rule>>,
}

/// What must hold of a value besides its type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<fn(&str) -> bool>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) one_of_these: Vec<Value>,
    pub(crate) all_of: Vec<NodeId>,
    pub(crate) any_of: Vec<NodeId>,
    pub(crate) one_of: Vec<NodeId>,
    pub(crate) not: Option<NodeId>,
    /// `additionalProperties: false`.
    pub(crate) no_more_properties: bool,
}

/// A regular expression, compiled when a string is first matched.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) source: Arc<str>,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    /// Whether it matches; none if it is no regular expression.
    pub(crate) fn matches(&self, text: &str) -> Option<bool> {
        let compiled = self.compiled.get_or_init(|| Regex::new(&self.source).ok());
        compiled.as_ref().map(|regex| regex.is_match(text))
    }
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
        let node = Node { preserve_unknown_fields: true, ..Node::default() };
        Self { nodes: vec![node], published: true, has_rules: false, scale: None }
    }

    /// The place of the whole object.
    pub(crate) fn root(&self) -> Place<'_> {
        Place { schema: self, node: &self.nodes[0] }
    }
}

/// Lists and times that Go writes as null when they are empty although they need not be there: by type.
const NULLS: &[(&str, &[&str])] = &[
    ("v1.EndpointSlice", &["endpoints", "ports"]),
    ("v1.Role", &["rules"]),
    ("v1.ClusterRole", &["rules"]),
    ("v2.HorizontalPodAutoscalerStatus", &["currentMetrics"]),
    ("v1.PodCondition", &["lastProbeTime", "lastTransitionTime"]),
    ("v1.JobCondition", &["lastProbeTime", "lastTransitionTime"]),
    ("v1.PersistentVolumeClaimCondition", &["lastProbeTime", "lastTransitionTime"]),
    ("v1.NodeCondition", &["lastHeartbeatTime", "lastTransitionTime"]),
    ("v1.DeploymentCondition", &["lastTransitionTime", "lastUpdateTime"]),
    ("v1.ReplicaSetCondition", &["lastTransitionTime"]),
    ("v1.StatefulSetCondition", &["lastTransitionTime"]),
    ("v1.DaemonSetCondition", &["lastTransitionTime"]),
    ("v1.ReplicationControllerCondition", &["lastTransitionTime"]),
    ("v2.HorizontalPodAutoscalerCondition", &["lastTransitionTime"]),
];

impl<'a> Place<'a> {
    /// The lists and times of a struct that Go writes as null when they are empty.
    pub(crate) fn nulls(self) -> impl Iterator<Item = &'static str> {
        let go_type = self.node.go_type.as_deref().unwrap_or_default();
        NULLS.iter().filter(move |(of, _)| *of == go_type).flat_map(|(_, names)| names.iter().copied())
    }

    pub(super) fn at(self, id: NodeId) -> Self {
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

/// The item of an old list of objects that has the same keys as this one.
pub(super) fn same_item<'v>(list_type: &ListType, item: &Value, old: Option<&'v Value>) -> Option<&'v Value> {
    let ListType::Map(keys) = list_type else { return None };
    let old = old?.as_array()?;
    old.iter().find(|other| other.is_object() && keys.iter().all(|key| other.get(&**key) == item.get(&**key)))
}
