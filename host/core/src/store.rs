//! The cache: one writer, and immutable snapshots of all kinds that cost nothing to take.
//!
//! Watch events and lists come in, [`Change`]s go out. A snapshot shares persistent maps with the store, so the writer
//! never waits for a reader and a reader never sees a change (R1). `store/table.rs` holds one kind with its indexes,
//! `store/listing.rs` merges lists (R6), `store/pieces.rs` takes out what is gone, `store/answers.rs` shares what queries select.
//!
//! Several watches may show parts of one kind, each one namespace or all ([`Slice`]); all of them have the same labels, also
//! while these change. Each has a list and a progress of its own, and their objects are in one table. What no watch shows
//! any more leaves the table without a change ([`Store::drop_slice`]).
//!
//! Events of one kind may come late or twice, and a list may be older than the watch. So only a newer version replaces
//! an object, and tombstones remember deletions: no view is older than one before it (R3). Only after the API server's
//! versions went backwards does a list replace newer versions ([`Store::rewind`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;

use crate::budget::Budget;
use crate::field_selector::FieldPath;
use crate::map::Map;
use crate::object::owner::Owner;
use crate::object::{Kind, Name, Object, ResourceVersion};
use crate::query::CompiledQuery;
use crate::scope::{Scope, Slice};
use crate::selector::Selector;

pub(crate) use self::answers::{Answer, KeptAnswer};
use self::answers::{Answers, State};
pub use self::change::Change;
use self::ending::Ending;
use self::listing::{Recent, Seen, Tombstones};
use self::table::{Part, Table};

mod answers;
mod change;
mod ending;
mod field_index;
pub(crate) mod listing;
pub(crate) mod pieces;
mod postings;
mod table;
#[cfg(test)]
mod tests;

/// Bytes of objects that one step adds to an index: some hundred microseconds. With 100,000 Pods of 5 KiB an index
/// takes 8,000 steps, which are some seconds in a cluster of that size; until then its queries scan every object.
const BUILD_BYTES: usize = 64 << 10;

/// The writer's side of the cache.
#[derive(Debug, Default)]
pub struct Store {
    tables: OrdMap<Kind, Arc<Table>>,
    writing: Map<Kind, Writing>,
    /// Kinds with an index that is not complete.
    building: BTreeSet<Kind>,
    /// Kinds with objects that perhaps no watch shows any more.
    dropping: BTreeSet<Kind>,
    /// The first number of changes of a kind that is read again: above all earlier ones.
    first_change: u64,
    answers: Arc<Answers>,
}

/// The state of a kind that snapshots do not need.
#[derive(Debug, Default)]
struct Writing {
    free: Vec<u32>,
    /// By namespace; None: the watch of all.
    readings: Map<Option<Arc<str>>, Reading>,
    tombstones: Tombstones,
    recent: Recent,
    /// From which slot on there may be objects that no watch shows.
    unshown_from: Option<u32>,
}

/// The state of one watch that snapshots do not need.
#[derive(Debug, Default)]
struct Reading {
    /// The label selector of the last list that began.
    labels: Option<Arc<str>>,
    /// The slots that the current list has shown.
    listing: Option<Seen>,
    /// That list has ended, and what it lacks leaves the table.
    ending: Option<Ending>,
    /// Lowest cached version that the current list contradicts.
    contradicted: Option<ResourceVersion>,
    /// The table has versions from before a restore of etcd; only a list may change it ([`Store::rewind`]).
    rewound: bool,
}

impl Reading {
    /// Whether events belong to the history before a restore of etcd.
    fn is_void(&self) -> bool {
        self.rewound && self.listing.is_none()
    }
}

impl Store {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies ADDED or MODIFIED of a watch of the whole kind. See [`Self::apply_of`].
    pub fn apply(&mut self, object: Object) -> Change {
        let slice = Slice::from(&object.kind);
        self.apply_of(&slice, object)
    }

