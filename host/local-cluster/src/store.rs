//! The objects, by storage, namespace and name, and the log of their changes that watches and controllers read. Input:
//! objects that were admitted. Output: the same objects with a resource version, and changes in order. It must not know
//! kinds, schemas or users.
//!
//! Everything is a persistent collection: a copy of the store takes no time and shares all that does not change.

mod object;

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde_json::Value;

use crate::resource::Storage;

pub(crate) use self::object::Object;

/// How many changes the log keeps. A watch that is further behind gets 410, as from etcd after a compaction; 10,000 objects
/// that change twice within its reach fit.
const MAX_LOG: usize = 32_768;
/// How many bytes of objects the log keeps besides: ten thousand changes of large Pods.
const MAX_LOG_BYTES: usize = 128 << 20;

/// How many changes back objects keep their trees: what is newer controllers and watches look at.
const MAX_WITH_TREE: usize = 256;
/// How many objects each change looks through for trees that reading left behind.
const SWEPT: usize = 2;

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
    /// The bytes of the object, from when the change is no longer new.
    pub(crate) bytes: usize,
}

/// An owner's UID with what names one of its dependents.
type Owned = (Arc<str>, Storage, Name);

/// All objects and their last changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    objects: OrdMap<Storage, OrdMap<Name, Arc<Object>>>,
    owned: OrdSet<Owned>,
    log: Vector<Change>,
    /// The bytes of the changes in the log.
    log_bytes: usize,
    revision: u64,
    /// The log has all changes after this version.
    compacted: u64,
    /// The object that was looked at last for a tree that nobody needs.
    swept: Option<(Storage, Name)>,
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
        let object = Arc::new(Object::new(value, self.revision));
        let name = object.key();
        for owner in object.owners() {
            self.owned.insert((owner.clone(), storage.clone(), name.clone()));
        }
        let previous = self.objects.entry(storage.clone()).or_default().insert(name.clone(), object.clone());
        if let Some(previous) = &previous {
            for owner in previous.owners().iter().filter(|owner| !object.owners().contains(owner)) {
                self.owned.remove(&(owner.clone(), storage.clone(), name.clone()));
            }
        }
        let event = if previous.is_some() { Event::Modified } else { Event::Added };
        self.record(Change {
            revision: self.revision,
            storage: storage.clone(),
            event,
            object: object.clone(),
            previous,
            bytes: 0,
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
        for owner in previous.owners() {
            self.owned.remove(&(owner.clone(), storage.clone(), name.clone()));
        }
        self.revision += 1;
        let object = Arc::new(previous.at(self.revision));
        let change = Change {
            revision: self.revision,
            storage: storage.clone(),
            event: Event::Deleted,
            object: object.clone(),
            previous: Some(previous),
            bytes: 0,
        };
        self.record(change);
        Some(object)
    }

    fn record(&mut self, change: Change) {
        self.log.push_back(change);
        while self.log.len() > MAX_LOG || self.log_bytes > MAX_LOG_BYTES && self.log.len() > MAX_WITH_TREE {
            let Some(oldest) = self.log.pop_front() else { break };
            self.log_bytes -= oldest.bytes;
            self.compacted = oldest.revision;
        }
        self.let_go();
        for _ in 0..SWEPT {
            self.sweep();
        }
    }

    /// Counts the bytes of a change that is no longer new; takes the trees from it, and from its object if that is still the
    /// newest.
    fn let_go(&mut self) {
        let Some(at) = self.log.len().checked_sub(MAX_WITH_TREE + 1) else { return };
        let Some(change) = self.log.get(at) else { return };
        let lean = |object: &Arc<Object>| object.without_tree().unwrap_or_else(|| object.clone());
        let bytes = change.object.text().len();
        self.log_bytes += bytes;
        let change = change.clone();
        let name = change.object.key();
        let newest = self.objects.get(&change.storage).and_then(|all| all.get(&name));
        if newest.is_some_and(|newest| Arc::ptr_eq(newest, &change.object)) {
            // A copy of its own: who looks at the newest does not give the log a tree.
            self.replace(&change.storage, name, lean(&change.object));
        }
        let (object, previous) = (lean(&change.object), change.previous.as_ref().map(lean));
        self.log.set(at, Change { object, previous, bytes, ..change });
    }

    /// Takes the tree from the next object in their order, if it is not new: somebody looked at it.
    fn sweep(&mut self) {
        use std::ops::Bound::{Excluded, Unbounded};
        let last = self.swept.take();
        let same = last.as_ref().and_then(|(storage, name)| {
            let next = self.objects.get(storage)?.range((Excluded(name.clone()), Unbounded)).next()?;
            Some((storage.clone(), next))
        });
        let next = same.or_else(|| {
            let start = last.as_ref().map_or(Unbounded, |(storage, _)| Excluded(storage.clone()));
            let (storage, all) = self.objects.range((start, Unbounded)).next()?;
            Some((storage.clone(), all.iter().next()?))
        });
        // After the last object the first one is next.
        let Some((storage, (name, object))) = next else { return };
        let is_old = object.revision + (MAX_WITH_TREE as u64) < self.revision;
        let (name, lean) = (name.clone(), if is_old { object.without_tree() } else { None });
        if let Some(lean) = lean {
            self.replace(&storage, name.clone(), lean);
        }
        self.swept = Some((storage, name));
    }

    /// Puts the same object in another form.
    fn replace(&mut self, storage: &Storage, name: Name, object: Arc<Object>) {
        if let Some(objects) = self.objects.get_mut(storage) {
            objects.insert(name, object);
        }
    }

    /// Forgets all changes up to a version, as etcd's compaction does.
    pub(crate) fn compact(&mut self, revision: u64) {
        while self.log.front().is_some_and(|oldest| oldest.revision <= revision) {
            let oldest = self.log.pop_front();
            self.log_bytes -= oldest.map_or(0, |oldest| oldest.bytes);
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Method::{Get, Post, Put};
    use crate::testing::{ask, quiet};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn trees(store: &Store) -> usize {
        let objects = store.objects.values().flat_map(OrdMap::values);
        let logged = store.log.iter().flat_map(|change| [Some(&change.object), change.previous.as_ref()]).flatten();
        objects.chain(logged).filter(|object| object.has_tree()).count()
    }

    #[test]
    fn only_what_is_new_or_was_just_looked_at_has_the_memory_of_a_tree() {
        const COUNT: usize = 2_000;
        let mut cluster = quiet();
        for at in 0..COUNT {
            let (code, mut map) = ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": format!("m{at}")}}));
            map["data"] = json!({"k": "v"});
            assert_eq!((code, ask(&mut cluster, Put, &format!("{MAPS}/m{at}"), &map).0), (201, 200));
        }
        // Each change has two objects, of which one is the newest of its name.
        let most = 4 * MAX_WITH_TREE;
        assert!(trees(&cluster.store) < most, "{}", trees(&cluster.store));
        let before = trees(&cluster.store);
        for query in ["", "?labelSelector=!x", "?fieldSelector=metadata.name!=x", "?limit=500"] {
            let (_, list) = ask(&mut cluster, Get, &format!("{MAPS}{query}"), &Value::Null);
            assert_eq!(list["items"].as_array().map(Vec::len), Some(if query == "?limit=500" { 500 } else { COUNT }));
        }
        assert_eq!(trees(&cluster.store), before, "lists give no object a tree");
        let storage = Storage::new("", "configmaps");
        let sizes = cluster.store.list(&storage, None, None).map(|map| map.value["data"].to_string().len());
        assert!(sizes.sum::<usize>() > 0 && trees(&cluster.store) >= COUNT);
        for at in 0..COUNT {
            ask(
                &mut cluster,
                Post,
                "/api/v1/namespaces/default/secrets",
                &json!({"metadata": {"name": format!("s{at}")}}),
            );
        }
        assert!(trees(&cluster.store) < most, "{}", trees(&cluster.store));
    }
}
