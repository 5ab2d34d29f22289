//! All objects of one kind, with indexes by name, namespace, controller, label, and the fields that queries select by.
//!
//! Each object has a slot, a small number that it keeps while it exists. Indexes hold slots, never objects, so the
//! usual event, a change of a status, replaces one pointer and touches no index. Indexes over strings hold hashes; the
//! strings of what a hash finds are compared. The writer knows the free slots, so that snapshots do not carry them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::field_index::FieldIndex;
use super::postings::Postings;
use crate::budget::Budget;
use crate::field_selector::{self, FieldPath, FieldRequirement, MAX_SELECTED_FIELDS, SHARED_FIELDS};
use crate::object::owner::Owner;
use crate::object::{Name, Object, ResourceVersion};
use crate::selector::Selector;

/// Labels of an object that is indexed by them. An object may have a hundred thousand, whose change would take a tenth of a
/// second; each query by labels looks at such objects instead.
const MAX_INDEXED_LABELS: usize = 256;

/// What one watch has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Was listed completely.
    pub synced: bool,
    /// The label selector of the last complete list.
    pub labels: Option<Arc<str>>,
    /// The table has every event of the namespace up to this version.
    pub progress: ResourceVersion,
}

impl Part {
    /// Whether it was listed with these labels (None: with any), or with more.
    pub fn has_listed(&self, labels: Option<&Arc<str>>) -> bool {
        self.synced && (self.labels.is_none() || self.labels.as_ref() == labels)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    objects: OrdMap<u32, Arc<Object>>,
    /// In the order of lists; a namespace is a range.
    ordered: OrdMap<Name, u32>,
    names: Postings,
    controllers: Postings,
    labels: Postings,
    /// The slots of objects with more than [`MAX_INDEXED_LABELS`] labels, which are not in `labels`.
    many_labels: OrdSet<u32>,
    pub(super) fields: Vec<FieldIndex>,
    /// What the watch of all namespaces has shown.
    whole: Option<Part>,
    /// What watches of single namespaces have shown.
    parts: OrdMap<Arc<str>, Part>,
    /// The number of changes so far.
    pub(super) changes: u64,
    /// The number of field indexes that were completed so far.
    pub(super) completed_indexes: u64,
}

impl Table {
    pub(super) fn counting_from(changes: u64) -> Self {
        Self { changes, ..Self::default() }
    }

    /// The parts that show a namespace: its own, and that of all.
    pub(super) fn parts_of(&self, namespace: Option<&Arc<str>>) -> impl Iterator<Item = &Part> {
        let own = namespace.filter(|_| !self.parts.is_empty()).and_then(|namespace| self.parts.get(namespace));
        own.into_iter().chain(&self.whole)
    }

    /// The part of one watch.
    pub(super) fn part(&self, place: &Option<Arc<str>>) -> Option<&Part> {
        match place {
            Some(namespace) => self.parts.get(namespace),
            None => self.whole.as_ref(),
        }
    }

    /// The same to change it; at first it is empty.
    pub(super) fn part_mut(&mut self, place: &Option<Arc<str>>) -> &mut Part {
        match place {
            Some(namespace) => self.parts.entry(Arc::clone(namespace)).or_default(),
            None => self.whole.get_or_insert_default(),
        }
    }

