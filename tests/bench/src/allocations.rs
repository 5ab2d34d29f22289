//! Counts the allocations of each thread. A count is the same in every run, so it shows a change that a clock on a busy
//! machine would hide.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Const and without a destructor: reaching it allocates nothing, at any moment of a thread's life.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has allocated or grown memory so far.
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
// SAFETY: every call goes to the system's allocator with the arguments that it came with, and counting allocates
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add_one();
        // SAFETY: the caller keeps the contract of this very function.
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
    fn what_this_thread_allocates_is_counted_and_what_others_do_is_not() {
        let before = count();
        let boxed = std::hint::black_box(Box::new(1));
        assert_eq!(count() - before, 1);
        std::thread::spawn(|| drop(std::hint::black_box(vec![1; 10]))).join().unwrap();
        let own = count();
        drop(boxed);
        assert_eq!(count(), own);
    }
}
