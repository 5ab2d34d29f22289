//! The optional export `conversion`: found by its name, called by its index. An object and the wanted version go in,
//! the object in that version or the guest's reason against it comes out. mortise-core checks that the guest kept the
//! rules. As in `admission.rs`, the types are written by hand.

use mortise_core::conversion::{self, ConversionRequest};
use mortise_core::text::DENIAL;
use wasmtime::component::{Component, ComponentExportIndex, Instance, InstancePre, TypedFunc};
use wasmtime::{AsContextMut, Store};

use crate::exports::optional_export;
use crate::state::CallState;

/// The interface. A component's own may be of any patch version.
pub(crate) const INTERFACE: &str = "mortise:plugin/conversion@0.2.0";

type Convert<'a> = TypedFunc<(&'a str, &'a str), (Result<String, String>,)>;

/// Where a component's function is.
pub(crate) struct Conversion {
    convert: ComponentExportIndex,
}

impl Conversion {
    /// None when the component does not export the interface; the error says what it lacks.
    pub(crate) fn of(component: &Component) -> Result<Option<Self>, String> {
        Ok(optional_export(component, INTERFACE, ["convert"])?.map(|[convert]| Self { convert }))
    }

    /// Compares the function's type with the contract's, which takes an instance.
    pub(crate) fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<()> {
        self.function(store, instance).map(drop)
    }

    pub(crate) fn call(
        &self,
        pre: &InstancePre<CallState>,
        store: &mut Store<CallState>,
        request: &ConversionRequest,
    ) -> wasmtime::Result<conversion::Conversion> {
        let instance = pre.instantiate(&mut *store)?;
        let convert = self.function(&mut *store, &instance)?;
        let (converted,) = convert.call(store, (&request.object, &request.to_api_version))?;
        Ok(converted
            .map_or_else(|why| conversion::Conversion::Refused(DENIAL.own(why)), conversion::Conversion::Object))
    }

    fn function<'a>(&self, store: impl AsContextMut, instance: &Instance) -> wasmtime::Result<Convert<'a>> {
        instance.get_typed_func(store, self.convert)
    }
}
