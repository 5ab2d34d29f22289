//! The cache: one writer, and snapshots of every kind at once that cost nothing to take.
//!
//! Watch events and lists flow in, [`Change`]s flow out; what they mean is for others to say. A snapshot shares its
//! structure with the store by persistent maps, so a writer never waits for a reader and a reader never sees a change
//! (R1). `store/table.rs` holds one kind with its indexes, `store/listing.rs` merges lists (R6).
//!
//! Events of one kind may come late or twice, and a list may be older than what a watch has shown. So an object is only
//! ever replaced by a newer version, and a deletion is remembered for a while: no view is older than one before it (R3).
//! Only when the API server's own versions went backwards does a list replace whatever is there ([`Store::rewind`]).

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use imbl::OrdMap;

use crate::budget::Budget;
use crate::field_selector::FieldPath;
use crate::object::{Kind, Name, Object, ObjectRef, ResourceVersion};
use crate::query::CompiledQuery;
use crate::selector::Selector;

use self::listing::{Recent, Seen, Tombstones};
use self::table::Table;

mod field_index;
pub(crate) mod listing;
mod table;
#[cfg(test)]
mod tests;

/// Bytes of objects that one step looks at to build indexes: some hundred microseconds. With 100,000 Pods of 5 KiB an index
/// takes 8,000 steps, which are some seconds in a cluster of that size; until then its queries look at every object.
const BUILD_BYTES: usize = 64 << 10;

/// What one event changed: both sides are None when it changed nothing.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The object as it was; None when it is new.
    pub before: Option<Arc<Object>>,
    /// The object as it is; None when it is gone.
    pub after: Option<Arc<Object>>,
}

impl Change {
    /// Whether nothing changed: the event was a replay, or said what was known.
    pub fn is_empty(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }

    /// The newest version that the change knows.
    pub fn object(&self) -> Option<&Arc<Object>> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// Which object changed.
    pub fn reference(&self) -> Option<ObjectRef> {
        self.object().map(|object| object.reference())
    }
}

/// The writer's side of the cache.
#[derive(Debug, Default)]
pub struct Store {
    tables: OrdMap<Kind, Arc<Table>>,
    /// The hasher has no random key: a run is the same each time.
    writing: HashMap<Kind, Writing, BuildHasherDefault<DefaultHasher>>,
    /// Kinds with an index that is not complete.
    building: BTreeSet<Kind>,
    /// Where a kind that comes back begins to count its changes: above all that were counted before.
    first_change: u64,
}

/// What only the writer needs to know of a kind.
#[derive(Debug, Default)]
struct Writing {
    free: Vec<u32>,
    /// What the list that is under way has shown.
    listing: Option<Seen>,
    /// The lowest version that was seen before this list and that the list has shown an older state than.
    contradicted: Option<ResourceVersion>,
    tombstones: Tombstones,
    recent: Recent,
    /// Versions from before a restore of etcd are in the table, and only a list counts ([`Store::rewind`]).
    rewound: bool,
}

impl Writing {
    /// Whether a watch event is one of a history that was taken back.
    fn is_void(&self) -> bool {
        self.rewound && self.listing.is_none()
    }
}

impl Store {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An event of a kind's watch: the object is new or has changed. Watches deliver in order, so this also moves
    /// [`Snapshot::progress`]; the answer to a write must not come in here, for events before it may still be under way.
    ///
    /// An object that is not there though everything up to its version was told is one that is gone: the event is a
    /// replay of what a list has overtaken, perhaps from before this process began, so that no grave tells of it (R3).
    pub fn apply(&mut self, object: Object) -> Change {
        let (table, writing) = self.kind(&object.kind);
        let is_replay = object.resource_version <= table.progress && table.find(&object.name).is_none();
        if is_replay || writing.is_void() {
            return Change::default();
        }
        table.progress = table.progress.max(object.resource_version);
        put(table, writing, object)
    }

    /// An event of a kind's watch: the object was deleted, at `version`.
    pub fn remove(&mut self, kind: &Kind, name: &Name, version: ResourceVersion) -> Change {
        let (table, writing) = self.kind(kind);
        if writing.is_void() {
            return Change::default();
        }
        table.progress = table.progress.max(version);
        take(table, writing, name, version)
    }

