//! The objects, by storage, namespace and name, and the log of their changes that watches and controllers read. Input:
//! objects that were admitted. Output: the same objects with a resource version, and changes in order. It must not know
//! kinds, schemas or users.
//!
//! Everything is a persistent collection: a copy of the store takes no time and shares all that does not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde_json::Value;

use crate::resource::Storage;

/// How many changes the log keeps. A watch that is further behind gets 410, as from etcd after a compaction; 10,000 objects
/// that change twice within its reach fit.
const MAX_LOG: usize = 32_768;

/// An object with its version. What is stored never changes: a new version is a new object.
#[derive(Debug, PartialEq)]
pub(crate) struct Object {
    /// The object as it was admitted, with its resource version.
    pub(crate) value: Value,
    /// Its resource version.
    pub(crate) revision: u64,
}

/// The namespace (empty for cluster-scoped objects) and name.
pub(crate) type Name = (Arc<str>, Arc<str>);

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Added,
    Modified,
    Deleted,
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) storage: Storage,
    pub(crate) event: Event,
    /// The object after the change; of a deletion, its last state with the deletion's version.
    pub(crate) object: Arc<Object>,
    /// The object before it.
    pub(crate) previous: Option<Arc<Object>>,
}

/// An owner's UID with what names one of its dependents.
type Owned = (Arc<str>, Storage, Name);

/// All objects and their last changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    objects: OrdMap<Storage, OrdMap<Name, Arc<Object>>>,
    owned: OrdSet<Owned>,
    log: Vector<Change>,
    revision: u64,
    /// The log has all changes after this version.
    compacted: u64,
}

impl Object {
    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// Whether it is being deleted.
    pub(crate) fn terminates(&self) -> bool {
        !self.value["metadata"]["deletionTimestamp"].is_null()
    }

    /// A label's value.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["labels"].get(key).and_then(Value::as_str)
    }
}

