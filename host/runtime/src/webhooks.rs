//! What the API server asks before it stores objects, and when it wants them in another version. `webhooks/answer.rs` and
//! `webhooks/convert.rs` answer one request, `webhooks/keeper.rs` sees to it that the API server knows where to ask and
//! whom to trust; here is what they share: which version of which plugin answers.
//!
//! The driver decides who answers, and changes it in one step: a version answers until the next one does.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mortise_core::{admission, conversion};
use mortise_wasm::plugin::Plugin;
use tokio::sync::Notify;

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

/// What the API server is to know of one plugin.
#[derive(Clone, Default, Debug)]
struct Wanted {
    admission: Admission,
    conversion: Option<Arc<conversion::ConversionBackend>>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        self.conversion.is_none() && matches!(self.admission, Admission::None)
    }

    fn is_asked(&self) -> bool {
        self.conversion.is_some() || matches!(self.admission, Admission::Asked(_))
    }
}

/// Whether the API server is to ask a plugin before it stores objects.
#[derive(Clone, Default, Debug)]
enum Admission {
    #[default]
    None,
    Asked(Arc<admission::AdmissionBackend>),
    /// No longer; its configurations are to be deleted.
    Ending,
}

#[derive(Default, Debug)]
struct AllWanted {
    plugins: BTreeMap<Arc<str>, Wanted>,
    /// Plugins that changed since the keeper last took them.
    changed: BTreeSet<Arc<str>>,
}

type Routes<S> = Arc<RwLock<BTreeMap<Arc<str>, Route<S>>>>;

/// Who answers, and who is to be asked. Clones share it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Webhooks {
    routes: Routes<admission::AdmissionBackend>,
    /// Definitions stay when their plugins go, and go on asking: whoever answered last does so until the host ends.
    converters: Routes<conversion::ConversionBackend>,
    wanted: Arc<Mutex<AllWanted>>,
    news: Arc<Notify>,
}

impl Webhooks {
    /// This version answers from now on.
    pub(crate) fn serve(&self, name: &Arc<str>, route: Route<admission::AdmissionBackend>) {
        let admission = Admission::Asked(Arc::clone(&route.serving));
        self.routes.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(name), route);
        self.change(name, |wanted| wanted.admission = admission);
    }

    /// The API server is to ask no longer; until it knows, whoever answered goes on.
    pub(crate) fn end(&self, name: &Arc<str>) {
        self.change(name, |wanted| wanted.admission = Admission::Ending);
    }

    /// This version converts from now on.
    pub(crate) fn convert(&self, name: &Arc<str>, route: Route<conversion::ConversionBackend>) {
        let conversion = Some(Arc::clone(&route.serving));
        self.converters.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(name), route);
        self.change(name, |wanted| wanted.conversion = conversion);
    }

    /// Nobody has to be told any more who converts.
    pub(crate) fn end_conversion(&self, name: &Arc<str>) {
        self.change(name, |wanted| wanted.conversion = None);
    }

    fn change(&self, name: &Arc<str>, change: impl FnOnce(&mut Wanted)) {
        let mut all = self.all();
        change(all.plugins.entry(Arc::clone(name)).or_default());
        all.changed.insert(Arc::clone(name));
        drop(all);
        self.news.notify_one();
    }

    /// The API server has been told to ask no longer. A plugin that has come again meanwhile stays.
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

    /// Nobody asks any more, unless the plugin has come again meanwhile.
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
