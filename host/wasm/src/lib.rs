//! Runs plugins: bounded WebAssembly components. Bytes come in, outcomes in mortise-core's types go out.
//!
//! The path of a component: [`scan`] refuses what no compiler should see, [`compile`] turns it into native code in a
//! child process, [`engine::Engine::load`] links and tries it, [`plugin::Plugin`] makes one call in a fresh instance,
//! and [`workers`] schedules the calls on threads. This crate must not know Kubernetes clients, tokio or where plugins
//! come from; nothing outside it sees a type of wasmtime or a generated one.

mod admission;
mod bindings;
pub mod compile;
pub mod container;
mod conversion;
mod deadline;
pub mod engine;
mod exports;
mod fault;
mod host;
mod limiter;
pub mod log;
mod machine;
mod outcome;
pub mod plugin;
pub mod scan;
mod state;
#[cfg(test)]
mod testing;
mod wasi;
pub mod workers;
