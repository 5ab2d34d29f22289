//! The labels and fields of a kind that dependencies select by.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::field_selector::FieldPath;
use crate::object::Object;

/// The labels and fields in the index keys of a kind, each with the number of its dependencies.
#[derive(Debug, Default)]
pub(super) struct Selected {
    pub(super) labels: BTreeMap<Arc<str>, usize>,
    /// At most [`MAX_SELECTED_FIELDS`](crate::field_selector::MAX_SELECTED_FIELDS); other fields are not indexed.
    pub(super) fields: BTreeMap<FieldPath, usize>,
}

impl Selected {
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

/// Decrements a count. True when it was the last.
pub(super) fn decrement<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(counts: &mut BTreeMap<K, usize>, of: &Q) -> bool {
    let Some(count) = counts.get_mut(of) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(of);
    }
    is_last
}
