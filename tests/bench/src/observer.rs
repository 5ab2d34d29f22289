//! An independent watcher of a namespace's PodSets and Pods, to check whether they have converged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ApiResource;
use kube::core::Object;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, pod_set_resource, until};

const DEADLINE: Duration = Duration::from_secs(300);
/// Interval of checks, and the precision of the wall times.
const POLL: Duration = Duration::from_millis(5);

// Decodes needed fields only: the observer must take little CPU.
#[derive(Clone, Debug, Deserialize)]
struct SetSpec {
    replicas: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SetStatus {
    replicas: usize,
    pod_names: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PodSpec {}

#[derive(Clone, Debug, Default, Deserialize)]
struct PodStatus {
    phase: Option<String>,
}

type SetObject = Object<SetSpec, SetStatus>;
type PodObject = Object<PodSpec, PodStatus>;
struct Set {
    uid: String,
    replicas: usize,
    status: SetStatus,
}
struct Child {
    uid: String,
    owner: Option<String>,
    deleting: bool,
    running: bool,
}

#[derive(Default)]
pub(crate) struct World {
    sets: BTreeMap<String, Set>,
    pods: BTreeMap<String, Child>,
}

impl World {
    /// Whether this many PodSets have exactly their Pods, and correct statuses.
    pub(crate) fn has_converged(&self, sets: usize) -> bool {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, pod) in &self.pods {
            let Some(owner) = pod.owner.as_deref().filter(|_| !pod.deleting) else { return false };
            names.entry(owner).or_default().push(name);
        }
        let is_done = |set: &Set| {
            let pods = names.get(set.uid.as_str()).map_or(&[][..], Vec::as_slice);
            let mut reported = set.status.pod_names.iter().map(String::as_str).collect::<Vec<_>>();
            reported.sort_unstable();
            pods.len() == set.replicas && set.status.replicas == set.replicas && reported == pods
        };
        self.sets.len() == sets && self.sets.values().all(is_done)
    }

    pub(crate) fn runs(&self) -> bool {
        self.pods.values().all(|pod| pod.running)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.pods.is_empty()
    }

    /// The observed spec.replicas of a PodSet.
    pub(crate) fn replicas(&self, set: &str) -> Option<usize> {
        self.sets.get(set).map(|set| set.replicas)
    }

    /// One Pod, by name and UID, of each of so many PodSets.
    pub(crate) fn one_pod_of_each(&self, sets: usize) -> Vec<(String, String)> {
        let mut owners = BTreeSet::new();
        let first = self.pods.iter().filter(|(_, pod)| pod.owner.clone().is_some_and(|owner| owners.insert(owner)));
        first.take(sets).map(|(name, pod)| (name.clone(), pod.uid.clone())).collect()
    }

    /// Whether none of these Pods exists.
    pub(crate) fn lost(&self, uids: &BTreeSet<String>) -> bool {
        self.pods.values().all(|pod| !uids.contains(&pod.uid))
    }
}

/// Watches one namespace until dropped.
pub(crate) struct Observer {
    world: Arc<Mutex<World>>,
    tasks: [JoinHandle<Result<(), watcher::Error>>; 2],
}

impl Observer {
    pub(crate) fn start(cluster: &Cluster, namespace: &str) -> Self {
        let world = Arc::new(Mutex::new(World::default()));
        let resource = pod_set_resource();
        let sets = Api::<SetObject>::namespaced_with(cluster.client.clone(), namespace, &resource);
        let pods =
            Api::<PodObject>::namespaced_with(cluster.client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
        let tasks = [
            follow(sets, Arc::clone(&world), |world, name, set| {
                let set = set.map(|set| Set {
                    uid: set.uid().unwrap_or_default(),
                    replicas: set.spec.replicas,
                    status: set.status.unwrap_or_default(),
                });
                put(&mut world.sets, name, set);
            }),
            follow(pods, Arc::clone(&world), |world, name, pod| {
                let pod = pod.map(|pod| Child {
                    uid: pod.uid().unwrap_or_default(),
                    owner: pod
                        .owner_references()
                        .iter()
                        .find(|owner| owner.controller == Some(true))
                        .map(|owner| owner.uid.clone()),
                    deleting: pod.metadata.deletion_timestamp.is_some(),
                    running: pod.status.is_some_and(|status| status.phase.as_deref() == Some("Running")),
                });
                put(&mut world.pods, name, pod);
            }),
        ];
        Self { world, tasks }
    }

    pub(crate) async fn until(&self, what: &str, mut done: impl FnMut(&World) -> bool) -> Result<()> {
        until(what, DEADLINE, POLL, || Ok(done(&self.world()).then_some(()))).await
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        // Each change is one call, so the maps are always consistent.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn put<T>(map: &mut BTreeMap<String, T>, name: String, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(name, value)),
        None => drop(map.remove(&name)),
    }
}

fn follow<K>(
    api: Api<K>,
    world: Arc<Mutex<World>>,
    change: impl Fn(&mut World, String, Option<K>) + Send + Sync + 'static,
) -> JoinHandle<Result<(), watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    tokio::spawn(async move {
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let take = |event: Event<K>| {
            let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Apply(object) | Event::InitApply(object) => change(&mut world, object.name_any(), Some(object)),
                Event::Delete(object) => change(&mut world, object.name_any(), None),
                Event::Init | Event::InitDone => {}
            }
            std::future::ready(Ok(()))
        };
        events.try_for_each(take).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(status: &[&str], deleting: bool) -> World {
        let status =
            SetStatus { replicas: status.len(), pod_names: status.iter().map(|name| (*name).to_owned()).collect() };
        let pod =
            |uid: &str, deleting| Child { uid: uid.to_owned(), owner: Some("set".to_owned()), deleting, running: true };
        World {
            sets: BTreeMap::from([("s".to_owned(), Set { uid: "set".to_owned(), replicas: 2, status })]),
            pods: BTreeMap::from([("a".to_owned(), pod("1", false)), ("b".to_owned(), pod("2", deleting))]),
        }
    }

    #[test]
    fn a_world_has_converged_when_pods_and_statuses_match_the_specs() {
        assert!(world(&["b", "a"], false).has_converged(1));
        assert!(!world(&["a", "b"], false).has_converged(2), "a PodSet is missing");
        assert!(!world(&["a"], false).has_converged(1), "the status is behind");
        assert!(!world(&["a", "c"], false).has_converged(1), "the status names another Pod");
        assert!(!world(&["a", "b"], true).has_converged(1), "a Pod is terminating");
    }

    #[test]
    fn each_set_yields_one_pod() {
        assert_eq!(world(&[], false).one_pod_of_each(5), [("a".to_owned(), "1".to_owned())]);
        assert!(!world(&[], false).lost(&BTreeSet::from(["2".to_owned()])));
    }
}
