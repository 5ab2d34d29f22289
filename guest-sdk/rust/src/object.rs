//! Kubernetes objects as a plugin sees them: kinds, keys, the metadata that plugins use, and an untyped object.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conditions::Conditions;
use crate::definition::Definition;
use crate::json::RawJson;
use crate::scan::{self, Found, Part, Reason, Scanner, Wanted};
use crate::status::Status;

/// The annotation that the host sets on every child: the child's key in the outcome.
pub const CHILD_KEY_ANNOTATION: &str = "mortise.dev/child";

/// An apiVersion and a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// "v1", "apps/v1".
    pub api_version: &'static str,
    /// "Pod".
    pub kind: &'static str,
}

/// A type whose values are objects of one kind. [`derive@crate::CustomResource`] and [`derive@crate::Projection`]
/// implement it; by hand it takes three lines.
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
    note = "derive `CustomResource` on the spec of your own kind, derive `Projection` to read another, or implement `Resource`",
    note = "the object of a kind of your own is of the type that `kind = \"...\"` names, not of the spec's",
    note = "a kind can also be text: `owns(\"v1/Pod\")`, `reads(\"v1/Pod\")`, and for the reconciled object `kind = \"v1/Pod\"`"
)]
pub trait Resource {
    /// "v1", "apps/v1".
    const API_VERSION: &'static str;
    /// "Pod".
    const KIND: &'static str;
    /// The field paths that reads of this type keep; none keeps whole objects.
    const FIELDS: &'static [&'static str] = &[];

    /// The CustomResourceDefinition, for a kind that the plugin defines. Derived.
    #[doc(hidden)]
    const DEFINITION: Option<&'static Definition> = None;
}

/// The reconciled objects whose status is an `S`: [`derive@crate::CustomResource`] implements it for the type of the
/// kind's status, [`derive@crate::Projection`] for every type, since the kind is another's.
#[diagnostic::on_unimplemented(
    message = "`{S}` is not the status of `{Self}`",
    label = "this function returns an `Outcome<{S}>`",
    note = "a kind with `status = PodSetStatus` in `#[resource(...)]` has the result `Result<Outcome<PodSetStatus>, Failure>`",
    note = "a kind without it has `Result<Outcome, Failure>`, and conditions as its status"
)]
pub trait HasStatus<S> {}

/// Identifies one object: kind, namespace and name.
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

/// The metadata that plugins use. The rest (managedFields, finalizers, owner references) is the host's business.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Unset for cluster-scoped kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Tells this object from every other that ever had its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Counts the changes of the spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// When it was created, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// When its deletion was requested, RFC 3339; unset before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
}

/// A desired object has no generation: the API server sets it.
fn is_zero(generation: &i64) -> bool {
    *generation == 0
}

impl ObjectMeta {
    /// The metadata of a new object without a namespace.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Whether its deletion was requested.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The key of this object as a child of a plugin's, if it is one.
    pub fn child_key(&self) -> Option<&str> {
        self.annotations.get(CHILD_KEY_ANNOTATION).map(String::as_str)
    }
}

/// An object of any kind as a tree. Its accessors return None, or an empty name, for what is missing or has another
/// type.
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

    /// The string at a path of plain names.
    pub fn str_at(&self, path: &str) -> Option<&str> {
        self.at(path)?.as_str()
    }

    /// metadata.name; empty without one.
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

    /// status.conditions; none for an object without them.
    pub fn conditions(&self) -> Conditions {
        self.at("status.conditions").and_then(|found| Conditions::deserialize(found).ok()).unwrap_or_default()
    }

    /// The key of this object as a child. A read with projected fields has to keep
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

