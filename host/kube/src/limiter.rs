//! Bounds the requests in flight, in all and by flow. A request enters with its flow, waits for a permit, and holds it until its
//! response. Requests of one flow tend to time out together: the writes of a plugin, whose kinds may have a webhook that does
//! not respond, or the reads of a kind, which a webhook may convert.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mortise_core::object::Kind;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub use self::permits::Limits;
use self::permits::{Permits, Ticket};

mod permits;
#[cfg(test)]
mod tests;

/// Writes, by share: a plugin, or all plugins of a tenant; None is the host itself.
///
/// At most 64 + 8 + S are in flight, where S is the number of shares that write: the shared pool, the host's own permits and
/// one per share. Each takes a connection, since kube's client speaks HTTP/1.1. The shared pool is a third of the 200
/// mutating requests that an API server runs at once for all its clients.
pub(crate) type WriteLimiter = Limiter<Option<Arc<str>>>;

/// Live reads, by kind.
///
/// At most 32 + K are in flight, where K is the number of kinds that are read. At some milliseconds a read, the reads of ten
/// thousand keys take two seconds, and the API server, which runs 400 reads at once, can still serve others.
pub(crate) type ReadLimiter = Limiter<Kind>;

/// A share has nine while its writes are small, which is a minute's budget in eleven seconds at eight milliseconds each. Of large
/// ones, when it has used the time that it had saved up, it has one half of the time, where a controller of controller-runtime
/// has one all the time: it reconciles one object at a time by default. With five all the time an API server of two cores took
/// half a second for a small write of others, and with one up to a third of one, while it collected the garbage of these writes.
/// The host writes the status of plugins and Events; it needs few, and must not wait for plugins.
const WRITES: Limits<Option<Arc<str>>> = Limits {
    own: |share| if share.is_none() { 8 } else { 1 },
    shared: 64,
    of_one: 8,
    saved: |share| share.as_ref().map(|_| Duration::from_secs(2)),
};
/// Half of the pool each: while two kinds hang and are not yet known to, the others have their own permits.
const READS: Limits<Kind> = Limits { own: |_| 1, shared: 32, of_one: 16, saved: |_| None };

/// Whose requests they are, such as a plugin's.
pub trait FlowName: Ord + Clone + Send + 'static {}

impl<F: Ord + Clone + Send + 'static> FlowName for F {}

/// Grants permits in order. Clones share them.
#[derive(Clone, Debug)]
pub struct Limiter<F: FlowName>(Arc<Mutex<State<F>>>);

#[derive(Debug)]
struct State<F> {
    permits: Permits<F>,
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
}

impl<F: FlowName> State<F> {
    fn wake(&mut self, granted: Vec<Ticket>) {
        for ticket in granted {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // A caller that stopped waiting drops its permit next.
                let _ = waiting.send(());
            }
        }
    }
}

/// A request's permit, or its place in the queue, until it is dropped. A large request's permit is kept for some time then.
#[derive(Debug)]
pub struct Permit<F: FlowName>(Option<Place<F>>);

/// It is left when this is dropped.
#[derive(Debug)]
struct Place<F: FlowName> {
    limiter: Limiter<F>,
    flow: F,
    ticket: Ticket,
}

impl WriteLimiter {
    pub(crate) fn of_writes() -> Self {
        Self::new(WRITES)
    }
}

impl ReadLimiter {
    pub(crate) fn of_reads() -> Self {
        Self::new(READS)
    }
}

impl<F: FlowName> Limiter<F> {
    /// With all permits free.
    pub fn new(limits: Limits<F>) -> Self {
        Self(Arc::new(Mutex::new(State { permits: Permits::new(limits), waiting: BTreeMap::new() })))
    }

    /// Waits for a permit, behind the requests of the same flow that came before. A caller that stops waiting gives up its place.
    pub async fn enter(&self, flow: F) -> Permit<F> {
        let (permit, waits) = self.queue(flow);
        if let Some(waits) = waits {
            waits.await.expect("the sender is kept until the permit is granted or dropped");
        }
        permit
    }

    fn queue(&self, flow: F) -> (Permit<F>, Option<oneshot::Receiver<()>>) {
        let mut state = self.lock();
        let (ticket, granted) = state.permits.enter(Instant::now(), &flow);
        let waits = (!granted.contains(&ticket)).then(|| {
            let (sender, waits) = oneshot::channel();
            state.waiting.insert(ticket, sender);
            waits
        });
        state.wake(granted);
        drop(state);
        (Permit(Some(Place { limiter: self.clone(), flow, ticket })), waits)
    }

    fn lock(&self) -> MutexGuard<'_, State<F>> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: FlowName> Drop for Permit<F> {
    fn drop(&mut self) {
        let Some(place) = self.0.take() else { return };
        let kept_for = place.limiter.lock().permits.end(Instant::now(), &place.flow, place.ticket);
        if !kept_for.is_zero()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                tokio::time::sleep(kept_for).await;
                drop(place);
            });
        }
    }
}

impl<F: FlowName> Drop for Place<F> {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        state.waiting.remove(&self.ticket);
        let granted = state.permits.leave(Instant::now(), &self.flow, self.ticket);
        state.wake(granted);
    }
}
