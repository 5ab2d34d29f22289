//! Bounds the memory of all dependency sets of one controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of all large sets of one controller: 256 of the largest. A large set beyond that keeps kinds.
pub(super) const MAX_CONTROLLER_BYTES: usize = 64 << 20;

/// Bytes that all large sets of one controller hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryQuota(Arc<AtomicUsize>);

/// A part of a quota, released when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    quota: MemoryQuota,
    bytes: usize,
}

impl MemoryQuota {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn reserve(&self, bytes: usize) -> Option<Arc<Reservation>> {
        // Relaxed: calls that end at the same time may both be refused although one of them would fit.
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let held = Arc::new(Reservation { quota: self.clone(), bytes });
        (before + bytes <= MAX_CONTROLLER_BYTES).then_some(held)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.quota.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