    /// Returns whether another part is left.
    pub(super) fn remove_part(&mut self, place: &Option<Arc<str>>) -> bool {
        match place {
            Some(namespace) => _ = self.parts.remove(namespace),
            None => self.whole = None,
        }
        self.whole.is_some() || !self.parts.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// A slot that was never used. The writer calls this when no used slot is free, so all slots below are taken.
    pub(super) fn fresh_slot(&self) -> u32 {
        self.objects.get_max().map_or(0, |(slot, _)| slot + 1)
    }

    pub(super) fn find(&self, name: &Name) -> Option<(u32, &Arc<Object>)> {
        let hash = hash(name);
        let mut from = 0;
        // Usually the first slot, unless two names have the same hash.
        while let Some(slot) = self.names.first(hash, from) {
            let object = self.object(slot)?;
            if object.name == *name {
                return Some((slot, object));
            }
            from = slot.checked_add(1)?;
        }
        None
    }

    /// Puts an object into an unused slot.
    pub(super) fn insert(&mut self, slot: u32, object: Arc<Object>) {
        self.changes += 1;
        self.ordered.insert(object.name.clone(), slot);
        self.names.insert(hash(&object.name), slot);
        self.reindex(slot, None, Some(&object));
        self.objects.insert(slot, object);
    }

    /// Replaces the object in a slot by another state of the same name.
    pub(super) fn replace(&mut self, slot: u32, object: Arc<Object>) -> Arc<Object> {
        self.changes += 1;
        let before = self.objects.insert(slot, object.clone()).expect("a slot that was found holds an object");
        self.reindex(slot, Some(&before), Some(&object));
        before
    }

    /// Empties a slot.
    pub(super) fn remove(&mut self, slot: u32) -> Arc<Object> {
        self.changes += 1;
        let object = self.objects.remove(&slot).expect("a slot that was found holds an object");
        self.ordered.remove(&object.name);
        self.names.remove(hash(&object.name), slot);
        self.reindex(slot, Some(&object), None);
        object
    }

    /// Looks at no more slots than the budget allows (None: no bound). The result of a budget that is used up is
    /// incomplete.
    pub(super) fn owned(&self, owner: &Owner, budget: Option<&Budget>) -> Vec<&Arc<Object>> {
        let slots = self.controllers.walk(hash(&*owner.uid)).take_while(|_| may_look(budget));
        let mut objects: Vec<_> =
            slots.filter_map(|slot| self.object(slot)).filter(|object| owner.owns(object)).collect();
        // By name first: only children of a cluster-scoped owner, and tracked ones, are in several namespaces.
        objects.sort_by(|left, right| {
            (&left.name.name, &left.name.namespace).cmp(&(&right.name.name, &right.name.namespace))
        });
        objects
    }

    /// See [`super::Store::select_field`]. A field beyond [`MAX_SELECTED_FIELDS`] has no index.
    pub(super) fn select_field(&mut self, path: &FieldPath, is_selected: bool) {
        if let Some(known) = self.fields.iter_mut().find(|field| field.path == *path) {
            known.is_selected = is_selected;
        } else if is_selected {
            // An unused index costs every event as much as a used one, so few are kept.
            let is_idle = |field: &&mut FieldIndex| !field.is_selected;
            let most = self.fields.len();
            match self.fields.iter_mut().find(is_idle).filter(|_| most >= SHARED_FIELDS) {
                Some(idle) => *idle = FieldIndex::new(path.clone()),
                None if most < MAX_SELECTED_FIELDS => self.fields.push(FieldIndex::new(path.clone())),
                None => {}
            }
        }
    }

    /// Continues incomplete field indexes with objects of about `bytes` bytes. Returns the bytes that are left once all
    /// are complete.
    pub(super) fn build_fields(&mut self, bytes: usize) -> Option<usize> {
        let Self { fields, objects, completed_indexes, .. } = self;
        let mut incomplete = fields.iter_mut().filter(|field| !field.is_complete());
        incomplete.try_fold(bytes, |bytes, field| {
            let left = field.build(objects, bytes)?;
            *completed_indexes += 1;
            Some(left)
        })
    }

    /// The budget is as in [`Self::owned`]; the field selector spends units of it too.
    pub(super) fn list<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selector: &'a Selector,
        fields: &'a [FieldRequirement],
        budget: Option<&'a Budget>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
        let is_selected = move |object: &&Arc<Object>| {
            let unlimited = Budget::unlimited();
            selector.matches(&object.labels)
                && field_selector::matches_within(fields, object, budget.unwrap_or(&unlimited)) == Some(true)
        };
        let mut walks: Vec<Box<dyn Iterator<Item = u32> + 'a>> =
            selector.required().map(|label| Box::new(self.labelled(&label)) as _).collect();
        let by_field = fields.iter().filter_map(|field| self.fields.iter().find_map(|index| index.walk(field)));
        walks.extend(by_field.map(|walk| Box::new(walk) as Box<dyn Iterator<Item = u32> + 'a>));
        if walks.is_empty() {
            let slots: Box<dyn Iterator<Item = u32>> = match namespace {
                Some(namespace) => Box::new(self.in_namespace(namespace)),
                None => Box::new(self.ordered.values().copied()),
            };
            let objects = slots.take_while(move |_| may_look(budget)).filter_map(|slot| self.object(slot));
            return Box::new(objects.filter(is_selected));
        }
        if let Some(namespace) = namespace {
            walks.push(Box::new(self.in_namespace(namespace)));
        }
        let mut objects: Vec<_> = smallest(walks, budget)
            .into_iter()
            .filter_map(|slot| self.object(slot))
            .filter(|object| namespace.is_none_or(|namespace| *object.name.namespace == *namespace))
            .filter(is_selected)
            .collect();
        objects.sort_by(|left, right| left.name.cmp(&right.name));
        Box::new(objects.into_iter())
    }

    /// The slots of objects that may have a label.
    fn labelled(&self, label: &(&str, &str)) -> impl Iterator<Item = u32> + use<'_> {
        self.labels.walk(hash(label)).chain(self.many_labels.iter().copied())
    }

    pub(super) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.in_namespace_after(namespace, None)
    }

