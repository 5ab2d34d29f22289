//! An allocator that counts, for tests of what things cost in bytes and allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a thread has asked of the allocator.
#[derive(Clone, Copy)]
pub(crate) struct Count {
    /// Still held when the work was done.
    pub(crate) held_bytes: isize,
    pub(crate) allocations: usize,
    /// In all allocations, given back or not.
    pub(crate) asked_bytes: usize,
}

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { held_bytes: 0, allocations: 0, asked_bytes: 0 }) };
}

/// The system's allocator, counted for each thread: tests run beside each other.
struct Counting;

/// What glibc's malloc takes for a request: a header of eight bytes, in steps of sixteen, 32 at least.
fn taken(size: usize) -> isize {
    (size + 8).next_multiple_of(16).max(32).cast_signed()
}

fn count(change: impl FnOnce(&mut Count)) {
    // A thread that is ending has no count any longer.
    _ = COUNT.try_with(|cell| {
        let mut count = cell.get();
        change(&mut count);
        cell.set(count);
    });
}

#[expect(unsafe_code, reason = "an allocator can only be wrapped by one")]
// SAFETY: every request goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|count| {
            count.held_bytes += taken(layout.size());
            count.allocations += 1;
            count.asked_bytes += layout.size();
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(|count| count.held_bytes -= taken(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What some work asked of the allocator.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (Count, T) {
    let before = COUNT.get();
    let result = work();
    let after = COUNT.get();
    let count = Count {
        held_bytes: after.held_bytes - before.held_bytes,
        allocations: after.allocations - before.allocations,
        asked_bytes: after.asked_bytes - before.asked_bytes,
    };
    (count, result)
}
