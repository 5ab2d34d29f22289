//! The keys of each dependency, and so the keys that a change affects (W1).
//!
//! Equal dependencies of a share are stored once: ten thousand keys that list the same Nodes share one dependency, and
//! a change of a Node is compared with it once. Each share has its own, so that what is done without for one concerns
//! no other. A dependency is indexed by a property of every object in its result, its index key: a name, an owner, the
//! value of a field, a label, a namespace, or the kind alone. The index stores the hash of an index key, and compares
//! the dependencies under it with the change.
//!
//! A change looks up its own name, namespace, kind and owners, and only those of its fields and labels that some
//! dependency selects by. So only the dependencies under its index keys cost anything. Of one share no more are
//! compared than a bound under one index key: beyond it, any change counts (`whole.rs`). What is compared with one
//! change is bounded for each share and in all (`found.rs`), and what wakes at once too (`waking.rs`). Large sets of
//! keys are walked in pieces (`due.rs`). Nothing here knows guests.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::ops::{Bound, RangeBounds as _};
use std::sync::Arc;

use crate::budget::Budget;
use crate::dependencies::{Dependencies, Dependency, SharedDependency};
use crate::field_selector::FieldPath;
use crate::map::Map;
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::store::Change;
use crate::workqueue::{ControllerId, Key};

use self::due::{Due, KeySet, PIECE};
use self::found::{Found, Left};
use self::index_key::{IndexKey, field_keys, other_key};
use self::keys::Keys;
use self::selected::Selected;
use self::shares::Shares;
use self::waking::Waking;
use self::whole::Whole;

mod due;
mod found;
mod index_key;
mod keys;
mod selected;
mod shares;
#[cfg(test)]
mod tests;
mod waking;
mod whole;

/// As many units of projecting take about a microsecond.
const CUTS_PER_US: u64 = 4;
/// Dependencies of one share under one index key that are compared with a change. Different queries are mostly about
/// different objects, owners or labels; 64 about the same take ten microseconds.
const MAX_UNDER_INDEX_KEY: usize = 64;
/// Comparisons of keys for each key that [`DependencyIndex::take_due`] may return.
const LOOKS_PER_KEY: usize = 16;

/// What the index keeps for one object that blocks one key, in a tree of half-full nodes.
pub(crate) const CONFLICT_BYTES: usize = 256;

/// The keys of each dependency.
///
/// The owner of the keys' [`Dependencies`] passes each new set to [`Self::replace`], the last set of a key to
/// [`Self::remove`], and every change of the store to [`Self::affected`]. What is left then comes from [`Self::take_due`].
#[derive(Debug, Default)]
pub struct DependencyIndex {
    /// The shares, with the position of each of their dependencies in `entries`.
    shares: Shares,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Hashes of index keys, with the shares whose dependencies are compared under them, and the positions of these.
    postings: BTreeSet<(u64, u32, u32)>,
    /// The index keys of the dependencies that are not compared, whose keys are in `whole`.
    uncompared: Map<u32, u64>,
    /// The share that is compared first with the next change.
    first: u32,
    selected: BTreeMap<Kind, Selected>,
    /// Changes that were not taken yet.
    field_changes: Vec<FieldChange>,
    /// Keys that any change under an index key affects.
    whole: Whole,
    /// Keys that an object blocks.
    conflicts: BTreeMap<ObjectRef, Keys>,
    due: Due,
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
    /// The first keys of dependencies whose results change, sorted and unique.
    pub keys: Vec<Key>,
    /// The comparisons with each share's dependencies.
    pub compared: Vec<(Arc<str>, Compared)>,
    /// Shares with more dependencies under the change's index keys than are looked at: all their keys wake.
    pub shares: BTreeSet<Arc<str>>,
    /// Controllers that it affects in very many ways: all their keys wake.
    pub controllers: Vec<ControllerId>,
}

/// The comparisons of a change with the dependencies of one share.
#[derive(Debug)]
pub struct Compared {
    dependencies: u64,
    cuts: Budget,
}

impl Compared {
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
    /// Adds a key of a share with its dependencies, and replaces these by the shared ones.
    pub fn insert(&mut self, share: &Arc<str>, key: &Key, reads: &mut Dependencies) {
        for dependency in reads.of_objects_mut() {
            match self.shares.find(share, dependency) {
                Some((number, known, place)) => {
                    *dependency = known;
                    self.join(place, number, key);
                }
                None => self.add(share, key, dependency),
            }
        }
        for kind in reads.whole_kinds() {
            self.whole.add(IndexKey::Kind.hash_of(kind), share, key);
        }
    }

