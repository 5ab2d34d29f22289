//! The contract's imports: what a guest may ask of the host during one call. Each answer comes from the call's own
//! [`View`], or follows from the question alone; nothing here reaches beyond it.

use std::sync::Arc;

use mortise_core::limits::CallLimits;
use mortise_core::object::{Kind, ObjectRef};
use mortise_core::view::View;
use wasmtime::component::{HasSelf, Linker, Resource, ResourceTable};

use crate::bindings::Snapshot;
use crate::bindings::mortise::host::cluster::{AccessError, Host as ClusterHost, HostSnapshot, Query};
use crate::bindings::mortise::host::objects::{Host as ObjectsHost, ObjectKey};
use crate::bindings::mortise::host::{clock, cluster, config, log, objects, schedule};
use crate::bindings::mortise::plugin::desired;
use crate::limiter::Limiter;
use crate::log::{Log, LogLevel};
use crate::wasi::Virtual;

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
    inputs: Inputs,
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
    fn ask<'t>(
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

/// Adds the contract's imports.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    fn same(state: &mut CallState) -> &mut CallState {
        state
    }
    objects::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    cluster::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    clock::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    schedule::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    config::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    log::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    desired::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    Ok(())
}

/// Everything in a query whose length the guest chooses.
fn texts(query: &Query) -> impl Iterator<Item = &str> {
    [&*query.api_version, &*query.kind]
        .into_iter()
        .chain(query.namespace.as_deref())
        .chain(query.selector.as_deref())
        .chain(query.fields.iter().map(String::as_str))
}

impl ObjectsHost for CallState {}
impl desired::Host for CallState {}
impl ClusterHost for CallState {}

impl HostSnapshot for CallState {
    fn get(
        &mut self,
        handle: Resource<Snapshot>,
        key: ObjectKey,
    ) -> wasmtime::Result<Result<Option<String>, AccessError>> {
        let texts = [&*key.api_version, &*key.kind, &*key.name].into_iter().chain(key.namespace.as_deref());
        let answer = self.ask(&handle, texts)?.get(&ObjectRef::from(key));
        Ok(answer.map(|object| object.map(|text| text.to_string())).map_err(AccessError::from))
    }

    fn owned(
        &mut self,
        handle: Resource<Snapshot>,
        api_version: String,
        kind: String,
        fields: Vec<String>,
    ) -> wasmtime::Result<Result<String, AccessError>> {
        let texts = [&*api_version, &*kind].into_iter().chain(fields.iter().map(String::as_str));
        let view = self.ask(&handle, texts)?;
        Ok(view.owned(&Kind::new(&api_version, &kind), &fields).map_err(AccessError::from))
    }

    fn list(&mut self, handle: Resource<Snapshot>, query: Query) -> wasmtime::Result<Result<String, AccessError>> {
        let view = self.ask(&handle, texts(&query))?;
        Ok(view.list(&query.into()).map_err(AccessError::from))
    }

    fn keys(
        &mut self,
        handle: Resource<Snapshot>,
        query: Query,
    ) -> wasmtime::Result<Result<Vec<ObjectKey>, AccessError>> {
        let answer = self.ask(&handle, texts(&query))?.keys(&query.into());
        Ok(answer.map(|keys| keys.into_iter().map(ObjectKey::from).collect()).map_err(AccessError::from))
    }

    fn drop(&mut self, handle: Resource<Snapshot>) -> wasmtime::Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

impl clock::Host for CallState {
    fn now(&mut self) -> wasmtime::Result<u64> {
        self.count()?;
        Ok(self.now_unix_ms())
    }
}

/// Schedules follow from their arguments, so the read set knows nothing of them.
impl schedule::Host for CallState {
    fn next(&mut self, expression: String, zone: String, after: u64) -> wasmtime::Result<Result<Option<u64>, String>> {
        self.count()?;
        Ok(mortise_cron::next(&expression, &zone, after))
    }

    fn latest(
        &mut self,
        expression: String,
        zone: String,
        after: u64,
        until: u64,
    ) -> wasmtime::Result<Result<Option<(u64, u64)>, String>> {
        self.count()?;
        Ok(mortise_cron::latest(&expression, &zone, after, until))
    }
}

impl config::Host for CallState {
    fn get(&mut self) -> wasmtime::Result<String> {
        self.count()?;
        Ok(match &mut self.inputs {
            Inputs::None => "{}".to_owned(),
            Inputs::View(view) => view.config().to_string(),
            Inputs::Request { config, .. } => config.to_string(),
        })
    }
}

impl log::Host for CallState {
    fn emit(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.count()?;
        let level = match level {
            log::Level::Trace => LogLevel::Trace,
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.log.add(level, &message, &fields);
        Ok(())
    }
}