    /// Applies ADDED or MODIFIED of a watch. It delivers in order, so this also moves [`Snapshot::progress`]. The
    /// response of a write must not be applied here, because events before it may still come.
    ///
    /// An event of an absent object, with a version that was already delivered, is a replay of an object that was
    /// deleted, perhaps before this process began, so that it has no tombstone (R3).
    pub fn apply_of(&mut self, slice: &Slice, object: Object) -> Change {
        let (table, writing) = self.kind(&slice.kind);
        let (part, reading) = of_slice(table, writing, slice);
        let is_replay = object.resource_version <= part.progress;
        let is_listed = reading.ending.as_ref().is_some_and(|ending| ending.shows(object.resource_version));
        if is_listed || reading.is_void() || (is_replay && table.find(&object.name).is_none()) {
            return Change::default();
        }
        advance(table, writing, slice, object.resource_version);
        put(table, writing, slice, object)
    }

    /// Applies DELETED of a watch, at `version`. To a watch with a label selector, an object is deleted when it loses
    /// the labels.
    pub fn remove(&mut self, slice: impl Into<Slice>, name: &Name, version: ResourceVersion) -> Change {
        let slice = slice.into();
        let (table, writing) = self.kind(&slice.kind);
        if of_slice(table, writing, &slice).1.is_void() {
            return Change::default();
        }
        advance(table, writing, &slice, version);
        match table.find(name) {
            // Another object of the same name was created since.
            Some((_, object)) if object.resource_version > version => Change::default(),
            Some((slot, _)) => delete(table, writing, slot, name, version),
            None => {
                writing.tombstones.add(name, version);
                Change::default()
            }
        }
    }

    /// Begins a list, and abandons the watch's current one.
    pub fn begin_list(&mut self, slice: impl Into<Slice>) {
        let slice = slice.into();
        let (table, writing) = self.kind(&slice.kind);
        let (_, reading) = of_slice(table, writing, &slice);
        (reading.listing, reading.ending) = (Some(Seen::default()), None);
        reading.contradicted = None;
        if reading.labels != slice.labels {
            // What left the former selector is not deleted.
            reading.labels.clone_from(&slice.labels);
            writing.tombstones = Tombstones::default();
        }
    }

    /// Applies an object of the current list of the whole kind. See [`Self::list_item_of`].
    pub fn list_item(&mut self, object: Object) -> Change {
        let slice = Slice::from(&object.kind);
        self.list_item_of(&slice, object)
    }

    /// Applies an object of a watch's current list.
    pub fn list_item_of(&mut self, slice: &Slice, object: Object) -> Change {
        let (table, writing) = self.kind(&slice.kind);
        let rewound = {
            let (_, reading) = of_slice(table, writing, slice);
            if reading.is_void() {
                return Change::default();
            }
            reading.rewound
        };
        let newer = if rewound { None } else { newer_than(table, writing, &object) };
        let (_, reading) = of_slice(table, writing, slice);
        reading.contradicted = [reading.contradicted, newer].into_iter().flatten().min();
        put(table, writing, slice, object)
    }

    /// Whether the current list, which shows the slice at `version`, contradicts earlier events: an object has an older
    /// state, or a deleted one exists again. Then etcd was restored with raised versions, as its manual advises, and
    /// the kind must be rewound and relisted.
    pub fn is_contradicted(&self, slice: impl Into<Slice>, version: ResourceVersion) -> bool {
        let contradicted = self.reading(&slice.into()).and_then(|reading| reading.contradicted);
        contradicted.is_some_and(|contradicted| contradicted <= version)
    }

    /// Applies a bookmark: every event up to `version` was delivered.
    pub fn progress(&mut self, slice: impl Into<Slice>, version: ResourceVersion) {
        let slice = slice.into();
        let (table, writing) = self.kind(&slice.kind);
        if !of_slice(table, writing, &slice).1.is_void() {
            advance(table, writing, &slice, version);
        }
    }

    /// To be called when the API server's versions went backwards, so that cached versions cannot be compared with new
    /// ones. The objects stay in view until the next list, which replaces each of them whatever its version. Until then
    /// the kind is not synced (R4) and nothing else changes it.
    pub fn rewind(&mut self, kind: &Kind) {
        if !self.writing.contains_key(kind) {
            return;
        }
        let places: Vec<Option<Arc<str>>> = self.kind(kind).1.readings.keys().cloned().collect();
        for namespace in places {
            self.rewind_slice(&Slice { kind: kind.clone(), namespace, labels: None });
        }
    }