    /// Removes a key with its dependencies.
    pub fn remove(&mut self, share: &Arc<str>, key: &Key, reads: &Dependencies) {
        if let Some(number) = self.shares.number(share) {
            reads.of_objects().for_each(|dependency| self.remove_one(number, key, dependency));
        }
        reads.whole_kinds().for_each(|kind| self.whole.remove(IndexKey::Kind.hash_of(kind), share, key));
    }

    /// Replaces a key's set of dependencies, if it has one. Dependencies of both sets stay untouched. Returns how many
    /// dependencies it has looked up, added or removed.
    pub fn replace(
        &mut self,
        share: &Arc<str>,
        key: &Key,
        before: Option<&Dependencies>,
        after: &mut Dependencies,
    ) -> usize {
        self.insert(share, key, after);
        let Some(before) = before else { return after.len() };
        let mut kept: Vec<_> = after.of_objects().map(Arc::as_ptr).collect();
        kept.sort_unstable();
        if let Some(number) = self.shares.number(share) {
            let gone = before.of_objects().filter(|it| kept.binary_search(&Arc::as_ptr(it)).is_err());
            gone.for_each(|dependency| self.remove_one(number, key, dependency));
        }
        before.whole_kinds().for_each(|kind| self.whole.remove(IndexKey::Kind.hash_of(kind), share, key));
        before.len() + after.len()
    }

    /// Replaces the objects that block a key: objects of others that have the names of its children, and absent objects
    /// that its actions patch. Their changes wake the key even if it does not read them.
    pub fn replace_conflicts(&mut self, key: &Key, before: &[ObjectRef], after: &[ObjectRef]) {
        for target in before {
            if self.conflicts.get_mut(target).is_some_and(|keys| keys.remove(key).1) {
                self.conflicts.remove(target);
            }
        }
        for target in after {
            match self.conflicts.get_mut(target) {
                Some(keys) => _ = keys.insert(key),
                None => _ = self.conflicts.insert(target.clone(), Keys::One(key.clone())),
            }
        }
    }

    /// The first keys that a change affects; the others are due. Each dependency under its index keys is compared with it
    /// once, within the bounds of its share and of all; one beyond them counts as affected.
    pub fn affected(&mut self, now_ms: u64, change: &Change) -> Affected {
        let Some(object) = change.object() else { return Affected::default() };
        let (mut found, mut waking, mut compared) = (Found::default(), Waking::default(), Vec::new());
        self.look_up(change, object, &mut found, &mut waking);
        let mut left = Left::of(found.sort_from(&mut self.first));
        for (share, places) in found.by_share() {
            let name = self.shares.name(share);
            let (most, cuts) = left.part();
            let mut of_share = Compared { dependencies: 0, cuts };
            if found.is_over(share) {
                waking.shares.insert(Arc::clone(name));
                left.spend(0, 0);
                of_share.dependencies = places.len() as u64;
            } else {
                for (_, place) in places {
                    let Some(entry) = &self.entries[*place as usize] else { continue };
                    let is_compared = of_share.dependencies < most;
                    of_share.dependencies += u64::from(is_compared);
                    if !is_compared || entry.dependency.dependency().is_affected(change, &of_share.cuts) {
                        waking.add(&entry.keys, || KeySet::Dependency(*place), name);
                    }
                }
                left.spend(of_share.dependencies, of_share.cuts.spent());
            }
            compared.push((Arc::clone(name), of_share));
        }
        let blocked = if self.conflicts.is_empty() { None } else { self.conflicts.get(&object.reference()) };
        if let Some(blocked) = blocked {
            waking.add_blocked(blocked, object.reference());
        }
        let (keys, sets, shares) = waking.into_parts();
        let controllers = sets.iter().flat_map(|set| self.walk(now_ms, set)).collect();
        Affected { keys, compared, shares, controllers }
    }

    /// Walks a set, by controllers. Returns those all of whose keys are to wake.
    fn walk(&mut self, now_ms: u64, set: &KeySet) -> Vec<ControllerId> {
        let mut all = Vec::new();
        let mut next = self.keys_of(set, Bound::Unbounded).next().map(|key| key.controller);
        while let Some(controller) = next {
            if !self.due.add(now_ms, controller, set) {
                all.push(controller);
            }
            let following = Key { controller: ControllerId(controller.0.saturating_add(1)), name: Name::new("", "") };
            next = self.keys_of(set, Bound::Included(following)).next().map(|key| key.controller);
        }
        all
    }

