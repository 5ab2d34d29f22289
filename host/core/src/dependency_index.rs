//! Which keys have which dependencies, and so which keys a change concerns (W1).
//!
//! Equal dependencies are one here: ten thousand keys that list the same Nodes share it, a change of a Node is compared with
//! it once, and its answer is computed once. A dependency is found under what every object of its answer has, its index key:
//! a name, an owner, a label, a namespace, or the kind alone. An index key is kept as its hash; what a hash finds is compared
//! with the change before it counts.
//!
//! A change looks up its own name, namespace, kind and owners, and of its labels only those that somebody selects by. So it
//! costs what the dependencies under its index keys cost, however many others, keys and labels there are.
//!
//! It knows keys, dependencies and changes: no guest, no plugin, and not what is done with the keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::budget::Budget;
use crate::dependencies::{Dependencies, Dependency, SharedDependency};
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::store::Change;
use crate::workqueue::{ControllerId, Key};

#[cfg(test)]
mod tests;

/// What the dependencies of one controller may take of one change for cutting fields out of its two sides, 16 for each KiB
/// that no projection remembers: half a MiB of text, which takes a millisecond or two of the event loop. Beyond it, the
/// controller's keys under the change's index keys count as concerned: they wake, and pay for what they read in their turn.
const MAX_CUTS_PER_CHANGE: u64 = 8_192;

/// Which keys have which dependencies.
///
/// Whoever keeps the [`Dependencies`] of a key passes each set that takes the place of another to [`Self::replace`], the last
/// one to [`Self::remove`], and every change of the store to [`Self::affected`].
#[derive(Debug, Default)]
pub struct DependencyIndex {
    /// Where each dependency is in `entries`. The hasher has no random key: a run is the same each time.
    places: HashMap<Arc<SharedDependency>, u32, BuildHasherDefault<DefaultHasher>>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Hashes of index keys, with the places of the dependencies that are found under them.
    postings: BTreeSet<(u64, u32)>,
    /// The label keys in index keys, with how many dependencies have each.
    label_keys: BTreeMap<Kind, BTreeMap<Arc<str>, usize>>,
    /// Keys of whose sets any change of a kind counts.
    whole: BTreeMap<Kind, BTreeSet<Key>>,
    /// Keys that an object holds up.
    conflicts: BTreeMap<ObjectRef, BTreeSet<Key>>,
}

/// What a change concerns.
#[derive(Debug, Default)]
pub struct Affected {
    /// The keys of which it changes an answer, in order, each once.
    pub keys: Vec<Key>,
    /// The dependencies that it was compared with.
    pub evaluated: usize,
}

#[derive(Debug)]
struct Entry {
    dependency: Arc<SharedDependency>,
    keys: Keys,
}

/// The keys of one dependency. Most have one, of an owner or a label of its own, and it takes no allocation.
#[derive(Debug)]
enum Keys {
    One(Key),
    Many(BTreeSet<Key>),
}

