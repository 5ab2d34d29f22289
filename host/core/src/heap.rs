//! Bytes of the heap that values take, as an allocator counts them: whole allocations, with what it rounds up, and whole nodes of
//! trees. Every bound in bytes is counted with these, so that one plugin cannot keep a hundred times what it is charged for.
//!
//! What several values share counts for each of them. Nothing here knows who is charged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The two reference counts of an `Arc`.
const COUNTERS_BYTES: usize = 2 * size_of::<usize>();
/// Entries of a node of the standard library's B-trees.
const NODE_ENTRIES: usize = 11;
/// Entries that a node has at least, unless it is the root.
const LEAST_ENTRIES: usize = 5;

/// Bytes on the heap, beside a value's own size.
pub(crate) trait HeapBytes {
    fn heap_bytes(&self) -> usize;
}

/// What an allocation of so many bytes takes at most: glibc adds a header and rounds to 16 bytes, and jemalloc gives more.
pub const fn allocation(bytes: usize) -> usize {
    const HEADER_BYTES: usize = 8;
    const LEAST_BYTES: usize = 32;
    if bytes == 0 {
        return 0;
    }
    let taken = (bytes + HEADER_BYTES).next_multiple_of(step(bytes));
    if taken < LEAST_BYTES { LEAST_BYTES } else { taken }
}

/// What jemalloc, the host's allocator, gives who asks for so many bytes. A buffer that has all of it has no bytes that are not
/// counted.
pub const fn given(bytes: usize) -> usize {
    bytes.next_multiple_of(step(bytes))
}

/// The distance of jemalloc's sizes, four in each power of two.
const fn step(bytes: usize) -> usize {
    const LEAST_STEP: usize = 16;
    let step = bytes.next_power_of_two() / 8;
    if step < LEAST_STEP { LEAST_STEP } else { step }
}

/// What an `Arc` of so many bytes takes.
pub(crate) const fn shared(bytes: usize) -> usize {
    allocation(COUNTERS_BYTES + bytes)
}

/// What the nodes of a B-tree of so many entries take at most: all but the root may be half empty.
pub const fn tree(entries: usize, entry_bytes: usize) -> usize {
    if entries == 0 {
        return 0;
    }
    // The parent, the position in it and the length.
    let leaf = NODE_ENTRIES * entry_bytes + 16;
    if entries <= NODE_ENTRIES {
        return allocation(leaf);
    }
    let leaves = (entries + 1) / (LEAST_ENTRIES + 1);
    let inner = (leaves + 3) / LEAST_ENTRIES;
    let edges = (NODE_ENTRIES + 1) * size_of::<usize>();
    leaves * allocation(leaf) + inner * allocation(leaf + edges)
}

impl HeapBytes for String {
    fn heap_bytes(&self) -> usize {
        allocation(self.capacity())
    }
}

impl HeapBytes for Box<str> {
    fn heap_bytes(&self) -> usize {
        allocation(self.len())
    }
}

impl HeapBytes for Arc<str> {
    fn heap_bytes(&self) -> usize {
        shared(self.len())
    }
}

impl HeapBytes for u128 {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<T: HeapBytes> HeapBytes for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }
}

impl<T: HeapBytes> HeapBytes for Vec<T> {
    fn heap_bytes(&self) -> usize {
        allocation(self.capacity() * size_of::<T>()) + of_all(self)
    }
}

impl<T: HeapBytes> HeapBytes for Box<[T]> {
    fn heap_bytes(&self) -> usize {
        allocation(size_of_val(&**self)) + of_all(self)
    }
}

impl<T: HeapBytes> HeapBytes for Arc<[T]> {
    /// Empty ones are the one that the standard library shares.
    fn heap_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { shared(size_of_val(&**self)) + of_all(self) }
    }
}

impl<K: HeapBytes, V: HeapBytes> HeapBytes for BTreeMap<K, V> {
    fn heap_bytes(&self) -> usize {
        let of_entries = self.iter().map(|(key, value)| key.heap_bytes() + value.heap_bytes());
        tree(self.len(), size_of::<K>() + size_of::<V>()) + of_entries.sum::<usize>()
    }
}

impl<T: HeapBytes> HeapBytes for BTreeSet<T> {
    fn heap_bytes(&self) -> usize {
        tree(self.len(), size_of::<T>()) + self.iter().map(T::heap_bytes).sum::<usize>()
    }
}

impl<A: HeapBytes, B: HeapBytes> HeapBytes for (A, B) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes()
    }
}

fn of_all<T: HeapBytes>(values: &[T]) -> usize {
    values.iter().map(T::heap_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::counted;

    /// What is counted is what the allocator gives, or up to half more.
    #[track_caller]
    fn check<T: HeapBytes>(make: impl FnOnce() -> T) {
        let (count, value) = counted(make);
        let (held, found) = (count.held_bytes.unsigned_abs(), value.heap_bytes());
        assert!((held..=held + held / 2).contains(&found), "{found} bytes of {held}");
    }

    #[test]
    fn an_allocation_is_counted_with_what_the_allocator_rounds_up() {
        for size in (1..2_000).chain([4_096, 4_097, 65_536, 1 << 20]) {
            let (count, _block) = counted(|| Vec::<u8>::with_capacity(size));
            let held = count.held_bytes.unsigned_abs();
            // glibc takes 32 bytes for the least, jemalloc 8.
            assert!((held..=held * 5 / 4 + 24).contains(&allocation(size)), "{size}: {held}, {}", allocation(size));
        }
        assert_eq!(allocation(0), 0);
        // jemalloc's classes above these sizes.
        assert!(allocation(129) >= 160 && allocation(257) >= 320 && allocation(1_025) >= 1_280);
    }

    #[test]
    fn texts_lists_and_trees_are_counted_as_the_allocator_gives_them() {
        check(|| Arc::<str>::from("x"));
        check(|| "x".repeat(1_000));
        check(|| Vec::from_iter((0..100).map(|number| number.to_string())));
        check(|| (0..100).map(|number| number.to_string()).collect::<Box<[_]>>());
        check(|| (0..100).map(|number| Arc::from(number.to_string())).collect::<Arc<[Arc<str>]>>());
        check(Arc::<[Arc<str>]>::default);
        for len in [0, 1, 11, 12, 100, 10_000] {
            // Added in order, nodes are half full.
            check(|| {
                let mut all = BTreeMap::new();
                (0..len).for_each(|number: u128| _ = all.insert(number, Some(number)));
                all
            });
            check(|| {
                let mut all = BTreeSet::new();
                (0..len).for_each(|number: u128| _ = all.insert(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                all
            });
        }
    }
}