    /// Finds the dependencies that are compared and the sets of keys under the index keys of a change, each once.
    fn look_up(&self, change: &Change, object: &Object, found: &mut Found, waking: &mut Waking) {
        let mut under = |index_key: IndexKey<'_>| {
            let hash = index_key.hash_of(&object.kind);
            let mut from = Some(0);
            while let Some(first) = from.take() {
                for (_, share, place) in self.postings.range((hash, first, 0)..=(hash, u32::MAX, u32::MAX)) {
                    if !found.add(*share, *place) {
                        from = share.checked_add(1);
                        break;
                    }
                }
            }
            self.whole.shares(hash).for_each(|share| waking.add_set(|| KeySet::Whole(hash, Arc::clone(share)), share));
        };
        let [before, after] = [change.before.as_deref(), change.after.as_deref()];
        let namespace = &*object.name.namespace;
        under(IndexKey::Object(&object.name));
        under(IndexKey::Namespace(namespace));
        under(IndexKey::Kind);
        distinct(before.and_then(owner_uid), after.and_then(owner_uid)).for_each(|uid| under(IndexKey::Owner(uid)));
        let Some(selected) = self.selected.get(&object.kind) else { return };
        let [was, is] = [before, after].map(|side| FieldPath::hashes_in(side, selected.fields.keys()));
        for (was, is) in was.into_iter().zip(is) {
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

    /// The next keys that changes have affected and that were not returned yet, so many at most, each with the time of the
    /// first such change. Controllers take turns.
    pub fn take_due(&mut self, most: usize) -> Vec<(Key, u64)> {
        let mut taken = Vec::new();
        let mut looks = most.saturating_mul(LOOKS_PER_KEY);
        while taken.len() < most
            && looks > 0
            && let Some((controller, walk)) = self.due.next()
        {
            let most = PIECE.min(most - taken.len());
            let first = match &walk.after {
                Some(name) => Bound::Excluded(Key { controller, name: name.clone() }),
                None => Bound::Included(Key { controller, name: Name::new("", "") }),
            };
            let of_set =
                |set| self.keys_of(set, first.clone()).take_while(|key| key.controller == controller).peekable();
            let keys: Vec<Key> = merged(walk.sets.iter().map(of_set).collect()).take(most).cloned().collect();
            looks = looks.saturating_sub(walk.sets.len() * (1 + keys.len()));
            let last = keys.last().filter(|_| keys.len() == most).map(|key| key.name.clone());
            taken.extend(keys.into_iter().map(|key| (key, walk.since_ms)));
            self.due.walked(controller, walk, last);
        }
        taken
    }

    /// Whether [`Self::take_due`] has more.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The keys of a set, from one on. A set that is gone has none.
    fn keys_of<'a>(&'a self, set: &'a KeySet, first: Bound<Key>) -> Box<dyn Iterator<Item = &'a Key> + 'a> {
        let range = (first, Bound::Unbounded);
        let keys = match set {
            KeySet::Whole(index_key, share) => return Box::new(self.whole.from(*index_key, share, range)),
            KeySet::Blocked(target) => self.conflicts.get(target),
            KeySet::Dependency(place) => self.entries[*place as usize].as_ref().map(|entry| &entry.keys),
        };
        match keys {
            Some(Keys::Many(keys)) => Box::new(keys.range(range)),
            Some(Keys::One(key)) => Box::new(std::iter::once(key).filter(move |key| range.contains(*key))),
            None => Box::new(std::iter::empty()),
        }
    }

    /// The changes since the last call.
    pub fn take_field_changes(&mut self) -> Vec<FieldChange> {
        std::mem::take(&mut self.field_changes)
    }

