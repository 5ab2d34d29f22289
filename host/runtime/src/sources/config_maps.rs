//! The source of labelled ConfigMaps in the host's namespace: mortise-kube watches them, mortise-source reads them, and
//! this file finds what a relist no longer shows.
//!
//! Reading one decodes, decompresses and hashes up to 40 MiB, so it has its own thread. Nothing of a ConfigMap is kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use mortise_core::object::{Kind, Name, Object, ObjectRef};
use mortise_core::watch::{WatchError, WatchEvent};
use mortise_kube::client::ApiServer;
use mortise_kube::watch::{self, Objects};
use mortise_source::SourceEvent;
use mortise_source::configmap::{SELECTOR, read};
use tokio::sync::{Notify, mpsc};

use crate::config::Namespace;
use crate::input::{Input, Source, SourceInput};
use crate::supervise::Supervisor;

/// ConfigMaps between the watch and the reader, of up to 1.4 MB of JSON each. The watch waits while there are as many.
const WAITING: usize = 4;

/// Starts the watch and the reader.
pub(super) fn start(
    namespace: &Namespace,
    api: &ApiServer,
    inputs: &mpsc::Sender<Input>,
    read_again: Arc<Notify>,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    let (sink, mut events) = mpsc::channel(WAITING);
    let scope = Objects {
        kind: Kind::new("v1", "ConfigMap"),
        namespace: Some(namespace.as_str().into()),
        selector: Some(SELECTOR.into()),
        name: None,
    };
    supervisor.spawn("the check of the plugins' namespace", warn_if_missing(namespace.clone(), api.clone()));
    let api = api.clone();
    supervisor.task("the watch of plugins' ConfigMaps", async move {
        loop {
            // A new watch lists everything again.
            tokio::select! {
                () = watch::run(api.clone(), scope.clone(), sink.clone(), |event| event) => return Ok(()),
                () = read_again.notified() => {}
            }
        }
    });
    let (namespace, inputs) = (namespace.clone(), inputs.clone());
    supervisor.thread("mortise-config-maps", move || {
        let mut listing = Listing::default();
        while let Some(event) = events.blocking_recv() {
            for event in listing.take(&namespace, event) {
                let input = Input::Source(SourceInput { source: Source::ConfigMaps, event });
                inputs.blocking_send(input).context("the event loop has ended")?;
            }
        }
        Ok(())
    })
}

/// An API server lists a namespace that does not exist without an error, so a mistyped one would show nothing. A host
/// without the right to read namespaces skips this: in a cluster it mostly runs in that namespace.
async fn warn_if_missing(namespace: Namespace, api: ApiServer) {
    let name = Name { namespace: "".into(), name: namespace.as_str().into() };
    let target = ObjectRef { kind: Kind::new("v1", "Namespace"), name };
    if let Ok(None) = api.read_live(&target.into()).await {
        tracing::warn!(
            %namespace,
            "the namespace of the plugins does not exist; create it with: kubectl create namespace {namespace}"
        );
    }
}

/// The known plugins' names, and those that the present list has shown.
#[derive(Debug, Default)]
struct Listing {
    known: BTreeSet<Arc<str>>,
    shown: BTreeSet<Arc<str>>,
}

impl Listing {
    fn take(&mut self, namespace: &Namespace, event: WatchEvent) -> Vec<SourceEvent> {
        match event {
            WatchEvent::Listing => {
                self.shown.clear();
                Vec::new()
            }
            WatchEvent::Listed(objects) => objects.iter().map(|object| self.found(object)).collect(),
            WatchEvent::Applied(object) => vec![self.found(&object)],
            WatchEvent::Deleted(object) => {
                self.known.remove(&object.name.name);
                vec![SourceEvent::Gone(object.name.name.clone())]
            }
            WatchEvent::ListDone(_) => {
                let shown = std::mem::take(&mut self.shown);
                let vanished = std::mem::replace(&mut self.known, shown).into_iter();
                let gone = vanished.filter(|name| !self.known.contains(name)).map(SourceEvent::Gone);
                gone.chain([SourceEvent::Listed]).collect()
            }
            // A list follows a restore of etcd, and the digest identifies a plugin.
            WatchEvent::ClusterScoped | WatchEvent::Progress(_) | WatchEvent::Restored { .. } => Vec::new(),
            WatchEvent::Failed(error) => {
                failed(namespace, &error);
                Vec::new()
            }
            WatchEvent::Undecodable { message } => {
                tracing::warn!(%namespace, "a ConfigMap cannot be read: {message}");
                Vec::new()
            }
        }
    }

    fn found(&mut self, object: &Object) -> SourceEvent {
        self.known.insert(object.name.name.clone());
        self.shown.insert(object.name.name.clone());
        read(&object.name, object.json())
    }
}

/// The watch reports a failure once and retries.
fn failed(namespace: &Namespace, error: &WatchError) {
    match error {
        WatchError::Denied(message) => tracing::error!(
            %namespace,
            "the host may not read the ConfigMaps that hold plugins: {message}; `mortise rbac --host --namespace \
             {namespace} | kubectl apply -f -` gives it that right"
        ),
        error => tracing::warn!(%namespace, "cannot watch the ConfigMaps that hold plugins: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::object::{Interner, ResourceVersion};

    use super::*;

    fn config_map(name: &str) -> Box<Object> {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"ns","uid":"u","resourceVersion":"1"}},
            "binaryData":{{"plugin.wasm":"AGFzbQ=="}}}}"#
        );
        let kind = Kind::new("v1", "ConfigMap");
        Box::new(Object::decode_as(&kind, json.as_bytes(), &mut Interner::default()).unwrap())
    }

    fn words(events: Vec<SourceEvent>) -> Vec<String> {
        let word = |event| match event {
            SourceEvent::Found { offer, .. } => format!("found {}", offer.name),
            SourceEvent::Unreadable { name, .. } => format!("unreadable {name}"),
            SourceEvent::Gone(name) => format!("gone {name}"),
            SourceEvent::Listed => "listed".to_owned(),
        };
        events.into_iter().map(word).collect()
    }

    #[test]
    fn a_plugin_that_a_relist_does_not_show_is_gone() {
        let namespace = "ns".parse().unwrap();
        let mut listing = Listing::default();
        let mut take = |event| words(listing.take(&namespace, event));
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
}
