//! Kubernetes objects as a plugin sees them: which kind, which one, the metadata that plugins use, and an untyped
//! object for when no type is worth writing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::CHILD_KEY_ANNOTATION;
use crate::json::RawJson;
use crate::manifest::Definition;

/// An apiVersion and a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// "v1", "apps/v1".
    pub api_version: &'static str,
    /// "Pod".
    pub kind: &'static str,
}

/// A type whose values are objects of one kind. [`derive@crate::CustomResource`] and [`derive@crate::Projection`]
/// implement it; by hand it is three lines.
///
/// ```
/// use mortise_sdk::{Resource, ObjectMeta};
///
/// #[derive(serde::Deserialize)]
/// struct ConfigMap {
///     metadata: ObjectMeta,
/// }
///
/// impl Resource for ConfigMap {
///     const API_VERSION: &'static str = "v1";
///     const KIND: &'static str = "ConfigMap";
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "mortise does not know which kind `{Self}` is",
    note = "derive `CustomResource` on the spec of your own kind, derive `Projection` to read another, or implement `Resource`"
)]
pub trait Resource {
    /// "v1", "apps/v1".
    const API_VERSION: &'static str;
    /// "Pod".
    const KIND: &'static str;
    /// The field paths that reads of this type ask for; none means whole objects.
    const FIELDS: &'static [&'static str] = &[];

    /// The facts of the CustomResourceDefinition, for a kind that the plugin brings.
    const DEFINITION: Option<&'static Definition> = None;
}

/// Which object: namespace (none for cluster-scoped kinds) and name within a kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    /// "v1", "apps/v1".
    pub api_version: String,
    /// "Pod".
    pub kind: String,
    /// None for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// metadata.name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object of the kind of `T`.
    pub fn of<T: Resource>(namespace: Option<&str>, name: &str) -> Self {
        Self::new(T::API_VERSION, T::KIND, namespace, name)
    }

    /// The key of an object of any kind.
    pub fn new(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }
}

crate::record! {
    /// The metadata that plugins use. The rest (managedFields, finalizers, owner references) is the host's business.
    #[derive(Serialize, Clone, PartialEq, Eq, Debug)]
    #[serde(rename_all = "camelCase")]
    pub struct ObjectMeta {
        /// The name.
        pub name: String = "name",
        /// Unset for cluster-scoped kinds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub namespace: Option<String> = "namespace",
        /// Identifies this object among all that ever had its name.
        pub uid: String = "uid",
        /// Counts the changes of the spec.
        pub generation: i64 = "generation",
        /// Labels.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub labels: BTreeMap<String, String> = "labels",
        /// Annotations.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub annotations: BTreeMap<String, String> = "annotations",
        /// When it was created, RFC 3339.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub creation_timestamp: Option<String> = "creationTimestamp",
        /// Set once somebody asked for its deletion, RFC 3339.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deletion_timestamp: Option<String> = "deletionTimestamp",
    }
}

impl ObjectMeta {
    /// The metadata of a new object without a namespace.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Whether somebody asked for its deletion.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The key under which a plugin asked for this object as a child, if one did.
    pub fn child_key(&self) -> Option<&str> {
        self.annotations.get(CHILD_KEY_ANNOTATION).map(String::as_str)
    }
}

/// An object of any kind as a tree, with accessors that answer nothing instead of failing.
///
/// ```
/// use mortise_sdk::{Object, json};
///
/// let pod = Object::from(json!({"metadata": {"name": "web-0", "annotations": {"mortise.dev/child": "0"}},
///                               "status": {"phase": "Running"}}));
/// assert_eq!(pod.name(), "web-0");
/// assert_eq!(pod.str_at("status.phase"), Some("Running"));
/// assert_eq!(pod.child_key(), Some("0"));
/// assert_eq!(pod.str_at("status.reason"), None);
/// ```
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(transparent)]
pub struct Object(Value);

impl Object {
    /// The value at a path of plain names ("status.phase").
    pub fn at(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.0, |value, name| value.get(name))
    }

    /// The text at a path of plain names.
    pub fn str_at(&self, path: &str) -> Option<&str> {
        self.at(path)?.as_str()
    }

    /// metadata.name, or nothing.
    pub fn name(&self) -> &str {
        self.str_at("metadata.name").unwrap_or_default()
    }

    /// metadata.namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.str_at("metadata.namespace")
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.at("metadata.labels")?.get(name)?.as_str()
    }

    /// The value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.at("metadata.annotations")?.get(name)?.as_str()
    }

    /// The key under which a plugin asked for this object as a child. To read it with projected fields, ask for
    /// `metadata.annotations["mortise.dev/child"]`.
    pub fn child_key(&self) -> Option<&str> {
        self.annotation(CHILD_KEY_ANNOTATION)
    }

    /// The tree.
    pub fn value(&self) -> &Value {
        &self.0
    }
}

impl From<Value> for Object {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

/// A Pod as a template: what Kubernetes' own PodTemplateSpec is. The spec is carried through unread, so every field
/// of every Kubernetes version works, and the CustomResourceDefinition stays small.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Debug)]
pub struct PodTemplate {
    /// Labels and annotations of each Pod.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// The Pods' spec, as in v1/Pod.
    #[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    pub spec: RawJson,
}

/// The metadata of a template.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug, Default)]
pub struct TemplateMeta {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
