//! Inputs on wasm32: calls of the host, in the contract's types.

use crate::bindings::mortise::host::{clock, cluster, config, http, objects, schedule};
use crate::error::ReadError;
use crate::http::{Request, RequestFailure, Response};
use crate::object::ObjectKey;
use crate::query::{FieldValue, Query};
use crate::rejection::Rejection;

/// The cluster as it was frozen for this call. Reads return JSON text.
pub(crate) struct View(pub(crate) cluster::Snapshot);

impl View {
    pub(crate) fn get(&self, key: &ObjectKey, fields: &[&str]) -> Result<Option<String>, ReadError> {
        Ok(self.0.get(&key.clone().into(), &owned(fields))?)
    }

    pub(crate) fn owned(&self, api_version: &str, kind: &str, fields: &[&str]) -> Result<String, ReadError> {
        Ok(self.0.owned(api_version, kind, &owned(fields))?)
    }

    pub(crate) fn list<T>(&self, query: &Query<T>) -> Result<String, ReadError> {
        Ok(self.0.list(&contract_query(query))?)
    }

    pub(crate) fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
        let keys: Vec<objects::ObjectKey> = self.0.keys(&contract_query(query))?;
        Ok(keys.into_iter().map(ObjectKey::from).collect())
    }

    pub(crate) fn count<T>(&self, query: &Query<T>, limit: Option<u32>) -> Result<usize, ReadError> {
        Ok(self.0.count(&cluster::Query { limit, ..contract_query(query) })? as usize)
    }

    pub(crate) fn rejected(&self) -> Vec<Rejection> {
        let rejection = |found: cluster::Rejection| {
            let cluster::Rejection { target, child, reason, message } = found;
            Rejection { target: target.into(), child, reason, message }
        };
        self.0.rejected().into_iter().map(rejection).collect()
    }

    pub(crate) fn response(&self, request: &Request) -> Option<Result<Response, RequestFailure>> {
        let header = |http::Header { name, value }| (name, value);
        Some(match self.0.response(request.contract())? {
            Ok(http::Response { status, headers, body, received_at }) => {
                let headers = headers.into_iter().map(header).collect();
                Ok(Response { status, headers, body, received_unix_ms: received_at })
            }
            Err(http::RequestFailure { class, message, received_at }) => {
                Err(RequestFailure { class: class.into(), message, received_unix_ms: received_at })
            }
        })
    }
}

fn owned(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| (*field).to_owned()).collect()
}

/// What else a call can read: the time, schedules and the configuration.
#[derive(Clone, Debug)]
pub struct Inputs;

impl Inputs {
    pub(crate) fn now_unix_ms(&self) -> u64 {
        clock::now()
    }

    pub(crate) fn next_tick(&self, expression: &str, zone: &str, after: u64) -> Result<Option<u64>, String> {
        schedule::next(expression, zone, after)
    }

    /// The newest tick, and how many ticks there are.
    pub(crate) fn latest_tick(
        &self,
        expression: &str,
        zone: &str,
        after: u64,
        until: u64,
    ) -> Result<Option<(u64, u64)>, String> {
        schedule::latest(expression, zone, after, until)
    }

    pub(crate) fn config(&self) -> String {
        config::get()
    }
}

fn contract_query<T>(query: &Query<T>) -> cluster::Query {
    cluster::Query {
        api_version: query.api_version.clone(),
        kind: query.kind.clone(),
        namespaces: query.namespaces.clone(),
        selector: query.selector.clone(),
        field_selector: query.field_selector.iter().map(contract_field).collect(),
        fields: query.fields.clone(),
        limit: query.limit,
    }
}

fn contract_field((path, value): &(String, FieldValue)) -> cluster::FieldRequirement {
    let value = match value.clone() {
        FieldValue::Text(text) => cluster::FieldValue::Text(text),
        FieldValue::Integer(number) => cluster::FieldValue::Integer(number),
        FieldValue::Boolean(value) => cluster::FieldValue::Boolean(value),
    };
    cluster::FieldRequirement { path: path.clone(), value }
}
