//! Which compilations may end this host. One does when its compiler takes so much memory that the kernel kills the container;
//! a host that ends by a signal, a bug or somebody else's memory ends while some component compiles, whichever it is. So an
//! attempt is recorded once its compiler has much memory, and withdrawn when the host ends in order.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mortise_core::digest::Digest;
use tracing::warn;

use super::cache::{Cache, Entry};

/// The part of a compiler's memory from which it may be what kills the container. Its limit counts address space, of which a
/// compiler that reaches it uses half; one of an ordinary component takes a quarter.
pub(super) const MUCH: u64 = 2;

/// The attempts of this process.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    /// What had been recorded of them before.
    before: BTreeMap<Digest, u32>,
    /// The host ends in order.
    has_ended: bool,
}

impl Attempts {
    /// Records that this compilation may kill the host, as so many did before. Once: the compiler of a component may run twice.
    pub(super) fn record(&self, cache: &Cache, digest: &Digest, before: u32) {
        let mut recorded = self.lock();
        if recorded.has_ended || recorded.before.contains_key(digest) {
            return;
        }
        recorded.before.insert(digest.clone(), before);
        if let Err(error) = cache.attempt(digest, before + 1) {
            warn!(%digest, %error, "cannot record that a compilation takes much memory");
        }
    }

    /// The compilation has ended, and the host has survived it. Where no result has replaced the record, it is as
    /// before: what earlier hosts died of stays.
    pub(super) fn ended(&self, cache: &Cache, digest: &Digest) {
        let Some(before) = self.lock().before.remove(digest) else { return };
        if matches!(cache.find(digest), Some(Entry::Attempted(_))) {
            restore(cache, digest, before);
        }
    }

    /// The host ends in order, and its compilations with it.
    pub(super) fn withdraw(&self, cache: &Cache) {
        let mut recorded = self.lock();
        recorded.has_ended = true;
        for (digest, before) in std::mem::take(&mut recorded.before) {
            restore(cache, &digest, before);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        // Each change is one insertion or removal, so a panic under the lock leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn restore(cache: &Cache, digest: &Digest, before: u32) {
    if before == 0 {
        cache.forget(digest);
    } else if let Err(error) = cache.attempt(digest, before) {
        warn!(%digest, %error, "cannot withdraw the record of a compilation");
    }
}