/// What every object of a dependency's answer has.
#[derive(Hash)]
enum IndexKey<'a> {
    Object(&'a Name),
    Owner(&'a str),
    Label { key: &'a str, value: &'a str, namespace: Option<&'a str> },
    Namespace(&'a str),
    Kind,
}

impl DependencyIndex {
    /// Adds a key with its dependencies, which become the shared ones.
    pub fn insert(&mut self, key: &Key, reads: &mut Dependencies) {
        for dependency in reads.of_objects_mut() {
            match self.places.get_key_value(&*dependency) {
                Some((known, place)) => {
                    *dependency = Arc::clone(known);
                    let entry = self.entries[*place as usize].as_mut().expect("a place that is known has an entry");
                    entry.keys.insert(key);
                }
                None => self.add(key, dependency),
            }
        }
        for kind in reads.whole_kinds() {
            add_to(&mut self.whole, kind, key);
        }
    }

    /// Removes a key with the dependencies that it was added with.
    pub fn remove(&mut self, key: &Key, reads: &Dependencies) {
        reads.of_objects().for_each(|dependency| self.remove_one(key, dependency));
        reads.whole_kinds().for_each(|kind| remove_from(&mut self.whole, kind, key));
    }

    /// Puts a new set of dependencies in the place of a key's last one, if it has one. What both have is not touched.
    pub fn replace(&mut self, key: &Key, before: Option<&Dependencies>, after: &mut Dependencies) {
        self.insert(key, after);
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

    /// Puts `after` in the place of `before` as the objects that hold a key up, whatever it reads: those of others that have
    /// the names of its children, and those that it is to patch and that are not there.
    pub fn replace_conflicts(&mut self, key: &Key, before: &[ObjectRef], after: &[ObjectRef]) {
        before.iter().for_each(|target| remove_from(&mut self.conflicts, target, key));
        after.iter().for_each(|target| add_to(&mut self.conflicts, target, key));
    }

    /// The keys that a change concerns. Each dependency under its index keys is compared with it once.
    pub fn affected(&self, change: &Change) -> Affected {
        let Some(object) = change.object() else { return Affected::default() };
        let mut budgets: BTreeMap<Option<ControllerId>, Budget> = BTreeMap::new();
        let (mut keys, mut sources, mut evaluated) = (Vec::new(), 0, 0);
        self.look_up(change, object, |entry| {
            evaluated += 1;
            let controller = entry.keys.first().map(|key| key.controller);
            let budget = budgets.entry(controller).or_insert_with(|| Budget::new(MAX_CUTS_PER_CHANGE));
            if entry.dependency.dependency().is_touched(change, budget) {
                sources += 1;
                entry.keys.add_to(&mut keys);
            }
        });
        let held_up = if self.conflicts.is_empty() { None } else { self.conflicts.get(&object.reference()) };
        for set in [self.whole.get(&object.kind), held_up].into_iter().flatten() {
            sources += 1;
            keys.extend(set.iter().cloned());
        }
        if sources > 1 {
            keys.sort();
            keys.dedup();
        }
        Affected { keys, evaluated }
    }

    /// Every entry under the index keys of a change, each once.
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
        for key in self.selected_labels(&object.kind, before, after) {
            let values = [before, after].map(|side| side.and_then(|object| object.label(key)));
            for value in distinct(values[0], values[1]) {
                under(IndexKey::Label { key, value, namespace: None });
                under(IndexKey::Label { key, value, namespace: Some(namespace) });
            }
        }
    }

    /// The label keys that somebody selects by and that one side may have. Costs as much as the fewer of both: neither an
    /// object with ten thousand labels nor a plugin that selects by as many keys makes it long.
    fn selected_labels<'a>(
        &'a self,
        kind: &Kind,
        before: Option<&'a Object>,
        after: Option<&'a Object>,
    ) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        let Some(selected) = self.label_keys.get(kind) else { return Box::new(std::iter::empty()) };
        let of_side = |side: Option<&'a Object>| side.map_or(&[][..], |object| &*object.labels);
        if selected.len() <= of_side(before).len() + of_side(after).len() {
            return Box::new(selected.keys().map(|key| &**key));
        }
        let is_new = move |key: &str| after.is_none_or(|after| after.label(key).is_none());
        let gone = of_side(before).iter().filter(move |(key, _)| is_new(key));
        let keys = of_side(after).iter().chain(gone).map(|(key, _)| &**key);
        Box::new(keys.filter(|key| selected.contains_key(*key)))
    }

    fn add(&mut self, key: &Key, dependency: &Arc<SharedDependency>) {
        let Some((kind, index_key)) = index_key(dependency.dependency()) else { return };
        if let IndexKey::Label { key, .. } = index_key {
            let selected = self.label_keys.entry(kind.clone()).or_default();
            match selected.get_mut(key) {
                Some(dependencies) => *dependencies += 1,
                None => _ = selected.insert(key.into(), 1),
            }
        }
        let entry = Some(Entry { dependency: Arc::clone(dependency), keys: Keys::One(key.clone()) });
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.entries.push(None);
                u32::try_from(self.entries.len() - 1).expect("four billion dependencies do not fit into memory")
            }
        };
        self.entries[place as usize] = entry;
        self.postings.insert((index_key.hash_of(kind), place));
        self.places.insert(Arc::clone(dependency), place);
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
        let Some((kind, index_key)) = index_key(dependency.dependency()) else { return };
        self.postings.remove(&(index_key.hash_of(kind), place));
        if let IndexKey::Label { key, .. } = index_key
            && let Some(selected) = self.label_keys.get_mut(kind)
            && let Some(dependencies) = selected.get_mut(key)
        {
            *dependencies -= 1;
            if *dependencies == 0 {
                selected.remove(key);
            }
            if selected.is_empty() {
                self.label_keys.remove(kind);
            }
        }
    }
}

/// The kind of a dependency and the narrowest index key that every object of its answer has.
fn index_key(dependency: &Dependency) -> Option<(&Kind, IndexKey<'_>)> {
    let index_key = match dependency {
        Dependency::Get(target) => IndexKey::Object(&target.name),
        Dependency::Owned { owner_uid, .. } => IndexKey::Owner(owner_uid),
        Dependency::List(query) | Dependency::Keys(query) => {
            let namespace = query.namespace.as_deref();
            match (query.selector.required().next(), namespace) {
                (Some((key, value)), _) => IndexKey::Label { key, value, namespace },
                (None, Some(namespace)) => IndexKey::Namespace(namespace),
                (None, None) => IndexKey::Kind,
            }
        }
        Dependency::Now | Dependency::Config => return None,
    };
    Some((dependency.kind()?, index_key))
}

impl IndexKey<'_> {
    fn hash_of(&self, kind: &Kind) -> u64 {
        let mut hasher = DefaultHasher::new();
        (kind, self).hash(&mut hasher);
        hasher.finish()
    }
}

impl Keys {
    fn first(&self) -> Option<&Key> {
        match self {
            Self::One(key) => Some(key),
            Self::Many(keys) => keys.first(),
        }
    }

    fn insert(&mut self, key: &Key) {
        match self {
            Self::One(known) if known == key => {}
            Self::One(known) => *self = Self::Many([known.clone(), key.clone()].into()),
            Self::Many(keys) => _ = keys.insert(key.clone()),
        }
    }

    /// True when none is left.
    fn remove(&mut self, key: &Key) -> bool {
        match self {
            Self::One(known) => known == key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }

    fn add_to(&self, all: &mut Vec<Key>) {
        match self {
            Self::One(key) => all.push(key.clone()),
            Self::Many(keys) => all.extend(keys.iter().cloned()),
        }
    }
}

fn owner_uid(object: &Object) -> Option<&str> {
    object.controller.as_ref().map(|controller| &*controller.uid)
}

/// Both, or one when they are equal.
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
