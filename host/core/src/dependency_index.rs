//! The keys of each dependency, and so the keys that a change affects (W1).
//!
//! Equal dependencies are stored once: ten thousand keys that list the same Nodes share one dependency, and a change of
//! a Node is compared with it once. A dependency is indexed by a property of every object in its result, its index key:
//! a name, an owner, the value of a field, a label, a namespace, or the kind alone. The index stores the hash of an
//! index key, and compares the dependencies under it with the change.
//!
//! A change looks up its own name, namespace, kind and owners, and only those of its fields and labels that some
//! dependency selects by. So only the dependencies under its index keys cost anything. Nothing here knows guests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::budget::Budget;
use crate::dependencies::{Dependencies, Dependency, SharedDependency};
use crate::field_selector::FieldPath;
use crate::map::Map;
use crate::object::{Kind, Object, ObjectRef};
use crate::store::Change;
use crate::workqueue::{ControllerId, Key};

use self::index_key::{IndexKey, field_keys, other_key};
use self::keys::Keys;
use self::selected::Selected;

mod index_key;
mod keys;
mod selected;
#[cfg(test)]
mod tests;

/// Budget of one controller's dependencies to project the two sides of one change, at 16 units per KiB that no
/// projection has cached: half a MiB of text, one or two milliseconds of the event loop. Beyond it, the controller's
/// keys under the change's index keys count as affected: they wake, and their own turns pay for the reads.
const MAX_CUTS_PER_CHANGE: u64 = 8_192;
/// As many of these units take about a microsecond.
const CUTS_PER_US: u64 = 4;

/// The keys of each dependency.
///
/// The owner of the keys' [`Dependencies`] passes each new set to [`Self::replace`], the last set of a key to
/// [`Self::remove`], and every change of the store to [`Self::affected`].
#[derive(Debug, Default)]
pub struct DependencyIndex {
    /// The position of each dependency in `entries`.
    places: Map<Arc<SharedDependency>, u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Hashes of index keys, with the positions of their dependencies.
    postings: BTreeSet<(u64, u32)>,
    selected: BTreeMap<Kind, Selected>,
    /// Changes that were not taken yet.
    field_changes: Vec<FieldChange>,
    /// Keys that any change of a kind affects.
    whole: BTreeMap<Kind, BTreeSet<Key>>,
    /// Keys that an object blocks.
    conflicts: BTreeMap<ObjectRef, BTreeSet<Key>>,
}

/// A field that queries began or ceased to select by, for [`Store::select_field`](crate::store::Store::select_field).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldChange {
    /// The kind of the objects.
    pub kind: Kind,
    /// The field.
    pub path: FieldPath,
    /// Whether some dependency selects by it.
    pub is_selected: bool,
}

/// What a change affects.
#[derive(Debug, Default)]
pub struct Affected {
    /// The keys of dependencies whose results change, sorted and unique.
    pub keys: Vec<Key>,
    /// The comparisons with each controller's dependencies. One that several controllers have is the first one's.
    pub compared: BTreeMap<ControllerId, Compared>,
}

/// The comparisons of a change with the dependencies of one controller.
#[derive(Debug)]
pub struct Compared {
    dependencies: u64,
    cuts: Budget,
}

impl Compared {
    fn none() -> Self {
        Self { dependencies: 0, cuts: Budget::new(MAX_CUTS_PER_CHANGE) }
    }

    /// About the time that they took: a microsecond each, and what they projected. It is counted and not measured, so
    /// that runs are repeatable.
    pub fn cost_us(&self) -> u64 {
        self.dependencies + self.cuts.spent() / CUTS_PER_US
    }
}

#[derive(Debug)]
struct Entry {
    dependency: Arc<SharedDependency>,
    keys: Keys,
}

impl DependencyIndex {
    /// Adds a key of a plugin with its dependencies, and replaces these by the shared ones.
    pub fn insert(&mut self, plugin: &Arc<str>, key: &Key, reads: &mut Dependencies) {
        for dependency in reads.of_objects_mut() {
            match self.places.get_key_value(&*dependency) {
                Some((known, place)) => {
                    *dependency = Arc::clone(known);
                    let entry = self.entries[*place as usize].as_mut().expect("every place has an entry");
                    entry.keys.insert(key);
                }
                None => self.add(plugin, key, dependency),
            }
        }
        for kind in reads.whole_kinds() {
            add_to(&mut self.whole, kind, key);
        }
    }

