//! The contract's types in the engine's: what a native function wants in a story, as a component's outcome would arrive. It
//! must not know who calls whom.

use mortise_core::contract;
use mortise_core::generated::Recipe;
use mortise_core::http;
use mortise_core::object::{Kind, Name, ObjectRef};

use crate::bindings::mortise::host::http as guest_http;
use crate::bindings::mortise::host::objects;
use crate::bindings::mortise::plugin::desired;
use crate::object::ObjectKey;

/// The engine's name of an object.
pub(crate) fn reference(key: &ObjectKey) -> ObjectRef {
    let name = Name::new(key.namespace.as_deref().unwrap_or_default(), &key.name);
    ObjectRef { kind: Kind::new(&key.api_version, &key.kind), name }
}

/// The SDK's name of an object.
pub(crate) fn key(target: &ObjectRef) -> ObjectKey {
    let namespace = Some(&*target.name.namespace).filter(|namespace| !namespace.is_empty());
    ObjectKey::new(&target.kind.api_version, &target.kind.kind, namespace, &target.name.name)
}

fn of_contract(key: objects::ObjectKey) -> ObjectRef {
    reference(&key.into())
}

pub(crate) fn outcome(outcome: desired::Outcome) -> contract::Outcome {
    contract::Outcome {
        children: outcome.children.map(|children| children.into_iter().map(child).collect()),
        actions: outcome.actions.into_iter().map(action).collect(),
        status: outcome.status.map(Into::into),
        conditions: outcome.conditions.into_iter().map(condition).collect(),
        events: outcome.events.into_iter().map(event).collect(),
        requeue_after_ms: outcome.requeue_after_ms,
        finalized: outcome.finalized,
        requests: outcome.requests.into_iter().map(request).collect(),
    }
}

fn child(child: desired::Child) -> contract::Child {
    let generated = |generated: desired::Generated| contract::Generated {
        at: generated.at.into(),
        recipe: recipe(generated.value),
        rotation: generated.rotation.into(),
    };
    contract::Child {
        key: child.key.into(),
        object: child.object.into(),
        handling: match child.handling {
            desired::Handling::Managed => contract::Handling::Managed,
            desired::Handling::CreateOnce => contract::Handling::CreateOnce,
            desired::Handling::Keep => contract::Handling::Keep,
        },
        or_skip: child.or_skip,
        adopt: child.adopt,
        group: child.group,
        exact: child.exact.into_iter().map(Into::into).collect(),
        generated: child.generated.into_iter().map(generated).collect(),
    }
}

fn recipe(value: desired::Recipe) -> Recipe {
    match value {
        desired::Recipe::Alphanumeric(length) => Recipe::Alphanumeric(length),
        desired::Recipe::Bytes(length) => Recipe::Bytes(length),
        desired::Recipe::Tls(desired::Tls { names, lifetime_seconds }) => {
            Recipe::Tls { names: names.into_iter().map(Into::into).collect(), lifetime_seconds }
        }
    }
}

fn action(action: desired::Action) -> contract::Action {
    match action {
        desired::Action::Apply(desired::Apply { object, force }) => {
            contract::Action::Apply { object: object.into(), force }
        }
        desired::Action::Patch(patch) => contract::Action::Patch {
            target: of_contract(patch.target),
            patch_kind: match patch.kind {
                desired::PatchKind::Merge => contract::PatchKind::Merge,
                desired::PatchKind::JsonPatch => contract::PatchKind::Json,
                desired::PatchKind::Strategic => contract::PatchKind::Strategic,
            },
            body: patch.body.into(),
            subresource: patch.subresource,
        },
        desired::Action::Delete(delete) => contract::Action::Delete {
            target: of_contract(delete.target),
            propagation: match delete.propagation {
                desired::Propagation::Background => contract::Propagation::Background,
                desired::Propagation::Foreground => contract::Propagation::Foreground,
                desired::Propagation::Orphan => contract::Propagation::Orphan,
            },
        },
        desired::Action::Evict(pod) => contract::Action::Evict { target: of_contract(pod) },
    }
}

fn condition(condition: desired::Condition) -> contract::Condition {
    contract::Condition {
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

fn event(event: desired::Event) -> contract::GuestEvent {
    contract::GuestEvent {
        warning: matches!(event.severity, desired::Severity::Warning),
        reason: event.reason,
        message: event.message,
        regarding: event.regarding.map(of_contract),
    }
}

pub(crate) fn request(request: guest_http::Request) -> http::Request {
    let secret = |header: guest_http::SecretHeader| http::SecretHeader {
        name: header.name.into(),
        prefix: header.prefix.into(),
        secret: header.secret.into(),
        key: header.key.into(),
    };
    let header = |header: guest_http::Header| (header.name.into(), header.value.into());
    http::Request {
        key: request.key.into(),
        method: match request.method {
            guest_http::Method::Get => http::Method::Get,
            guest_http::Method::Head => http::Method::Head,
            guest_http::Method::Post => http::Method::Post,
            guest_http::Method::Put => http::Method::Put,
            guest_http::Method::Patch => http::Method::Patch,
            guest_http::Method::Delete => http::Method::Delete,
        },
        url: request.url.into(),
        headers: request.headers.into_iter().map(header).collect(),
        secret_headers: request.secret_headers.into_iter().map(secret).collect(),
        body: request.body.into(),
        timeout_ms: request.timeout_ms,
        refresh_after_ms: request.refresh_after_ms,
    }
}
