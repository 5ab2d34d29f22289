//! How a reconcile ends: the guest's answer, lifted straight into the strings that the core keeps.
//!
//! What `bindgen!` makes of the contract's outcome would copy every text into a `String` first, and from there into the
//! core's `Arc<str>`: with ten children that is most of the host's own work in a call. So the two records that carry
//! texts in numbers are written down here; wasmtime compares them with the guest's types as it does with its own.

use std::sync::Arc;

use mortise_core::contract;
use wasmtime::component::{ComponentType, Lift, Resource, TypedFunc};

use crate::bindings::Snapshot;
use crate::bindings::mortise::plugin::desired::{Action, Condition, Event, Failure};

/// `reconciler.reconcile` of a component.
pub(crate) type Reconcile<'a> = TypedFunc<(&'a str, Resource<Snapshot>), (Result<Outcome, Failure>,)>;

/// `desired.outcome`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Outcome {
    children: Option<Vec<Child>>,
    actions: Vec<Action>,
    status: Option<Arc<str>>,
    conditions: Vec<Condition>,
    events: Vec<Event>,
    #[component(name = "requeue-after-ms")]
    requeue_after_ms: Option<u32>,
    finalized: bool,
}

/// `desired.child`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Child {
    key: Arc<str>,
    object: Arc<str>,
}

/// How a reconcile ended, in the core's types.
pub(crate) fn call_result(answer: Result<Outcome, Failure>) -> contract::CallResult {
    match answer {
        Ok(outcome) => contract::CallResult::Done(outcome.into()),
        Err(Failure::Retry(message)) => contract::CallResult::Failed(contract::Failure::Retry(message)),
        Err(Failure::Terminal(message)) => contract::CallResult::Failed(contract::Failure::Terminal(message)),
    }
}

impl From<Outcome> for contract::Outcome {
    fn from(outcome: Outcome) -> Self {
        Self {
            children: outcome.children.map(shared),
            actions: into_all(outcome.actions),
            status: outcome.status,
            conditions: into_all(outcome.conditions),
            events: into_all(outcome.events),
            requeue_after_ms: outcome.requeue_after_ms,
            finalized: outcome.finalized,
        }
    }
}

/// The children, of which neighbours with the same text hold one copy of it: replicas of a template are all the same,
/// and the host keeps an outcome for as long as it may be diffed again.
fn shared(children: Vec<Child>) -> Vec<contract::Child> {
    let mut last: Option<Arc<str>> = None;
    let share = |Child { key, object }| {
        let object = match &last {
            Some(last) if *last == object => last.clone(),
            _ => last.insert(object).clone(),
        };
        contract::Child { key, object }
    };
    children.into_iter().map(share).collect()
}

fn into_all<A, B: From<A>>(list: Vec<A>) -> Vec<B> {
    list.into_iter().map(B::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_are_alike_share_their_text() {
        let child = |key: &str, object: &str| Child { key: key.into(), object: object.into() };
        let children = shared(vec![child("0", "{}"), child("1", "{}"), child("2", "[]"), child("3", "{}")]);
        let texts: Vec<&str> = children.iter().map(|child| &*child.object).collect();
        assert_eq!(texts, ["{}", "{}", "[]", "{}"]);
        assert!(Arc::ptr_eq(&children[0].object, &children[1].object));
        assert_eq!(children.iter().map(|child| &*child.key).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }
}
