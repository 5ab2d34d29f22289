//! The inputs of a call: from the host on wasm32, from what a test wrote down in native builds. Both modules have the
//! same types with the same functions, so code above this file is the same for both.

#[cfg(target_arch = "wasm32")]
pub(crate) use host::{Inputs, View};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::{Inputs, View};

#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native;
