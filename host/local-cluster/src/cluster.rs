//! The state of a cluster: its objects, what its definitions serve, and what its controllers are at. It must not know how
//! requests are answered and what controllers do.

use std::sync::Arc;

use imbl::OrdMap;

use crate::options::Options;
use crate::queue::Controllers;
use crate::resource::{self, Resource, built_in};
use crate::store::Store;

/// A whole cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) options: Arc<Options>,
    pub(crate) store: Store,
    /// What definitions serve, by group, version and plural.
    pub(crate) definitions: OrdMap<resource::Key, Arc<Resource>>,
    pub(crate) controllers: Controllers,
    /// How many UIDs and names were made: each follows from it and the seed.
    pub(crate) made: u64,
}

impl Cluster {
    /// A cluster without objects.
    pub(crate) fn empty(options: Options, controllers: Controllers) -> Self {
        let options = Arc::new(options);
        Self { options, store: Store::default(), definitions: OrdMap::new(), controllers, made: 0 }
    }

    /// The newest resource version: watches have something to send when it grew.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Forgets all changes up to now, as etcd does every five minutes: watches that are behind get 410.
    pub fn compact(&mut self) {
        let revision = self.store.revision();
        self.store.compact(revision);
    }

    /// Group, plural, namespace and name of what changed after a version, in order; what was compacted is left out.
    ///
    /// ```
    /// use mortise_local_cluster::{Cluster, Options};
    ///
    /// let cluster = Cluster::new(Options::default(), jiff::Timestamp::UNIX_EPOCH);
    /// assert!(cluster.changed_since(0).any(|change| change == ["", "namespaces", "", "default"]));
    /// ```
    pub fn changed_since(&self, revision: u64) -> impl Iterator<Item = [&str; 4]> {
        self.store.changes(revision).map(|change| {
            let (storage, object) = (&change.storage, &change.object);
            [&*storage.group, &*storage.plural, object.namespace(), object.name()]
        })
    }

    /// The resource of a group, version and plural.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let key = (group.into(), version.into(), plural.into());
        built_in().get(&key).or_else(|| self.definitions.get(&key))
    }

    /// The resource of a kind, such as `apps/v1 Deployment`.
    pub(crate) fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        // The resources of one version lie together.
        let start: resource::Key = (group.into(), version.into(), "".into());
        let same = |resource: &&Arc<Resource>| *resource.group == *group && *resource.version == *version;
        let built_in = built_in().range(start.clone()..).map(|(_, resource)| resource).take_while(same);
        let custom = self.definitions.range(start..).map(|(_, resource)| resource).take_while(same);
        built_in.chain(custom).find(|resource| *resource.kind == *kind && !resource.verbs.is_empty())
    }

    /// All resources that are served.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        built_in().values().chain(self.definitions.values())
    }
}
