//! What belongs to one call: its inputs, its handles, its log, and how much it has used of its bounds. The interfaces that
//! a guest imports are implemented on it, in `host.rs` and `wasi.rs`.

use std::sync::Arc;

use mortise_core::limits::CallLimits;
use mortise_core::view::View;
use wasmtime::component::{Resource, ResourceTable};

use crate::bindings::Snapshot;
use crate::limiter::Limiter;
use crate::log::Log;
use crate::machine::Virtual;

/// Handles that one call may hold at once: its snapshot, streams, pollables. Real guests hold fewer than ten.
const MAX_HANDLES: usize = 64;

/// What a text counts beside its characters, so that many empty ones are not free: pointer and length, as they cross.
const TEXT_BYTES: u64 = 8;

/// The guest went over a bound of its host calls; ends the call.
#[derive(Debug, thiserror::Error)]
#[error("the call made more than {limit} calls into the host; use `list` instead of many `get`s, and log less")]
pub(crate) struct TooManyHostCalls {
    limit: u32,
}

/// The guest's questions have more bytes together than they may; ends the call.
#[derive(Debug, thiserror::Error)]
#[error(
    "the questions of the call have more than {limit} bytes together; ask for fewer field paths, or for many objects at \
     once with `list`"
)]
pub(crate) struct QuestionsTooLarge {
    limit: u64,
}

/// What a call depends on, beside what it is called with.
pub(crate) enum Inputs {
    /// Nothing: a manifest is asked for.
    None,
    /// A view of the cluster, with a time and a configuration.
    View(View),
    /// A time and a configuration: the API server asks about an object.
    Request { now_unix_ms: u64, config: Arc<str> },
}

/// Everything that belongs to one call. Lives in its store and goes with it.
pub(crate) struct CallState {
    pub(crate) table: ResourceTable,
    pub(crate) limiter: Limiter,
    pub(crate) log: Log,
    pub(crate) wasi: Virtual,
    pub(crate) inputs: Inputs,
    host_calls: u32,
    max_host_calls: u32,
    question_bytes: u64,
    max_question_bytes: u64,
}

impl CallState {
    pub(crate) fn new(inputs: Inputs, limits: &CallLimits, seed: u64) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        Self {
            table,
            limiter: Limiter::new(limits.memory_bytes),
            log: Log::new(limits),
            wasi: Virtual::new(limits.log_bytes, seed),
            inputs,
            host_calls: 0,
            max_host_calls: limits.host_calls,
            question_bytes: 0,
            max_question_bytes: limits.question_bytes,
        }
    }

    /// The view, the log, and how many host calls were made.
    pub(crate) fn into_parts(self) -> (Option<View>, Log, u32) {
        let view = match self.inputs {
            Inputs::View(view) => Some(view),
            Inputs::None | Inputs::Request { .. } => None,
        };
        (view, self.log, self.host_calls)
    }

    /// Counts one call of the guest into the host.
    pub(crate) fn count(&mut self) -> wasmtime::Result<()> {
        if self.host_calls >= self.max_host_calls {
            return Err(TooManyHostCalls { limit: self.max_host_calls }.into());
        }
        self.host_calls += 1;
        Ok(())
    }

    /// Unix milliseconds of the call. Asking makes the time an input of the call.
    pub(crate) fn now_unix_ms(&mut self) -> u64 {
        match &mut self.inputs {
            Inputs::None => 0,
            Inputs::View(view) => view.now_unix_ms(),
            Inputs::Request { now_unix_ms, .. } => *now_unix_ms,
        }
    }

    /// The view behind a handle, for a question that came with these texts.
    pub(crate) fn ask<'t>(
        &mut self,
        handle: &Resource<Snapshot>,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> wasmtime::Result<&mut View> {
        self.count()?;
        self.question_bytes += texts.into_iter().map(|text| text.len() as u64 + TEXT_BYTES).sum::<u64>();
        if self.question_bytes > self.max_question_bytes {
            return Err(QuestionsTooLarge { limit: self.max_question_bytes }.into());
        }
        self.table.get(handle)?;
        match &mut self.inputs {
            Inputs::View(view) => Ok(view),
            Inputs::None | Inputs::Request { .. } => {
                unreachable!("a handle to a snapshot is only given out with a view")
            }
        }
    }
}
