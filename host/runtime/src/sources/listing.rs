//! What a watch of ConfigMaps shows of one namespace: events of the watch come in, events of a source come out, also of what a
//! relist no longer shows. It must not know which watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_core::component::Unreadable;
use mortise_core::object::Object;
use mortise_core::tenant::{MAX_PLUGINS, TenantSource};
use mortise_core::watch::{WatchError, WatchEvent};
use mortise_source::SourceEvent;
use mortise_source::configmap::{read, read_of_tenant, source};

use crate::log;

/// The names of the plugins that were read, and those that the present list has shown.
#[derive(Debug)]
pub(super) struct Listing {
    namespace: Arc<str>,
    is_tenant: bool,
    known: BTreeSet<Arc<str>>,
    shown: BTreeSet<Arc<str>>,
}

impl Listing {
    pub(super) fn new(namespace: &str, is_tenant: bool) -> Self {
        Self { namespace: namespace.into(), is_tenant, known: BTreeSet::new(), shown: BTreeSet::new() }
    }

    pub(super) fn take(&mut self, event: WatchEvent) -> Vec<SourceEvent> {
        match event {
            WatchEvent::Listing => {
                self.shown.clear();
                Vec::new()
            }
            WatchEvent::Listed(objects) => objects.iter().map(|object| self.found(object)).collect(),
            WatchEvent::Applied(object) => vec![self.found(&object)],
            WatchEvent::Deleted(object) => {
                self.known.remove(&object.name.name);
                self.shown.remove(&object.name.name);
                vec![self.gone(&object.name.name)]
            }
            WatchEvent::ListDone(_) => {
                let shown = std::mem::take(&mut self.shown);
                let vanished = std::mem::replace(&mut self.known, shown).into_iter();
                let vanished: Vec<Arc<str>> = vanished.filter(|name| !self.known.contains(name)).collect();
                vanished.iter().map(|name| self.gone(name)).chain([SourceEvent::Listed]).collect()
            }
            // A list follows a restore of etcd, and the digest identifies a plugin.
            WatchEvent::ClusterScoped | WatchEvent::Progress(_) | WatchEvent::Restored { .. } => Vec::new(),
            WatchEvent::Failed(error) => {
                self.failed(&error);
                Vec::new()
            }
            WatchEvent::Undecodable { message } => {
                let line = || tracing::warn!(namespace = &*self.namespace, "a ConfigMap cannot be read: {message}");
                if self.is_tenant {
                    log::about_tenant(&self.namespace, line)
                } else {
                    line()
                }
                Vec::new()
            }
        }
    }

    /// Of a tenant no more are read than it may have: reading takes time.
    fn found(&mut self, object: &Object) -> SourceEvent {
        let name = &object.name.name;
        if self.is_tenant && !self.known.contains(name) && self.known.len() >= MAX_PLUGINS {
            return too_many(object);
        }
        self.known.insert(Arc::clone(name));
        self.shown.insert(Arc::clone(name));
        let read = if self.is_tenant { read_of_tenant } else { read };
        read(&object.name, object.json())
    }

    fn gone(&self, name: &Arc<str>) -> SourceEvent {
        SourceEvent::Gone(if self.is_tenant { format!("{}/{name}", self.namespace).into() } else { Arc::clone(name) })
    }

    /// The watch reports a failure once and retries.
    fn failed(&self, error: &WatchError) {
        let namespace = &*self.namespace;
        let rights = match self.is_tenant {
            true => format!("`mortise rbac FILE.wasm --tenant {namespace} | kubectl apply -f -` gives it that right"),
            false => {
                format!("`mortise rbac --host --namespace {namespace} | kubectl apply -f -` gives it that right")
            }
        };
        match error {
            WatchError::Denied(message) => tracing::error!(
                namespace,
                "the host may not read the ConfigMaps that hold plugins: {message}; {rights}"
            ),
            error => tracing::warn!(namespace, "cannot watch the ConfigMaps that hold plugins: {error}"),
        }
    }
}

