//! What a reconcile may ask: the cluster as it was frozen for this call, the time, and the plugin's configuration.
//! Every question is recorded by the host, because what a call asked is what wakes it again.

use std::cell::OnceCell;

use serde::de::DeserializeOwned;

use crate::error::{Failure, ReadError};
use crate::object::{ObjectKey, Resource};
use crate::query::Query;
use crate::scan::{self, FromJson};
use crate::view::{Questions, View};

/// The inputs of one call besides the object itself. Answers live as long as the context, so types may borrow from
/// them (`&'a str` in a projection costs nothing).
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::testing::Cluster;
///
/// /// One ConfigMap for each Node with a label, for as many as the configuration admits.
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[resource(group = "example.com", version = "v1", kind = "Census")]
/// struct CensusSpec {
///     label: String,
/// }
///
/// #[derive(Deserialize)]
/// struct Config {
///     most: u32,
/// }
///
/// #[derive(Projection)]
/// #[projection("v1/Node")]
/// struct Node<'a> {
///     #[field("metadata.name")]
///     name: &'a str,
/// }
///
/// #[reconciler(owns("v1/ConfigMap"), reads(Node<'static>))]
/// fn reconcile(census: &Census, cx: &Context) -> Result<Outcome, Failure> {
///     let config: Config = cx.config()?;
///     let nodes = cx.list(&Query::<Node>::new().selector(&census.spec.label).limit(config.most))?;
///     let config_map = Json::of_kind("v1", "ConfigMap", &json!({}));
///     Ok(Outcome::children(nodes.iter().map(|node| Child::new(node.name, config_map.clone()))))
/// }
///
/// let mut cluster = Cluster::of(&PLUGIN);
/// cluster.set_config(json!({"most": 1}));
/// for name in ["a", "b"] {
///     cluster.add(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"gpu": "1"}}}));
/// }
/// let census = Census::new("gpus", CensusSpec { label: "gpu".into() });
/// assert_eq!(cluster.reconcile(&census).unwrap().child_keys(), ["a"]);
/// ```
pub struct Context {
    view: View,
    texts: Texts,
}

impl Context {
    pub(crate) fn new(view: View) -> Self {
        Self { view, texts: Texts::default() }
    }

    /// The objects of the kind of `T` that the reconciled object controls, ordered by name.
    ///
    /// # Errors
    /// When the kind is not declared in `owns(...)`, may not be read, or does not fit `T`.
    pub fn owned<'cx, T: Resource + FromJson<'cx>>(&'cx self) -> Result<Vec<T>, ReadError> {
        self.owned_of_kind(T::API_VERSION, T::KIND, T::FIELDS)
    }

    /// The same for a kind that is named by text, with the fields to keep (none: whole objects); for types that know
    /// nothing of mortise and for [`crate::Object`].
    ///
    /// # Errors
    /// As [`Context::owned`].
    pub fn owned_of_kind<'cx, T: FromJson<'cx>>(
        &'cx self,
        api_version: &str,
        kind: &str,
        fields: &[&str],
    ) -> Result<Vec<T>, ReadError> {
        let text = self.view.owned(api_version, kind, fields)?;
        scan::read_list(self.texts.keep(text)).map_err(|reason| shape(kind, reason))
    }

    /// One object by namespace (none for cluster-scoped kinds) and name, or nothing. Reads the whole object.
    ///
    /// # Errors
    /// When the kind is not declared, may not be read, or does not fit `T`. That it does not exist is no error.
    pub fn get<'cx, T: Resource + FromJson<'cx>>(
        &'cx self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, ReadError> {
        self.get_key(&ObjectKey::of::<T>(namespace, name))
    }

    /// One object of any kind, or nothing.
    ///
    /// # Errors
    /// As [`Context::get`].
    pub fn get_key<'cx, T: FromJson<'cx>>(&'cx self, key: &ObjectKey) -> Result<Option<T>, ReadError> {
        match self.view.get(key)? {
            Some(text) => {
                let object = scan::read(self.texts.keep(text)).map_err(|reason| shape(&key.kind, reason))?;
                Ok(Some(object))
            }
            None => Ok(None),
        }
    }

    /// Objects that match a query, ordered by namespace and name.
    ///
    /// # Errors
    /// When the kind is not declared, may not be read, the selector is malformed, or an object does not fit `T`.
    pub fn list<'cx, T: FromJson<'cx>>(&'cx self, query: &Query<T>) -> Result<Vec<T>, ReadError> {
        let text = self.view.list(query)?;
        scan::read_list(self.texts.keep(text)).map_err(|reason| shape(&query.kind, reason))
    }

    /// Which objects match a query, without reading them: the cheapest way to know what exists.
    ///
    /// # Errors
    /// When the kind is not declared, may not be read, or the selector is malformed.
    pub fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
        self.view.keys(query)
    }

    /// Milliseconds since 1970, the same for the whole call. A plugin that asks is called again as time passes only
    /// when it says so: [`crate::Outcome::requeue_after`].
    pub fn now_unix_ms(&self) -> u64 {
        self.view.now_unix_ms()
    }

    /// The plugin's configuration, which an administrator wrote beside it; `{}` when there is none.
    ///
    /// # Errors
    /// Terminal, when it does not fit `T`.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.view.config())
            .map_err(|error| Failure::terminal(format!("the plugin's configuration is not valid: {error}")))
    }
}

fn shape(kind: &str, reason: String) -> ReadError {
    ReadError::Shape { kind: kind.to_owned(), reason }
}

/// Answers, kept where they are until the call ends: a list that only grows at its end.
#[derive(Default)]
struct Texts {
    first: OnceCell<Box<Kept>>,
}

struct Kept {
    text: String,
    next: OnceCell<Box<Kept>>,
}

impl Texts {
    fn keep(&self, text: String) -> &str {
        let mut end = &self.first;
        while let Some(kept) = end.get() {
            end = &kept.next;
        }
        &end.get_or_init(|| Box::new(Kept { text, next: OnceCell::new() })).text
    }
}
