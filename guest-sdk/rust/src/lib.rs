//! Write a Kubernetes controller as one pure function, compile it to a WebAssembly component, and let mortise run it.
//!
//! A plugin is a function from an object and a frozen view of the cluster to an [`Outcome`]: the children that should
//! exist, the status, conditions and events. It has no client, no clock and no memory between calls. The host reads,
//! watches, queues, writes and retries. It records what a call reads, and calls again when that changes, so a plugin
//! sets up no watches.
//!
//! ```
//! use mortise_sdk::prelude::*;
//!
//! /// Keeps one ConfigMap with a greeting.
//! #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[resource(group = "example.com", version = "v1", kind = "Greeting", column(name = "Who", path = ".spec.who"))]
//! struct GreetingSpec {
//!     /// Who is greeted.
//!     who: String,
//! }
//!
//! #[reconciler(owns("v1/ConfigMap"))]
//! fn reconcile(greeting: &Greeting, _cx: &Context) -> Result<Outcome, Failure> {
//!     let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": format!("Hello, {}", greeting.spec.who)}});
//!     Ok(Outcome::children([Child::new("text", config)]).ready(true, "Greeted", "there is one ConfigMap"))
//! }
//!
//! // The same function runs natively, so `cargo test` needs neither WebAssembly nor a cluster.
//! let greeting = Greeting::new("hello", GreetingSpec { who: "world".into() });
//! let outcome = mortise_sdk::testing::Cluster::of(&PLUGIN).reconcile(&greeting).unwrap();
//! assert_eq!(outcome.child("text").unwrap()["data"]["text"], "Hello, world");
//! ```
//!
//! The guide, docs/guide in the repository, leads from an empty folder to an object in a cluster, and has a chapter for
//! each part of a plugin; this is the reference.
//!
//! The manifest, which the host reads, and the CustomResourceDefinition with its schema are derived from the types and
//! attributes. [`derive@CustomResource`], [`macro@reconciler`] and [`derive@Projection`] list their arguments.
//!
//! # Building
//!
//! A plugin is a `cdylib` (add `rlib` for examples and integration tests) that depends on `mortise-sdk`, `serde` and
//! `schemars`. `cargo build --release --target wasm32-wasip2` writes the component. For a small and fast one:
//!
//! ```toml
//! [profile.release]
//! opt-level = "s"
//! lto = true
//! codegen-units = 1
//! panic = "abort"
//! strip = true
//! ```
//!
//! and, in `.cargo/config.toml` beside it, a smaller stack than Rust's 1 MiB, which is otherwise most of the memory
//! that the host provides for each call:
//!
//! ```toml
//! [target.wasm32-wasip2]
//! rustflags = ["-Clink-arg=-zstack-size=131072"]
//! ```
//!
//! # Reading
//!
//! [`Context`] reads objects into types of the author's choice. A [`derive@Projection`] names fields and costs the
//! least: the host sends only these, and only these are parsed. Any type with serde's `Deserialize`, such as those of
//! k8s-openapi, reads whole objects through [`Context::owned_of_kind`] and [`Query::of_kind`]. [`Object`] is a tree
//! with accessors.
//!
//! A [`Query`] selects by namespace, by labels ([`Query::selector`]) and by the values of fields ([`Query::field`]). A
//! narrow query is cheaper, and also causes fewer calls: only objects that match it, or did, wake the reconciled
//! object.
//!
//! A kind that the object names, as a `targetRef` does, is read by text with [`Context::get_key_fields`] or
//! [`Query::of_kind`], when a pattern such as `reads("apps/v1/*")` has it.
//!
//! ```
//! use mortise_sdk::prelude::*;
//! use mortise_sdk::testing::Cluster;
//!
//! /// Counts the Pods of a Node.
//! #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[resource(group = "example.com", version = "v1", kind = "PodCount", status = PodCountStatus, cluster)]
//! struct PodCountSpec {
//!     node: String,
//! }
//!
//! #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! struct PodCountStatus {
//!     pods: usize,
//! }
//!
//! #[reconciler(reads("v1/Pod"))]
//! fn reconcile(count: &PodCount, cx: &Context) -> Result<Outcome<PodCountStatus>, Failure> {
//!     let on_node = Query::<Object>::of_kind("v1", "Pod").field("spec.nodeName", &count.spec.node);
//!     Ok(Outcome::new().status(&PodCountStatus { pods: cx.count(&on_node)? }))
//! }
//!
//! let mut cluster = Cluster::of(&PLUGIN);
//! for (name, node) in [("a", "worker-1"), ("b", "worker-2")] {
//!     let metadata = json!({"name": name, "namespace": "default"});
//!     cluster.add(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}));
//! }
//! let count = PodCount::new("c", PodCountSpec { node: "worker-1".into() });
//! assert_eq!(cluster.reconcile(&count).unwrap().status_value()["pods"], 1);
//! ```
//!
//! `reads("v1/Secret", namespaces = ["shared"], labels = "app=web")` declares a part of a kind. The host watches, caches and
//! shows no more, and needs rights in these namespaces alone. A read that names another namespace is
//! [`ReadError::Undeclared`]; an object without the labels reads as absent.
//!
//! # Children that are replaced
//!
//! A child that is being deleted, by a person, by the garbage collector or because the plugin wants another one, is
//! replaced when it is gone, as with a StatefulSet. With `owns("v1/Pod", replace = "at-once")` the host creates its
//! successor while it terminates, as with a ReplicaSet. Both have the same key and different names. [`Context::owned`]
//! has both, [`Context::children`] the new one; `metadata.deletionTimestamp` tells them apart. At most one of a key is
//! without it at any time. A child whose `metadata.name` the plugin sets is always replaced when it is gone.
//!
//! Before the first such child the host annotates the reconciled object, for which it needs the right to patch it;
//! `mortise rbac` prints that. In the first 30 s after a start of the host, when creates of a former one may still
//! appear, no child is replaced at once, and missing children of annotated objects wait.
//!
//! # Several kinds, and built-in kinds
//!
//! A plugin with several controllers puts [`macro@controller`] on each function and names them in [`plugin!`]. A
//! function takes an object of a kind of the plugin's own, or any type that [`derive@Projection`] or serde reads.
//!
//! ```
//! use mortise_sdk::prelude::*;
//!
//! plugin!(adopt, report);
//!
//! #[derive(Projection)]
//! #[projection("apps/v1/Deployment")]
//! struct Deployment<'a> {
//!     #[field("metadata.name")]
//!     name: &'a str,
//!     #[field("metadata.annotations[\"example.com/note\"]")]
//!     note: Option<String>,
//! }
//!
//! #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[resource(group = "example.com", version = "v1", kind = "Note")]
//! struct NoteSpec {
//!     about: String,
//! }
//!
//! /// A Note beside each Deployment that is annotated with one.
//! #[controller(owns(Note))]
//! fn adopt(deployment: &Deployment, _cx: &Context) -> Result<Outcome, Failure> {
//!     let note = |about: &String| Note::wanted(deployment.name, NoteSpec { about: about.clone() });
//!     Ok(Outcome::children(deployment.note.iter().map(|about| Child::new("note", &note(about)))))
//! }
//!
//! #[controller]
//! fn report(note: &Note, _cx: &Context) -> Result<Outcome, Failure> {
//!     Ok(Outcome::new().ready(!note.spec.about.is_empty(), "Noted", "see spec.about"))
//! }
//! ```
//!
//! Kubernetes writes the status of built-in kinds, so an outcome for a Deployment has neither status nor conditions,
//! and the host reports errors as Events alone, and those of objects without a namespace in its log. Objects that
//! Kubernetes created, such as a Deployment's ReplicaSets, are not children of the plugin, even if it owns that kind.
//! Several plugins may reconcile a built-in kind, as long as no two of them own children of the same kind.
//!
//! # Some objects of a kind
//!
//! `labels = "tier=web"` and `annotation("example.com/on", "true")` of a [`macro@controller`] are its predicate: it
//! reconciles only objects that match. When an object ceases to match, its children and its status stay as they are. So
//! a controller that has to undo its work when an annotation is removed needs to reconcile all objects of the kind, and
//! want no children for those without the annotation, as `adopt` does above.
//!
//! # Writing objects that are not children
//!
//! An [`Action`] is a write to an object that the plugin does not own. `writes("v1/Node", "patch")` declares the kind
//! and the verb, and [`Outcome::action`] adds the write. An outcome may contain the same actions each time: the host
//! sends those that would change something.
//!
//! # Children in other namespaces
//!
//! A child is in the namespace of its owner, or in any if the owner is cluster-scoped: Kubernetes knows no owners in other
//! namespaces. `namespaces = "any"` in `owns(...)` lifts that for a kind, and `namespaces = ["shared"]` for some. Its
//! children have no owner reference; the host marks them, shows them to [`Context::owned`] like others, and deletes
//! them before their owner is gone, which has the plugin's finalizer for that. An object that has a child's name and is
//! not marked is never touched. A user who may create the owner has the plugin write wherever the plugin names a
//! namespace, so name them with care. In the host's own namespace only owners in it have children: a child there is
//! refused like one whose name is taken.
//!
//! ```
//! use mortise_sdk::prelude::*;
//!
//! /// A ConfigMap in every Namespace that a selector matches.
//! #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[resource(group = "example.com", version = "v1", kind = "Everywhere")]
//! struct EverywhereSpec {
//!     /// As in `kubectl get -l`.
//!     selector: String,
//!     data: std::collections::BTreeMap<String, String>,
//! }
//!
//! #[derive(Projection)]
//! #[projection("v1/Namespace")]
//! struct Namespace<'a> {
//!     #[field("metadata.name")]
//!     name: &'a str,
//!     #[field("status.phase")]
//!     phase: Option<&'a str>,
//! }
//!
//! #[reconciler(owns("v1/ConfigMap", namespaces = "any"), reads("v1/Namespace"))]
//! fn reconcile(everywhere: &Everywhere, cx: &Context) -> Result<Outcome, Failure> {
//!     let selected = cx.list(&Query::<Namespace>::new().selector(&everywhere.spec.selector))?;
//!     // Nothing can be created in a Namespace that is being deleted.
//!     let open = selected.iter().filter(|namespace| namespace.phase != Some("Terminating"));
//!     Ok(Outcome::children(open.map(|namespace| {
//!         let metadata = json!({"namespace": namespace.name, "name": everywhere.metadata.name});
//!         let copy = json!({"metadata": metadata, "data": everywhere.spec.data});
//!         Child::new(namespace.name, Json::of_kind("v1", "ConfigMap", &copy))
//!     })))
//! }
//!
//! let mut cluster = mortise_sdk::testing::Cluster::of(&PLUGIN);
//! for (name, tier) in [("shop", "web"), ("ledger", "data"), ("blog", "web")] {
//!     cluster.add(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"tier": tier}}}));
//! }
//! let settings = EverywhereSpec { selector: "tier=web".into(), data: Default::default() };
//! let outcome = cluster.reconcile(&Everywhere::new("settings", settings)).unwrap();
//! assert_eq!(outcome.child_keys(), ["blog", "shop"]);
//! assert_eq!(outcome.child("shop").unwrap()["metadata"]["namespace"], "shop");
//! ```
//!
//! # Children that exist already
//!
//! `adopt = true` in `owns(...)` and [`Child::adopt`] make an object of the child's name a child, if nothing controls it.
//!
//! # Cleaning up
//!
//! With `finalize = true` among the arguments of [`macro@reconciler`] the host keeps a finalizer on the object: a deleted
//! object exists until the function returns [`Outcome::finalized`]. Children need no finalizer: Kubernetes collects
//! them with their owner, and the host deletes those in other namespaces.
//!
//! ```
//! use mortise_sdk::prelude::*;
//!
//! /// Keeps a Node from getting new Pods for as long as the Cordon exists.
//! #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[resource(group = "example.com", version = "v1", kind = "Cordon", cluster)]
//! struct CordonSpec {
//!     /// The name of the Node.
//!     node: String,
//! }
//!
//! #[reconciler(reads("v1/Node"), writes("v1/Node", "patch"), finalize = true)]
//! fn reconcile(cordon: &Cordon, cx: &Context) -> Result<Outcome, Failure> {
//!     let deleted = cordon.metadata.is_being_deleted();
//!     let node = ObjectKey::new("v1", "Node", None, &cordon.spec.node);
//!     let mut outcome = Outcome::new();
//!     if cx.get_key::<Object>(&node)?.is_some() {
//!         outcome = outcome.action(Patch::merge(node, json!({"spec": {"unschedulable": !deleted}})));
//!     }
//!     Ok(if deleted { outcome.finalized() } else { outcome })
//! }
//!
//! let mut cluster = mortise_sdk::testing::Cluster::of(&PLUGIN);
//! cluster.add(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}, "spec": {}}));
//! let outcome = cluster.reconcile(&Cordon::new("c", CordonSpec { node: "worker".into() })).unwrap();
//! let node = ObjectKey::new("v1", "Node", None, "worker");
//! assert_eq!(outcome.actions, [Action::from(Patch::merge(node, json!({"spec": {"unschedulable": true}})))]);
//! ```
//!
//! # Passwords and certificates
//!
//! [`Child::generate`] puts a password, random bytes or a certificate into a Secret. The host makes the value, and no
//! plugin sees it.
//!
//! ```
//! use mortise_sdk::prelude::*;
//!
//! /// A Secret with a password.
//! #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[resource(group = "example.com", version = "v1", kind = "Login")]
//! struct LoginSpec {
//!     /// A new text asks for a new password.
//!     rotation: String,
//! }
//!
//! #[reconciler(owns("v1/Secret"))]
//! fn reconcile(login: &Login, cx: &Context) -> Result<Outcome, Failure> {
//!     let secrets = cx.owned_of_kind::<Object>("v1", "Secret", &[])?;
//!     assert!(secrets.iter().all(|secret| secret.str_at("data.password") == Some("")), "it is not shown");
//!     let password = Generated::alphanumeric(32).rotation(login.spec.rotation.as_str());
//!     let secret = Child::new("login", json!({"apiVersion": "v1", "kind": "Secret"})).generate("data.password", password);
//!     Ok(Outcome::children([secret]))
//! }
//!
//! let mut cluster = mortise_sdk::testing::Cluster::of(&PLUGIN);
//! let login = Login::new("a", LoginSpec { rotation: String::new() });
//! // As the host made it: the annotation says which values are its own.
//! let metadata = json!({"annotations": {"mortise.dev/generated": r#"{"password": {"rotation": ""}}"#}});
//! let made = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": "c2VjcmV0"}});
//! let outcome = cluster.add_child(&login, "login", &made).reconcile(&login).unwrap();
//! assert_eq!(outcome.child_keys(), ["login"]);
//! ```
//!
//! # HTTP
//!
//! A [`Request`] in an outcome is an HTTP request that the host sends, and [`Context::response`] is its response, in a later
//! call. So a plugin can keep something outside of the cluster as its objects want it, though a reconcile never waits and
//! can be replayed. `http("https://api.example.com", "GET", "PUT")` among the arguments of [`macro@reconciler`] declares
//! where requests may be sent, and an administrator allows them with `mortise run --allow-http`. [`Request`] has an example,
//! and says when a request is sent and repeated.
//!
//! # Admission
//!
//! `#[reconciler(admission(mutate = ..., validate = ...))]` names functions that run before the API server stores an
//! object of the reconciled kind. One sets defaults, the other refuses invalid objects with field and reason, which
//! kubectl shows. [`Review`] has an example. The host runs the webhook server and manages its certificates and webhook
//! configurations.
//!
//! # Several versions of a kind
//!
//! `#[reconciler(conversion(v1alpha1::Gauge))]` names the other versions of the reconciled kind. Each is a type of its
//! own in a module of its own, and two `From` (or `TryFrom`) between the specs convert them. The API server serves
//! every version of every object. It stores the reconciled version, which is the one that the function is called with.
//! [`IntoVersion`] has an example.
//!
//! # Features
//!
//! `bump-allocator` (on by default, only has an effect on wasm32): every call runs in a fresh instance whose memory is
//! discarded as a whole, so the allocator advances a pointer and frees only the newest allocation. Turn it off for a
//! plugin that allocates and frees many times its memory limit within one call, or that has its own
//! `#[global_allocator]`.
//!
//! # What a plugin must not do
//!
//! The same inputs have to give the same outcome. So the host refuses a plugin that imports random numbers when it
//! loads it, and WASI's clocks show a fixed time. [`Context::now_unix_ms`] is the time, [`Context::next_tick`] evaluates
//! a cron expression in a time zone, and [`child_name`] and [`stable_hash`] tell objects apart.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod action;
mod admission;
#[doc(hidden)]
pub mod admission_bindings;
#[cfg(all(feature = "bump-allocator", target_arch = "wasm32"))]
mod arena;
#[doc(hidden)]
pub mod bindings;
mod conditions;
mod context;
mod conversion;
#[doc(hidden)]
pub mod conversion_bindings;
mod definition;
#[cfg(all(feature = "stories", not(target_arch = "wasm32")))]
mod engine_contract;
mod error;
mod export;
mod generated;
mod hash;
mod http;
mod json;
pub mod log;
mod manifest;
mod name;
mod object;
mod outcome;
mod query;
mod rejection;
mod scan;
mod schema;
mod status;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod text;
mod timestamp;
mod values;
mod view;

