//! What one plugin needs in memory to be called: its component, linked. Made from the artifact when a call needs it, given
//! back when no call has for a while, so that a plugin without work costs the host next to nothing.
//!
//! The artifact is held open: cleaning or pruning the compile cache cannot take it away, and what stood at its path when
//! it was checked is what is mapped each time. Knows nothing of calls.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex, Instance};

use crate::admission::{self, Admission};
use crate::bindings::PluginPre;
use crate::conversion::{self, Conversion};
use crate::engine::Engine;
use crate::state::CallState;

/// The interface that every plugin exports, and its function that a call calls.
const INTERFACE: &str = "mortise:plugin/reconciler@0.1.0";
const RECONCILE: &str = "reconcile";

/// A component that is linked and can be instantiated.
pub(crate) struct Linked {
    pub(crate) pre: PluginPre<CallState>,
    /// Where its reconcile function is, so that no call has to look for it by name.
    pub(super) reconcile: ComponentExportIndex,
    /// Where its admission functions are, if it exports them.
    pub(crate) admission: Option<Admission>,
    /// Where its conversion function is, if it exports one.
    pub(crate) conversion: Option<Conversion>,
}

/// Why a component cannot be linked.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The artifact cannot be mapped.
    Artifact(wasmtime::Error),
    /// It is not what the contract asks for; the text says where.
    Contract(String),
}

impl Linked {
    fn of(engine: &Engine, component: &Component) -> Result<Self, LinkError> {
        let pre = engine.linker().instantiate_pre(component).map_err(|error| {
            LinkError::Contract(format!("the component does not fit the host's interfaces: {error:#}"))
        })?;
        let pre = PluginPre::new(pre).map_err(|error| {
            LinkError::Contract(format!("the component's exports do not fit the contract: {error:#}"))
        })?;
        let reconcile = reconcile_index(component)
            .ok_or_else(|| LinkError::Contract(format!("the component exports no function {INTERFACE}#{RECONCILE}")))?;
        let admission = Admission::of(component).map_err(LinkError::Contract)?;
        let conversion = Conversion::of(component).map_err(LinkError::Contract)?;
        Ok(Self { pre, reconcile, admission, conversion })
    }

    /// Compares the types of the optional exports with the contract's, which only an instance can tell; the text says which
    /// does not fit.
    pub(super) fn check_optional(&self, store: &mut Store<CallState>, instance: &Instance) -> Result<(), String> {
        let unfit = |interface: &'static str| {
            move |error| format!("the component's export {interface} does not fit the contract: {error:#}")
        };
        if let Some(admission) = &self.admission {
            admission.check(&mut *store, instance).map_err(unfit(admission::INTERFACE))?;
        }
        if let Some(conversion) = &self.conversion {
            conversion.check(store, instance).map_err(unfit(conversion::INTERFACE))?;
        }
        Ok(())
    }
}

/// Where a component's reconcile function is. Its type was checked when the exports were.
fn reconcile_index(component: &Component) -> Option<ComponentExportIndex> {
    let interface = component.get_export_index(None, INTERFACE)?;
    component.get_export_index(Some(&interface), RECONCILE)
}

/// An artifact, and what is linked of it at present.
pub(super) struct Artifact {
    file: Arc<File>,
    present: Mutex<Option<Present>>,
}

struct Present {
    linked: Arc<Linked>,
    used: Instant,
}

impl Artifact {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, present: Mutex::new(None) }
    }

    /// What a call needs. The first one waits for about as long as some calls take while the artifact is mapped.
    pub(super) fn linked(&self, engine: &Engine) -> Result<Arc<Linked>, LinkError> {
        let mut present = self.lock();
        let used = Instant::now();
        if let Some(present) = present.as_mut() {
            present.used = used;
            return Ok(Arc::clone(&present.linked));
        }
        let component = engine.component(&self.file).map_err(LinkError::Artifact)?;
        let linked = Arc::new(Linked::of(engine, &component)?);
        *present = Some(Present { linked: Arc::clone(&linked), used });
        Ok(linked)
    }

    /// Gives the memory back if no call has asked for as long as this. Calls that run keep what they have.
    pub(super) fn release(&self, unused_for: Duration) {
        let mut present = self.lock();
        if present.as_ref().is_some_and(|present| present.used.elapsed() >= unused_for) {
            *present = None;
        }
    }

    #[cfg(test)]
    pub(super) fn is_linked(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Present>> {
        // A panic under the lock leaves it as it was: nothing linked.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
