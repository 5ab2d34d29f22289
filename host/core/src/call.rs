//! One guest call: its inputs, its conclusion and what it read. The worker that runs a call also checks its outcome,
//! because the check takes time by the size of the outcome, which the event loop must not spend.

use std::sync::Arc;

use crate::contract::{CallResult, Failure, GuestFault};
use crate::dependencies::Dependencies;
use crate::limits::CallLimits;
use crate::manifest::ControllerSpec;
use crate::object::{Kind, Object};
use crate::plan::{self, Prepared, Reserved};
use crate::store::Snapshot;
use crate::text::FAILURE;
use crate::view::View;
use crate::write::Cause;

/// Identifies one guest call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CallId(pub u64);

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct CallDone {
    /// How it ended.
    pub conclusion: Conclusion,
    /// Everything it read, with a hash of each result.
    pub reads: Dependencies,
    /// Time on the worker thread in microseconds, by which the work queue is fair.
    pub elapsed_us: u64,
}

impl CallDone {
    /// Bytes in memory of its outcome and reads.
    pub(crate) fn bytes(&self) -> usize {
        let outcome = match &self.conclusion {
            Conclusion::Wants(outcome) => outcome.bytes(),
            Conclusion::Failed(_) | Conclusion::Fault(_) | Conclusion::HostFault(_) | Conclusion::Waits(_) => 0,
        };
        outcome + self.reads.bytes()
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Conclusion {
    /// A valid outcome.
    Wants(Arc<Prepared>),
    /// The guest's own failure.
    Failed(Failure),
    /// The guest exceeded a bound, trapped, or returned an invalid outcome.
    Fault(GuestFault),
    /// The host could not run the call; the guest is not at fault.
    HostFault(String),
    /// The call ended at a dynamic kind of which the host has no view.
    Waits(Kind),
}

/// Checks the outcome of a call.
#[derive(Clone, Debug)]
pub struct Check {
    /// The controller.
    pub spec: Arc<ControllerSpec>,
    /// The host's namespace, unless the plugin may write there.
    pub reserved: Option<Reserved>,
    /// The last outcome of the same object and version. Its children are not checked again when their text is equal.
    pub before: Option<Arc<Prepared>>,
    /// The field manager of its writes.
    pub manager: Arc<str>,
    /// The cluster as the guest saw it, with which the outcome is compared as far as that takes long.
    pub snapshot: Snapshot,
}

impl Check {
    /// Checks what a guest has returned for an object.
    pub fn conclude(&self, object: &Object, result: CallResult) -> Conclusion {
        let outcome = match result {
            CallResult::Done(outcome) => outcome,
            CallResult::Failed(failure) => return Conclusion::Failed(shown(failure)),
            CallResult::Fault(fault) => return Conclusion::Fault(fault),
            CallResult::HostFault(message) => return Conclusion::HostFault(FAILURE.own(message)),
            CallResult::Waits(kind) => return Conclusion::Waits(kind),
        };
        let before = self.before.as_ref();
        match plan::prepare(&self.spec, object, &outcome, before.map(Arc::as_ref)) {
            Ok(mut prepared) => {
                if let Some(reserved) = &self.reserved {
                    prepared.reserve(reserved, object);
                }
                plan::compare_beforehand(&prepared, &self.manager, &self.snapshot);
                let same = before.filter(|before| ***before == prepared).cloned();
                Conclusion::Wants(same.unwrap_or_else(|| Arc::new(prepared)))
            }
            Err(fault) => Conclusion::Fault(fault),
        }
    }
}

fn shown(failure: Failure) -> Failure {
    match failure {
        Failure::Retry(message) => Failure::Retry(FAILURE.own(message)),
        Failure::Terminal(message) => Failure::Terminal(FAILURE.own(message)),
    }
}

/// One guest call.
#[derive(Debug)]
pub struct Call {
    /// Identifies the call in [`CallDone`]'s event.
    pub id: CallId,
    /// The reconcile, with the component to call.
    pub cause: Cause,
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// Whose share of the workers it takes: the plugin's, or its tenant's.
    pub share: Arc<str>,
    /// The reconciled object.
    pub object: Arc<Object>,
    /// What the guest may see.
    pub view: View,
    /// Bounds of the call.
    pub limits: CallLimits,
    /// Checks the outcome.
    pub check: Check,
}
