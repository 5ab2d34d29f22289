//! What a list or the end of a watch takes out of the cache: a hundred thousand objects at once would take the writer half a
//! second, so the caller asks for one after the other, as many as it has time for.
//!
//! A list that has ended counts as complete only when everything that it lacks is gone (R4, R6). Until then events of its watch
//! are applied as usual; those of versions that the list shows say nothing new.

use super::change::Change;
use super::ending::Ending;
use super::table::Table;
use super::{Reading, Store, Writing, delete, of_slice};
use crate::garbage::Garbage;
use crate::object::{Kind, ResourceVersion};
use crate::scope::Slice;

/// The next thing that the end of a list brings.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The list lacks this object, so it was deleted.
    Lost(Change),
    /// Nothing in so many looks.
    NotYet,
    /// The list is complete.
    Complete,
    /// There is no such list, or another one has begun since.
    Abandoned,
}

impl Store {
    /// The current list ends, which shows the slice at `version`. [`Self::end_next`] does what follows from that.
    pub(crate) fn begin_end(&mut self, slice: &Slice, version: ResourceVersion) {
        let (table, writing) = self.kind(&slice.kind);
        let (_, reading) = of_slice(table, writing, slice);
        if reading.listing.is_some() && reading.ending.is_none() {
            let rewound = std::mem::take(&mut reading.rewound);
            reading.ending = Some(Ending::of(version, rewound));
        }
    }

    /// The next object that a list lacks, which leaves the cache: one that is not newer, and not of other namespaces. Each
    /// object that is looked at takes one of `looks`.
    pub(crate) fn end_next(&mut self, slice: &Slice, looks: &mut usize) -> Ended {
        if !self.writing.contains_key(&slice.kind) {
            return Ended::Abandoned;
        }
        let (table, writing) = self.kind(&slice.kind);
        let Some(Reading { listing: Some(listing), ending: Some(ending), .. }) =
            writing.readings.get_mut(&slice.namespace)
        else {
            return Ended::Abandoned;
        };
        let Some((slot, name)) = ending.next(table, listing, slice, looks) else {
            if *looks == 0 {
                return Ended::NotYet;
            }
            let delivered = ending.delivered;
            let (part, reading) = of_slice(table, writing, slice);
            (reading.listing, reading.ending) = (None, None);
            (part.synced, part.progress) = (true, part.progress.max(delivered));
            part.labels.clone_from(&slice.labels);
            return Ended::Complete;
        };
        let version = ending.version;
        Ended::Lost(delete(table, writing, slot, &name, version))
    }

    /// Ends the current list at once. Returns the deletions; none without [`Self::begin_list`].
    pub fn end_list(&mut self, slice: impl Into<Slice>, version: ResourceVersion) -> Vec<Change> {
        let (slice, mut changes) = (slice.into(), Vec::new());
        self.begin_end(&slice, version);
        while let Ended::Lost(change) = self.end_next(&slice, &mut usize::MAX.clone()) {
            changes.push(change);
        }
        changes
    }

    /// Drops what only one watch shows, when it is not read any more. The objects were not deleted, so there is no
    /// [`Change`] for readers. They leave by [`Self::drop_next`]; what was the last watch of its kind is returned as a whole.
    pub fn drop_slice(&mut self, slice: &Slice) -> Option<Garbage> {
        let (table, writing) = self.kind(&slice.kind);
        writing.readings.remove(&slice.namespace);
        if !table.remove_part(&slice.namespace) {
            return self.forget(&slice.kind);
        }
        writing.unshown_from = Some(0);
        self.dropping.insert(slice.kind.clone());
        None
    }

    /// Continues what ends of watches have left, with looks at so many objects at most. Returns those that are left.
    pub(crate) fn drop_next(&mut self, mut looks: usize) -> usize {
        while let Some(kind) = self.dropping.first().cloned() {
            let is_done = !self.writing.contains_key(&kind) || {
                let (table, writing) = self.kind(&kind);
                drop_unshown(table, writing, &mut looks)
            };
            if !is_done {
                return 0;
            }
            self.dropping.remove(&kind);
        }
        looks
    }

    /// Whether [`Self::drop_next`] has something to do.
    pub(crate) fn is_dropping(&self) -> bool {
        !self.dropping.is_empty()
    }

    /// Drops a kind that no controller reads any more or that may not be read. Its objects were not deleted, so there
    /// is no [`Change`]. What is returned takes long to be freed.
    pub fn forget(&mut self, kind: &Kind) -> Option<Garbage> {
        let table = self.tables.remove(kind);
        if let Some(table) = &table {
            self.first_change = self.first_change.max(table.changes + 1);
        }
        let known = (table, self.writing.remove(kind), self.answers.forget(kind));
        known.0.is_some().then(|| Garbage::new(known))
    }
}

/// Takes out the objects that no watch shows. Returns whether none is left.
fn drop_unshown(table: &mut Table, writing: &mut Writing, looks: &mut usize) -> bool {
    let Some(from) = writing.unshown_from.take() else { return true };
    for slot in from..table.fresh_slot() {
        if *looks == 0 {
            writing.unshown_from = Some(slot);
            return false;
        }
        *looks -= 1;
        let Some(object) = table.object(slot) else { continue };
        if table.parts_of(Some(&object.name.namespace)).next().is_none() {
            let before = table.remove(slot);
            writing.free.push(slot);
            writing.recent.add(&Change { before: Some(before), after: None });
            // To take one out takes as long as some tens of looks.
            *looks = looks.saturating_sub(LOOKS_PER_OBJECT);
        }
    }
    true
}

/// Looks that take as long as to take an object out of the table and its indexes.
pub(crate) const LOOKS_PER_OBJECT: usize = 32;
