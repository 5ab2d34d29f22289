//! The virtual machine of one call: what the guest writes to stdout and stderr, and the handles of WASI that it uses.
//! `wasi.rs` gives it to guests.

use std::sync::{Arc, Mutex, PoisonError};

use wasmtime_wasi::WasiCtx;

use crate::log::Tail;

pub(crate) struct Virtual {
    pub(crate) stdout: Option<SharedTail>,
    pub(crate) stderr: Option<SharedTail>,
    pub(crate) stdio_bytes: usize,
    /// wasmtime-wasi's own state, for terminals, files and sockets. Built at their first use.
    pub(crate) context: Option<Box<WasiCtx>>,
}

/// What a guest wrote to one stream, shared by the stream's handles and the call's state.
pub(crate) type SharedTail = Arc<Mutex<Tail>>;

impl Virtual {
    pub(crate) fn new(stdio_bytes: u64) -> Self {
        let stdio_bytes = usize::try_from(stdio_bytes).unwrap_or(usize::MAX);
        Self { stdout: None, stderr: None, stdio_bytes, context: None }
    }

    /// The end of what the guest wrote to stdout.
    pub(crate) fn stdout(&self) -> String {
        text_of(self.stdout.as_ref())
    }

    /// The end of what the guest wrote to stderr.
    pub(crate) fn stderr(&self) -> String {
        text_of(self.stderr.as_ref())
    }
}

fn text_of(tail: Option<&SharedTail>) -> String {
    tail.map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner).text()).unwrap_or_default()
}