    /// A list of the kind begins; a list that was under way is given up.
    pub fn begin_list(&mut self, kind: &Kind) {
        let (_, writing) = self.kind(kind);
        writing.listing = Some(Seen::default());
        writing.contradicted = None;
    }

    /// An object of the list. What is unchanged since it was last seen is an empty change.
    pub fn list_item(&mut self, object: Object) -> Change {
        let (table, writing) = self.kind(&object.kind);
        if writing.is_void() {
            return Change::default();
        }
        let newer = newer_than(table, writing, &object);
        writing.contradicted = [writing.contradicted, newer].into_iter().flatten().min();
        put(table, writing, object)
    }

    /// The list is complete and shows the kind as it was at `version`: what it did not show is gone, unless it is newer.
    /// Returns the deletions. Without a [`Self::begin_list`] before it nothing happens.
    pub fn end_list(&mut self, kind: &Kind, version: ResourceVersion) -> Vec<Change> {
        let (table, writing) = self.kind(kind);
        let Some(listing) = writing.listing.take() else { return Vec::new() };
        let gone: Vec<(u32, Name)> = unseen(table, &listing)
            .filter(|(_, object)| writing.rewound || object.resource_version <= version)
            .map(|(slot, object)| (slot, object.name.clone()))
            .collect();
        let changes = gone.iter().map(|(slot, name)| bury(table, writing, *slot, name, version)).collect();
        writing.rewound = false;
        table.synced = true;
        table.progress = table.progress.max(version);
        table.max_seen = table.max_seen.max(version);
        changes
    }

    /// Whether the list that is under way, and shows the kind as it was at `version`, takes back what was seen before: an
    /// object has an older state, or one is there again that was deleted. Then etcd was restored with its versions raised, as
    /// its manual advises, and the kind has to be rewound and listed anew.
    pub fn is_contradicted(&self, kind: &Kind, version: ResourceVersion) -> bool {
        let contradicted = self.writing.get(kind).and_then(|writing| writing.contradicted);
        contradicted.is_some_and(|contradicted| contradicted <= version)
    }

    /// Everything up to `version` has been delivered: a bookmark.
    pub fn progress(&mut self, kind: &Kind, version: ResourceVersion) {
        let (table, writing) = self.kind(kind);
        if !writing.is_void() {
            table.progress = table.progress.max(version);
            table.max_seen = table.max_seen.max(version);
        }
    }

    /// The API server's versions went backwards, so those of this kind compare with none from now on. Its objects stay in
    /// view until the next list, which replaces each of them whatever its version; until then the kind counts as not listed
    /// (R4), and nothing else changes it.
    pub fn rewind(&mut self, kind: &Kind) {
        if !self.writing.contains_key(kind) {
            return;
        }
        let (table, writing) = self.kind(kind);
        table.synced = false;
        table.progress = ResourceVersion::default();
        table.max_seen = ResourceVersion::default();
        writing.listing = None;
        writing.tombstones = Tombstones::default();
        writing.rewound = true;
    }

    /// Somebody depends on a query that selects objects of the kind by this field, or nobody any more. Its index is built by
    /// [`Self::build_indexes`], which does not change what snapshots answer, only what it costs.
    pub fn select_field(&mut self, kind: &Kind, path: &FieldPath, is_selected: bool) {
        if self.writing.contains_key(kind) {
            self.kind(kind).0.select_field(path, is_selected);
            self.building.insert(kind.clone());
        }
    }

    /// Goes on with indexes that are not complete, for a bounded time. To be called at each step.
    pub fn build_indexes(&mut self) {
        let mut bytes = BUILD_BYTES;
        while let Some(kind) = self.building.first().cloned() {
            let left =
                if self.writing.contains_key(&kind) { self.kind(&kind).0.build_fields(bytes) } else { Some(bytes) };
            match left {
                Some(left) => bytes = left,
                None => return,
            }
            self.building.remove(&kind);
        }
    }

    /// Drops all that is known of a kind, because nobody reads it or it may not be read any longer. Not a deletion of
    /// its objects: nobody is told.
    pub fn forget(&mut self, kind: &Kind) {
        if let Some(table) = self.tables.remove(kind) {
            self.first_change = self.first_change.max(table.changes + 1);
        }
        self.writing.remove(kind);
    }

