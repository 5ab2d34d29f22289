//! A plugin's linked component: mapped from the artifact at the first call and freed after a while without calls, so
//! that an idle plugin costs next to nothing.
//!
//! The artifact's file is held open, so that pruning the compile cache cannot remove it, and every mapping is of the
//! file that was verified. Knows nothing of calls.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex, Instance};

use crate::admission::{self, Admission};
use crate::bindings::PluginPre;
use crate::conversion::{self, Conversion};
use crate::engine::Engine;
use crate::outcome::Reconcile;
use crate::state::CallState;

/// The interface that every plugin exports, and its function that reconciles.
const INTERFACE: &str = "mortise:plugin/reconciler@0.2.0";
const RECONCILE: &str = "reconcile";

/// A component that is ready to be instantiated.
pub(crate) struct Linked {
    pub(crate) pre: PluginPre<CallState>,
    pub(crate) reconcile: Reconcile,
    pub(crate) admission: Option<Admission>,
    pub(crate) conversion: Option<Conversion>,
}

/// Why a component cannot be linked.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The artifact cannot be mapped.
    Artifact(wasmtime::Error),
    /// It does not match the contract; the text says where.
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
        Ok(Self { pre, reconcile: Reconcile::new(reconcile), admission, conversion })
    }

    /// Compares the types of the optional exports with the contract's, which takes an instance.
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

fn reconcile_index(component: &Component) -> Option<ComponentExportIndex> {
    let interface = component.get_export_index(None, INTERFACE)?;
    component.get_export_index(Some(&interface), RECONCILE)
}

/// An artifact, with its linked component while that is in memory.
pub(super) struct Artifact {
    file: Arc<File>,
    mapped: Mutex<Option<Mapped>>,
}

struct Mapped {
    linked: Arc<Linked>,
    used: Instant,
}

impl Artifact {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, mapped: Mutex::new(None) }
    }

    /// The linked component. The first call waits about a millisecond while the artifact is mapped.
    pub(super) fn linked(&self, engine: &Engine) -> Result<Arc<Linked>, LinkError> {
        let mut mapped = self.lock();
        let used = Instant::now();
        if let Some(mapped) = mapped.as_mut() {
            mapped.used = used;
            return Ok(Arc::clone(&mapped.linked));
        }
        let component = engine.component(&self.file).map_err(LinkError::Artifact)?;
        let linked = Arc::new(Linked::of(engine, &component)?);
        *mapped = Some(Mapped { linked: Arc::clone(&linked), used });
        Ok(linked)
    }

    /// Frees the linked component if the last use is at least this long ago. Calls in progress keep theirs. The event loop does not
    /// wait here for a worker that links it, which is to use it and may have little of a core.
    pub(super) fn release(&self, unused_for: Duration) {
        let mut mapped = match self.mapped.try_lock() {
            Ok(mapped) => mapped,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if mapped.as_ref().is_some_and(|mapped| mapped.used.elapsed() >= unused_for) {
            *mapped = None;
        }
    }

    #[cfg(test)]
    pub(super) fn is_linked(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Mapped>> {
        // A panic under the lock leaves it as it was: nothing linked.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::engine::EngineOptions;
    use crate::testing::{idle_guest, load};

    #[test]
    fn q4_the_event_loop_does_not_wait_for_a_worker_that_links_a_component() {
        let engine = Engine::new(EngineOptions::default()).unwrap();
        let plugin = Arc::new(load(&engine, &idle_guest()).unwrap());
        plugin.artifact.linked(&engine).unwrap();
        let linking = plugin.artifact.lock();
        let (sender, released) = crossbeam_channel::bounded(1);
        thread::spawn({
            let plugin = Arc::clone(&plugin);
            move || {
                plugin.release(Duration::ZERO);
                sender.send(()).unwrap();
            }
        });
        released.recv_timeout(Duration::from_secs(30)).expect("the loop does not wait");
        assert!(linking.is_some(), "it is used");
        drop(linking);
        plugin.release(Duration::ZERO);
        assert!(!plugin.artifact.is_linked());
    }
}
