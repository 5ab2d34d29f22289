//! The state of one call: its inputs, handles and log, and what it has used of its bounds. `host.rs` and `wasi.rs`
//! implement the guest's imports on it.

use std::sync::Arc;
use std::time::Instant;

use mortise_core::limits::CallLimits;
use mortise_core::object::Kind;
use mortise_core::view::View;
use wasmtime::component::{Resource, ResourceTable};

use crate::bindings::Snapshot;
use crate::deadline::Deadline;
use crate::limiter::Limiter;
use crate::log::Log;
use crate::machine::Virtual;

/// Handles that one call may hold at once: its snapshot, streams, pollables. Real guests hold fewer than ten.
const MAX_HANDLES: usize = 64;

/// Added to the length of each string, so that many empty ones are not free: its pointer and length in the guest's
/// memory.
const TEXT_BYTES: u64 = 8;

/// Ends the call.
#[derive(Debug, thiserror::Error)]
#[error("the call made more than {limit} calls into the host; use `list` instead of many `get`s, and log less")]
pub(crate) struct TooManyHostCalls {
    limit: u32,
}

/// Ends the call.
#[derive(Debug, thiserror::Error)]
#[error(
    "the queries of the call have more than {limit} bytes together; request fewer field paths, or many objects at once \
     with `list`"
)]
pub(crate) struct QueriesTooLarge {
    limit: u64,
}

/// Ends the call.
#[derive(Debug, thiserror::Error)]
#[error("the call waits for the host to list {0}")]
pub(crate) struct WaitsForKind(pub(crate) Kind);

/// What a call depends on beside its arguments.
#[expect(clippy::large_enum_variant, reason = "each call has one")]
pub(crate) enum Inputs {
    /// The call of `manifest` depends on nothing.
    None,
    /// A reconcile: a view of the cluster, with a time and a configuration.
    View(View),
    /// A request of the API server: a time and a configuration.
    Request { now_unix_ms: u64, config: Arc<str> },
}

/// The data of a call's store.
pub(crate) struct CallState {
    pub(crate) table: ResourceTable,
    pub(crate) limiter: Limiter,
    pub(crate) log: Log,
    pub(crate) wasi: Virtual,
    pub(crate) inputs: Inputs,
    pub(crate) deadline: Deadline,
    host_calls: u32,
    max_host_calls: u32,
    query_bytes: u64,
    max_query_bytes: u64,
}

impl CallState {
    /// Of a call that begins now and ends at an instant in any case.
    pub(crate) fn new(inputs: Inputs, limits: &CallLimits, began: Instant, until: Instant) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        Self {
            table,
            limiter: Limiter::new(limits.memory_bytes),
            log: Log::new(limits),
            wasi: Virtual::new(limits.log_bytes),
            inputs,
            deadline: Deadline::new(limits, began, until),
            host_calls: 0,
            max_host_calls: limits.host_calls,
            query_bytes: 0,
            max_query_bytes: limits.query_bytes,
        }
    }

    /// The view, the log and the number of host calls.
    pub(crate) fn into_parts(self) -> (Option<View>, Log, u32) {
        let view = match self.inputs {
            Inputs::View(view) => Some(view),
            Inputs::None | Inputs::Request { .. } => None,
        };
        (view, self.log, self.host_calls)
    }

    /// Counts a host call.
    pub(crate) fn count(&mut self) -> wasmtime::Result<()> {
        if self.host_calls >= self.max_host_calls {
            return Err(TooManyHostCalls { limit: self.max_host_calls }.into());
        }
        self.host_calls += 1;
        Ok(())
    }

    /// Unix milliseconds of the call. Reading it makes the time an input of the call.
    pub(crate) fn now_unix_ms(&mut self) -> u64 {
        match &mut self.inputs {
            Inputs::None => 0,
            Inputs::View(view) => view.now_unix_ms(),
            Inputs::Request { now_unix_ms, .. } => *now_unix_ms,
        }
    }

    /// The view behind a handle, for a query of these strings, which count.
    pub(crate) fn query(
        &mut self,
        handle: &Resource<Snapshot>,
        texts: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> wasmtime::Result<&mut View> {
        self.count()?;
        self.query_bytes += texts.into_iter().map(|text| text.as_ref().len() as u64 + TEXT_BYTES).sum::<u64>();
        if self.query_bytes > self.max_query_bytes {
            return Err(QueriesTooLarge { limit: self.max_query_bytes }.into());
        }
        self.table.get(handle)?;
        match &mut self.inputs {
            Inputs::View(view) => Ok(view),
            Inputs::None | Inputs::Request { .. } => {
                unreachable!("only a call with a view gets a handle to a snapshot")
            }
        }
    }
}
