//! Admission and conversion webhooks. `webhooks/review.rs` and `webhooks/convert.rs` respond to one request,
//! `webhooks/capacity.rs` and `webhooks/room.rs` bound the requests, `webhooks/parsing.rs` reads their JSON,
//! `webhooks/clients.rs` says whose they may be, `webhooks/registrar.rs` registers the webhooks with the API server;
//! this file has what they share: the backend of each plugin.
//!
//! The engine chooses the backends: a version serves until the next one does.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mortise_core::{admission, conversion};
use mortise_wasm::plugin::Plugin;
use tokio::sync::Notify;

pub(crate) mod capacity;
pub(crate) mod clients;
mod convert;
pub(crate) mod parsing;
pub(crate) mod registrar;
pub(crate) mod review;
mod room;

/// A backend, with its loaded component.
#[derive(Debug)]
pub(crate) struct Route<B> {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) backend: Arc<B>,
}

impl<B> Clone for Route<B> {
    fn clone(&self) -> Self {
        Self { plugin: Arc::clone(&self.plugin), backend: Arc::clone(&self.backend) }
    }
}

/// What to register for one plugin.
#[derive(Clone, Default, Debug)]
struct Wanted {
    admission: Admission,
    conversion: Option<Arc<conversion::ConversionBackend>>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        self.conversion.is_none() && matches!(self.admission, Admission::None)
    }

    fn is_served(&self) -> bool {
        self.conversion.is_some() || matches!(self.admission, Admission::Served(_))
    }
}

#[derive(Clone, Default, Debug)]
enum Admission {
    #[default]
    None,
    Served(Arc<admission::AdmissionBackend>),
    /// Its configurations must be deleted.
    Ending,
}

#[derive(Default, Debug)]
struct AllWanted {
    plugins: BTreeMap<Arc<str>, Wanted>,
    /// Plugins that changed since the registrar last took them.
    changed: BTreeSet<Arc<str>>,
}

type Routes<B> = Arc<RwLock<BTreeMap<Arc<str>, Route<B>>>>;

/// The backends, and what to register for them. Clones share it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Webhooks {
    routes: Routes<admission::AdmissionBackend>,
    /// A CRD stays when its plugin is removed, and still names the webhook: the last backend converts until the host
    /// ends.
    converters: Routes<conversion::ConversionBackend>,
    wanted: Arc<Mutex<AllWanted>>,
    changed: Arc<Notify>,
}

impl Webhooks {
    pub(crate) fn serve(&self, name: &Arc<str>, route: Route<admission::AdmissionBackend>) {
        let admission = Admission::Served(Arc::clone(&route.backend));
        self.routes.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(name), route);
        self.change(name, |wanted| wanted.admission = admission);
    }

    /// Has the configurations deleted. The backend serves until the API server has noticed.
    pub(crate) fn end(&self, name: &Arc<str>) {
        self.change(name, |wanted| wanted.admission = Admission::Ending);
    }

    pub(crate) fn convert(&self, name: &Arc<str>, route: Route<conversion::ConversionBackend>) {
        let conversion = Some(Arc::clone(&route.backend));
        self.converters.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(name), route);
        self.change(name, |wanted| wanted.conversion = conversion);
    }

    /// Ends the reports of the endpoint; the backend converts on.
    pub(crate) fn end_conversion(&self, name: &Arc<str>) {
        self.change(name, |wanted| wanted.conversion = None);
    }

    fn change(&self, name: &Arc<str>, change: impl FnOnce(&mut Wanted)) {
        let mut all = self.all();
        change(all.plugins.entry(Arc::clone(name)).or_default());
        all.changed.insert(Arc::clone(name));
        drop(all);
        self.changed.notify_one();
    }

    /// The configurations are deleted. A plugin that is served again meanwhile stays.
    fn ended(&self, name: &Arc<str>) {
        let mut all = self.all();
        let ending = all.plugins.get_mut(name).filter(|wanted| matches!(wanted.admission, Admission::Ending));
        if let Some(wanted) = ending {
            wanted.admission = Admission::None;
            if wanted.is_nothing() {
                all.plugins.remove(name);
            }
        }
    }

    /// Removes the backend, unless the plugin is served again meanwhile.
    fn unroute(&self, name: &Arc<str>) {
        let all = self.all();
        if all.plugins.get(name).is_none_or(|wanted| matches!(wanted.admission, Admission::None)) {
            self.routes.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        }
    }

    fn route(&self, name: &str) -> Option<Route<admission::AdmissionBackend>> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn converter(&self, name: &str) -> Option<Route<conversion::ConversionBackend>> {
        self.converters.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn all(&self) -> MutexGuard<'_, AllWanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_changed(&self) -> BTreeSet<Arc<str>> {
        take(&mut self.all().changed)
    }
}
