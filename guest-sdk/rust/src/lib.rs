//! Write a Kubernetes controller as one pure function, compile it to a WebAssembly component, and let mortise run it.
//!
//! A plugin is a function from an object and a frozen view of the cluster to an [`Outcome`]: the children that should
//! exist, the status, conditions and events. It has no client, no clock and no memory between calls. The host reads,
//! watches, queues, writes and retries. What a reconcile reads is what wakes it again, so there are no watches to
//! set up either.
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
//!     Ok(Outcome::children([Child::new("text", &config)]).ready(true, "Greeted", "the ConfigMap is wanted"))
//! }
//!
//! // The same function runs natively, so `cargo test` needs neither WebAssembly nor a cluster.
//! let greeting = Greeting::new("hello", GreetingSpec { who: "world".into() });
//! let outcome = mortise_sdk::testing::Cluster::of(&PLUGIN).reconcile(&greeting).unwrap();
//! assert_eq!(outcome.child("text").unwrap()["data"]["text"], "Hello, world");
//! ```
//!
//! The manifest that tells the host what the plugin is, and the CustomResourceDefinition with its schema, are derived
//! from the types and attributes: [`derive@CustomResource`], [`macro@reconciler`] and [`derive@Projection`] list what they take.
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
//! and, in `.cargo/config.toml` beside it, a stack of a few pages instead of Rust's 1 MiB, which is otherwise most of
//! what every call gets afresh:
//!
//! ```toml
//! [target.wasm32-wasip2]
//! rustflags = ["-Clink-arg=-zstack-size=131072"]
//! ```
//!
//! # Reading
//!
//! [`Context`] asks for objects as typed as an author likes: a [`derive@Projection`] names the fields that matter and
//! costs the least, since the host sends nothing else and nothing else is parsed; any type with serde's `Deserialize`,
//! such as those of k8s-openapi, reads whole objects through [`Context::owned_of_kind`] and [`Query::of_kind`]; and
//! [`Object`] is a tree with accessors.
//!
//! # Several kinds, and kinds of Kubernetes itself
//!
//! A plugin with several controllers puts [`macro@controller`] on each function and names them in [`plugin!`]. The object
//! that a function is given is of a kind of the plugin's own, or anything that [`derive@Projection`] or serde reads.
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
//! Kubernetes writes the status of its own kinds, so an outcome about a Deployment has neither status nor conditions, and
//! what keeps the host from carrying it out is told by Events alone. What Kubernetes made itself, such as a Deployment's
//! ReplicaSets, is no child of the plugin's even where the plugin owns the kind. Several plugins may reconcile one of
//! these kinds, as long as no two own children of the same kind of it.
//!
//! # Some objects of a kind
//!
//! `labels = "tier=web"` and `annotation("example.com/on", "true")` of a [`macro@controller`] select what it reconciles.
//! An object that does not match costs nothing, and one that ceases to match is left alone as it is: with its children, and
//! with the status that it had. So a controller that has to undo what it did when a mark is taken away selects nothing. It
//! looks at every object of the kind and wants no children of those without the mark, as `adopt` does above.
//!
//! # Writing objects that are no children
//!
//! An [`Action`] is a write to an object that the plugin does not own: `writes("v1/Node", "patch")` declares what may be done
//! to which kind, and [`Outcome::action`] wants it. The same outcome may want the same actions each time, because the host
//! sends only what would change something.
//!
//! # Cleaning up
//!
//! With `finalize` among the arguments of [`macro@reconciler`] an object that somebody deletes does not go before the function
//! has said [`Outcome::finalized`] of it. Children need none of that: they are collected with their owner.
//!
//! ```
//! use mortise_sdk::prelude::*;
//!
//! /// Keeps a Node from getting new Pods for as long as it exists.
//! #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[resource(group = "example.com", version = "v1", kind = "Cordon", cluster)]
//! struct CordonSpec {
//!     /// Which Node.
//!     node: String,
//! }
//!
//! #[reconciler(reads("v1/Node"), writes("v1/Node", "patch"), finalize)]
//! fn reconcile(cordon: &Cordon, cx: &Context) -> Result<Outcome, Failure> {
//!     let goes = cordon.metadata.is_being_deleted();
//!     let node = ObjectKey::new("v1", "Node", None, &cordon.spec.node);
//!     let mut outcome = Outcome::new();
//!     if cx.get_key::<Object>(&node)?.is_some() {
//!         outcome = outcome.action(Patch::merge(node, &json!({"spec": {"unschedulable": !goes}})));
//!     }
//!     Ok(if goes { outcome.finalized() } else { outcome })
//! }
//!
//! let mut cluster = mortise_sdk::testing::Cluster::of(&PLUGIN);
//! cluster.add(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}, "spec": {}}));
//! cluster.settle(&Cordon::new("c", CordonSpec { node: "worker".into() })).unwrap();
//! assert_eq!(cluster.objects("Node")[0]["spec"]["unschedulable"], true);
//! ```
//!
//! # Admission
//!
//! `#[reconciler(admission(mutate = ..., validate = ...))]` names functions that the API server has asked before it stores an
//! object of the reconciled kind: to fill in defaults, and to refuse what is wrong with the field and the reason, which
//! kubectl shows. [`Review`] has an example. The host brings the server, its certificates and the configurations.
//!
//! # Several versions of a kind
//!
//! `#[reconciler(conversion(v1alpha1::Gauge))]` names the other versions of the reconciled kind, each a type of its own in a
//! module of its own, and two `From` (or `TryFrom`) between the specs say how one becomes the other. The API server then
//! serves all of them: whoever asks for one gets it, whichever an object was written in, and the function is called with
//! the reconciled one, in which objects are stored. [`IntoVersion`] has an example.
//!
//! # Features
//!
//! `bump-allocator` (on by default, only has an effect on wasm32): every call runs in a fresh instance whose memory is
//! thrown away as a whole, so the allocator only moves a pointer and frees nothing but the newest allocation. Turn it
//! off for a plugin that allocates and frees many times its memory limit within one call, or that brings its own
//! `#[global_allocator]`.
//!
//! # What a plugin must not do
//!
//! Nothing here reads a clock or draws a random number, and a plugin should not either: the host gives fixed values to
//! whoever asks WASI, because the same inputs have to give the same outcome. Time is [`Context::now_unix_ms`], and the host
//! knows when a cron expression fires in a time zone: [`Context::next_tick`].
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod action;
mod admission;
#[doc(hidden)]
pub mod admission_bindings;
#[cfg(all(feature = "bump-allocator", target_arch = "wasm32"))]
mod arena;
#[doc(hidden)]
pub mod bindings;
mod context;
mod conversion;
#[doc(hidden)]
pub mod conversion_bindings;
mod definition;
mod error;
mod export;
mod json;
pub mod log;
mod manifest;
mod name;
mod object;
mod outcome;
mod query;
mod scan;
mod schema;
mod status;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod text;
mod timestamp;
mod view;

