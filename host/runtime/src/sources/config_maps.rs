//! The source of labelled ConfigMaps in the host's namespace: mortise-kube watches them, mortise-source reads them.
//!
//! Reading one decodes, decompresses and hashes up to 40 MiB, so it has its own thread. Nothing of a ConfigMap is kept.

use std::sync::Arc;

use anyhow::Context;
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_kube::client::ApiServer;
use mortise_kube::watch::{self, Objects};
use mortise_source::configmap::SELECTOR;
use tokio::sync::{Notify, mpsc};

use super::listing::Listing;
use crate::config::Namespace;
use crate::input::{Input, Source, SourceInput};
use crate::inputs::Inputs;
use crate::supervise::Supervisor;

/// ConfigMaps between the watch and the reader, of up to 1.4 MB of JSON each. The watch waits while there are as many.
const WAITING: usize = 4;

/// Starts the watch and the reader.
pub(super) fn start(
    namespace: &Namespace,
    api: &ApiServer,
    inputs: &Inputs,
    read_again: Arc<Notify>,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    let (sink, mut events) = mpsc::channel(WAITING);
    let scope = Objects {
        kind: Kind::new("v1", "ConfigMap"),
        namespace: Some(namespace.as_str().into()),
        selector: Some(SELECTOR.into()),
        name: None,
        page_objects: None,
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
        let mut listing = Listing::new(namespace.as_str(), false);
        while let Some(event) = events.blocking_recv() {
            for event in listing.take(event) {
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
