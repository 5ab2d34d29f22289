//! What comparisons of one version of an object with what somebody wants have found. A worker compares what takes long, and
//! the event loop then knows the result. It does not know what is compared, only fingerprints.

use std::sync::{Arc, Mutex, PoisonError};

use crate::heap::{HeapBytes, allocation};

/// Comparisons of one version. Most objects are wanted by one plugin; those of more are compared again.
const MAX_VERDICTS: usize = 8;

/// What a comparison found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing has to be written.
    Same,
    /// The write is needed.
    Differs,
    /// This patch is needed.
    Needs(Arc<str>),
}

/// The newest comparisons, by fingerprint.
#[derive(Debug, Default)]
pub(super) struct Verdicts(Mutex<Vec<(u128, Verdict)>>);

impl Verdicts {
    pub(super) fn get(&self, fingerprint: u128) -> Option<Verdict> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(of, _)| *of == fingerprint).map(|(_, verdict)| verdict.clone())
    }

    pub(super) fn keep(&self, fingerprint: u128, verdict: Verdict) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _)| *of != fingerprint);
        if known.len() == MAX_VERDICTS {
            known.remove(0);
        }
        known.push((fingerprint, verdict));
    }

    pub(super) fn bytes(&self) -> usize {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let patches =
            known.iter().map(|(_, verdict)| if let Verdict::Needs(patch) = verdict { patch.heap_bytes() } else { 0 });
        allocation(size_of::<Self>())
            + allocation(known.capacity() * size_of::<(u128, Verdict)>())
            + patches.sum::<usize>()
    }
}