    /// The same for what one watch shows.
    pub fn rewind_slice(&mut self, slice: &Slice) {
        let (table, writing) = self.kind(&slice.kind);
        let (part, reading) = of_slice(table, writing, slice);
        (part.synced, part.progress) = (false, ResourceVersion::default());
        (reading.listing, reading.ending, reading.rewound) = (None, None, true);
        writing.tombstones = Tombstones::default();
    }

    /// Adds or releases the index of a field, as queries that select by it come and go. [`Self::build_indexes`] builds
    /// it; indexes change the cost of queries, never their results.
    pub fn select_field(&mut self, kind: &Kind, path: &FieldPath, is_selected: bool) {
        if self.writing.contains_key(kind) {
            self.kind(kind).0.select_field(path, is_selected);
            self.building.insert(kind.clone());
        }
    }

    /// Continues incomplete indexes for a bounded time. To be called at each step.
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

    /// An immutable snapshot of all kinds.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { tables: self.tables.clone(), answers: Arc::clone(&self.answers) }
    }

    /// The changes of a kind since [`Snapshot::changes`] was this number, oldest first. None if the store does not
    /// remember them all, or has forgotten the kind meanwhile.
    pub fn changes_since(&self, kind: &Kind, changes: u64) -> Option<impl Iterator<Item = &Change> + use<'_>> {
        let count = self.tables.get(kind)?.changes.checked_sub(changes)?;
        self.writing.get(kind)?.recent.last(count)
    }

    /// Whether the slice has been listed completely.
    pub fn synced(&self, slice: impl Into<Slice>) -> bool {
        let slice = slice.into();
        self.part(&slice).is_some_and(|part| part.synced && part.labels == slice.labels)
    }

    /// Whether a watch has listed at least these objects: those of a namespace (None: of all), with these labels (None:
    /// with any).
    pub(crate) fn has_listed(&self, watch: &Slice, labels: Option<&Arc<str>>) -> bool {
        self.part(watch).is_some_and(|part| part.has_listed(labels))
    }

    /// Up to which version a watch has delivered every event.
    pub(crate) fn progress_of(&self, slice: &Slice) -> ResourceVersion {
        self.part(slice).map_or(ResourceVersion::default(), |part| part.progress)
    }

    fn part(&self, slice: &Slice) -> Option<&Part> {
        self.tables.get(&slice.kind)?.part(&slice.namespace)
    }

    fn reading(&self, slice: &Slice) -> Option<&Reading> {
        self.writing.get(&slice.kind)?.readings.get(&slice.namespace)
    }

    /// Finds an object and marks it as seen.
    pub(crate) fn see(&self, kind: &Kind, name: &Name, seen: &mut Seen) -> Option<&Arc<Object>> {
        let (slot, object) = self.tables.get(kind)?.find(name)?;
        seen.see(slot);
        Some(object)
    }

    /// The objects of a slice that are not marked as seen.
    pub(crate) fn unseen<'a>(&'a self, slice: &'a Slice, seen: &'a Seen) -> impl Iterator<Item = &'a Arc<Object>> {
        let table = self.tables.get(&slice.kind).into_iter();
        table.flat_map(|table| unseen(table, seen, slice.namespace.as_ref())).map(|(_, object)| object)
    }

    /// The version of a deletion that is still remembered.
    pub(crate) fn deleted_at(&self, kind: &Kind, name: &Name) -> Option<ResourceVersion> {
        self.writing.get(kind)?.tombstones.deleted_at(name)
    }

    fn kind(&mut self, kind: &Kind) -> (&mut Table, &mut Writing) {
        if !self.writing.contains_key(kind) {
            self.tables.insert(kind.clone(), Arc::new(Table::counting_from(self.first_change)));
            self.writing.insert(kind.clone(), Writing::default());
        }
        let table = self.tables.get_mut(kind).expect("both maps have the same kinds");
        let writing = self.writing.get_mut(kind).expect("it was inserted above if it was missing");
        (Arc::make_mut(table), writing)
    }
}

