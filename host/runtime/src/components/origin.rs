//! Reads a component where its source has found it, for a compile thread that is about to compile it. Bytes of the digest that
//! was offered come out, or why there are none now.

use mortise_core::digest::Digest;
use mortise_core::object::{Kind, ObjectRef};
use mortise_core::refusal::Refusal;
use mortise_kube::client::ApiServer;
use mortise_source::{Origin, configmap, directory};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Why a component is not loaded.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    /// It is not accepted.
    Refused(Refusal),
    /// Something else, or nothing, is where it was found; the source that it was found by tells what.
    Changed,
    /// Nobody could say what is there, and why.
    Unreachable(String),
}

impl From<Refusal> for NotLoaded {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What can be read from.
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
            Origin::ConfigMap(name) => {
                let target = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: name.clone() };
                let (sender, answer) = oneshot::channel();
                let api = self.api.clone();
                self.io.spawn(async move {
                    // A thread that has ended wants no answer.
                    let _ = sender.send(api.read_live(&target).await);
                });
                let unreachable = |why: String| NotLoaded::Unreachable(format!("ConfigMap {name}: {why}"));
                let object = answer.blocking_recv().map_err(|_| unreachable("the host ends".to_owned()))?;
                let object = object.map_err(|error| unreachable(error.message))?;
                object.and_then(|object| configmap::unpack(name, object.json(), digest))
            }
        };
        read.ok_or(NotLoaded::Changed)
    }
}
