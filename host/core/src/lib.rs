//! The decisions of mortise. Events come in, effects go out, time is an argument.
//!
//! This crate must not know tokio, kube, wasmtime, a clock, randomness or any I/O: the same [`engine::Engine`] runs in
//! the host and in the simulator. Read `engine.rs` first, then `event.rs` for its events and effects.

pub mod admission;
#[cfg(test)]
mod allocations;
pub mod audit;
pub mod availability;
pub mod backoff;
pub mod breaker;
mod budget;
pub mod call;
pub mod certificates;
pub mod component;
pub mod contract;
pub mod conversion;
pub mod crd;
pub mod dependencies;
pub mod dependency_index;
pub mod digest;
pub mod dynamic_kind;
pub mod engine;
pub mod event;
pub mod eviction;
pub mod expectation;
pub mod field_selector;
pub mod finalizer;
pub mod generated;
pub mod grants;
pub mod http;
pub mod json;
pub mod kind_pattern;
pub mod kube_event;
pub mod lease;
pub mod limits;
pub mod manifest;
mod map;
mod metadata;
pub mod object;
pub mod observation;
pub mod own_fields;
pub mod permission;
pub mod plan;
pub mod plugin_object;
pub mod projection;
pub mod query;
pub mod refusal;
pub mod rejection;
pub mod response;
pub mod rights;
pub mod scope;
pub mod selector;
pub mod service_account;
pub mod status;
pub mod store;
pub mod successor_mark;
pub mod tenant;
pub mod text;
pub mod time;
mod token_bucket;
pub mod view;
pub mod watch;
pub mod watch_stream;
pub mod webhook;
pub mod well_known;
pub mod workqueue;
pub mod write;
