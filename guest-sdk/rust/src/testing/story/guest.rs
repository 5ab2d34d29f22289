//! A plugin's native functions as the guest of a story: the engine's types come in and go out. A panic is a trap.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mortise_core::admission::{
    AdmissionRequest, Checked, Operation as CoreOperation, Verdict, Violation as CoreViolation,
};
use mortise_core::contract::{CallResult, Failure as CoreFailure, GuestFault};
use mortise_core::conversion::{Conversion, ConversionRequest};
use mortise_core::dependencies::Dependencies;
use mortise_core::limits::CallLimits;
use mortise_core::view::View as CoreView;
use mortise_core::webhook::Purpose;
use mortise_stories::Guest;

use crate::admission::{Operation, Request, Violation};
use crate::context::Context;
use crate::engine_contract;
use crate::error::Failure;
use crate::export::contract_outcome;
use crate::manifest::Plugin;
use crate::view::native::engine::{EngineView, WaitsFor};
use crate::view::{Inputs, View};

pub(super) struct Native(pub(super) &'static Plugin);

/// What a panic says.
fn trap(payload: &(dyn Any + Send)) -> GuestFault {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    GuestFault::Trap { message: text.unwrap_or_else(|| "panicked".to_owned()), detail: String::new() }
}

fn violation(violation: Violation) -> CoreViolation {
    CoreViolation::new(violation.field, violation.message)
}

impl Guest for Native {
    fn manifest(&self) -> Arc<str> {
        self.0.manifest().into()
    }

    fn reconcile(&self, object: &str, view: CoreView, _: &CallLimits) -> (CallResult, Dependencies) {
        let view = EngineView::new(view);
        let cx = Context::new(View::Engine(view.clone()), Inputs::of_engine(view.clone()));
        let called = catch_unwind(AssertUnwindSafe(|| self.0.reconcile(object, &cx).and_then(contract_outcome)));
        drop(cx);
        let result = match called {
            Ok(Ok(outcome)) => CallResult::Done(engine_contract::outcome(outcome)),
            Ok(Err(Failure::Retry(message))) => CallResult::Failed(CoreFailure::Retry(message)),
            Ok(Err(Failure::Terminal(message))) => CallResult::Failed(CoreFailure::Terminal(message)),
            Err(payload) => match payload.downcast::<WaitsFor>() {
                Ok(waits) => CallResult::Waits(waits.0),
                Err(payload) => CallResult::Fault(trap(&*payload)),
            },
        };
        (result, view.into_view().into_dependencies())
    }

    fn admit(&self, request: &AdmissionRequest, _: &CallLimits) -> Verdict {
        let wanted = Request {
            operation: match request.operation {
                CoreOperation::Create => Operation::Create,
                CoreOperation::Update => Operation::Update,
                CoreOperation::Delete => Operation::Delete,
            },
            object: request.object.to_string(),
            old: request.old.as_deref().map(str::to_owned),
            inputs: Inputs::given(request.now_unix_ms, request.config.to_string()),
        };
        let admit = || match request.purpose {
            Purpose::Mutate => match self.0.mutate(&wanted) {
                Ok(object) => Verdict::Completed(object),
                Err(violations) => Verdict::Checked(Checked::new(violations.into_iter().map(violation), [])),
            },
            Purpose::Validate => {
                let crate::Verdict { violations, warnings } = self.0.validate(&wanted);
                Verdict::Checked(Checked::new(violations.into_iter().map(violation), warnings))
            }
        };
        catch_unwind(AssertUnwindSafe(admit)).unwrap_or_else(|payload| Verdict::Fault(trap(&*payload)))
    }

    fn convert(&self, request: &ConversionRequest, _: &CallLimits) -> Conversion {
        let convert = || match self.0.convert(&request.object, &request.to_api_version) {
            Ok(object) => Conversion::Object(object),
            Err(why) => Conversion::Refused(why),
        };
        catch_unwind(AssertUnwindSafe(convert)).unwrap_or_else(|payload| Conversion::Fault(trap(&*payload)))
    }
}
