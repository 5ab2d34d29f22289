//! What the questions of the API server have in common: an object, a time and a configuration go in, and the answer says as
//! well whose fault it is that there is none. What is asked and how stands with each export.

use std::fmt::Debug;

use mortise_core::contract::GuestFault;
use wasmtime::Store;

use super::linked::Linked;
use crate::host::{CallState, Inputs};

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
