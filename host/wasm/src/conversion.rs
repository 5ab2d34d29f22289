//! The optional export `conversion`: found by its name, called by its index. An object and the version it is wanted in go in,
//! the object in that version or the guest's words about why not come out. Whether the guest has kept to the rules is not
//! judged here; as with `admission.rs`, the types are written down here instead of generated.

use mortise_core::contract::GuestFault;
use mortise_core::conversion::{Conversion as Answer, ConversionRequest};
use wasmtime::component::{Component, ComponentExportIndex, Instance, TypedFunc};
use wasmtime::{AsContextMut, Store};

use crate::host::{CallState, Inputs};
use crate::plugin::linked::{Linked, optional_export};
use crate::plugin::request::WebhookRequest;

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

    fn function<'a>(&self, store: impl AsContextMut, instance: &Instance) -> wasmtime::Result<Convert<'a>> {
        instance.get_typed_func(store, self.convert)
    }
}

impl WebhookRequest for ConversionRequest {
    type Answer = Answer;

    fn object(&self) -> &str {
        &self.object
    }

    fn inputs(&self) -> Inputs {
        Inputs::Request { now_unix_ms: self.now_unix_ms, config: self.config.clone() }
    }

    fn ask(&self, linked: &Linked, store: &mut Store<CallState>) -> wasmtime::Result<Answer> {
        let Some(conversion) = &linked.conversion else {
            return Ok(Answer::HostFault(format!("mortise asked a component that does not export {INTERFACE}")));
        };
        let instance = linked.pre.instance_pre().instantiate(&mut *store)?;
        let convert = conversion.function(&mut *store, &instance)?;
        let (answer,) = convert.call(store, (&self.object, &self.to_api_version))?;
        Ok(match answer {
            Ok(object) => Answer::Object(object),
            Err(why) => Answer::Refused(why),
        })
    }

    fn fault(fault: GuestFault) -> Answer {
        Answer::Fault(fault)
    }

    fn host_fault(message: String) -> Answer {
        Answer::HostFault(message)
    }
}
