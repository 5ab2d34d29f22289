//! The optional export `conversion`: found by its name, called by its index. An object and the version it is wanted in go in,
//! the object in that version or the guest's words about why not come out. Whether the guest has kept to the rules is not
//! judged here; as with `admission.rs`, the types are written down here instead of generated.

use mortise_core::conversion::{Conversion as Answer, ConversionRequest};
use wasmtime::component::{Component, ComponentExportIndex, Instance, InstancePre, TypedFunc};
use wasmtime::{AsContextMut, Store};

use crate::exports::optional_export;
use crate::state::CallState;

/// The interface. A component's own may be of any patch version.
pub(crate) const INTERFACE: &str = "mortise:plugin/conversion@0.1.0";

type Convert<'a> = TypedFunc<(&'a str, &'a str), (Result<String, String>,)>;

/// Where a component's function is.
pub(crate) struct Conversion {
    convert: ComponentExportIndex,
}

impl Conversion {
    /// None when the component does not export the interface; the text says what it lacks.
    pub(crate) fn of(component: &Component) -> Result<Option<Self>, String> {
        Ok(optional_export(component, INTERFACE, ["convert"])?.map(|[convert]| Self { convert }))
    }

    /// Compares the function's type with the contract's, which only an instance can tell.
    pub(crate) fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<()> {
        self.function(store, instance).map(drop)
    }

    /// Asks a fresh instance.
    pub(crate) fn ask(
        &self,
        pre: &InstancePre<CallState>,
        store: &mut Store<CallState>,
        question: &ConversionRequest,
    ) -> wasmtime::Result<Answer> {
        let instance = pre.instantiate(&mut *store)?;
        let convert = self.function(&mut *store, &instance)?;
        let (answer,) = convert.call(store, (&question.object, &question.to_api_version))?;
        Ok(match answer {
            Ok(object) => Answer::Object(object),
            Err(why) => Answer::Refused(why),
        })
    }

    fn function<'a>(&self, store: impl AsContextMut, instance: &Instance) -> wasmtime::Result<Convert<'a>> {
        instance.get_typed_func(store, self.convert)
    }
}