/// One that is not read. The ServiceAccount would be that of a plugin.
fn too_many(object: &Object) -> SourceEvent {
    let tenant = TenantSource {
        namespace: Arc::clone(&object.name.namespace),
        name: Arc::clone(&object.name.name),
        uid: Arc::clone(&object.uid),
        service_account: Arc::clone(&object.name.name),
    };
    SourceEvent::Unreadable(Unreadable {
        name: tenant.source(),
        source: source(&object.name).into(),
        refusal: tenant.too_many(),
        only_named: false,
        tenant: Some(Arc::new(tenant)),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use mortise_core::object::{Interner, Kind, ResourceVersion};

    use super::*;

    pub(in crate::sources) fn config_map(name: &str) -> Box<Object> {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"ns","uid":"u","resourceVersion":"1"}},
            "binaryData":{{"plugin.wasm":"AGFzbQ=="}}}}"#
        );
        let kind = Kind::new("v1", "ConfigMap");
        Box::new(Object::decode_as(&kind, json.as_bytes(), &mut Interner::default()).unwrap())
    }

    pub(in crate::sources) fn words(events: Vec<SourceEvent>) -> Vec<String> {
        let word = |event| match event {
            SourceEvent::Found { offer, .. } => format!("found {}", offer.name),
            SourceEvent::Unreadable(unreadable) => format!("{} {}", unreadable.refusal.reason, unreadable.name),
            SourceEvent::Gone(name) => format!("gone {name}"),
            SourceEvent::Listed => "listed".to_owned(),
        };
        events.into_iter().map(word).collect()
    }

    #[test]
    fn a_plugin_that_a_relist_does_not_show_is_gone() {
        let mut listing = Listing::new("ns", false);
        let mut take = |event| words(listing.take(event));
        let nothing: [&str; 0] = [];
        assert_eq!(take(WatchEvent::Listing), nothing);
        assert_eq!(take(WatchEvent::Listed(vec![*config_map("podset")])), ["found podset"]);
        assert_eq!(take(WatchEvent::ListDone(ResourceVersion(1))), ["listed"]);
        assert_eq!(take(WatchEvent::Applied(config_map("crontab"))), ["found crontab"]);
        assert_eq!(take(WatchEvent::Failed(WatchError::Unavailable("down".to_owned()))), nothing, "known plugins stay");
        assert_eq!(take(WatchEvent::Listing), nothing);
        assert_eq!(take(WatchEvent::Listed(vec![*config_map("crontab")])), ["found crontab"]);
        assert_eq!(take(WatchEvent::ListDone(ResourceVersion(2))), ["gone podset", "listed"]);
        assert_eq!(take(WatchEvent::Deleted(config_map("crontab"))), ["gone crontab"]);
        assert_eq!(take(WatchEvent::Listing), nothing);
        assert_eq!(take(WatchEvent::ListDone(ResourceVersion(3))), ["listed"]);
    }

    #[test]
    fn g11_of_a_tenant_no_more_are_read_than_it_may_have_until_one_is_gone() {
        let mut listing = Listing::new("ns", true);
        let mut take = |event| words(listing.take(event));
        let all: Vec<Object> = (10..10 + MAX_PLUGINS + 1).map(|number| *config_map(&number.to_string())).collect();
        let found = take(WatchEvent::Listed(all));
        let last = 10 + MAX_PLUGINS;
        assert_eq!(found.iter().filter(|word| word.starts_with("found ns/")).count(), MAX_PLUGINS);
        assert_eq!(found.last(), Some(&format!("TooManyPlugins ns/{last}")), "one beyond the bound");
        assert_eq!(take(WatchEvent::ListDone(ResourceVersion(1))), ["listed"]);
        assert_eq!(take(WatchEvent::Applied(config_map("10"))), ["found ns/10"], "one that was read is read again");
        assert_eq!(take(WatchEvent::Deleted(config_map("10"))), ["gone ns/10"]);
        assert_eq!(take(WatchEvent::Applied(config_map(&last.to_string()))), [format!("found ns/{last}")]);
    }
}
