//! The contract's imports: the functions of the host that a guest may call. Each result comes from the call's own
//! [`View`] or from the arguments alone; nothing here reaches beyond them.

use mortise_core::object::{Kind, ObjectRef};
use mortise_core::view;
use wasmtime::component::{HasSelf, Linker, Resource};

use crate::bindings::mortise::host::cluster::{
    AccessError, FieldValue, Host as ClusterHost, HostSnapshot, Query, Rejection,
};
use crate::bindings::mortise::host::http::{Host as HttpHost, Request, RequestFailure, Response};
use crate::bindings::mortise::host::objects::{Host as ObjectsHost, ObjectKey};
use crate::bindings::mortise::host::{clock, cluster, config, http, log, objects, schedule};
use crate::bindings::mortise::plugin::desired;
use crate::bindings::{Snapshot, reply};
use crate::log::LogLevel;
use crate::state::{CallState, Inputs, WaitsForKind};

/// Adds the contract's imports.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    fn same(state: &mut CallState) -> &mut CallState {
        state
    }
    objects::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
    http::add_to_linker::<_, HasSelf<CallState>>(linker, same)?;
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
    let fields = query.field_selector.iter().flat_map(|field| match &field.value {
        FieldValue::Text(text) => [&*field.path, text],
        FieldValue::Integer(_) | FieldValue::Boolean(_) => [&*field.path, ""],
    });
    [&*query.api_version, &*query.kind]
        .into_iter()
        .chain(query.namespaces.iter().map(String::as_str))
        .chain(query.selector.as_deref())
        .chain(fields)
        .chain(query.fields.iter().map(String::as_str))
}

/// What a guest reads of a view. A kind of which the host has no view yet ends the call instead.
fn answer<T>(read: Result<T, view::AccessError>) -> wasmtime::Result<Result<T, AccessError>> {
    let error = match read {
        Ok(found) => return Ok(Ok(found)),
        Err(error) => error,
    };
    Ok(Err(match error {
        view::AccessError::Undeclared(message) => AccessError::Undeclared(message),
        view::AccessError::Denied(message) => AccessError::Denied(message),
        view::AccessError::TooLarge(limit) => AccessError::TooLarge(limit),
        view::AccessError::Invalid(message) => AccessError::Invalid(message),
        view::AccessError::NotServed(message) => AccessError::NotServed(message),
        view::AccessError::Waits(kind) => return Err(WaitsForKind(kind).into()),
    }))
}

/// Everything in a request whose length the guest chooses.
fn parts(request: &Request) -> impl Iterator<Item = &[u8]> {
    let headers = request.headers.iter().flat_map(|header| [&header.name, &header.value]);
    let secrets = request.secret_headers.iter();
    let secrets = secrets.flat_map(|header| [&header.name, &header.prefix, &header.secret, &header.key]);
    let texts = [&request.key, &request.url].into_iter().chain(headers).chain(secrets);
    texts.map(String::as_bytes).chain([&*request.body])
}

impl ObjectsHost for CallState {}
impl HttpHost for CallState {}
impl desired::Host for CallState {}
impl ClusterHost for CallState {}

impl HostSnapshot for CallState {
    fn get(
        &mut self,
        handle: Resource<Snapshot>,
        key: ObjectKey,
        fields: Vec<String>,
    ) -> wasmtime::Result<Result<Option<String>, AccessError>> {
        let texts = [&*key.api_version, &*key.kind, &*key.name].into_iter().chain(key.namespace.as_deref());
        let view = self.query(&handle, texts.chain(fields.iter().map(String::as_str)))?;
        let found = view.get(&ObjectRef::from(key), &fields);
        answer(found.map(|object| object.map(|text| text.to_string())))
    }

    fn owned(
        &mut self,
        handle: Resource<Snapshot>,
        api_version: String,
        kind: String,
        fields: Vec<String>,
    ) -> wasmtime::Result<Result<String, AccessError>> {
        let texts = [&*api_version, &*kind].into_iter().chain(fields.iter().map(String::as_str));
        let view = self.query(&handle, texts)?;
        answer(view.owned(&Kind::new(&api_version, &kind), &fields))
    }

    fn list(&mut self, handle: Resource<Snapshot>, query: Query) -> wasmtime::Result<Result<String, AccessError>> {
        let view = self.query(&handle, texts(&query))?;
        answer(view.list(&query.into()))
    }

    fn keys(
        &mut self,
        handle: Resource<Snapshot>,
        query: Query,
    ) -> wasmtime::Result<Result<Vec<ObjectKey>, AccessError>> {
        let found = self.query(&handle, texts(&query))?.keys(&query.into());
        answer(found.map(|keys| keys.into_iter().map(ObjectKey::from).collect()))
    }

    fn count(&mut self, handle: Resource<Snapshot>, query: Query) -> wasmtime::Result<Result<u32, AccessError>> {
        let view = self.query(&handle, texts(&query))?;
        answer(view.count(&query.into()))
    }

    fn rejected(&mut self, handle: Resource<Snapshot>) -> wasmtime::Result<Vec<Rejection>> {
        Ok(self.query(&handle, [""; 0])?.rejected().iter().map(Rejection::from).collect())
    }

    fn response(
        &mut self,
        handle: Resource<Snapshot>,
        request: Request,
    ) -> wasmtime::Result<Option<Result<Response, RequestFailure>>> {
        let view = self.query(&handle, parts(&request))?;
        Ok(view.response(&request.into()).map(|found| reply(&found)))
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

/// A schedule depends on its arguments alone, so it is no dependency of the call.
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
