//! An independent watcher of Pods. It knows nothing of the host but the annotation with a child's key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};

use super::world::World;

#[derive(Default, Debug)]
pub struct Seen {
    /// Existing Pods that are not being deleted, by owner and key.
    alive: BTreeMap<(String, String), BTreeSet<String>>,
    places: BTreeMap<String, (String, String)>,
    /// UIDs of those Pods that are ready.
    ready: BTreeSet<String>,
    /// UIDs of all Pods so far.
    pub ever: BTreeSet<String>,
    /// UIDs of all Pods that were deleted or are terminating.
    pub deleted: BTreeSet<String>,
    /// Every time that an owner had two Pods of one key.
    pub doubles: Vec<String>,
    /// The most Pods that were not being deleted at any time.
    pub most: usize,
}

/// Watches until dropped.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Witness {
    pub fn watch(world: &World) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
        let into = Arc::clone(&seen);
        let task = world.follow(pods, move |event| {
            let mut seen = into.lock().unwrap();
            match event {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => seen.apply(&pod),
                watcher::Event::Delete(pod) => seen.forget(&pod),
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
        });
        Self { seen, task }
    }

    pub fn with<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }

    /// The number of existing Pods that are not being deleted.
    pub fn alive(&self) -> usize {
        self.with(|seen| seen.alive.values().map(BTreeSet::len).sum())
    }

    /// The number of those that are ready.
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
        let alive = self.alive.entry(place.clone()).or_default();
        alive.insert(uid);
        if alive.len() > 1 {
            self.doubles.push(format!("{place:?}: {alive:?}"));
        }
        self.most = self.most.max(self.alive.values().map(BTreeSet::len).sum());
    }

    fn forget(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        self.ever.insert(uid.clone());
        self.deleted.insert(uid.clone());
        self.ready.remove(&uid);
        if let Some(alive) = self.places.remove(&uid).and_then(|place| self.alive.get_mut(&place)) {
            alive.remove(&uid);
        }
    }
}
