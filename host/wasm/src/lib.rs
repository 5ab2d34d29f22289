//! Runs plugins: WebAssembly components behind bounds. Bytes come in, outcomes in the core's own types go out.
//!
//! The way of a component: [`scan`] refuses what no compiler should see, [`compile`] turns it into native code in a
//! child process, [`engine::Engine::load`] links and tries it, [`plugin::Plugin::call`] reconciles one object in a
//! fresh instance or asks about one before it is stored, and [`workers`] does so on threads of their own. This crate must
//! not know Kubernetes clients, tokio or where plugins come from; nothing outside it sees a wasmtime or a generated type.

mod admission;
mod bindings;
pub mod compile;
mod conversion;
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
