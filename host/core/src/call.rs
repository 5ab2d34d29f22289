//! One guest call: its inputs, and what came of it with what it read. A call ends where it ran, with the check of its outcome:
//! what takes time by the size of a guest's outcome takes none of the event loop's.

use std::sync::Arc;

use crate::contract::{CallResult, Failure, GuestFault};
use crate::dependencies::Dependencies;
use crate::digest::Digest;
use crate::limits::CallLimits;
use crate::manifest::ControllerSpec;
use crate::object::Object;
use crate::plan::{self, Prepared};
use crate::view::View;

/// Identifies one guest call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CallId(pub u64);

/// What came of a call, and what it read.
#[derive(Clone, Debug)]
pub struct CallDone {
    /// What is to be done.
    pub conclusion: Conclusion,
    /// Everything it read, with a hash of each answer.
    pub reads: Dependencies,
    /// Time on the worker thread in microseconds; the work queue is fair by it.
    pub elapsed_us: u64,
}

/// What came of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Conclusion {
    /// An outcome that keeps to the contract.
    Wants(Arc<Prepared>),
    /// The guest's own failure.
    Failed(Failure),
    /// The guest broke a bound, trapped, or returned what the contract forbids.
    Fault(GuestFault),
    /// The host could not run the call; the guest has no part in it.
    HostFault(String),
}

/// What the outcome of a call is checked against.
#[derive(Clone, Debug)]
pub struct Check {
    /// The controller.
    pub spec: Arc<ControllerSpec>,
    /// The last outcome of this very object by the same version: one that says the same is that one, and what is wanted in
    /// the same words is not checked again.
    pub before: Option<Arc<Prepared>>,
}

impl Check {
    /// Checks what a guest has returned for an object.
    pub fn conclude(&self, object: &Object, result: CallResult) -> Conclusion {
        let outcome = match result {
            CallResult::Done(outcome) => outcome,
            CallResult::Failed(failure) => return Conclusion::Failed(failure),
            CallResult::Fault(fault) => return Conclusion::Fault(fault),
            CallResult::HostFault(message) => return Conclusion::HostFault(message),
        };
        let before = self.before.as_ref();
        match plan::prepare(&self.spec, object, &outcome, before.map(Arc::as_ref)) {
            Ok(prepared) => {
                let same = before.filter(|before| ***before == prepared).cloned();
                Conclusion::Wants(same.unwrap_or_else(|| Arc::new(prepared)))
            }
            Err(fault) => Conclusion::Fault(fault),
        }
    }
}

/// One guest call.
#[derive(Debug)]
pub struct Call {
    /// Comes back in the answer.
    pub id: CallId,
    /// "podset/PodSet": plugin and kind, the label of metrics and logs.
    pub controller: Arc<str>,
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// Which component.
    pub digest: Digest,
    /// The reconciled object.
    pub object: Arc<Object>,
    /// What the guest may see.
    pub view: View,
    /// Bounds of the call.
    pub limits: CallLimits,
    /// What the outcome is checked against.
    pub check: Check,
}