    /// A frozen view of everything.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { tables: self.tables.clone() }
    }

    /// What has changed of a kind since [`Snapshot::changes`] was this number, oldest first. None when that is longer ago
    /// than the store remembers, and when the kind was forgotten in between.
    pub fn changes_since(&self, kind: &Kind, changes: u64) -> Option<impl Iterator<Item = &Change> + use<'_>> {
        let count = self.tables.get(kind)?.changes.checked_sub(changes)?;
        self.writing.get(kind)?.recent.last(count)
    }

    /// Whether the kind has been listed completely.
    pub fn synced(&self, kind: &Kind) -> bool {
        self.tables.get(kind).is_some_and(|table| table.synced)
    }

    /// The highest version of the kind that was seen on anything.
    pub fn max_seen(&self, kind: &Kind) -> ResourceVersion {
        self.tables.get(kind).map_or(ResourceVersion::default(), |table| table.max_seen)
    }

    /// Everything that happened to the kind up to this version is in the store.
    pub(crate) fn progress_of(&self, kind: &Kind) -> ResourceVersion {
        self.tables.get(kind).map_or(ResourceVersion::default(), |table| table.progress)
    }

    /// One object, which counts as seen from now on.
    pub(crate) fn see(&self, kind: &Kind, name: &Name, seen: &mut Seen) -> Option<&Arc<Object>> {
        let (slot, object) = self.tables.get(kind)?.find(name)?;
        seen.see(slot);
        Some(object)
    }

    /// The objects of a kind that were not seen.
    pub(crate) fn unseen<'a>(&'a self, kind: &Kind, seen: &'a Seen) -> impl Iterator<Item = &'a Arc<Object>> {
        self.tables.get(kind).into_iter().flat_map(move |table| unseen(table, seen)).map(|(_, object)| object)
    }

    /// At which version an object of this name was deleted, if that was one of the kind's last deletions.
    pub(crate) fn deleted_at(&self, kind: &Kind, name: &Name) -> Option<ResourceVersion> {
        self.writing.get(kind)?.tombstones.deleted_at(name)
    }

    fn kind(&mut self, kind: &Kind) -> (&mut Table, &mut Writing) {
        if !self.writing.contains_key(kind) {
            self.tables.insert(kind.clone(), Arc::new(Table::counting_from(self.first_change)));
            self.writing.insert(kind.clone(), Writing::default());
        }
        let table = self.tables.get_mut(kind).expect("a kind has a table as long as it has a writer's side");
        let writing = self.writing.get_mut(kind).expect("it was inserted above if it was missing");
        (Arc::make_mut(table), writing)
    }
}

fn unseen<'a>(table: &'a Table, seen: &'a Seen) -> impl Iterator<Item = (u32, &'a Arc<Object>)> {
    seen.unseen(table.fresh_slot()).filter_map(|slot| Some((slot, table.object(slot)?)))
}

/// The version of this name that was seen, if it is newer than an object's.
fn newer_than(table: &Table, writing: &Writing, object: &Object) -> Option<ResourceVersion> {
    match table.find(&object.name) {
        _ if writing.rewound => None,
        Some((_, known)) => Some(known.resource_version).filter(|known| *known > object.resource_version),
        None => writing.tombstones.deleted_at(&object.name).filter(|deleted| *deleted >= object.resource_version),
    }
}

/// Stores an object unless the same or a newer state of its name is known.
fn put(table: &mut Table, writing: &mut Writing, object: Object) -> Change {
    table.max_seen = table.max_seen.max(object.resource_version);
    let object = Arc::new(object);
    let known = table.find(&object.name);
    if let (Some((slot, _)), Some(listing)) = (known, &mut writing.listing) {
        listing.see(slot);
    }
    let is_known = |before: &Object| match writing.rewound {
        true => before.json() == object.json() && before.own_fields == object.own_fields,
        false => before.resource_version >= object.resource_version,
    };
    let before = match known {
        Some((_, before)) if is_known(before) => return Change::default(),
        Some((slot, _)) => Some(table.replace(slot, object.clone())),
        None if writing.tombstones.covers(&object.name, object.resource_version) => return Change::default(),
        None => {
            let slot = writing.free.pop().unwrap_or_else(|| table.fresh_slot());
            if let Some(listing) = &mut writing.listing {
                listing.see(slot);
            }
            table.insert(slot, object.clone());
            None
        }
    };
    let change = Change { before, after: Some(object) };
    writing.recent.add(&change);
    change
}

