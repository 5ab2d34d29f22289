//! The labels and fields of a kind that dependencies select by.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::field_selector::{FieldPath, MAX_FIELDS_OF_A_PLUGIN, MAX_SELECTED_FIELDS, SHARED_FIELDS};
use crate::object::Object;

/// Label keys of a kind by which one share's dependencies are indexed. Plugins select by a few, an object of theirs by one
/// of its own at most. An object with all of these labels costs each of its changes a millisecond; by other labels it is
/// found by namespace or kind.
const MAX_LABELS_OF_A_SHARE: usize = 1_024;
/// Label keys of a kind in all, two milliseconds of a change of such an object.
pub(super) const MAX_LABELS: usize = 2_048;
/// Label keys that each share may have whatever the others have. Plugins select by fewer.
pub(super) const OWN_LABELS: usize = 16;

/// The labels and fields in the index keys of a kind, each with the number of its dependencies.
#[derive(Debug, Default)]
pub(super) struct Selected {
    labels: BTreeMap<Arc<str>, SelectedBy>,
    /// The label keys of each share.
    shares: BTreeMap<Arc<str>, usize>,
    /// At most [`MAX_SELECTED_FIELDS`]; other fields are not indexed.
    pub(super) fields: BTreeMap<FieldPath, SelectedBy>,
}

#[derive(Debug)]
pub(super) struct SelectedBy {
    /// The share that chose it. It counts among its own until nobody selects by it.
    share: Arc<str>,
    dependencies: usize,
}

impl SelectedBy {
    fn first(share: &Arc<str>) -> Self {
        Self { share: Arc::clone(share), dependencies: 1 }
    }
}

impl Selected {
    /// Counts a dependency of a share that selects by a field: None if the field is not indexed, true if it is new. Each
    /// share may have one, whatever the others have; more only while there is room in common.
    pub(super) fn add_field(&mut self, share: &Arc<str>, path: &FieldPath) -> Option<bool> {
        if let Some(field) = self.fields.get_mut(path) {
            field.dependencies += 1;
            return Some(false);
        }
        let own = self.fields.values().filter(|field| field.share == *share).count();
        let most = if own == 0 { MAX_SELECTED_FIELDS } else { SHARED_FIELDS };
        let has_room = self.fields.len() < most && own < MAX_FIELDS_OF_A_PLUGIN;
        has_room.then(|| {
            self.fields.insert(path.clone(), SelectedBy::first(share));
            true
        })
    }

    /// One dependency less selects by a field. True when it was the last.
    pub(super) fn remove_field(&mut self, path: &FieldPath) -> bool {
        let Some(field) = self.fields.get_mut(path) else { return false };
        field.dependencies -= 1;
        let is_last = field.dependencies == 0;
        if is_last {
            self.fields.remove(path);
        }
        is_last
    }

    /// Counts a dependency of a share that selects by a label. False if it is not indexed by it.
    pub(super) fn add_label(&mut self, share: &Arc<str>, key: &str) -> bool {
        if let Some(label) = self.labels.get_mut(key) {
            label.dependencies += 1;
            return true;
        }
        let own = self.shares.entry(Arc::clone(share)).or_default();
        let most = if self.labels.len() < MAX_LABELS { MAX_LABELS_OF_A_SHARE } else { OWN_LABELS };
        let has_room = *own < most;
        if has_room {
            *own += 1;
            self.labels.insert(key.into(), SelectedBy::first(share));
        }
        has_room
    }

    /// One dependency less selects by a label.
    pub(super) fn remove_label(&mut self, key: &str) {
        let Some(label) = self.labels.get_mut(key) else { return };
        label.dependencies -= 1;
        if label.dependencies > 0 {
            return;
        }
        if let Some(own) = self.shares.get_mut(&label.share) {
            *own -= 1;
            if *own == 0 {
                self.shares.remove(&label.share);
            }
        }
        self.labels.remove(key);
    }

    #[cfg(test)]
    pub(super) fn labels(&self) -> usize {
        self.labels.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }

    /// The label keys that some dependency selects by and one side may have. Iterates over the smaller of both sets:
    /// neither an object with ten thousand labels nor a plugin that selects by as many keys is expensive.
    pub(super) fn labels_of<'a>(
        &'a self,
        before: Option<&'a Object>,
        after: Option<&'a Object>,
    ) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        let labels_of = |side: Option<&'a Object>| side.map_or(0, |object| object.labels.len());
        if self.labels.len() <= labels_of(before) + labels_of(after) {
            return Box::new(self.labels.keys().map(|key| &**key));
        }
        let is_new = move |key: &str| after.is_none_or(|after| after.label(key).is_none());
        let of_side = |side: Option<&'a Object>| side.into_iter().flat_map(|object| object.labels.iter());
        let gone = of_side(before).filter(move |(key, _)| is_new(key));
        let keys = of_side(after).chain(gone).map(|(key, _)| key);
        Box::new(keys.filter(|key| self.labels.contains_key(*key)))
    }
}
