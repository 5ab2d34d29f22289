//! A plugin as stories call it. It must not know where it comes from: a component, or a function of this process.

use std::sync::Arc;

use mortise_core::admission::{AdmissionRequest, Verdict};
use mortise_core::contract::CallResult;
use mortise_core::conversion::{Conversion, ConversionRequest};
use mortise_core::dependencies::Dependencies;
use mortise_core::limits::CallLimits;
use mortise_core::view::View;

/// A plugin.
pub trait Guest {
    /// Its manifest, as JSON text.
    fn manifest(&self) -> Arc<str>;

    /// Reconciles an object, given as JSON text; returns how that ended, and [`View::into_dependencies`] of the view.
    fn reconcile(&self, object: &str, view: View, limits: &CallLimits) -> (CallResult, Dependencies);

    /// Answers an admission request.
    fn admit(&self, request: &AdmissionRequest, limits: &CallLimits) -> Verdict;

    /// Converts an object to another version.
    fn convert(&self, request: &ConversionRequest, limits: &CallLimits) -> Conversion;
}