pub use action::{Action, Apply, Delete, Patch, PatchKind, Propagation};
pub use admission::{Admission, Completed, Operation, Review, Verdict, Violation};
pub use conditions::{Condition, ConditionStatus, Conditions, ReadCondition};
pub use context::{Context, LatestTick};
pub use conversion::{IntoVersion, NoStatus, Version, Versioned};
pub use error::{Failure, ReadError, ScheduleError, ValueError};
pub use generated::{Generated, Recipe};
pub use hash::stable_hash;
pub use http::{FailureClass, Method, Request, RequestFailure, Response};
pub use json::{Json, RawJson};
pub use manifest::{Controller, Http, Limits, Owned, Plugin, Predicate, Read, Replace, Update, Verb, Write};
pub use mortise_sdk_macros::{CustomResource, Projection, controller, plugin, reconciler};
pub use name::child_name;
pub use object::{CHILD_KEY_ANNOTATION, HasStatus, Kind, Object, ObjectKey, ObjectMeta, PodTemplate, Resource};
pub use outcome::{Child, Event, Handling, MAX_CHILDREN, Outcome, Severity};
pub use query::{FieldValue, Query};
pub use rejection::Rejection;
pub use scan::{FromJson, Scanner};
pub use serde_json::{Value, json};
pub use status::Status;
pub use timestamp::Timestamp;
pub use values::{GoDuration, IntOrString, LabelSelector, Operator, Quantity, Requirement};

/// What nearly every plugin imports.
pub mod prelude {
    pub use crate::{
        Action, Apply, Child, Condition, Conditions, Context, CustomResource, Delete, Event, Failure, Generated, Json,
        LabelSelector, Object, ObjectKey, ObjectMeta, Outcome, Patch, PodTemplate, Projection, Query, RawJson,
        Resource, Review, Status, Timestamp, Value, Verdict, Violation, child_name, controller, json, plugin,
        reconciler, stable_hash,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}

/// For the expansions of the macros. Not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::admission::{mutate as run_mutate, validate as run_validate};
    pub use crate::admission_bindings;
    pub use crate::bindings;
    pub use crate::conversion::version;
    pub use crate::conversion_bindings;
    pub use crate::definition::{Column, Definition, Scale, schema_of};
    #[cfg(target_arch = "wasm32")]
    pub use crate::export::{mutate, reconcile, validate};
    pub use crate::manifest::{run, run_any};
    pub use crate::object::{parts, status};
    pub use crate::scan::{Found, FromJson, Part, Reason, Scanner, Wanted};
    pub use crate::scan::{optional, optional_text, required, required_text};
    pub use serde;
}

/// Compiles the plugin of the project's README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
mod guide;
