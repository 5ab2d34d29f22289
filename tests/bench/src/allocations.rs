//! Counts the allocations of each thread. A count is the same in every run, so it shows changes that a clock on a busy
//! machine does not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Const and without a destructor: access never allocates.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The allocations and reallocations of this thread so far.
pub(crate) fn count() -> u64 {
    COUNT.get()
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn add_one() {
    COUNT.set(COUNT.get() + 1);
}

#[expect(unsafe_code, reason = "there is no other way to count allocations than to be the allocator")]
// SAFETY: every call is passed to the system's allocator unchanged, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add_one();
        // SAFETY: the caller keeps this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add_one();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add_one();
        // SAFETY: as above; `block` came from the system's allocator.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; `block` came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn only_this_threads_allocations_are_counted() {
        let before = count();
        let boxed = std::hint::black_box(Box::new(1));
        assert_eq!(count() - before, 1);
        std::thread::spawn(|| drop(std::hint::black_box(vec![1; 10]))).join().unwrap();
        let own = count();
        drop(boxed);
        assert_eq!(count(), own);
    }
}