    /// Removes a key with its dependencies.
    pub fn remove(&mut self, key: &Key, reads: &Dependencies) {
        reads.of_objects().for_each(|dependency| self.remove_one(key, dependency));
        reads.whole_kinds().for_each(|kind| remove_from(&mut self.whole, kind, key));
    }

    /// Replaces a key's set of dependencies, if it has one. Dependencies of both sets stay untouched.
    pub fn replace(&mut self, plugin: &Arc<str>, key: &Key, before: Option<&Dependencies>, after: &mut Dependencies) {
        self.insert(plugin, key, after);
        let Some(before) = before else { return };
        let mut kept: Vec<_> = after.of_objects().map(Arc::as_ptr).collect();
        kept.sort_unstable();
        for dependency in before.of_objects() {
            if kept.binary_search(&Arc::as_ptr(dependency)).is_err() {
                self.remove_one(key, dependency);
            }
        }
        for kind in before.whole_kinds() {
            if after.whole_kinds().all(|kept| kept != kind) {
                remove_from(&mut self.whole, kind, key);
            }
        }
    }

    /// Replaces the objects that block a key: objects of others that have the names of its children, and absent objects
    /// that its actions patch. Their changes wake the key even if it does not read them.
    pub fn replace_conflicts(&mut self, key: &Key, before: &[ObjectRef], after: &[ObjectRef]) {
        before.iter().for_each(|target| remove_from(&mut self.conflicts, target, key));
        after.iter().for_each(|target| add_to(&mut self.conflicts, target, key));
    }

    /// The keys that a change affects. Each dependency under its index keys is compared with it once.
    pub fn affected(&self, change: &Change) -> Affected {
        let Some(object) = change.object() else { return Affected::default() };
        let (mut keys, mut sources, mut compared) = (Vec::new(), 0, BTreeMap::new());
        self.look_up(change, object, |entry| {
            let controller = entry.keys.first().expect("an entry is removed with its last key").controller;
            let compared = compared.entry(controller).or_insert_with(Compared::none);
            compared.dependencies += 1;
            if entry.dependency.dependency().is_affected(change, &compared.cuts) {
                sources += 1;
                entry.keys.add_to(&mut keys);
            }
        });
        let blocked = if self.conflicts.is_empty() { None } else { self.conflicts.get(&object.reference()) };
        for set in [self.whole.get(&object.kind), blocked].into_iter().flatten() {
            sources += 1;
            keys.extend(set.iter().cloned());
        }
        if sources > 1 {
            keys.sort();
            keys.dedup();
        }
        Affected { keys, compared }
    }