fn owners(value: &Value) -> impl Iterator<Item = &str> {
    let references = value["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    references.iter().filter_map(|reference| reference["uid"].as_str())
}

/// What an object is indexed by: its owners' UIDs, and the empty one if none of them is its controller.
fn indexed_by(value: &Value) -> impl Iterator<Item = &str> {
    let references = value["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let orphan = references.iter().all(|reference| reference["controller"] != true);
    owners(value).filter(|uid| !uid.is_empty()).chain(orphan.then_some(""))
}

impl Store {
    /// The newest version.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest version that a watch may start from.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, storage: &Storage, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        // Keys are shared strings; a lookup makes two short ones.
        self.objects.get(storage)?.get(&(namespace.into(), name.into()))
    }

    /// Objects of a storage in the order of namespace and name: all, or those of one namespace; after `from`, if given.
    pub(crate) fn list<'a>(
        &'a self,
        storage: &Storage,
        namespace: Option<&'a str>,
        from: Option<&Name>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let start = match (from, namespace) {
            (Some(name), _) => Excluded(name.clone()),
            (None, Some(namespace)) => Included((namespace.into(), "".into())),
            (None, None) => Unbounded,
        };
        let objects = self.objects.get(storage).into_iter().flat_map(move |all| all.range((start.clone(), Unbounded)));
        objects
            .take_while(move |((of, _), _)| namespace.is_none_or(|namespace| &**of == namespace))
            .map(|(_, object)| object)
    }

    /// How many objects a storage has.
    pub(crate) fn count(&self, storage: &Storage) -> usize {
        self.objects.get(storage).map_or(0, OrdMap::len)
    }

    /// The storages that have objects.
    pub(crate) fn storages(&self) -> impl Iterator<Item = &Storage> {
        self.objects.keys()
    }

    /// The dependents of an owner, by its UID.
    pub(crate) fn dependents<'a>(
        &'a self,
        uid: &'a str,
    ) -> impl Iterator<Item = (&'a Storage, &'a Arc<Object>)> + use<'a> {
        let start = (uid.into(), Storage::new("", ""), ("".into(), "".into()));
        let found = self.owned.range(start..).take_while(move |(owner, _, _)| &**owner == uid);
        found.filter_map(|(_, storage, name)| Some((storage, self.objects.get(storage)?.get(name)?)))
    }

    /// The dependents of an owner, to be kept while the store changes.
    pub(crate) fn owned(&self, uid: &str) -> Vec<(Storage, Arc<Object>)> {
        self.dependents(uid).map(|(storage, object)| (storage.clone(), object.clone())).collect()
    }

    /// The objects of a storage and namespace that have no controller.
    pub(crate) fn orphans(&self, storage: &Storage, namespace: &str) -> Vec<Arc<Object>> {
        let Some(objects) = self.objects.get(storage) else { return Vec::new() };
        let start: Owned = ("".into(), storage.clone(), (namespace.into(), "".into()));
        let found = self
            .owned
            .range(start..)
            .take_while(|(owner, of, (within, _))| owner.is_empty() && of == storage && **within == *namespace);
        found.filter_map(|(_, _, name)| objects.get(name).cloned()).collect()
    }

    /// Stores an object under the next version, which its metadata then says.
    pub(crate) fn put(&mut self, storage: &Storage, mut value: Value) -> Arc<Object> {
        self.revision += 1;
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Arc::new(Object { value, revision: self.revision });
        let name: Name = (object.namespace().into(), object.name().into());
        for owner in indexed_by(&object.value) {
            self.owned.insert((owner.into(), storage.clone(), name.clone()));
        }
        let previous = self.objects.entry(storage.clone()).or_default().insert(name.clone(), object.clone());
        if let Some(previous) = &previous {
            for owner in indexed_by(&previous.value).filter(|gone| indexed_by(&object.value).all(|kept| kept != *gone))
            {
                self.owned.remove(&(owner.into(), storage.clone(), name.clone()));
            }
        }
        let event = if previous.is_some() { Event::Modified } else { Event::Added };
        self.record(Change {
            revision: self.revision,
            storage: storage.clone(),
            event,
            object: object.clone(),
            previous,
        });
        object
    }

    /// Removes an object; its last state gets the deletion's version.
    pub(crate) fn remove(&mut self, storage: &Storage, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let name: Name = (namespace.into(), name.into());
        let objects = self.objects.get_mut(storage)?;
        let previous = objects.remove(&name)?;
        if objects.is_empty() {
            self.objects.remove(storage);
        }
        for owner in indexed_by(&previous.value) {
            self.owned.remove(&(owner.into(), storage.clone(), name.clone()));
        }
        self.revision += 1;
        let mut value = previous.value.clone();
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Arc::new(Object { value, revision: self.revision });
        let change = Change {
            revision: self.revision,
            storage: storage.clone(),
            event: Event::Deleted,
            object: object.clone(),
            previous: Some(previous),
        };
        self.record(change);
        Some(object)
    }

    fn record(&mut self, change: Change) {
        self.log.push_back(change);
        if self.log.len() > MAX_LOG {
            self.compacted = self.log.pop_front().map_or(self.compacted, |oldest| oldest.revision);
        }
    }

    /// Forgets all changes up to a version, as etcd's compaction does.
    pub(crate) fn compact(&mut self, revision: u64) {
        while self.log.front().is_some_and(|oldest| oldest.revision <= revision) {
            self.log.pop_front();
        }
        self.compacted = self.compacted.max(revision.min(self.revision));
    }

    /// The changes after a version, oldest first. Of a compacted version there is none: ask [`Self::compacted`] first.
    pub(crate) fn changes(&self, after: u64) -> impl Iterator<Item = &Change> {
        // Versions in the log are consecutive.
        let skip = after.saturating_sub(self.log.front().map_or(after, |oldest| oldest.revision.saturating_sub(1)));
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(self.log.len());
        self.log.focus().narrow(skip..).into_iter()
    }

    /// Gives the next change the version after this one: a saved change comes back under its own.
    pub(crate) fn continue_from(&mut self, revision: u64) {
        self.revision = revision;
    }

    /// All objects, for saving.
    pub(crate) fn all(&self) -> BTreeMap<Storage, Vec<Arc<Object>>> {
        let objects = self.objects.iter();
        objects.map(|(storage, objects)| (storage.clone(), objects.values().cloned().collect())).collect()
    }
}
