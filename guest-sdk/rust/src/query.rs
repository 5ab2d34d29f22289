//! What to list: a kind and what narrows it. A query is data; [`crate::Context`] sends it.

use std::marker::PhantomData;

use crate::object::{ObjectMeta, Resource};

/// A list of objects of one kind, read into `T`.
///
/// ```
/// use mortise_sdk::prelude::*;
///
/// #[derive(Projection)]
/// #[projection("v1/Node")]
/// struct Node {
///     #[field("metadata.name")]
///     name: String,
/// }
///
/// #[derive(Projection)]
/// #[projection("v1/Pod")]
/// struct Pod {
///     #[field("metadata.name")]
///     name: String,
/// }
///
/// let workers = Query::<Node>::new().selector("!node-role.kubernetes.io/control-plane").limit(100);
/// let pods_of_a_node = Query::<Pod>::new().field("spec.nodeName", "node-1");
/// # let _ = (workers, pods_of_a_node);
/// ```
#[derive(Clone, Debug)]
pub struct Query<T> {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespaces: Vec<String>,
    pub(crate) selector: Option<String>,
    pub(crate) field_selector: Vec<(String, FieldValue)>,
    pub(crate) fields: Vec<String>,
    pub(crate) limit: Option<u32>,
    target: PhantomData<fn() -> T>,
}

/// A value for [`Query::field`]. Values are not converted: `"3"` is not `3`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// A JSON string.
    Text(String),
    /// A JSON number without a fraction or an exponent.
    Integer(i64),
    /// A JSON boolean.
    Boolean(bool),
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for FieldValue {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for FieldValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for FieldValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for FieldValue {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl<T: Resource> Query<T> {
    /// All objects of the kind of `T`, with the fields that `T` reads.
    pub fn new() -> Self {
        Self::of_kind(T::API_VERSION, T::KIND).fields(T::FIELDS)
    }
}

impl<T: Resource> Default for Query<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Query<T> {
    /// All objects of a kind given as text: for types that do not implement [`Resource`], such as those of k8s-openapi,
    /// and for [`crate::Object`].
    pub fn of_kind(api_version: &str, kind: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespaces: Vec::new(),
            selector: None,
            field_selector: Vec::new(),
            fields: Vec::new(),
            limit: None,
            target: PhantomData,
        }
    }

    /// Only objects of this namespace. May be repeated, at most 100 times, for objects of several. The default is every
    /// namespace: the host reads cluster-wide with its own identity.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespaces.push(namespace.to_owned());
        self
    }

    /// Only objects in the namespace of this object, which is usually the reconciled one. Of a cluster-scoped one: all.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    ///
    /// let site = ObjectMeta::named("web").in_namespace("team-a");
    /// let pods = Query::<Object>::of_kind("v1", "Pod").namespace_of(&site);
    /// # let _ = pods;
    /// ```
    #[must_use]
    pub fn namespace_of(self, metadata: &ObjectMeta) -> Self {
        match &metadata.namespace {
            Some(namespace) => self.namespace(namespace),
            None => self,
        }
    }

    /// Only objects whose labels match a label selector: in the syntax of `kubectl get -l` ("tier=web,!legacy"), or a
    /// [`LabelSelector`](crate::LabelSelector::text) of a spec.
    #[must_use]
    pub fn selector(mut self, selector: impl Into<String>) -> Self {
        self.selector = Some(selector.into());
        self
    }

    /// Only objects that have this value at this path: `.field("spec.nodeName", "node-1")` selects the Pods of a Node.
    /// May be repeated, at most 8 times; an object has to match all of them. The path is written as in
    /// [`Self::fields`]. One that meets an array, or ends at anything but a string, an integer or a boolean, selects
    /// nothing. A string has 1024 bytes at most.
    ///
    /// Unlike the API server's field selectors this works with any field of any kind. The host indexes the fields that
    /// plugins select by, up to 8 of a kind, so a query costs what it selects, and only objects that have the value or
    /// had it cause another call.
    #[must_use]
    pub fn field(mut self, path: &str, value: impl Into<FieldValue>) -> Self {
        self.field_selector.push((path.to_owned(), value.into()));
        self
    }

    /// Keep these fields alone ("status.phase", "metadata.name"). Dots separate names; a name that contains dots is
    /// written in brackets and quotes: `metadata.annotations["mortise.dev/child"]`. None: whole objects.
    #[must_use]
    pub fn fields(mut self, fields: &[&str]) -> Self {
        self.fields = fields.iter().map(|field| (*field).to_owned()).collect();
        self
    }

    /// At most this many objects, the first in the order of namespace and name.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }
}
