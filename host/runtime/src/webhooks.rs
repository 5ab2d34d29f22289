//! What the API server asks before it stores objects, and when it wants them in another version. `webhooks/answer.rs` and
//! `webhooks/convert.rs` answer one question, `webhooks/keeper.rs` sees to it that the API server knows where to ask and
//! whom to believe; here is what they share: which version of which plugin answers.
//!
//! The driver decides who answers, and changes it in one step: a version answers until the next one does.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use mortise_core::{admission, conversion};
use mortise_wasm::plugin::Plugin;
use tokio::sync::watch;

pub(crate) mod answer;
mod convert;
pub(crate) mod keeper;

/// A version that answers for a plugin.
#[derive(Debug)]
pub(crate) struct Route<S> {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) serving: Arc<S>,
}

impl<S> Clone for Route<S> {
    fn clone(&self) -> Self {
        Self { plugin: Arc::clone(&self.plugin), serving: Arc::clone(&self.serving) }
    }
}

/// Which plugins the API server is to ask, by name.
#[derive(Clone, Default, Debug)]
pub(crate) struct Wanted {
    /// Before it stores objects. None: no longer, and it has to be told.
    pub(crate) admission: Admission,
    /// When it wants objects in another version.
    pub(crate) conversion: BTreeMap<Arc<str>, Arc<conversion::ConversionBackend>>,
}

pub(crate) type Admission = BTreeMap<Arc<str>, Option<Arc<admission::AdmissionBackend>>>;
type Routes<S> = Arc<RwLock<BTreeMap<Arc<str>, Route<S>>>>;

/// Who answers, and who is to be asked. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Webhooks {
    routes: Routes<admission::AdmissionBackend>,
    /// Definitions stay when their plugins go, and go on asking: whoever answered last does so until the host ends.
    converters: Routes<conversion::ConversionBackend>,
    wanted: Arc<watch::Sender<Wanted>>,
}

impl Webhooks {
    pub(crate) fn new() -> Self {
        Self {
            routes: Arc::default(),
            converters: Arc::default(),
            wanted: Arc::new(watch::channel(Wanted::default()).0),
        }
    }

    /// This version answers from now on.
    pub(crate) fn serve(&self, name: &Arc<str>, route: Route<admission::AdmissionBackend>) {
        let serving = Arc::clone(&route.serving);
        self.routes.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(name), route);
        self.wanted.send_modify(|wanted| drop(wanted.admission.insert(Arc::clone(name), Some(serving))));
    }

    /// The API server is to ask no longer; until it knows, whoever answered goes on.
    pub(crate) fn end(&self, name: &Arc<str>) {
        self.wanted.send_modify(|wanted| drop(wanted.admission.insert(Arc::clone(name), None)));
    }

    /// This version converts from now on.
    pub(crate) fn convert(&self, name: &Arc<str>, route: Route<conversion::ConversionBackend>) {
        let serving = Arc::clone(&route.serving);
        self.converters.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(name), route);
        self.wanted.send_modify(|wanted| drop(wanted.conversion.insert(Arc::clone(name), serving)));
    }

    /// Nobody has to be told any more who converts.
    pub(crate) fn end_conversion(&self, name: &Arc<str>) {
        self.wanted.send_modify(|wanted| drop(wanted.conversion.remove(name)));
    }

    /// The API server asks no longer. A plugin that has come again meanwhile stays.
    fn ended(&self, name: &Arc<str>) {
        self.wanted.send_if_modified(|wanted| {
            if wanted.admission.get(name).is_some_and(Option::is_none) {
                wanted.admission.remove(name);
                self.routes.write().unwrap_or_else(PoisonError::into_inner).remove(name);
            }
            // Nobody has to do anything about it.
            false
        });
    }

    fn route(&self, name: &str) -> Option<Route<admission::AdmissionBackend>> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn converter(&self, name: &str) -> Option<Route<conversion::ConversionBackend>> {
        self.converters.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn subscribe(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }
}
