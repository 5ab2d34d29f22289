//! The cluster of a native test: its objects, its clock, and the calls of the plugin.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::actions::Allowed;
use super::{generated, pruned, refusals};
use crate::conditions::ConditionStatus;
use crate::context::Context;
use crate::error::Failure;
use crate::http::{RequestFailure, Response};
use crate::manifest::{Controller, Http, Owned, Plugin, Predicate, Write};
use crate::object::{CHILD_KEY_ANNOTATION, Kind, ObjectKey};
use crate::outcome::Outcome;
use crate::rejection::Rejection;
use crate::view::native::Given;
use crate::view::native::scope::Scope;
use crate::view::native::selector;
use crate::view::native::tree::{OWNER_UID_LABEL, key_of, text};
use crate::view::{Inputs, View};

/// Objects of a test, and a plugin that is called with them, one call at a time. Nothing is written: what a course of events
/// comes to is for stories.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::testing::Cluster;
///
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[resource(group = "example.com", version = "v1", kind = "Team", status = TeamStatus)]
/// struct TeamSpec { size: usize }
///
/// #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// struct TeamStatus { size: usize }
///
/// #[derive(Projection)]
/// #[projection("v1/ConfigMap")]
/// struct Member<'a> {
///     #[field("metadata.name")]
///     name: &'a str,
/// }
///
/// #[reconciler(owns("v1/ConfigMap"))]
/// fn reconcile(team: &Team, cx: &Context) -> Result<Outcome<TeamStatus>, Failure> {
///     let size = cx.owned::<Member>()?.iter().filter(|member| !member.name.is_empty()).count();
///     let member = Json::of_kind("v1", "ConfigMap", &json!({}));
///     let members = (0..team.spec.size).map(|n| Child::new(n.to_string(), member.clone()));
///     Ok(Outcome::children(members).status(&TeamStatus { size }))
/// }
///
/// let team = Team::new("a", TeamSpec { size: 2 });
/// let mut cluster = Cluster::of(&PLUGIN);
/// assert_eq!(cluster.reconcile(&team).unwrap().status_value()["size"], 0);
/// cluster.add_child(&team, "0", &json!({"apiVersion": "v1", "kind": "ConfigMap"}));
/// let outcome = cluster.reconcile(&team).unwrap();
/// assert_eq!(outcome.status_value()["size"], 1);
/// assert_eq!(outcome.child_keys(), ["0", "1"]);
/// ```
pub struct Cluster {
    pub(super) plugin: &'static Plugin,
    objects: BTreeMap<ObjectKey, Value>,
    config: Value,
    now_unix_ms: u64,
    rejected: Vec<Rejection>,
    replies: BTreeMap<String, Result<Response, RequestFailure>>,
    not_served: Vec<(String, String)>,
}

impl Cluster {
    /// An empty cluster for a plugin: the `PLUGIN` that `#[reconciler]` defines. The time is 0, the configuration `{}`.
    pub fn of(plugin: &'static Plugin) -> Self {
        let (objects, rejected, replies, not_served) = Default::default();
        Self { plugin, objects, config: json!({}), now_unix_ms: 0, rejected, replies, not_served }
    }

    /// Sets the time.
    pub fn set_now_unix_ms(&mut self, now: u64) -> &mut Self {
        self.now_unix_ms = now;
        self
    }

    /// Sets the plugin's configuration.
    pub fn set_config(&mut self, config: Value) -> &mut Self {
        self.config = config;
        self
    }

    /// Sets what was rejected of earlier outcomes, which [`Context::rejected`] returns.
    pub fn set_rejected(&mut self, rejected: Vec<Rejection>) -> &mut Self {
        self.rejected = rejected;
        self
    }

    /// Sets what [`Context::response`] returns for a request with this key, whatever its content: a response, or why
    /// there is none.
    pub fn respond(&mut self, key: impl Into<String>, reply: Result<Response, RequestFailure>) -> &mut Self {
        self.replies.insert(key.into(), reply);
        self
    }

    /// The API server does not serve this kind, of those that a pattern in `reads(...)` has: a read of it returns
    /// [`ReadError::NotServed`](crate::ReadError). Without this it serves all of them.
    pub fn set_not_served(&mut self, api_version: &str, kind: &str) -> &mut Self {
        self.not_served.push((api_version.to_owned(), kind.to_owned()));
        self
    }

    /// Adds an object, or replaces the one of the same kind, namespace and name.
    ///
    /// # Panics
    /// When it has no apiVersion, kind or metadata.name.
    pub fn add<T: Serialize>(&mut self, object: &T) -> &mut Self {
        let object = tree(object);
        for path in ["/apiVersion", "/kind", "/metadata/name"] {
            assert!(object.pointer(path).is_some_and(Value::is_string), "an object without {path}: {object}");
        }
        self.objects.insert(key_of(&object), object);
        self
    }

    /// Adds a child of `owner` as the host would have created it: with the owner's controller reference and namespace,
    /// the annotation with the key, and, unless it has a name, one made of the owner's name and the key. One of a kind with
    /// `namespaces = "any"` has a label instead of the reference, and the owner's namespace only if it has none.
    pub fn add_child<T: Serialize, C: Serialize>(&mut self, owner: &T, key: &str, child: &C) -> &mut Self {
        let owner = primary(owner);
        let mut child = tree(child);
        let owns = self.controllers(&owner).flat_map(|each| each.owns);
        let is_tracked = owns.filter(|owned| owned.tracked).any(|owned| {
            let Kind { api_version, kind } = owned.kind;
            child["apiVersion"] == api_version && child["kind"] == kind
        });
        if child["metadata"].is_null() {
            child["metadata"] = json!({});
        }
        let metadata = &mut child["metadata"];
        for map in ["annotations", "labels"] {
            if metadata[map].is_null() {
                metadata[map] = json!({});
            }
        }
        metadata["annotations"][CHILD_KEY_ANNOTATION] = key.into();
        if metadata["name"].is_null() {
            metadata["name"] = format!("{}-{key}", text(&owner, "/metadata/name")).into();
        }
        if let Some(namespace) = owner.pointer("/metadata/namespace")
            && (metadata["namespace"].is_null() || !is_tracked)
        {
            metadata["namespace"] = namespace.clone();
        }
        if is_tracked {
            metadata["labels"][OWNER_UID_LABEL] = owner["metadata"]["uid"].clone();
        } else {
            metadata["ownerReferences"] = json!([{
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": true,
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }]);
        }
        self.add(&child)
    }

