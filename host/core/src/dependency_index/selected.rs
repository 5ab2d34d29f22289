//! Which labels and fields of a kind dependencies select by.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::field_selector::FieldPath;
use crate::object::Object;

/// What is in index keys of a kind, with how many dependencies have each.
#[derive(Debug, Default)]
pub(super) struct Selected {
    pub(super) labels: BTreeMap<Arc<str>, usize>,
    /// No more than [`MAX_SELECTED_FIELDS`](crate::field_selector::MAX_SELECTED_FIELDS). A dependency whose fields find no place has another index key.
    pub(super) fields: BTreeMap<FieldPath, usize>,
}

impl Selected {
    /// The label keys that somebody selects by and that one side may have. Costs as much as the fewer of both: neither an
    /// object with ten thousand labels nor a plugin that selects by as many keys makes it long.
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

/// Counts one less. True when none is left.
pub(super) fn decrement<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(counts: &mut BTreeMap<K, usize>, of: &Q) -> bool {
    let Some(count) = counts.get_mut(of) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(of);
    }
    is_last
}
