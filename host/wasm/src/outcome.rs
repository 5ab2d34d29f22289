//! The call of `reconcile`: its outcome is lifted straight into the strings that mortise-core keeps.
//!
//! The types of `bindgen!` would copy every text into a `String` and from there into an `Arc<str>`: with ten children
//! that is most of the host's own work in a call. So the two records that carry many texts are written by hand;
//! wasmtime checks them against the guest's types, once for each linked component.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mortise_core::contract;
use wasmtime::Store;
use wasmtime::component::{ComponentExportIndex, ComponentType, Instance, InstancePre, Lift, Resource, TypedFunc};
use wasmtime::error::Context as _;

use crate::bindings::Snapshot;
use crate::bindings::mortise::host::http::Request;
use crate::bindings::mortise::plugin::desired::{Action, Condition, Event, Failure, Handling, Recipe};
use crate::state::CallState;

type Typed<'a> = TypedFunc<(&'a str, Resource<Snapshot>), (Result<Outcome, Failure>,)>;

/// `desired.outcome`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Outcome {
    children: Option<Vec<Child>>,
    actions: Vec<Action>,
    status: Option<Arc<str>>,
    conditions: Vec<Condition>,
    events: Vec<Event>,
    #[component(name = "requeue-after-ms")]
    requeue_after_ms: Option<u32>,
    finalized: bool,
    requests: Vec<Request>,
}

/// `desired.child`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Child {
    key: Arc<str>,
    object: Arc<str>,
    handling: Handling,
    #[component(name = "or-skip")]
    or_skip: bool,
    adopt: bool,
    group: u32,
    exact: Vec<Arc<str>>,
    generated: Vec<Generated>,
}

/// `desired.generated`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Generated {
    at: Arc<str>,
    value: Recipe,
    rotation: Arc<str>,
}

/// Where a component's `reconciler.reconcile` is.
pub(crate) struct Reconcile {
    function: ComponentExportIndex,
    /// Its type was compared with the contract's, which takes a microsecond.
    is_checked: AtomicBool,
}

impl Reconcile {
    pub(crate) fn new(function: ComponentExportIndex) -> Self {
        Self { function, is_checked: AtomicBool::new(false) }
    }

    /// Calls it in a fresh instance of its component.
    pub(crate) fn call(
        &self,
        pre: &InstancePre<CallState>,
        store: &mut Store<CallState>,
        object: &str,
    ) -> wasmtime::Result<contract::CallResult> {
        let instance = pre.instantiate(&mut *store)?;
        let reconcile = self.typed(store, &instance)?;
        let snapshot = store.data_mut().table.push(Snapshot)?;
        let (outcome,) = reconcile.call(store, (object, snapshot))?;
        Ok(match outcome {
            Ok(outcome) => contract::CallResult::Done(outcome.into()),
            Err(Failure::Retry(message)) => contract::CallResult::Failed(contract::Failure::Retry(message)),
            Err(Failure::Terminal(message)) => contract::CallResult::Failed(contract::Failure::Terminal(message)),
        })
    }

    #[expect(unsafe_code, reason = "wasmtime would compare the types at each call")]
    fn typed<'a>(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<Typed<'a>> {
        if self.is_checked.load(Ordering::Relaxed) {
            let function =
                instance.get_func(store, self.function).context("the component has no function reconcile")?;
            // SAFETY: the function must have this type. It has: below the type was compared for an instance of the component
            // that the index is of, `get_func` finds nothing by an index of another component, and all instances of one
            // component have the same types, because one linker gives them the same `Snapshot`.
            return Ok(unsafe { TypedFunc::new_unchecked(function) });
        }
        let function = instance.get_typed_func(store, self.function)?;
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(function)
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
            requests: into_all(outcome.requests),
        }
    }
}

impl From<Generated> for contract::Generated {
    fn from(Generated { at, value, rotation }: Generated) -> Self {
        Self { at, recipe: value.into(), rotation }
    }
}

/// Consecutive children with the same text share one copy: replicas of a template are all the same, and the host keeps
/// an outcome for as long as it may be diffed again.
fn shared(children: Vec<Child>) -> Vec<contract::Child> {
    let mut last: Option<Arc<str>> = None;
    let share = |Child { key, object, handling, or_skip, adopt, group, exact, generated }| {
        let object = match &last {
            Some(last) if *last == object => last.clone(),
            _ => last.insert(object).clone(),
        };
        let (handling, generated) = (handling.into(), into_all(generated));
        contract::Child { key, object, handling, or_skip, adopt, group, exact, generated }
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
        let child = |key: &str, object: &str| Child {
            key: key.into(),
            object: object.into(),
            handling: Handling::Managed,
            or_skip: false,
            adopt: false,
            group: 0,
            exact: Vec::new(),
            generated: Vec::new(),
        };
        let children = shared(vec![child("0", "{}"), child("1", "{}"), child("2", "[]"), child("3", "{}")]);
        let texts: Vec<&str> = children.iter().map(|child| &*child.object).collect();
        assert_eq!(texts, ["{}", "{}", "[]", "{}"]);
        assert!(Arc::ptr_eq(&children[0].object, &children[1].object));
        assert_eq!(children.iter().map(|child| &*child.key).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }
}
