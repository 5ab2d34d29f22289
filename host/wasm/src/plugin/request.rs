//! What the questions of the API server have in common: an object, a time and a configuration go in, and the answer says as
//! well whose fault it is that there is none. What is asked and how stands with each export.

use std::fmt::Debug;

use mortise_core::admission::{AdmissionRequest, Verdict};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::{Conversion, ConversionRequest};
use wasmtime::Store;

use super::linked::Linked;
use crate::state::{CallState, Inputs};
use crate::{admission, conversion};

/// A question that an optional export answers.
pub(crate) trait WebhookRequest: Debug {
    /// Its answer.
    type Answer;

    /// The object that it is about, as JSON text.
    fn object(&self) -> &str;

    /// What the call depends on beside it.
    fn inputs(&self) -> Inputs;

    /// Asks, in an instance of its own.
    fn ask(&self, linked: &Linked, store: &mut Store<CallState>) -> wasmtime::Result<Self::Answer>;

    /// The guest gave no usable answer.
    fn fault(fault: GuestFault) -> Self::Answer;

    /// The host could not ask; one sentence for a person.
    fn host_fault(message: String) -> Self::Answer;
}

impl WebhookRequest for AdmissionRequest {
    type Answer = Verdict;

    fn object(&self) -> &str {
        &self.object
    }

    fn inputs(&self) -> Inputs {
        Inputs::Request { now_unix_ms: self.now_unix_ms, config: self.config.clone() }
    }

    fn ask(&self, linked: &Linked, store: &mut Store<CallState>) -> wasmtime::Result<Verdict> {
        match &linked.admission {
            Some(admission) => admission.ask(linked.pre.instance_pre(), store, self),
            None => Ok(Verdict::HostFault(not_exported(admission::INTERFACE))),
        }
    }

    fn fault(fault: GuestFault) -> Verdict {
        Verdict::Fault(fault)
    }

    fn host_fault(message: String) -> Verdict {
        Verdict::HostFault(message)
    }
}

impl WebhookRequest for ConversionRequest {
    type Answer = Conversion;

    fn object(&self) -> &str {
        &self.object
    }

    fn inputs(&self) -> Inputs {
        Inputs::Request { now_unix_ms: self.now_unix_ms, config: self.config.clone() }
    }

    fn ask(&self, linked: &Linked, store: &mut Store<CallState>) -> wasmtime::Result<Conversion> {
        match &linked.conversion {
            Some(conversion) => conversion.ask(linked.pre.instance_pre(), store, self),
            None => Ok(Conversion::HostFault(not_exported(conversion::INTERFACE))),
        }
    }

    fn fault(fault: GuestFault) -> Conversion {
        Conversion::Fault(fault)
    }

    fn host_fault(message: String) -> Conversion {
        Conversion::HostFault(message)
    }
}

fn not_exported(interface: &str) -> String {
    format!("mortise asked a component that does not export {interface}")
}