    /// Those that follow this name, or all.
    pub(super) fn in_namespace_after<'a>(
        &'a self,
        namespace: &'a str,
        after: Option<Name>,
    ) -> impl Iterator<Item = u32> + 'a {
        let first = after.map_or_else(|| Bound::Included(Name::new(namespace, "")), Bound::Excluded);
        let from = self.ordered.range((first, Bound::Unbounded));
        from.take_while(move |(name, _)| *name.namespace == *namespace).map(|(_, slot)| *slot)
    }

    pub(super) fn after<'a>(&'a self, name: Option<&'a Name>) -> impl Iterator<Item = &'a Arc<Object>> {
        let first = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.ordered.range::<_, Name>((first, Bound::Unbounded)).filter_map(|(_, slot)| self.object(*slot))
    }

    pub(super) fn object(&self, slot: u32) -> Option<&Arc<Object>> {
        self.objects.get(&slot)
    }

    fn reindex_fields(&mut self, slot: u32, before: Option<&Object>, after: Option<&Object>) {
        let is = hashes(&self.fields, after);
        // The usual change is of another field.
        if self.fields.iter().zip(&is).all(|(field, is)| field.has(slot, *is)) {
            return;
        }
        let was = hashes(&self.fields, before);
        for ((field, was), is) in self.fields.iter_mut().zip(was).zip(is) {
            field.replace(slot, was, is);
        }
    }

    /// Replaces the object of a slot in the indexes by controller, label and field.
    fn reindex(&mut self, slot: u32, before: Option<&Object>, after: Option<&Object>) {
        let (was, is) = (before.and_then(owner_uid), after.and_then(owner_uid));
        if was != is {
            was.iter().for_each(|uid| self.controllers.remove(hash(*uid), slot));
            is.iter().for_each(|uid| self.controllers.insert(hash(*uid), slot));
        }
        if !self.fields.is_empty() {
            self.reindex_fields(slot, before, after);
        }
        let is_indexed = |object: &&Object| object.labels.len() <= MAX_INDEXED_LABELS;
        if before.is_some_and(|object| !is_indexed(&object)) {
            self.many_labels.remove(&slot);
        }
        if after.is_some_and(|object| !is_indexed(&object)) {
            self.many_labels.insert(slot);
        }
        let (before, after) = (before.filter(is_indexed), after.filter(is_indexed));
        // Walks both sorted lists of labels side by side, so that equal labels cost no look at the index.
        let mut before = before.into_iter().flat_map(|object| object.labels.iter()).peekable();
        let mut after = after.into_iter().flat_map(|object| object.labels.iter()).peekable();
        loop {
            match (before.peek(), after.peek()) {
                (Some(was), Some(is)) if is_same(*was, *is) => _ = (before.next(), after.next()),
                (Some(was), is) if is.is_none_or(|is| was < is) => {
                    self.labels.remove(hash(was), slot);
                    before.next();
                }
                (_, Some(is)) => {
                    self.labels.insert(hash(is), slot);
                    after.next();
                }
                (_, None) => return,
            }
        }
    }
}

fn hashes(fields: &[FieldIndex], object: Option<&Object>) -> Vec<Option<u64>> {
    FieldPath::hashes_in(object, fields.iter().map(|field| &field.path))
}

fn owner_uid(object: &Object) -> Option<&str> {
    object.controller.as_ref().map(|controller| &*controller.uid)
}

/// Labels are interned, so equal ones usually have the same address.
fn is_same(left: (&str, &str), right: (&str, &str)) -> bool {
    (std::ptr::eq(left.0, right.0) && std::ptr::eq(left.1, right.1)) || left == right
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn may_look(budget: Option<&Budget>) -> bool {
    budget.is_none_or(|budget| budget.spend(1))
}

/// Walks all sets side by side and returns the one that ends first, so that the cost grows with the smallest set only.
fn smallest<'a>(mut walks: Vec<Box<dyn Iterator<Item = u32> + 'a>>, budget: Option<&Budget>) -> Vec<u32> {
    let mut walked: Vec<Vec<u32>> = vec![Vec::new(); walks.len()];
    loop {
        for (walk, slots) in walks.iter_mut().zip(&mut walked) {
            match walk.next().filter(|_| may_look(budget)) {
                Some(slot) => slots.push(slot),
                None => return std::mem::take(slots),
            }
        }
    }
}
