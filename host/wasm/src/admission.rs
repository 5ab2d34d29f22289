//! The optional export `admission`: found by its name, called by its index. A question in the core's types goes in, a verdict
//! comes out.
//!
//! A component without it is a plugin like any other; one that exports it with other types than the contract's is refused
//! when it is tried. The types are written down here instead of generated, because a generated world either demands the
//! export or does not know it.

use mortise_core::admission::{self, AdmissionRequest, Verdict};
use mortise_core::webhook::Purpose;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, Instance, InstancePre, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Store};

use crate::exports::optional_export;
use crate::state::CallState;

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

    /// Asks a fresh instance.
    pub(crate) fn ask(
        &self,
        pre: &InstancePre<CallState>,
        store: &mut Store<CallState>,
        question: &AdmissionRequest,
    ) -> wasmtime::Result<Verdict> {
        let instance = pre.instantiate(&mut *store)?;
        let operation = match question.operation {
            admission::Operation::Create => Operation::Create,
            admission::Operation::Update => Operation::Update,
            admission::Operation::Delete => Operation::Delete,
        };
        let parameters = (operation, &*question.object, question.old.as_deref());
        match question.purpose {
            Purpose::Mutate => {
                let (answer,) = self.mutate(&mut *store, &instance)?.call(store, parameters)?;
                Ok(match answer {
                    Ok(object) => Verdict::Completed(object),
                    Err(violations) => Verdict::Checked { violations: unsatisfied(violations), warnings: Vec::new() },
                })
            }
            Purpose::Validate => {
                let (Checked { violations, warnings },) =
                    self.validate(&mut *store, &instance)?.call(store, parameters)?;
                let violations = violations.into_iter().map(Violation::into).collect();
                Ok(Verdict::Checked { violations, warnings })
            }
        }
    }

    fn mutate<'a>(&self, store: impl AsContextMut, instance: &Instance) -> wasmtime::Result<Mutate<'a>> {
        instance.get_typed_func(store, self.mutate)
    }

    fn validate<'a>(&self, store: impl AsContextMut, instance: &Instance) -> wasmtime::Result<Validate<'a>> {
        instance.get_typed_func(store, self.validate)
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