/// A Pod template, like Kubernetes' PodTemplateSpec. It is passed on as text, so that every field of every Kubernetes
/// version works; the CustomResourceDefinition has the labels, the annotations and an untyped spec.
///
/// ```
/// use mortise_sdk::{Json, PodTemplate, RawJson, json};
///
/// let template = PodTemplate(RawJson::new(&json!({"spec": {"containers": []}})).unwrap());
/// let pod = Json::of_kind("v1", "Pod", &template);
/// assert_eq!(pod.text().unwrap(), r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[]}}"#);
///
/// let labelled = template.with_labels([("app", "web")]);
/// assert_eq!(labelled.0.parse::<mortise_sdk::Value>().unwrap()["metadata"]["labels"], json!({"app": "web"}));
/// ```
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(transparent)]
pub struct PodTemplate(pub RawJson);

impl PodTemplate {
    /// The template with these labels too, by which a selector finds the Pods; a label of this name is replaced.
    ///
    /// # Panics
    /// When the template, its metadata or its labels are no JSON object, which the CustomResourceDefinition's schema rules
    /// out.
    #[must_use]
    pub fn with_labels<K: AsRef<str>, V: Into<String>>(&self, labels: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut template: Value = self.0.parse().expect("it is JSON");
        for (name, value) in labels {
            template["metadata"]["labels"][name.as_ref()] = value.into().into();
        }
        Self(RawJson::new(&template).expect("a value can be written as JSON"))
    }
}

impl JsonSchema for PodTemplate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "object",
            "properties": {
                "metadata": {
                    "type": "object",
                    "description": "Labels and annotations of each Pod.",
                    "properties": {
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                },
                "spec": {
                    "type": "object",
                    "description": "The spec of each Pod, as in v1/Pod.",
                    "x-kubernetes-preserve-unknown-fields": true,
                },
            },
            "required": ["spec"],
        })
    }
}

/// The three parts of an object of a plugin's own kind, in one pass over its text.
///
/// # Errors
/// When there is no spec, or the spec or the metadata does not fit.
pub fn parts<'a, S: Deserialize<'a>>(input: &mut Scanner<'a>) -> Result<(ObjectMeta, S, Option<Found<'a>>), Reason> {
    let mut found = [None; 10];
    input.fields(PARTS, &mut found)?;
    let [name, namespace, uid, generation, labels, annotations, created, deleted, spec, status] = found;
    let metadata = ObjectMeta {
        name: scan::owned_text(name, "metadata.name")?.unwrap_or_default(),
        namespace: scan::owned_text(namespace, "metadata.namespace")?,
        uid: scan::owned_text(uid, "metadata.uid")?.unwrap_or_default(),
        generation: scan::optional(generation, "metadata.generation")?.unwrap_or_default(),
        labels: scan::optional(labels, "metadata.labels")?.unwrap_or_default(),
        annotations: scan::optional(annotations, "metadata.annotations")?.unwrap_or_default(),
        creation_timestamp: scan::owned_text(created, "metadata.creationTimestamp")?,
        deletion_timestamp: scan::owned_text(deleted, "metadata.deletionTimestamp")?,
    };
    Ok((metadata, scan::required(spec, "spec")?, status))
}

/// What [`parts`] reads: the metadata that plugins use, the spec and the status.
const PARTS: &[Wanted] = &[
    Wanted {
        name: "metadata",
        part: Part::Fields(&[
            Wanted { name: "name", part: Part::Whole(0) },
            Wanted { name: "namespace", part: Part::Whole(1) },
            Wanted { name: "uid", part: Part::Whole(2) },
            Wanted { name: "generation", part: Part::Whole(3) },
            Wanted { name: "labels", part: Part::Whole(4) },
            Wanted { name: "annotations", part: Part::Whole(5) },
            Wanted { name: "creationTimestamp", part: Part::Whole(6) },
            Wanted { name: "deletionTimestamp", part: Part::Whole(7) },
        ]),
    },
    Wanted { name: "spec", part: Part::Whole(8) },
    Wanted { name: "status", part: Part::Whole(9) },
];

/// The status of an object, from its text.
pub fn status<T>(found: Option<Found<'_>>) -> Status<T> {
    found.map_or_else(Status::none, |found| Status::unread(found.json))
}
