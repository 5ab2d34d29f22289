//! The guest's bump allocator. Every call runs in a fresh instance whose memory the host discards as a whole, so
//! nothing has to be freed, and a general allocator would grow memory in every call.
//!
//! The arena is static memory of zeros, which adds nothing to the component's size and, unlike `memory.grow`, needs no
//! work of the host at each instantiation. What does not fit is allocated from memory that grows in chunks. The newest
//! allocation can grow, shrink and be freed in place, as strings and vectors under construction do.
//!
//! The C library, of which Rust's standard library is a user, allocates here too ([`c`]): its own allocator would be a
//! twentieth of a small component.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr;

/// Several times what a reconcile of ten children needs; more would enlarge every instance.
const ARENA_BYTES: usize = 128 << 10;
/// The unit of `memory.grow`.
const PAGE_BYTES: usize = 64 << 10;
/// The first growth; each later one doubles it, so that many small allocations grow memory few times.
const FIRST_CHUNK_BYTES: usize = 256 << 10;
/// The largest growth; most of a larger chunk would stay unused.
const LAST_CHUNK_BYTES: usize = 4 << 20;

#[global_allocator]
static ARENA: Arena =
    Arena { memory: UnsafeCell::new([0; ARENA_BYTES]), next: Cell::new(0), end: Cell::new(0), grown: Cell::new(0) };

/// All zeros at the start: any other byte would put the whole arena into the component's data.
#[repr(C, align(16))]
struct Arena {
    memory: UnsafeCell<[u8; ARENA_BYTES]>,
    /// The address after the newest allocation; 0 before the first one.
    next: Cell<usize>,
    /// The end of the current memory.
    end: Cell<usize>,
    /// The size of the last growth.
    grown: Cell<usize>,
}

#[expect(unsafe_code, reason = "a global allocator is a static")]
// SAFETY: components for wasm32-wasip2 have one thread.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates `bytes` bytes; None when memory cannot grow any further.
    fn take(&self, bytes: usize, align: usize) -> Option<usize> {
        if self.next.get() == 0 {
            let start = self.memory.get().addr();
            self.next.set(start);
            self.end.set(start + ARENA_BYTES);
        }
        let start = self.next.get().checked_next_multiple_of(align)?;
        let end = start.checked_add(bytes)?;
        if end <= self.end.get() {
            self.next.set(end);
            return Some(start);
        }
        self.grow(bytes.checked_add(align)?)?;
        let start = self.next.get().checked_next_multiple_of(align)?;
        self.next.set(start.checked_add(bytes)?);
        Some(start)
    }

    /// Grows memory by `bytes` at least. New memory that adjoins the current one extends it.
    #[cold]
    fn grow(&self, bytes: usize) -> Option<()> {
        let chunk = (self.grown.get().saturating_mul(2)).clamp(FIRST_CHUNK_BYTES, LAST_CHUNK_BYTES);
        let chunk = bytes.max(chunk).checked_next_multiple_of(PAGE_BYTES)?;
        let page = core::arch::wasm32::memory_grow::<0>(chunk / PAGE_BYTES);
        if page == usize::MAX {
            return None;
        }
        self.grown.set(chunk);
        let start = page * PAGE_BYTES;
        if start != self.end.get() {
            self.next.set(start);
        }
        self.end.set(start + chunk);
        Some(())
    }

    /// Resizes the newest allocation in place. False when it is not the newest or does not fit.
    fn resize(&self, start: usize, old: usize, new: usize) -> bool {
        let is_newest = start + old == self.next.get();
        match start.checked_add(new) {
            Some(end) if is_newest && end <= self.end.get() => {
                self.next.set(end);
                true
            }
            _ => false,
        }
    }
}

#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
// SAFETY: `take` returns aligned addresses in this instance's memory, each once; only the newest allocation is ever
// freed.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout.size(), layout.align()) {
            Some(address) => ptr::with_exposed_provenance_mut(address),
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.resize(memory.addr(), layout.size(), 0);
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if self.resize(memory.addr(), layout.size(), new_size) || new_size <= layout.size() {
            return memory;
        }
        match self.take(new_size, layout.align()) {
            Some(address) => {
                let copy = ptr::with_exposed_provenance_mut(address);
                // SAFETY: both allocations are this allocator's, do not overlap, and have the old size at least.
                unsafe { ptr::copy_nonoverlapping(memory, copy, layout.size()) };
                copy
            }
            None => ptr::null_mut(),
        }
    }
}

/// The C library's allocation functions. All of them, since the linker takes the library's own for all or for none.
#[expect(unsafe_code, reason = "symbols of C that take the place of the library's")]
mod c {
    use std::ffi::{c_int, c_void};
    use std::ptr;

    use super::ARENA;

    /// C's largest alignment, and the bytes before each allocation, which hold its size: C frees and reallocates
    /// without it.
    const HEADER: usize = 16;
    /// wasi-libc's number of this error.
    const ENOMEM: c_int = 48;

    #[unsafe(no_mangle)]
    extern "C" fn malloc(bytes: usize) -> *mut c_void {
        aligned_alloc(HEADER, bytes)
    }

    #[unsafe(no_mangle)]
    extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
        let align = align.max(HEADER);
        let Some(start) = bytes.checked_add(align).and_then(|bytes| ARENA.take(bytes, align)) else {
            return ptr::null_mut();
        };
        let memory: *mut c_void = ptr::with_exposed_provenance_mut(start + align);
        // SAFETY: `align` bytes before `memory`, HEADER at least, are this allocation's.
        unsafe { memory.cast::<usize>().byte_sub(HEADER).write(bytes) };
        memory
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
        let memory = aligned_alloc(align, bytes);
        if memory.is_null() {
            return ENOMEM;
        }
        // SAFETY: the caller's place for the result.
        unsafe { out.write(memory) };
        0
    }

    #[unsafe(no_mangle)]
    extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
        let Some(bytes) = count.checked_mul(bytes) else { return ptr::null_mut() };
        let memory = malloc(bytes);
        if !memory.is_null() {
            // SAFETY: `memory` has that many bytes. Freed ones, which are allocated again, are not zero.
            unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
        }
        memory
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
        if memory.is_null() {
            return malloc(bytes);
        }
        // SAFETY: a pointer that `aligned_alloc` returned.
        let old = unsafe { malloc_usable_size(memory) };
        let moved = malloc(bytes);
        if !moved.is_null() {
            // SAFETY: both have that many bytes, and none is freed while they are copied.
            unsafe { ptr::copy_nonoverlapping(memory.cast::<u8>(), moved.cast::<u8>(), old.min(bytes)) };
        }
        moved
    }

    /// # Safety
    /// `memory` is from this allocator.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
        // SAFETY: `aligned_alloc` wrote the size there.
        unsafe { memory.cast::<usize>().byte_sub(HEADER).read() }
    }

    #[unsafe(no_mangle)]
    extern "C" fn free(_: *mut c_void) {}
}