/// Removes an object unless it is newer than its deletion: then it is another one of the same name.
fn take(table: &mut Table, writing: &mut Writing, name: &Name, version: ResourceVersion) -> Change {
    table.max_seen = table.max_seen.max(version);
    match table.find(name) {
        Some((_, object)) if object.resource_version > version => Change::default(),
        Some((slot, _)) => bury(table, writing, slot, name, version),
        None => {
            writing.tombstones.dig(name, version);
            Change::default()
        }
    }
}

fn bury(table: &mut Table, writing: &mut Writing, slot: u32, name: &Name, version: ResourceVersion) -> Change {
    let before = table.remove(slot);
    writing.free.push(slot);
    writing.tombstones.dig(name, version);
    let change = Change { before: Some(before), after: None };
    writing.recent.add(&change);
    change
}

/// One frozen view of every cached kind. Cheap to clone and to send to another thread.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    tables: OrdMap<Kind, Arc<Table>>,
}

impl Snapshot {
    /// A snapshot of exactly these objects, in which these kinds count as completely listed. For tests and tools that
    /// have objects but no watch.
    pub fn of(kinds: &[Kind], objects: impl IntoIterator<Item = Object>) -> Self {
        let mut store = Store::new();
        for kind in kinds {
            store.begin_list(kind);
        }
        for object in objects {
            store.list_item(object);
        }
        for kind in kinds {
            store.end_list(kind, store.max_seen(kind));
        }
        store.snapshot()
    }

    /// One object.
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<&Arc<Object>> {
        self.table(kind)?.find(name).map(|(_, object)| object)
    }

    /// The objects of a kind whose controller has this UID, ordered by name. Costs what they are, not what there is.
    pub fn owned(&self, kind: &Kind, owner_uid: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.table(kind).map_or_else(Vec::new, |table| table.owned(owner_uid, None)).into_iter()
    }

    /// As [`Self::owned`], for as long as the budget lasts; each look at an object takes one unit.
    pub(crate) fn owned_within(&self, kind: &Kind, owner_uid: &str, budget: &Budget) -> Vec<&Arc<Object>> {
        self.table(kind).map_or_else(Vec::new, |table| table.owned(owner_uid, Some(budget)))
    }

    /// The objects of a kind in a namespace (None: in all) that a selector matches, ordered by namespace and name.
    /// Namespace and equality terms are answered from indexes.
    pub fn list<'a>(
        &'a self,
        kind: &Kind,
        namespace: Option<&'a str>,
        selector: &'a Selector,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
        match self.table(kind) {
            Some(table) => table.list(namespace, selector, &[], None),
            None => Box::new(std::iter::empty()),
        }
    }

    /// What a query selects, in its order and up to its limit, for as long as the budget lasts; each look at an object
    /// takes one unit, whether it is selected or not.
    pub(crate) fn select_within<'a>(
        &'a self,
        query: &'a CompiledQuery,
        budget: &'a Budget,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let most = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let table = self.table(&query.kind);
        let (namespace, fields) = (query.namespace.as_deref(), query.field_selector.requirements());
        let objects = table.map(|table| table.list(namespace, &query.selector, fields, Some(budget)));
        objects.into_iter().flatten().take(most)
    }

    /// Whether the kind has been listed completely: before that, absence means nothing.
    pub fn synced(&self, kind: &Kind) -> bool {
        self.table(kind).is_some_and(|table| table.synced)
    }

    /// Everything that happened to the kind up to this version is in the snapshot.
    pub fn progress(&self, kind: &Kind) -> ResourceVersion {
        self.table(kind).map_or(ResourceVersion::default(), |table| table.progress)
    }

    /// How many objects of the kind there are.
    pub fn len(&self, kind: &Kind) -> usize {
        self.table(kind).map_or(0, Table::len)
    }

    /// Whether there is no object of the kind.
    pub fn is_empty(&self, kind: &Kind) -> bool {
        self.len(kind) == 0
    }

    /// Counts the changes of a kind: equal numbers mean equal objects.
    pub fn changes(&self, kind: &Kind) -> u64 {
        self.table(kind).map_or(0, |table| table.changes)
    }

    fn table(&self, kind: &Kind) -> Option<&Table> {
        self.tables.get(kind).map(|table| &**table)
    }
}
