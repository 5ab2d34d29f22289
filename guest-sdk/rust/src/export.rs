//! Conversions between the SDK's types and the contract's, for exported functions. Besides this file only
//! [`crate::view`], [`crate::log`], `http.rs` and the errors know both, so a new minor version of the contract
//! changes these five.

use serde_json::Value;

use crate::action::{Action, Apply, Delete, Patch, PatchKind, Propagation};
use crate::bindings::mortise::host::objects;
use crate::bindings::mortise::plugin::desired;
use crate::conditions::{Condition, ConditionStatus};
use crate::error::Failure;
use crate::generated::{Generated, Recipe};
use crate::object::ObjectKey;
use crate::outcome::{Child, Event, Handling, Outcome, Severity};

#[cfg(target_arch = "wasm32")]
use crate::admission::{Operation, Request, Violation};
#[cfg(target_arch = "wasm32")]
use crate::admission_bindings::exports::mortise::plugin::admission;
#[cfg(target_arch = "wasm32")]
use crate::bindings::mortise::host::cluster::Snapshot;
#[cfg(target_arch = "wasm32")]
use crate::manifest::Plugin;
#[cfg(target_arch = "wasm32")]
use crate::view::{Inputs, View};

/// `reconciler.reconcile` of a component.
///
/// # Errors
/// The plugin's own failure.
#[cfg(target_arch = "wasm32")]
pub fn reconcile(plugin: &Plugin, object: &str, snapshot: Snapshot) -> Result<desired::Outcome, desired::Failure> {
    let cx = crate::Context::new(View(snapshot), Inputs);
    plugin.reconcile(object, &cx).and_then(contract_outcome).map_err(|failure| match failure {
        Failure::Retry(message) => desired::Failure::Retry(message),
        Failure::Terminal(message) => desired::Failure::Terminal(message),
    })
}

/// `admission.mutate` of a component.
///
/// # Errors
/// The plugin's violations.
#[cfg(target_arch = "wasm32")]
pub fn mutate(
    plugin: &Plugin,
    operation: admission::Operation,
    object: String,
    old: Option<String>,
) -> Result<String, Vec<admission::Violation>> {
    plugin
        .mutate(&request(operation, object, old))
        .map_err(|violations| violations.into_iter().map(violation).collect())
}

/// `admission.validate` of a component.
#[cfg(target_arch = "wasm32")]
pub fn validate(
    plugin: &Plugin,
    operation: admission::Operation,
    object: String,
    old: Option<String>,
) -> admission::Verdict {
    let crate::Verdict { violations, warnings } = plugin.validate(&request(operation, object, old));
    admission::Verdict { violations: violations.into_iter().map(violation).collect(), warnings }
}

#[cfg(target_arch = "wasm32")]
fn request(operation: admission::Operation, object: String, old: Option<String>) -> Request {
    let operation = match operation {
        admission::Operation::Create => Operation::Create,
        admission::Operation::Update => Operation::Update,
        admission::Operation::Delete => Operation::Delete,
    };
    Request { operation, object, old, inputs: Inputs }
}

#[cfg(target_arch = "wasm32")]
fn violation(violation: Violation) -> admission::Violation {
    admission::Violation { field: violation.field, message: violation.message }
}

/// The outcome in the contract's types.
///
/// # Errors
/// Terminal, when something in it could not be written as JSON.
pub(crate) fn contract_outcome(outcome: Outcome<Value>) -> Result<desired::Outcome, Failure> {
    let children = match outcome.children {
        Some(children) => {
            // `collect` into a `Result` loses the length, and the list would grow step by step.
            let mut list = Vec::with_capacity(children.len());
            for child in children {
                let handling = match child.handling {
                    Handling::Managed => desired::Handling::Managed,
                    Handling::CreateOnce => desired::Handling::CreateOnce,
                    Handling::Keep => desired::Handling::Keep,
                };
                let Child { key, or_skip, adopt, group, exact, generated, .. } = child;
                let object = child.object.into_text()?;
                let generated = generated.into_iter().map(contract_generated).collect();
                list.push(desired::Child { key, object, handling, or_skip, adopt, group, exact, generated });
            }
            Some(list)
        }
        None => None,
    };
    Ok(desired::Outcome {
        children,
        actions: outcome.actions.into_iter().map(action).collect::<Result<_, _>>()?,
        finalized: outcome.finalized,
        status: outcome.status.map(crate::Json::into_text).transpose()?,
        conditions: outcome.conditions.into_iter().map(condition).collect(),
        events: outcome.events.into_iter().map(event).collect(),
        requeue_after_ms: outcome.requeue_after.map(|delay| u32::try_from(delay.as_millis()).unwrap_or(u32::MAX)),
        requests: outcome.requests.into_iter().map(crate::http::Request::into_contract).collect::<Result<_, _>>()?,
    })
}

fn contract_generated((at, generated): (String, Generated)) -> desired::Generated {
    let value = match generated.recipe {
        Recipe::Alphanumeric(length) => desired::Recipe::Alphanumeric(length),
        Recipe::Bytes(length) => desired::Recipe::Bytes(length),
        Recipe::Tls { names, lifetime } => {
            let lifetime_seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
            desired::Recipe::Tls(desired::Tls { names, lifetime_seconds })
        }
    };
    desired::Generated { at, value, rotation: generated.rotation }
}

fn action(action: Action) -> Result<desired::Action, Failure> {
    Ok(match action {
        Action::Apply(Apply { object, force }) => {
            desired::Action::Apply(desired::Apply { object: object.into_text()?, force })
        }
        Action::Patch(Patch { target, kind, body, subresource }) => desired::Action::Patch(desired::Patch {
            target: target.into(),
            kind: match kind {
                PatchKind::Merge => desired::PatchKind::Merge,
                PatchKind::Json => desired::PatchKind::JsonPatch,
                PatchKind::Strategic => desired::PatchKind::Strategic,
            },
            body: body.into_text()?,
            subresource,
        }),
        Action::Delete(Delete { target, propagation }) => desired::Action::Delete(desired::Delete {
            target: target.into(),
            propagation: match propagation {
                Propagation::Background => desired::Propagation::Background,
                Propagation::Foreground => desired::Propagation::Foreground,
                Propagation::Orphan => desired::Propagation::Orphan,
            },
        }),
        Action::Evict(pod) => desired::Action::Evict(pod.into()),
    })
}

fn condition(condition: Condition) -> desired::Condition {
    desired::Condition {
        name: condition.name,
        status: match condition.status {
            ConditionStatus::True => desired::ConditionStatus::True,
            ConditionStatus::False => desired::ConditionStatus::False,
            ConditionStatus::Unknown => desired::ConditionStatus::Unknown,
        },
        reason: condition.reason,
        message: condition.message,
    }
}

fn event(event: Event) -> desired::Event {
    desired::Event {
        severity: match event.severity {
            Severity::Normal => desired::Severity::Normal,
            Severity::Warning => desired::Severity::Warning,
        },
        reason: event.reason,
        message: event.message,
        regarding: event.regarding.map(ObjectKey::into),
    }
}

impl From<ObjectKey> for objects::ObjectKey {
    fn from(key: ObjectKey) -> Self {
        Self { api_version: key.api_version, kind: key.kind, namespace: key.namespace, name: key.name }
    }
}

impl From<objects::ObjectKey> for ObjectKey {
    fn from(key: objects::ObjectKey) -> Self {
        Self { api_version: key.api_version, kind: key.kind, namespace: key.namespace, name: key.name }
    }
}
