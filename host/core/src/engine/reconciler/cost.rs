//! What a plugin is charged for the event loop's work on its behalf (Q4), in microseconds: computed from what was looked
//! at and parsed, since the core has no clock.

use crate::plan::Prepared;

/// A look at an object, which is also a sixteenth of the time to cut the fields of a projection out of a KiB.
const NS_PER_LOOK: u64 = 200;
/// An entry of the dependency index.
const US_PER_ENTRY: u64 = 1;
/// A KiB of JSON that is parsed and compared, or hashed; an estimate: serde_json builds some 130 MB of values a second.
const US_PER_KIB: u64 = 8;

pub(super) fn of_looks(looks: u64) -> u64 {
    looks.saturating_mul(NS_PER_LOOK).div_ceil(1_000)
}

/// Entries that are added to the dependency index or taken out of it: each has a place in a table and in trees.
pub(super) fn of_entries(entries: usize) -> u64 {
    entries as u64 * US_PER_ENTRY
}

pub(super) fn of_text(bytes: usize) -> u64 {
    bytes as u64 * US_PER_KIB / 1_024
}

/// A diff of an outcome that parsed so many bytes and found so many writes to be impossible, each with a message.
pub(super) fn of_diff(prepared: &Prepared, parsed_bytes: usize, impossible: usize) -> u64 {
    let writes = prepared.children.as_ref().map_or(0, Vec::len) + prepared.actions.len();
    5 + (writes + impossible) as u64 + of_text(parsed_bytes)
}