/// What a watch has shown, and its list.
fn of_slice<'a>(table: &'a mut Table, writing: &'a mut Writing, slice: &Slice) -> (&'a mut Part, &'a mut Reading) {
    (table.part_mut(&slice.namespace), writing.readings.entry(slice.namespace.clone()).or_default())
}

/// An event at this version was delivered. During a list it says nothing about the objects before it.
fn advance(table: &mut Table, writing: &mut Writing, slice: &Slice, version: ResourceVersion) {
    let (part, reading) = of_slice(table, writing, slice);
    match &mut reading.ending {
        Some(ending) => ending.delivered = ending.delivered.max(version),
        None if reading.listing.is_none() => part.progress = part.progress.max(version),
        None => {}
    }
}

/// The objects of a namespace, or of all, that are not marked as seen. The cost grows with what is looked at only.
fn unseen<'a>(
    table: &'a Table,
    seen: &'a Seen,
    namespace: Option<&'a Arc<str>>,
) -> impl Iterator<Item = (u32, &'a Arc<Object>)> {
    let slots: Box<dyn Iterator<Item = u32>> = match namespace {
        Some(namespace) => Box::new(table.in_namespace(namespace).filter(|slot| !seen.has(*slot))),
        None => Box::new(seen.unseen(0, table.fresh_slot())),
    };
    slots.filter_map(|slot| Some((slot, table.object(slot)?)))
}

/// The known version of this name, if it is newer than the object.
fn newer_than(table: &Table, writing: &Writing, object: &Object) -> Option<ResourceVersion> {
    match table.find(&object.name) {
        Some((_, known)) => Some(known.resource_version).filter(|known| *known > object.resource_version),
        None => writing.tombstones.deleted_at(&object.name).filter(|deleted| *deleted >= object.resource_version),
    }
}

/// Stores an object unless an equal or newer state of its name is known.
fn put(table: &mut Table, writing: &mut Writing, slice: &Slice, object: Object) -> Change {
    let object = Arc::new(object);
    let known = table.find(&object.name);
    let reading = writing.readings.get_mut(&slice.namespace).expect("the caller has read it");
    let rewound = reading.rewound;
    if let (Some((slot, _)), Some(listing)) = (known, &mut reading.listing) {
        listing.see(slot);
    }
    let is_known = |before: &Object| match rewound {
        true => before.json() == object.json() && before.own_fields == object.own_fields,
        false => before.resource_version >= object.resource_version,
    };
    let before = match known {
        Some((_, before)) if is_known(before) => return Change::default(),
        Some((slot, _)) => Some(table.replace(slot, object.clone())),
        None if writing.tombstones.covers(&object.name, object.resource_version) => return Change::default(),
        None => {
            let slot = writing.free.pop().unwrap_or_else(|| table.fresh_slot());
            for (place, reading) in &mut writing.readings {
                match &mut reading.listing {
                    Some(listing) if *place == slice.namespace => listing.see(slot),
                    // It may have shown the slot's former object.
                    Some(listing) => listing.forget(slot),
                    None => {}
                }
            }
            table.insert(slot, object.clone());
            None
        }
    };
    let change = Change { before, after: Some(object) };
    writing.recent.add(&change);
    change
}

fn delete(table: &mut Table, writing: &mut Writing, slot: u32, name: &Name, version: ResourceVersion) -> Change {
    let before = table.remove(slot);
    writing.free.push(slot);
    writing.tombstones.add(name, version);
    let change = Change { before: Some(before), after: None };
    writing.recent.add(&change);
    change
}

/// An immutable view of every cached kind. Cheap to clone and to send to another thread.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    tables: OrdMap<Kind, Arc<Table>>,
    answers: Arc<Answers>,
}

impl Snapshot {
    /// A snapshot of these objects, in which these kinds are synced. For tests and tools without a watch.
    pub fn of(kinds: &[Kind], objects: impl IntoIterator<Item = Object>) -> Self {
        let mut store = Store::new();
        for kind in kinds {
            store.begin_list(kind);
        }
        let mut newest = ResourceVersion::default();
        for object in objects {
            newest = newest.max(object.resource_version);
            store.list_item(object);
        }
        for kind in kinds {
            store.end_list(kind, newest);
        }
        store.snapshot()
    }

