//! A call of a story reads the engine's own view: the host's rules are not repeated here, and every read is recorded. The
//! SDK's reads come in, the core's answers come out.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;

use mortise_core::field_selector::FieldValue as CoreFieldValue;
use mortise_core::object::Kind;
use mortise_core::query::Query as CoreQuery;
use mortise_core::view::{AccessError, View};

use crate::engine_contract::{self, key, reference};
use crate::error::ReadError;
use crate::http::{FailureClass, Request, RequestFailure, Response};
use crate::object::ObjectKey;
use crate::query::{FieldValue, Query};
use crate::rejection::Rejection;

/// What unwinds a call that read a dynamic kind of which the engine has no view yet. It is no panic of the plugin.
pub(crate) struct WaitsFor(pub(crate) Kind);

/// The view of one call; copies share it.
#[derive(Clone, Debug)]
pub(crate) struct EngineView(Rc<RefCell<View>>);

impl EngineView {
    pub(crate) fn new(view: View) -> Self {
        Self(Rc::new(RefCell::new(view)))
    }

    /// The view itself, when the call has ended.
    pub(crate) fn into_view(self) -> View {
        Rc::unwrap_or_clone(self.0).into_inner()
    }

    pub(crate) fn get(&self, key: &ObjectKey, fields: &[&str]) -> Result<Option<String>, ReadError> {
        let read = self.0.borrow_mut().get(&reference(key), &owned(fields));
        Ok(answer(read)?.map(|text| text.to_string()))
    }

    pub(crate) fn owned(&self, api_version: &str, kind: &str, fields: &[&str]) -> Result<String, ReadError> {
        let read = self.0.borrow_mut().owned(&Kind::new(api_version, kind), &owned(fields));
        answer(read)
    }

    pub(crate) fn list<T>(&self, query: &Query<T>) -> Result<String, ReadError> {
        let read = self.0.borrow_mut().list(&core_query(query));
        answer(read)
    }

    pub(crate) fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
        let read = self.0.borrow_mut().keys(&core_query(query));
        Ok(answer(read)?.iter().map(key).collect())
    }

    pub(crate) fn count<T>(&self, query: &Query<T>, limit: Option<u32>) -> Result<usize, ReadError> {
        let read = self.0.borrow_mut().count(&CoreQuery { limit, ..core_query(query) });
        Ok(answer(read)? as usize)
    }

    pub(crate) fn rejected(&self) -> Vec<Rejection> {
        let rejected = self.0.borrow_mut().rejected();
        let rejection = |found: &mortise_core::rejection::Rejection| Rejection {
            target: key(&found.target),
            child: found.child.as_deref().map(str::to_owned),
            reason: found.reason.to_string(),
            message: found.message.to_string(),
        };
        rejected.iter().map(rejection).collect()
    }

    pub(crate) fn response(&self, request: &Request) -> Option<Result<Response, RequestFailure>> {
        let reply = self.0.borrow_mut().response(&engine_contract::request(request.contract().clone()))?;
        let received_unix_ms = reply.received_unix_ms;
        Some(match &reply.result {
            Ok(response) => {
                let headers = response.headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
                let (status, body) = (response.status, response.body.to_vec());
                Ok(Response { status, headers: headers.collect(), body, received_unix_ms })
            }
            Err(failure) => {
                let (class, message) = (class(failure.class), failure.message.to_string());
                Err(RequestFailure { class, message, received_unix_ms })
            }
        })
    }

    pub(crate) fn now_unix_ms(&self) -> u64 {
        self.0.borrow_mut().now_unix_ms()
    }

    pub(crate) fn config(&self) -> String {
        self.0.borrow_mut().config().to_string()
    }
}

fn answer<T>(read: Result<T, AccessError>) -> Result<T, ReadError> {
    read.map_err(|error| match error {
        AccessError::Undeclared(why) => ReadError::Undeclared(why),
        AccessError::Denied(why) => ReadError::Denied(why),
        AccessError::TooLarge(limit) => ReadError::TooLarge(limit),
        AccessError::Invalid(why) => ReadError::Invalid(why),
        AccessError::NotServed(why) => ReadError::NotServed(why),
        AccessError::Waits(kind) => resume_unwind(Box::new(WaitsFor(kind))),
    })
}

fn owned(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| (*field).to_owned()).collect()
}

fn core_query<T>(query: &Query<T>) -> CoreQuery {
    let field = |(path, value): &(String, FieldValue)| {
        let value = match value {
            FieldValue::Text(text) => CoreFieldValue::Text(text.as_str().into()),
            FieldValue::Integer(number) => CoreFieldValue::Integer(*number),
            FieldValue::Boolean(value) => CoreFieldValue::Boolean(*value),
        };
        (path.clone(), value)
    };
    CoreQuery {
        kind: Kind { api_version: Arc::from(&*query.api_version), kind: Arc::from(&*query.kind) },
        namespaces: query.namespaces.clone(),
        selector: query.selector.clone(),
        field_selector: query.field_selector.iter().map(field).collect(),
        fields: query.fields.clone(),
        limit: query.limit,
    }
}

fn class(class: mortise_core::http::FailureClass) -> FailureClass {
    use mortise_core::http::FailureClass as Core;
    match class {
        Core::Timeout => FailureClass::Timeout,
        Core::Connect => FailureClass::Connect,
        Core::Tls => FailureClass::Tls,
        Core::Address => FailureClass::Address,
        Core::Secret => FailureClass::Secret,
        Core::TooLarge => FailureClass::TooLarge,
        Core::Protocol => FailureClass::Protocol,
    }
}
