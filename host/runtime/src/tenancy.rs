//! A namespace for as long as it is a tenant. What a watch shows of it passes through queues with its tenancy, so that nothing is
//! taken that comes out of them after its end. It must not know what the queues hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A namespace that loses its label and gets it again has another one, which has nothing of what queues still hold of the earlier
/// one: its complete list, or a ConfigMap that was deleted in between.
#[derive(Clone, Debug)]
pub(crate) struct Tenancy {
    pub(crate) namespace: Arc<str>,
    has_ended: Arc<AtomicBool>,
}

impl Tenancy {
    pub(crate) fn new(namespace: Arc<str>) -> Self {
        Self { namespace, has_ended: Arc::default() }
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// The event loop ends it, so what the event loop reads here is never late.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.has_ended, &other.has_ended)
    }
}