pub use action::{Action, Apply, Delete, Patch, PatchKind, Propagation};
pub use admission::{Admission, Completed, Operation, Review, Verdict, Violation};
pub use context::{Context, LatestTick};
pub use conversion::{IntoVersion, NoStatus, Version, Versioned};
pub use error::{Failure, ReadError, ScheduleError};
pub use json::{Json, RawJson};
pub use manifest::{Controller, Limits, Owned, Plugin, Predicate, Update, Verb, Write};
pub use mortise_sdk_macros::{CustomResource, Projection, controller, plugin, reconciler};
pub use name::child_name;
pub use object::{CHILD_KEY_ANNOTATION, Kind, Object, ObjectKey, ObjectMeta, PodTemplate, Resource};
pub use outcome::{Child, Condition, ConditionStatus, Event, MAX_CHILDREN, Outcome, Severity};
pub use query::{FieldValue, Query};
pub use scan::{FromJson, Scanner};
pub use serde_json::{Value, json};
pub use status::Status;
pub use timestamp::Timestamp;

/// What nearly every plugin imports.
pub mod prelude {
    pub use crate::{
        Action, Apply, Child, Condition, Context, CustomResource, Delete, Event, Failure, Json, Object, ObjectKey,
        ObjectMeta, Outcome, Patch, PodTemplate, Projection, Query, RawJson, Resource, Review, Status, Timestamp,
        Verdict, Violation, child_name, controller, json, plugin, reconciler,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}

/// What the macros' expansions name. No part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::admission::{mutate as run_mutate, validate as run_validate};
    pub use crate::admission_bindings;
    pub use crate::bindings;
    pub use crate::conversion::version;
    pub use crate::conversion_bindings;
    pub use crate::definition::{Column, Definition, Scale, schema_of};
    #[cfg(target_arch = "wasm32")]
    pub use crate::export::{convert, mutate, validate};
    pub use crate::export::{manifest, reconcile};
    pub use crate::manifest::run;
    pub use crate::object::{parts, status};
    pub use crate::scan::{Found, FromJson, Part, Reason, Scanner, Wanted};
    pub use crate::scan::{optional, optional_text, required, required_text};
    pub use serde;
}

/// The plugin of the project's README is compiled as a doctest, so that it cannot rot.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
