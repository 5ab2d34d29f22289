//! The requests that are not sent because nobody has granted their origins what they carry, by plugin, and of which plugins
//! another one is the first now. It must not know what a grant is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::http::HttpId;

#[derive(Debug, Default)]
pub(super) struct Denials {
    by_plugin: BTreeMap<Arc<str>, BTreeSet<HttpId>>,
    changed: BTreeSet<Arc<str>>,
}

impl Denials {
    pub fn begin(&mut self, plugin: &Arc<str>, id: HttpId) {
        let denied = self.by_plugin.entry(Arc::clone(plugin)).or_default();
        if denied.insert(id) && denied.first() == Some(&id) {
            self.changed.insert(Arc::clone(plugin));
        }
    }

    pub fn end(&mut self, plugin: &Arc<str>, id: HttpId) {
        let Some(denied) = self.by_plugin.get_mut(plugin) else { return };
        if denied.first() == Some(&id) {
            self.changed.insert(Arc::clone(plugin));
        }
        denied.remove(&id);
        if denied.is_empty() {
            self.by_plugin.remove(plugin);
        }
    }

    pub fn has(&self, plugin: &str, id: HttpId) -> bool {
        self.by_plugin.get(plugin).is_some_and(|denied| denied.contains(&id))
    }

    pub fn of(&self, plugin: &str) -> Vec<HttpId> {
        self.by_plugin.get(plugin).into_iter().flatten().copied().collect()
    }

    /// Plugins whose first one has changed since the last time, with it.
    pub fn changed(&mut self) -> Vec<(Arc<str>, Option<HttpId>)> {
        let first = |plugin: &Arc<str>| self.by_plugin.get(plugin).and_then(|denied| denied.first().copied());
        std::mem::take(&mut self.changed).into_iter().map(|plugin| (Arc::clone(&plugin), first(&plugin))).collect()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_plugin.is_empty()
    }
}
