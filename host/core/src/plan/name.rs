//! The names of children (X3). They follow from owner, kind, key and what of the key is being deleted, so that a repeated
//! create gets AlreadyExists for its first try.

use crate::digest::name_hash;
use crate::object::{Kind, Object};

/// The longest name that every kind accepts: names of Pods and Services are DNS labels.
const MAX_BYTES: usize = 63;

/// The name of the child of a key. `predecessors` are the UIDs of its objects that are being deleted, sorted: none for a
/// child that waits for them. The owner's name and the key come first, for people.
pub(super) fn derived(primary: &Object, kind: &Kind, key: &str, predecessors: &[&str]) -> String {
    let parts = [&[&*primary.uid, &*kind.kind, key], predecessors].concat();
    let hash = name_hash(&parts);
    let readable = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
    };
    let mut name = format!("{}-{}", readable(&primary.name.name), readable(key));
    name.truncate(MAX_BYTES - hash.len() - 1);
    format!("{}-{hash}", name.trim_matches('-'))
}