    fn add(&mut self, share: &Arc<str>, key: &Key, dependency: &Arc<SharedDependency>) {
        let Some(kind) = dependency.dependency().kind() else { return };
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.entries.push(None);
                u32::try_from(self.entries.len() - 1).expect("four billion dependencies do not fit into memory")
            }
        };
        let index_key = self.select(share, kind, dependency.dependency());
        let number = self.shares.add(share, dependency, place);
        if self.has_room(index_key, number) {
            self.postings.insert((index_key, number, place));
        } else {
            self.uncompared.insert(place, index_key);
            self.whole.add(index_key, share, key);
        }
        self.entries[place as usize] = Some(Entry { dependency: Arc::clone(dependency), keys: Keys::One(key.clone()) });
    }

    /// Adds a key to a dependency of its share. One that is not compared is from now on, if there is room for it.
    fn join(&mut self, place: u32, share: u32, key: &Key) {
        let entry = self.entries[place as usize].as_mut().expect("every place has an entry");
        let is_new = entry.keys.insert(key);
        let Some(index_key) = self.uncompared.get(&place).copied() else { return };
        let has_room = self.has_room(index_key, share);
        let name = self.shares.name(share);
        if !has_room {
            return if is_new {
                self.whole.add(index_key, name, key)
            };
        }
        self.uncompared.remove(&place);
        self.postings.insert((index_key, share, place));
        let entry = self.entries[place as usize].as_ref().expect("every place has an entry");
        let others = entry.keys.iter().filter(|other| !is_new || *other != key);
        others.for_each(|other| self.whole.remove(index_key, name, other));
    }

    /// Whether one more of a share's dependencies under an index key is compared.
    fn has_room(&self, index_key: u64, share: u32) -> bool {
        let of_share = self.postings.range((index_key, share, 0)..=(index_key, share, u32::MAX));
        of_share.take(MAX_UNDER_INDEX_KEY).count() < MAX_UNDER_INDEX_KEY
    }

    /// Chooses and counts the index key of a new dependency, and returns its hash.
    fn select(&mut self, share: &Arc<str>, kind: &Kind, dependency: &Dependency) -> u64 {
        for (path, index_key) in field_keys(dependency) {
            let Some(is_new) = self.selected.entry(kind.clone()).or_default().add_field(share, path) else { continue };
            if is_new {
                self.field_changes.push(FieldChange { kind: kind.clone(), path: path.clone(), is_selected: true });
            }
            return index_key.hash_of(kind);
        }
        let by_label = other_key(dependency, true);
        match by_label {
            IndexKey::Label { key, .. } if !self.selected.entry(kind.clone()).or_default().add_label(share, key) => {
                other_key(dependency, false).hash_of(kind)
            }
            index_key => index_key.hash_of(kind),
        }
    }

    fn remove_one(&mut self, share: u32, key: &Key, dependency: &Arc<SharedDependency>) {
        let Some(place) = self.shares.place(share, dependency) else { return };
        let Some(entry) = &mut self.entries[place as usize] else { return };
        let (had, is_last) = entry.keys.remove(key);
        if had && let Some(index_key) = self.uncompared.get(&place) {
            self.whole.remove(*index_key, self.shares.name(share), key);
        }
        if !is_last {
            return;
        }
        self.entries[place as usize] = None;
        self.free.push(place);
        if let Some(kind) = dependency.dependency().kind() {
            self.deselect(kind, dependency.dependency(), place, share);
        }
        self.shares.remove(share, dependency);
    }

    fn deselect(&mut self, kind: &Kind, dependency: &Dependency, place: u32, share: u32) {
        let uncompared = self.uncompared.remove(&place);
        let mut had = |index_key: &IndexKey<'_>| {
            let hash = index_key.hash_of(kind);
            uncompared.map_or_else(|| self.postings.remove(&(hash, share, place)), |of| of == hash)
        };
        let field = field_keys(dependency).find(|(_, index_key)| had(index_key)).map(|(path, _)| path);
        let by_label = other_key(dependency, true);
        let label = match &by_label {
            _ if field.is_some() => None,
            IndexKey::Label { key, .. } if had(&by_label) => Some(*key),
            IndexKey::Label { .. } => {
                had(&other_key(dependency, false));
                None
            }
            _ => {
                had(&by_label);
                None
            }
        };
        let Some(selected) = self.selected.get_mut(kind) else { return };
        if let Some(path) = field
            && selected.remove_field(path)
        {
            self.field_changes.push(FieldChange { kind: kind.clone(), path: path.clone(), is_selected: false });
        }
        label.into_iter().for_each(|key| selected.remove_label(key));
        if selected.is_empty() {
            self.selected.remove(kind);
        }
    }
}

fn owner_uid(object: &Object) -> Option<&str> {
    object.controller.as_ref().map(|controller| &*controller.uid)
}

/// The items of sorted iterators in their order, each once.
fn merged<T: Ord + Copy>(mut sorted: Vec<Peekable<impl Iterator<Item = T>>>) -> impl Iterator<Item = T> {
    std::iter::from_fn(move || {
        let least = sorted.iter_mut().filter_map(|items| items.peek().copied()).min()?;
        sorted.iter_mut().for_each(|items| _ = items.next_if_eq(&least));
        Some(least)
    })
}

/// Both values, or one when they are equal.
fn distinct<'a>(before: Option<&'a str>, after: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    after.into_iter().chain(before.filter(|before| after != Some(before)))
}
