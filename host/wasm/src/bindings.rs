//! Version 0.2 of the contract, generated from wit/, and its translation into mortise-core's types. Generated types
//! stay in this crate: a later minor version of the contract gets a module like this one, and mortise-core does not
//! change.

use mortise_core::contract;
use mortise_core::field_selector::FieldValue;
use mortise_core::generated::Recipe;
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::query::Query;
use mortise_core::{http, rejection};

use self::mortise::host::cluster::{FieldValue as GuestFieldValue, Query as GuestQuery, Rejection};
use self::mortise::host::http::{FailureClass, Header, Method, Request, RequestFailure, Response, SecretHeader};
use self::mortise::host::objects::ObjectKey;
use self::mortise::plugin::desired;

/// A guest's `snapshot` handle. It is empty: a call has one view.
pub struct Snapshot;

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { default: trappable },
    with: { "mortise:host/cluster.snapshot": Snapshot },
});

impl From<ObjectKey> for ObjectRef {
    fn from(key: ObjectKey) -> Self {
        Self {
            kind: Kind::new(&key.api_version, &key.kind),
            name: Name::new(key.namespace.as_deref().unwrap_or_default(), &key.name),
        }
    }
}

impl From<ObjectRef> for ObjectKey {
    fn from(object: ObjectRef) -> Self {
        let ObjectRef { kind, name } = object;
        Self {
            api_version: kind.api_version.to_string(),
            kind: kind.kind.to_string(),
            namespace: (!name.namespace.is_empty()).then(|| name.namespace.to_string()),
            name: name.name.to_string(),
        }
    }
}

impl From<&rejection::Rejection> for Rejection {
    fn from(rejection: &rejection::Rejection) -> Self {
        let rejection::Rejection { target, subresource: _, child, reason, message } = rejection.clone();
        Self {
            target: target.into(),
            child: child.as_deref().map(str::to_owned),
            reason: reason.to_string(),
            message: message.to_string(),
        }
    }
}

impl From<GuestQuery> for Query {
    fn from(query: GuestQuery) -> Self {
        Self {
            kind: Kind::new(&query.api_version, &query.kind),
            namespaces: query.namespaces,
            selector: query.selector,
            field_selector: query.field_selector.into_iter().map(|field| (field.path, field.value.into())).collect(),
            fields: query.fields,
            limit: query.limit,
        }
    }
}

impl From<GuestFieldValue> for FieldValue {
    fn from(value: GuestFieldValue) -> Self {
        match value {
            GuestFieldValue::Text(text) => Self::Text(text.into()),
            GuestFieldValue::Integer(number) => Self::Integer(number),
            GuestFieldValue::Boolean(value) => Self::Boolean(value),
        }
    }
}

impl From<Request> for http::Request {
    fn from(request: Request) -> Self {
        let secret = |SecretHeader { name, prefix, secret, key }: SecretHeader| http::SecretHeader {
            name: name.into(),
            prefix: prefix.into(),
            secret: secret.into(),
            key: key.into(),
        };
        Self {
            key: request.key.into(),
            method: match request.method {
                Method::Get => http::Method::Get,
                Method::Head => http::Method::Head,
                Method::Post => http::Method::Post,
                Method::Put => http::Method::Put,
                Method::Patch => http::Method::Patch,
                Method::Delete => http::Method::Delete,
            },
            url: request.url.into(),
            headers: request.headers.into_iter().map(|Header { name, value }| (name.into(), value.into())).collect(),
            secret_headers: request.secret_headers.into_iter().map(secret).collect(),
            body: request.body.into(),
            timeout_ms: request.timeout_ms,
            refresh_after_ms: request.refresh_after_ms,
        }
    }
}

/// What a guest reads of a reply.
pub(crate) fn reply(reply: &http::Reply) -> Result<Response, RequestFailure> {
    let received_at = reply.received_unix_ms;
    let header = |(name, value): &http::Header| Header { name: name.to_string(), value: value.to_string() };
    match &reply.result {
        Ok(http::Response { status, headers, body }) => {
            let (headers, body) = (headers.iter().map(header).collect(), body.to_vec());
            Ok(Response { status: *status, headers, body, received_at })
        }
        Err(http::Failure { class, message }) => Err(RequestFailure {
            class: match class {
                http::FailureClass::Timeout => FailureClass::Timeout,
                http::FailureClass::Connect => FailureClass::Connect,
                http::FailureClass::Tls => FailureClass::Tls,
                http::FailureClass::Address => FailureClass::Address,
                http::FailureClass::Secret => FailureClass::Secret,
                http::FailureClass::TooLarge => FailureClass::TooLarge,
                http::FailureClass::Protocol => FailureClass::Protocol,
            },
            message: message.to_string(),
            received_at,
        }),
    }
}

impl From<desired::Action> for contract::Action {
    fn from(action: desired::Action) -> Self {
        match action {
            desired::Action::Apply(apply) => Self::Apply { object: apply.object.into(), force: apply.force },
            desired::Action::Patch(patch) => Self::Patch {
                target: patch.target.into(),
                patch_kind: match patch.kind {
                    desired::PatchKind::Merge => contract::PatchKind::Merge,
                    desired::PatchKind::JsonPatch => contract::PatchKind::Json,
                    desired::PatchKind::Strategic => contract::PatchKind::Strategic,
                },
                body: patch.body.into(),
                subresource: patch.subresource,
            },
            desired::Action::Delete(delete) => Self::Delete {
                target: delete.target.into(),
                propagation: match delete.propagation {
                    desired::Propagation::Background => contract::Propagation::Background,
                    desired::Propagation::Foreground => contract::Propagation::Foreground,
                    desired::Propagation::Orphan => contract::Propagation::Orphan,
                },
            },
            desired::Action::Evict(pod) => Self::Evict { target: pod.into() },
        }
    }
}

impl From<desired::Handling> for contract::Handling {
    fn from(handling: desired::Handling) -> Self {
        match handling {
            desired::Handling::Managed => Self::Managed,
            desired::Handling::CreateOnce => Self::CreateOnce,
            desired::Handling::Keep => Self::Keep,
        }
    }
}

impl From<desired::Recipe> for Recipe {
    fn from(recipe: desired::Recipe) -> Self {
        match recipe {
            desired::Recipe::Alphanumeric(length) => Self::Alphanumeric(length),
            desired::Recipe::Bytes(length) => Self::Bytes(length),
            desired::Recipe::Tls(desired::Tls { names, lifetime_seconds }) => {
                Self::Tls { names: names.into_iter().map(Into::into).collect(), lifetime_seconds }
            }
        }
    }
}

impl From<desired::Condition> for contract::Condition {
    fn from(condition: desired::Condition) -> Self {
        Self {
            name: condition.name,
            status: match condition.status {
                desired::ConditionStatus::True => contract::ConditionStatus::True,
                desired::ConditionStatus::False => contract::ConditionStatus::False,
                desired::ConditionStatus::Unknown => contract::ConditionStatus::Unknown,
            },
            reason: condition.reason,
            message: condition.message,
        }
    }
}

impl From<desired::Event> for contract::GuestEvent {
    fn from(event: desired::Event) -> Self {
        Self {
            warning: matches!(event.severity, desired::Severity::Warning),
            reason: event.reason,
            message: event.message,
            regarding: event.regarding.map(ObjectRef::from),
        }
    }
}