    /// Calls `found` for every entry under the index keys of a change, once each.
    fn look_up(&self, change: &Change, object: &Object, mut found: impl FnMut(&Entry)) {
        let mut under = |index_key: IndexKey<'_>| {
            let hash = index_key.hash_of(&object.kind);
            let places = self.postings.range((hash, 0)..=(hash, u32::MAX));
            places.filter_map(|(_, place)| self.entries[*place as usize].as_ref()).for_each(&mut found);
        };
        let [before, after] = [change.before.as_deref(), change.after.as_deref()];
        let namespace = &*object.name.namespace;
        under(IndexKey::Object(&object.name));
        under(IndexKey::Namespace(namespace));
        under(IndexKey::Kind);
        distinct(before.and_then(owner_uid), after.and_then(owner_uid)).for_each(|uid| under(IndexKey::Owner(uid)));
        let Some(selected) = self.selected.get(&object.kind) else { return };
        for path in selected.fields.keys() {
            let [was, is] = [before, after].map(|side| Some(path.hash_of(&path.value_in(side?)?)));
            for hash in is.into_iter().chain(was.filter(|was| is != Some(*was))) {
                under(IndexKey::Field { hash, namespace: None });
                under(IndexKey::Field { hash, namespace: Some(namespace) });
            }
        }
        for key in selected.labels_of(before, after) {
            let values = [before, after].map(|side| side.and_then(|object| object.label(key)));
            for value in distinct(values[0], values[1]) {
                under(IndexKey::Label { key, value, namespace: None });
                under(IndexKey::Label { key, value, namespace: Some(namespace) });
            }
        }
    }

    /// The changes since the last call.
    pub fn take_field_changes(&mut self) -> Vec<FieldChange> {
        std::mem::take(&mut self.field_changes)
    }

    fn add(&mut self, plugin: &Arc<str>, key: &Key, dependency: &Arc<SharedDependency>) {
        let Some(kind) = dependency.dependency().kind() else { return };
        let entry = Some(Entry { dependency: Arc::clone(dependency), keys: Keys::One(key.clone()) });
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.entries.push(None);
                u32::try_from(self.entries.len() - 1).expect("four billion dependencies do not fit into memory")
            }
        };
        self.entries[place as usize] = entry;
        let hash = self.select(plugin, kind, dependency.dependency());
        self.postings.insert((hash, place));
        self.places.insert(Arc::clone(dependency), place);
    }

    /// Chooses and counts the index key of a new dependency, and returns its hash.
    fn select(&mut self, plugin: &Arc<str>, kind: &Kind, dependency: &Dependency) -> u64 {
        for (path, index_key) in field_keys(dependency) {
            let Some(is_new) = self.selected.entry(kind.clone()).or_default().add_field(plugin, path) else { continue };
            if is_new {
                self.field_changes.push(FieldChange { kind: kind.clone(), path: path.clone(), is_selected: true });
            }
            return index_key.hash_of(kind);
        }
        let index_key = other_key(dependency);
        if let IndexKey::Label { key, .. } = index_key {
            let labels = &mut self.selected.entry(kind.clone()).or_default().labels;
            match labels.get_mut(key) {
                Some(dependencies) => *dependencies += 1,
                None => _ = labels.insert(key.into(), 1),
            }
        }
        index_key.hash_of(kind)
    }

    fn remove_one(&mut self, key: &Key, dependency: &Arc<SharedDependency>) {
        let Some(place) = self.places.get(dependency).copied() else { return };
        let entry = &mut self.entries[place as usize];
        if !entry.as_mut().is_some_and(|entry| entry.keys.remove(key)) {
            return;
        }
        *entry = None;
        self.free.push(place);
        self.places.remove(dependency);
        if let Some(kind) = dependency.dependency().kind() {
            self.deselect(kind, dependency.dependency(), place);
        }
    }

    fn deselect(&mut self, kind: &Kind, dependency: &Dependency, place: u32) {
        let is_key = |(_, index_key): &(_, IndexKey<'_>)| self.postings.remove(&(index_key.hash_of(kind), place));
        let field = field_keys(dependency).find(is_key);
        let index_key = other_key(dependency);
        if field.is_none() {
            self.postings.remove(&(index_key.hash_of(kind), place));
        }
        let Some(selected) = self.selected.get_mut(kind) else { return };
        match (field, index_key) {
            (Some((path, _)), _) if selected.remove_field(path) => {
                self.field_changes.push(FieldChange { kind: kind.clone(), path: path.clone(), is_selected: false });
            }
            (None, IndexKey::Label { key, .. }) => selected.remove_label(key),
            _ => {}
        }
        if selected.fields.is_empty() && selected.labels.is_empty() {
            self.selected.remove(kind);
        }
    }
}

fn owner_uid(object: &Object) -> Option<&str> {
    object.controller.as_ref().map(|controller| &*controller.uid)
}

/// Both values, or one when they are equal.
fn distinct<'a>(before: Option<&'a str>, after: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    after.into_iter().chain(before.filter(|before| after != Some(before)))
}

fn add_to<T: Ord + Clone>(sets: &mut BTreeMap<T, BTreeSet<Key>>, of: &T, key: &Key) {
    sets.entry(of.clone()).or_default().insert(key.clone());
}

fn remove_from<T: Ord>(sets: &mut BTreeMap<T, BTreeSet<Key>>, of: &T, key: &Key) {
    if let Some(keys) = sets.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            sets.remove(of);
        }
    }
}
