//! Where reads go: to the host on wasm32, to an in-memory cluster in native tests. The two have the same
//! questions, so nothing above this file knows which one it talks to.

#[cfg(target_arch = "wasm32")]
pub(crate) use host::View;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::View;
pub(crate) use questions::Questions;

#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native;
mod questions;
