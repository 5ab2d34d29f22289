//! The optional export `admission`: found by its name, called by its index. A question in the core's types goes in, a verdict
//! comes out.
//!
//! A component without it is a plugin like any other; one that exports it with other types than the contract's is refused
//! when it is tried. The types are written down here instead of generated, because a generated world either demands the
//! export or does not know it.

use mortise_core::admission::{self, AdmissionRequest, Verdict};
use mortise_core::contract::GuestFault;
use mortise_core::webhook::Purpose;
use wasmtime::component::{Component, ComponentExportIndex, ComponentType, Instance, Lift, Lower, TypedFunc};
use wasmtime::{AsContextMut, Store};

use crate::host::{CallState, Inputs};
use crate::plugin::linked::{Linked, optional_export};
use crate::plugin::request::WebhookRequest;

/// The interface. A component's own may be of any patch version.
pub(crate) const INTERFACE: &str = "mortise:plugin/admission@0.1.0";
const MUTATE: &str = "mutate";
const VALIDATE: &str = "validate";

type Parameters<'a> = (Operation, &'a str, Option<&'a str>);
type Mutate<'a> = TypedFunc<Parameters<'a>, (Result<String, Vec<Violation>>,)>;
type Validate<'a> = TypedFunc<Parameters<'a>, (Checked,)>;

/// `admission.operation`.
#[derive(ComponentType, Lower, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
enum Operation {
    #[component(name = "create")]
    Create,
    #[component(name = "update")]
    Update,
    #[component(name = "delete")]
    Delete,
}

/// `admission.violation`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Violation {
    field: String,
    message: String,
}

/// `admission.verdict`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Checked {
    violations: Vec<Violation>,
    warnings: Vec<String>,
}

/// Where a component's functions are.
pub(crate) struct Admission {
    mutate: ComponentExportIndex,
    validate: ComponentExportIndex,
}

impl Admission {
    /// None when the component does not export the interface; the text says what it lacks.
    pub(crate) fn of(component: &Component) -> Result<Option<Self>, String> {
        let functions = optional_export(component, INTERFACE, [MUTATE, VALIDATE])?;
        Ok(functions.map(|[mutate, validate]| Self { mutate, validate }))
    }

    /// Compares the functions' types with the contract's, which only an instance can tell.
    pub(crate) fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<()> {
        self.mutate(&mut *store, instance)?;
        self.validate(store, instance)?;
        Ok(())
    }

    fn mutate<'a>(&self, store: impl AsContextMut, instance: &Instance) -> wasmtime::Result<Mutate<'a>> {
        instance.get_typed_func(store, self.mutate)
    }

    fn validate<'a>(&self, store: impl AsContextMut, instance: &Instance) -> wasmtime::Result<Validate<'a>> {
        instance.get_typed_func(store, self.validate)
    }
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
        ask(linked, store, self)
    }

    fn fault(fault: GuestFault) -> Verdict {
        Verdict::Fault(fault)
    }

    fn host_fault(message: String) -> Verdict {
        Verdict::HostFault(message)
    }
}

fn ask(linked: &Linked, store: &mut Store<CallState>, question: &AdmissionRequest) -> wasmtime::Result<Verdict> {
    let Some(admission) = &linked.admission else {
        return Ok(Verdict::HostFault(format!("mortise asked a component that does not export {INTERFACE}")));
    };
    let instance = linked.pre.instance_pre().instantiate(&mut *store)?;
    let operation = match question.operation {
        admission::Operation::Create => Operation::Create,
        admission::Operation::Update => Operation::Update,
        admission::Operation::Delete => Operation::Delete,
    };
    let parameters = (operation, &*question.object, question.old.as_deref());
    match question.purpose {
        Purpose::Mutate => {
            let (answer,) = admission.mutate(&mut *store, &instance)?.call(store, parameters)?;
            Ok(match answer {
                Ok(object) => Verdict::Completed(object),
                Err(violations) => Verdict::Checked { violations: unsatisfied(violations), warnings: Vec::new() },
            })
        }
        Purpose::Validate => {
            let (Checked { violations, warnings },) =
                admission.validate(&mut *store, &instance)?.call(store, parameters)?;
            let violations = violations.into_iter().map(Violation::into).collect();
            Ok(Verdict::Checked { violations, warnings })
        }
    }
}

/// A mutation that failed refuses the object, also when it does not say why.
fn unsatisfied(violations: Vec<Violation>) -> Vec<admission::Violation> {
    if violations.is_empty() {
        let message = "the plugin could not fill in its defaults, and did not say why".to_owned();
        return vec![admission::Violation { field: String::new(), message }];
    }
    violations.into_iter().map(Violation::into).collect()
}

impl From<Violation> for admission::Violation {
    fn from(violation: Violation) -> Self {
        Self { field: violation.field, message: violation.message }
    }
}
