//! Reads a component from its origin for a compile thread. Bytes of the offered digest come out, or why there are none.

use mortise_core::digest::Digest;
use mortise_core::object::{Kind, ObjectRef};
use mortise_core::refusal::Refusal;
use mortise_core::write::{WriteError, WriteErrorClass};
use mortise_kube::client::ApiServer;
use mortise_source::{Origin, configmap, directory};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::input::NotLoaded;
use crate::log;

pub(super) struct Origins {
    pub(super) api: ApiServer,
    pub(super) io: Handle,
}

impl Origins {
    pub(super) fn read(&self, origin: &Origin, digest: &Digest) -> Result<Vec<u8>, NotLoaded> {
        let read = match origin {
            Origin::File(path) => directory::read(path, digest).map_err(|error| {
                Refusal::new("UnreadableFile", format!("file {} cannot be read: {error}", path.display()))
            })?,
            Origin::ConfigMap(name) | Origin::Tenant(name) => {
                let target = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: name.clone() };
                let (sender, response) = oneshot::channel();
                let api = self.api.clone();
                self.io.spawn(async move {
                    // An error means that the thread has ended.
                    let _ = sender.send(api.read_live(&target.into()).await);
                });
                let unreachable = |why: String| NotLoaded::Unreachable(format!("ConfigMap {name}: {why}"));
                let object = response.blocking_recv().map_err(|_| unreachable("the host ends".to_owned()))?;
                let is_denied = |error: &WriteError| error.class == WriteErrorClass::Denied;
                let object = match object {
                    // A tenant gives this right. It says nothing of the component, which others may have too.
                    Err(error) if matches!(origin, Origin::Tenant(_)) && is_denied(&error) => {
                        let (message, namespace) = (error.message, &name.namespace);
                        let line = || {
                            tracing::error!(
                                "the component of ConfigMap {name} is not read until that changes again: {message}; `mortise rbac \
                                 FILE.wasm --tenant {namespace} | kubectl apply -f -` gives the host that right"
                            )
                        };
                        log::about_tenant(namespace, line);
                        None
                    }
                    object => object.map_err(|error| unreachable(error.message))?,
                };
                object.and_then(|object| configmap::unpack(name, object.json(), digest))
            }
        };
        read.ok_or_else(|| NotLoaded::Changed(origin.clone()))
    }
}
