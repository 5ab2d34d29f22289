//! The labels and fields of a kind that dependencies select by.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::field_selector::{FieldPath, MAX_FIELDS_OF_A_PLUGIN, MAX_SELECTED_FIELDS};
use crate::object::Object;

/// The labels and fields in the index keys of a kind, each with the number of its dependencies.
#[derive(Debug, Default)]
pub(super) struct Selected {
    pub(super) labels: BTreeMap<Arc<str>, usize>,
    /// At most [`MAX_SELECTED_FIELDS`]; other fields are not indexed.
    pub(super) fields: BTreeMap<FieldPath, SelectedField>,
}

#[derive(Debug)]
pub(super) struct SelectedField {
    /// The plugin that chose it. It is part of its share until no plugin selects by it.
    plugin: Arc<str>,
    dependencies: usize,
}

impl Selected {
    /// Counts a dependency of a plugin that selects by a field: None if the field is not indexed, true if it is new.
    pub(super) fn add_field(&mut self, plugin: &Arc<str>, path: &FieldPath) -> Option<bool> {
        if let Some(field) = self.fields.get_mut(path) {
            field.dependencies += 1;
            return Some(false);
        }
        let own = self.fields.values().filter(|field| field.plugin == *plugin).count();
        let has_room = self.fields.len() < MAX_SELECTED_FIELDS && own < MAX_FIELDS_OF_A_PLUGIN;
        has_room.then(|| {
            self.fields.insert(path.clone(), SelectedField { plugin: Arc::clone(plugin), dependencies: 1 });
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

    /// One dependency less selects by a label.
    pub(super) fn remove_label(&mut self, key: &str) {
        let Some(dependencies) = self.labels.get_mut(key) else { return };
        *dependencies -= 1;
        if *dependencies == 0 {
            self.labels.remove(key);
        }
    }

    /// The label keys that some dependency selects by and one side may have. Iterates over the smaller of both sets:
    /// neither an object with ten thousand labels nor a plugin that selects by as many keys is expensive.
    pub(super) fn labels_of<'a>(
        &'a self,
        before: Option<&'a Object>,
        after: Option<&'a Object>,
    ) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        let of_side = |side: Option<&'a Object>| side.map_or(&[][..], |object| &*object.labels);
        if self.labels.len() <= of_side(before).len() + of_side(after).len() {
            return Box::new(self.labels.keys().map(|key| &**key));
        }
        let is_new = move |key: &str| after.is_none_or(|after| after.label(key).is_none());
        let gone = of_side(before).iter().filter(move |(key, _)| is_new(key));
        let keys = of_side(after).iter().chain(gone).map(|(key, _)| &**key);
        Box::new(keys.filter(|key| self.labels.contains_key(*key)))
    }
}
