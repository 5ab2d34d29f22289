//! An independent witness of Pods: it watches the API server on its own and knows nothing of the host but the annotation
//! that carries a child's key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};

use super::world::World;

/// What the witness has seen.
#[derive(Default, Debug)]
pub struct Seen {
    /// Pods that are there and not being deleted, by owner and key.
    alive: BTreeMap<(String, String), BTreeSet<String>>,
    places: BTreeMap<String, (String, String)>,
    /// UIDs of the living Pods that are ready: nothing is going to happen to them by itself any more.
    ready: BTreeSet<String>,
    /// UIDs of all Pods that ever were.
    pub ever: BTreeSet<String>,
    /// UIDs of all Pods that were deleted, or began to be.
    pub deleted: BTreeSet<String>,
    /// Every moment at which an owner had two living Pods of one key.
    pub doubles: Vec<String>,
}

/// A witness at work; dropping it ends it.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Witness {
    pub fn watch(world: &World) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
        let into = Arc::clone(&seen);
        let task = world.spawn(async move {
            let mut events = watcher(pods, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let mut seen = into.lock().unwrap();
                match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => seen.apply(&pod),
                    Ok(watcher::Event::Delete(pod)) => seen.forget(&pod),
                    // The watcher comes back by itself; what it missed it lists.
                    Ok(_) | Err(_) => {}
                }
            }
        });
        Self { seen, task }
    }

    pub fn with<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }

    /// How many Pods are alive now.
    pub fn alive(&self) -> usize {
        self.with(|seen| seen.alive.values().map(BTreeSet::len).sum())
    }

    /// How many of them are ready.
    pub fn ready(&self) -> usize {
        self.with(|seen| seen.ready.len())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn apply(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let owner = pod.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default();
        let key = pod.annotations().get("mortise.dev/child").cloned().unwrap_or_default();
        self.ever.insert(uid.clone());
        if pod.metadata.deletion_timestamp.is_some() {
            return self.forget(pod);
        }
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
            self.ready.insert(uid.clone());
        }
        let place = (owner, key);
        self.places.insert(uid.clone(), place.clone());
        let living = self.alive.entry(place.clone()).or_default();
        living.insert(uid);
        if living.len() > 1 {
            self.doubles.push(format!("{place:?}: {living:?}"));
        }
    }

    fn forget(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        self.ever.insert(uid.clone());
        self.deleted.insert(uid.clone());
        self.ready.remove(&uid);
        if let Some(living) = self.places.remove(&uid).and_then(|place| self.alive.get_mut(&place)) {
            living.remove(&uid);
        }
    }
}
