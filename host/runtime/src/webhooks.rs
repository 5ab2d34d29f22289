//! What the API server asks before it stores objects. `webhooks/answer.rs` answers one question, `webhooks/keeper.rs` sees
//! to it that the API server knows where to ask and whom to believe; here is what the two share: which version of which
//! plugin answers.
//!
//! The driver decides who answers, and changes it in one step: a version answers until the next one does.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use mortise_core::admission::Serving;
use mortise_wasm::plugin::Plugin;
use tokio::sync::watch;

pub(crate) mod answer;
pub(crate) mod keeper;

/// A version that answers for a plugin.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) serving: Arc<Serving>,
}

/// Which plugins the API server is to ask, by name. None: no longer, and it has to be told.
pub(crate) type Wanted = BTreeMap<Arc<str>, Option<Arc<Serving>>>;

/// Who answers, and who is to be asked. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Webhooks {
    routes: Arc<RwLock<BTreeMap<Arc<str>, Route>>>,
    wanted: Arc<watch::Sender<Wanted>>,
}

impl Webhooks {
    pub(crate) fn new() -> Self {
        Self { routes: Arc::default(), wanted: Arc::new(watch::channel(Wanted::new()).0) }
    }

    /// This version answers from now on.
    pub(crate) fn serve(&self, name: &Arc<str>, route: Route) {
        let serving = Arc::clone(&route.serving);
        self.routes.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(name), route);
        self.wanted.send_modify(|wanted| drop(wanted.insert(Arc::clone(name), Some(serving))));
    }

    /// The API server is to ask no longer; until it knows, whoever answered goes on.
    pub(crate) fn end(&self, name: &Arc<str>) {
        self.wanted.send_modify(|wanted| drop(wanted.insert(Arc::clone(name), None)));
    }

    /// The API server asks no longer. A plugin that has come again meanwhile stays.
    fn ended(&self, name: &Arc<str>) {
        self.wanted.send_if_modified(|wanted| {
            if wanted.get(name).is_some_and(Option::is_none) {
                wanted.remove(name);
                self.routes.write().unwrap_or_else(PoisonError::into_inner).remove(name);
            }
            // Nobody has to do anything about it.
            false
        });
    }

    fn route(&self, name: &str) -> Option<Route> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn subscribe(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }
}
