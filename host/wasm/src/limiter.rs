//! The store's limiter: how much memory and table space one call may have. It remembers a refusal, because a guest that
//! runs out of memory traps with `unreachable`, which alone would look like a bug of the guest.

use wasmtime::ResourceLimiter;

/// Core instances of one component; the scan admits as many modules.
pub(crate) const MAX_INSTANCES: usize = 100;
/// Tables of one component: each core module has one or two.
pub(crate) const MAX_TABLES: usize = 200;
/// Tables of one core module. Toolchains make one, for function pointers; one more is for the reference types of a
/// language that has them, and as many again are spare.
pub(crate) const MAX_TABLES_PER_MODULE: u32 = 4;
/// Linear memories of one component; real ones have one, adapters of older toolchains a second.
pub(crate) const MAX_MEMORIES: usize = 8;
/// Elements of one table: CPython's function table, the largest known, has some 15,000.
pub(crate) const MAX_TABLE_ELEMENTS: usize = 40_000;

#[derive(Debug)]
pub(crate) struct Limiter {
    limit_bytes: u64,
    /// Bytes of all linear memories together.
    pub(crate) memory_bytes: u64,
    pub(crate) denied: bool,
}

impl Limiter {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, memory_bytes: 0, denied: false }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory_bytes.saturating_add(desired.saturating_sub(current) as u64);
        if total > self.limit_bytes {
            self.denied = true;
            return Ok(false);
        }
        self.memory_bytes = total;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= MAX_TABLE_ELEMENTS;
        self.denied |= !granted;
        Ok(granted)
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}
