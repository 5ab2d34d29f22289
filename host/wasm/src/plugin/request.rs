//! Requests of the API server, admission and conversion: an object, a time and a configuration go in; the response, a
//! fault of the guest or a fault of the host comes out. `admission.rs` and `conversion.rs` make the calls.

use std::fmt::Debug;

use mortise_core::admission::{AdmissionRequest, Verdict};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::{Conversion, ConversionRequest};
use wasmtime::Store;

use super::linked::Linked;
use crate::state::{CallState, Inputs};
use crate::{admission, conversion};

/// A request that an optional export answers.
pub(crate) trait WebhookRequest: Debug {
    type Response;

    /// What else the call depends on.
    fn inputs(&self) -> Inputs;

    /// Calls the export of a fresh instance.
    fn call(&self, linked: &Linked, store: &mut Store<CallState>) -> wasmtime::Result<Self::Response>;

    fn fault(fault: GuestFault) -> Self::Response;

    /// The host could not make the call.
    fn host_fault(message: String) -> Self::Response;
}

impl WebhookRequest for AdmissionRequest {
    type Response = Verdict;

    fn inputs(&self) -> Inputs {
        Inputs::Request { now_unix_ms: self.now_unix_ms, config: self.config.clone() }
    }

    fn call(&self, linked: &Linked, store: &mut Store<CallState>) -> wasmtime::Result<Verdict> {
        match &linked.admission {
            Some(admission) => admission.call(linked.pre.instance_pre(), store, self),
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
    type Response = Conversion;

    fn inputs(&self) -> Inputs {
        Inputs::Request { now_unix_ms: self.now_unix_ms, config: self.config.clone() }
    }

    fn call(&self, linked: &Linked, store: &mut Store<CallState>) -> wasmtime::Result<Conversion> {
        match &linked.conversion {
            Some(conversion) => conversion.call(linked.pre.instance_pre(), store, self),
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
    format!("mortise called a component that does not export {interface}")
}
