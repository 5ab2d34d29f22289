//! A counting allocator, for tests of costs in bytes and allocations. The fuzz targets have this file as a module too.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::fs::File;
use std::io::Read as _;

use tikv_jemallocator::{Jemalloc, usable_size};

/// The allocations of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Count {
    /// Not freed yet.
    pub(crate) held_bytes: isize,
    /// The most that was held at once.
    pub(crate) peak_bytes: isize,
    pub(crate) allocations: usize,
    /// Of all allocations, freed or not.
    pub(crate) allocated_bytes: usize,
    /// What the process has more in memory. It is what the thread has only where no other one allocates, and where freed pages
    /// are returned at once: `_RJEM_MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0`.
    pub(crate) resident_bytes: isize,
}

thread_local! {
    static COUNT: Cell<Count> =
        const { Cell::new(Count { held_bytes: 0, peak_bytes: 0, allocations: 0, allocated_bytes: 0, resident_bytes: 0 }) };
}

/// The binary's allocator, counted by thread, because tests run in parallel. Bytes are what it has set aside.
struct Counting;

fn count(change: impl FnOnce(&mut Count)) {
    // A thread that ends has dropped its count.
    _ = COUNT.try_with(|cell| {
        let mut count = cell.get();
        change(&mut count);
        cell.set(count);
    });
}

#[expect(unsafe_code, reason = "an allocator can only be wrapped by one")]
// SAFETY: every request is passed to the allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        let pointer = unsafe { Jemalloc.alloc(layout) };
        // SAFETY: it is null or was allocated just now.
        let taken = if pointer.is_null() { 0 } else { unsafe { usable_size(pointer) } };
        count(|count| {
            count.held_bytes += taken.cast_signed();
            count.peak_bytes = count.peak_bytes.max(count.held_bytes);
            count.allocations += 1;
            count.allocated_bytes += layout.size();
        });
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: it was allocated and is not freed yet.
        let taken = unsafe { usable_size(pointer) };
        count(|count| count.held_bytes -= taken.cast_signed());
        // SAFETY: the caller upholds the contract.
        unsafe { Jemalloc.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What Linux says, without an allocation; nothing elsewhere.
fn resident_bytes() -> isize {
    const PAGE_BYTES: isize = 4_096;
    let mut text = [0; 128];
    let length = File::open("/proc/self/statm").and_then(|mut file| file.read(&mut text)).unwrap_or_default();
    let pages = str::from_utf8(&text[..length]).ok().and_then(|text| text.split(' ').nth(1)?.parse::<isize>().ok());
    pages.unwrap_or_default() * PAGE_BYTES
}

pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (Count, T) {
    let before = Count { resident_bytes: resident_bytes(), ..COUNT.get() };
    COUNT.set(Count { peak_bytes: before.held_bytes, ..before });
    let result = work();
    let after = Count { resident_bytes: resident_bytes(), ..COUNT.get() };
    // What is counted around this one has its own peak.
    COUNT.set(Count { peak_bytes: before.peak_bytes.max(after.peak_bytes), ..after });
    let count = Count {
        held_bytes: after.held_bytes - before.held_bytes,
        peak_bytes: after.peak_bytes - before.held_bytes,
        allocations: after.allocations - before.allocations,
        allocated_bytes: after.allocated_bytes - before.allocated_bytes,
        resident_bytes: after.resident_bytes - before.resident_bytes,
    };
    (count, result)
}
