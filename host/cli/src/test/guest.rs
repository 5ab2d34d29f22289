//! A compiled component as a guest. Each call has a fresh instance with the host's bounds, on this thread.

use std::sync::Arc;

use mortise_core::admission::{AdmissionRequest, Verdict};
use mortise_core::contract::CallResult;
use mortise_core::conversion::{Conversion, ConversionRequest};
use mortise_core::dependencies::Dependencies;
use mortise_core::limits::CallLimits;
use mortise_core::view::View;
use mortise_stories::Guest;
use mortise_wasm::plugin::Plugin;

/// A loaded component.
#[derive(Debug)]
pub struct Component(pub Plugin);

impl Guest for Component {
    fn manifest(&self) -> Arc<str> {
        Arc::clone(self.0.manifest())
    }

    fn reconcile(&self, object: &str, view: View, limits: &CallLimits) -> (CallResult, Dependencies) {
        let done = self.0.call(object, view, limits);
        (done.result, done.reads)
    }

    fn admit(&self, request: &AdmissionRequest, limits: &CallLimits) -> Verdict {
        self.0.admit(request, limits)
    }

    fn convert(&self, request: &ConversionRequest, limits: &CallLimits) -> Conversion {
        self.0.convert(request, limits)
    }
}