    /// One object.
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<&Arc<Object>> {
        self.table(kind)?.find(name).map(|(_, object)| object)
    }

    /// The objects of a kind that have this owner, ordered by name, then namespace. The cost grows with the result only.
    pub fn owned(&self, kind: &Kind, owner: &Owner) -> impl Iterator<Item = &Arc<Object>> + use<'_> {
        self.table(kind).map_or_else(Vec::new, |table| table.owned(owner, None)).into_iter()
    }

    /// As [`Self::owned`], until the budget is used up; each object costs one unit.
    pub(crate) fn owned_within(&self, kind: &Kind, owner: &Owner, budget: &Budget) -> Vec<&Arc<Object>> {
        self.table(kind).map_or_else(Vec::new, |table| table.owned(owner, Some(budget)))
    }

    /// The objects of a kind in a namespace (None: in all) that a selector matches, ordered by namespace and name. Uses
    /// the indexes of namespaces and labels.
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

    /// The objects of a kind that follow this name, or all of them, in the order of [`Self::list`].
    pub(crate) fn after<'a>(&'a self, kind: &Kind, name: Option<&'a Name>) -> impl Iterator<Item = &'a Arc<Object>> {
        self.table(kind).into_iter().flat_map(move |table| table.after(name))
    }

    /// The result of a query, until the budget is used up; each object that is looked at costs one unit.
    pub(crate) fn select_within<'a>(
        &'a self,
        query: &'a CompiledQuery,
        budget: &'a Budget,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let most = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let table = self.table(&query.kind);
        let fields = query.field_selector.requirements();
        // None, every namespace, if the query names none.
        let every = query.namespaces.is_empty().then_some(None);
        let namespaces = every.into_iter().chain(query.namespaces.iter().map(|namespace| Some(&**namespace)));
        let of_namespace =
            move |namespace| table.map(|table| table.list(namespace, &query.selector, fields, Some(budget)));
        namespaces.filter_map(of_namespace).flatten().take(most)
    }

    /// The answer to a query that another call evaluated in this state of its kind.
    pub(crate) fn kept_answer(&self, query: &CompiledQuery) -> Option<KeptAnswer> {
        self.answers.get(query, self.state(&query.kind))
    }

    pub(crate) fn keep_answer(&self, query: &Arc<CompiledQuery>, answer: Answer) {
        self.answers.keep(query, self.state(&query.kind), answer);
    }

    /// Bytes of all answers.
    #[cfg(test)]
    pub(crate) fn kept_answer_bytes(&self) -> usize {
        self.answers.bytes()
    }

    fn state(&self, kind: &Kind) -> State {
        self.table(kind).map_or_else(State::default, |table| (table.changes, table.completed_indexes))
    }

    /// Whether a scope of the kind was listed completely; before that, an absent object may exist.
    pub fn has_listed(&self, kind: &Kind, scope: &Scope) -> bool {
        let (table, labels) = (self.table(kind), scope.labels_text());
        let is_listed = |place: Option<Arc<str>>| {
            table.is_some_and(|table| table.parts_of(place.as_ref()).any(|part| part.has_listed(labels.as_ref())))
        };
        scope.places().all(is_listed)
    }

    /// The snapshot has every event of the kind in a namespace up to this version; None when nothing shows that
    /// namespace.
    pub fn progress(&self, kind: &Kind, namespace: &Arc<str>) -> Option<ResourceVersion> {
        self.table(kind)?.parts_of(Some(namespace)).map(|part| part.progress).max()
    }

    /// The number of objects of the kind.
    pub fn len(&self, kind: &Kind) -> usize {
        self.table(kind).map_or(0, Table::len)
    }

    /// Whether the kind has no object.
    pub fn is_empty(&self, kind: &Kind) -> bool {
        self.len(kind) == 0
    }

    /// The number of changes of a kind so far: equal numbers mean equal objects.
    pub fn changes(&self, kind: &Kind) -> u64 {
        self.table(kind).map_or(0, |table| table.changes)
    }

    fn table(&self, kind: &Kind) -> Option<&Table> {
        self.tables.get(kind).map(|table| &**table)
    }
}
