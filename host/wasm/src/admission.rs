//! The optional export `admission`: found by its name, called by its index. A request and its result are of
//! mortise-core's types.
//!
//! A component that exports it with other types than the contract's is refused at its trial. The types are written by
//! hand, because a generated world either requires an export or does not know it.

use mortise_core::admission::{self, AdmissionRequest, Verdict};
use mortise_core::webhook::Purpose;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, Instance, InstancePre, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Store};

use crate::exports::optional_export;
use crate::state::CallState;

/// The interface. A component's own may be of any patch version.
pub(crate) const INTERFACE: &str = "mortise:plugin/admission@0.2.0";
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

/// What `admission.validate` returns.
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
    /// None when the component does not export the interface; the error says what it lacks.
    pub(crate) fn of(component: &Component) -> Result<Option<Self>, String> {
        let functions = optional_export(component, INTERFACE, ["mutate", "validate"])?;
        Ok(functions.map(|[mutate, validate]| Self { mutate, validate }))
    }

    /// Compares the functions' types with the contract's, which takes an instance.
    pub(crate) fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<()> {
        self.mutate(&mut *store, instance)?;
        self.validate(store, instance)?;
        Ok(())
    }

    pub(crate) fn call(
        &self,
        pre: &InstancePre<CallState>,
        store: &mut Store<CallState>,
        request: &AdmissionRequest,
    ) -> wasmtime::Result<Verdict> {
        let instance = pre.instantiate(&mut *store)?;
        let operation = match request.operation {
            admission::Operation::Create => Operation::Create,
            admission::Operation::Update => Operation::Update,
            admission::Operation::Delete => Operation::Delete,
        };
        let parameters = (operation, &*request.object, request.old.as_deref());
        match request.purpose {
            Purpose::Mutate => {
                let (mutated,) = self.mutate(&mut *store, &instance)?.call(store, parameters)?;
                Ok(match mutated {
                    Ok(object) => Verdict::Completed(object),
                    Err(violations) => Verdict::Checked(admission::Checked::new(at_least_one(violations), [])),
                })
            }
            Purpose::Validate => {
                let (Checked { violations, warnings },) =
                    self.validate(&mut *store, &instance)?.call(store, parameters)?;
                let violations = violations.into_iter().map(admission::Violation::from);
                Ok(Verdict::Checked(admission::Checked::new(violations, warnings)))
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

/// A failed mutation denies the object, also when the guest names no violation.
fn at_least_one(violations: Vec<Violation>) -> Vec<admission::Violation> {
    if violations.is_empty() {
        return vec![admission::Violation::new("", "the plugin could not set its defaults and gave no reason")];
    }
    violations.into_iter().map(Violation::into).collect()
}

impl From<Violation> for admission::Violation {
    fn from(violation: Violation) -> Self {
        Self::new(violation.field, violation.message)
    }
}