    /// Removes an object. False when there was none.
    pub fn remove(&mut self, key: &ObjectKey) -> bool {
        self.objects.remove(key).is_some()
    }

    /// Calls the plugin once, for an object that its controller selects, and checks the outcome as the host does:
    /// kinds, names, namespaces and metadata of children, repeated keys, fields of the status that the host writes,
    /// reasons, and all bounds. A status has only fields of its schema.
    ///
    /// # Errors
    /// The plugin's failure. A terminal one when the host would refuse the outcome or would not call the plugin for
    /// this object.
    pub fn reconcile<T: Serialize>(&self, object: &T) -> Result<Outcome<Value>, Failure> {
        let object = primary(object);
        for controller in self.controllers(&object) {
            selected(controller, &object)?;
        }
        let view = View::Given(Given {
            scopes: self.scopes(&object),
            objects: self.objects.values().map(generated::hidden).collect(),
            owner_uid: text(&object, "/metadata/uid").to_owned(),
            rejected: self.rejected.clone(),
            replies: self.replies.clone(),
            not_served: self.not_served.clone(),
        });
        let outcome = self.plugin.reconcile(&object.to_string(), &Context::new(view, self.inputs()))?;
        let owns: Vec<&Owned> = self.controllers(&object).flat_map(|each| each.owns).collect();
        let readable = self.scopes(&object);
        if let Some(controller) = self.controllers(&object).next() {
            let writes: Vec<&Write> = self.plugin.writes().collect();
            let http: Vec<&Http> = self.plugin.http().collect();
            let (primary, finalize) = (&controller.primary, controller.finalize);
            let allowed = Allowed { writes: &writes, readable: &readable, http: &http, primary, finalize };
            refusals::check(&outcome, &owns, &allowed, &object)?;
            let definition = self.controllers(&object).find_map(|each| each.definition);
            if let Some(path) = definition.and_then(|kind| pruned::first_unknown(kind, &outcome.status_value())) {
                let why = "the schema of the kind has no such field, so the API server would drop it";
                return Err(Failure::Terminal(format!("{path}: {why}")));
            }
        }
        crate::export::contract_outcome(outcome.clone())?;
        Ok(outcome)
    }

    pub(super) fn inputs(&self) -> Inputs {
        Inputs::given(self.now_unix_ms, self.config.to_string())
    }

    /// What the controller of this object declares of each kind.
    fn scopes(&self, object: &Value) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = Vec::new();
        for controller in self.controllers(object) {
            let owned = controller.owns.iter().map(|owned| Scope::new(owned.kind, owned.namespaces, ""));
            let read = controller.reads.iter().map(|read| Scope::new(read.kind, read.namespaces, read.labels));
            for scope in [Scope::new(controller.primary, &[], "")].into_iter().chain(owned).chain(read) {
                match scopes.iter_mut().find(|known| known.kind == scope.kind) {
                    Some(known) => known.unite(&scope),
                    None => scopes.push(scope),
                }
            }
        }
        scopes
    }

    /// The controllers of this object's kind.
    fn controllers(&self, object: &Value) -> impl Iterator<Item = &'static Controller> {
        let kind = text(object, "/kind").to_owned();
        self.plugin.controllers.iter().filter(move |each| each.primary.kind == kind)
    }
}

/// The host does not call a controller for an object that its predicate does not select.
fn selected(controller: &Controller, object: &Value) -> Result<(), Failure> {
    let none = Map::new();
    let map = |pointer| object.pointer(pointer).and_then(Value::as_object).unwrap_or(&none);
    let (labels, annotations) = (map("/metadata/labels"), map("/metadata/annotations"));
    let Predicate { labels: wanted, annotations: marks } = &controller.selection;
    let requirements = selector::parse(wanted).map_err(Failure::Terminal)?;
    let is_marked = |(name, value): &(&str, &str)| annotations.get(*name).is_some_and(|found| found == value);
    if requirements.iter().all(|requirement| requirement.holds(labels)) && marks.iter().all(is_marked) {
        return Ok(());
    }
    let name = text(object, "/metadata/name");
    let why = format!("the host would not call the plugin for {name:?}: its labels or annotations are not selected");
    Err(Failure::Terminal(why))
}

pub(super) fn tree<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("an object of a test can be written as JSON")
}

/// The reconciled object, with a UID, as every object in a cluster has one.
fn primary<T: Serialize>(object: &T) -> Value {
    let mut object = tree(object);
    if text(&object, "/metadata/uid").is_empty() {
        let name = text(&object, "/metadata/name");
        object["metadata"]["uid"] = format!("uid-of-{name}").into();
    }
    object
}

impl<S> Outcome<S> {
    /// Whether the condition `Ready` is true. For tests.
    pub fn is_ready(&self) -> bool {
        self.condition_of("Ready").is_some_and(|ready| ready.status == ConditionStatus::True)
    }
}
