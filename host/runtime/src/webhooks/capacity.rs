//! Bounds the webhook requests in flight, by plugin and by peer, and the memory that they take, which `room.rs` counts. A
//! request takes memory as its body arrives, and a place among the requests when the body is whole, or is refused at once.
//! Nothing waits here: a request that waited would keep its connection, and connections are what is shared.
//!
//! Requests of clients with a certificate, of those without and conversions, for which API servers show none, each have
//! a part of their own, so that nobody takes that of the API server's reviews who cannot show its certificate.
//!
//! Anybody who reaches the port can send the others, so what one peer sends for a plugin is a flow, and each flow has a
//! part of its own: the API server's reviews have theirs however many another peer sends for the same plugin. So has
//! each peer, and the more peers, the less. Peers that one NAT hides are one, and share its flows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use tokio::sync::Notify;

use super::room::{Id, Limits, Room};
use crate::server::peer::Peer;
use crate::server::{Response, response};

#[cfg(test)]
mod tests;

/// The requests in flight of a class.
///
/// A plugin alone has up to 32, which is several for each worker. Beside those of two API servers that spin, each of
/// thirty others has its first one.
const REQUESTS: Limit = Limit { all: 112, shared: 64, of_peer: 84 };
/// What the requests of a class take. The largest take 8 MiB, a conversion of as much up to four times that with its
/// response, and typical ones some 10 KiB. Two classes are in use at a time: reviews with a certificate or without, and
/// conversions.
const ROOM: Limits = Limits { all: 48 << 20, of_peer: 32 << 20 };
/// client-go, and so the API server, sends a request again after this time, ten times or until the webhook's timeout.
const RETRY_AFTER_SECONDS: u64 = 1;

/// How much may be in use.
#[derive(Debug)]
struct Limit {
    /// For all flows together. What is not shared is for flows that use none.
    all: usize,
    /// A flow that uses some gets more while it uses no more than is left of this. So one flow has half of it, two have a
    /// third each, and one that took its part earlier gives way as its requests end.
    shared: usize,
    /// For one peer alone, whatever plugins it names: three quarters. Beside others it has three times what is left of
    /// all: two have three sevenths each, three three tenths. So the first request of a peer has a place beside any 36
    /// that have as many as they may.
    of_peer: usize,
}

impl Limit {
    /// Whether there is one more for a flow that has so many, and its peer, and all.
    fn allows(&self, own: usize, of_peer: usize, total: usize) -> bool {
        let limit = if own == 0 { self.all } else { self.shared };
        let left = self.all.saturating_sub(total + 1);
        let has_peers_part = (of_peer + 1) * (self.all - self.of_peer) <= left * self.of_peer;
        own < limit.saturating_sub(total) && (of_peer == 0 || has_peers_part)
    }
}

/// Whose requests have a part together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Reviews of a client whose certificate TLS has verified.
    Verified,
    /// Reviews of anybody else.
    Unverified,
    Conversion,
}

impl Class {
    const COUNT: usize = 3;
}

/// A plugin's requests of one peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flow {
    peer: Peer,
    plugin: Arc<str>,
}

/// The requests in flight.
#[derive(Default, Debug)]
struct InUse {
    by_flow: BTreeMap<Flow, usize>,
    by_peer: BTreeMap<Peer, usize>,
    all: usize,
}

impl InUse {
    fn enter(&mut self, flow: &Flow) -> bool {
        let own = self.by_flow.get(flow).copied().unwrap_or_default();
        let of_peer = self.by_peer.get(&flow.peer).copied().unwrap_or_default();
        let is_allowed = REQUESTS.allows(own, of_peer, self.all);
        if is_allowed {
            *self.by_flow.entry(flow.clone()).or_default() += 1;
            *self.by_peer.entry(flow.peer).or_default() += 1;
            self.all += 1;
        }
        is_allowed
    }

    fn leave(&mut self, flow: &Flow) {
        leave(&mut self.by_flow, flow);
        leave(&mut self.by_peer, &flow.peer);
        self.all -= 1;
    }
}

fn leave<K: Ord>(counts: &mut BTreeMap<K, usize>, of: &K) {
    let count = counts.get_mut(of).expect("a request in flight is counted");
    *count -= 1;
    if *count == 0 {
        counts.remove(of);
    }
}

/// The part of a class.
#[derive(Debug)]
struct Part {
    requests: InUse,
    room: Room,
}

/// What requests may take. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Capacity(Arc<[Mutex<Part>; Class::COUNT]>);

impl Default for Capacity {
    fn default() -> Self {
        let part = || Mutex::new(Part { requests: InUse::default(), room: Room::new(ROOM) });
        Self(Arc::new([part(), part(), part()]))
    }
}

impl Capacity {
    /// For a request whose body begins to arrive. It has taken nothing yet.
    pub(super) fn begin(&self, class: Class, peer: Peer) -> Charge {
        let id = self.lock(class).room.begin(peer, Instant::now());
        Charge { capacity: self.clone(), class, peer, id }
    }

    /// What all requests take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        [Class::Verified, Class::Unverified, Class::Conversion].map(|class| self.lock(class).room.bytes()).iter().sum()
    }

    fn lock(&self, class: Class) -> MutexGuard<'_, Part> {
        self.0[class as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of a request, until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    capacity: Capacity,
    class: Class,
    peer: Peer,
    id: Id,
}

impl Charge {
    /// Adds what has arrived of the body. False when the request is refused.
    pub(super) fn arrived(&self, piece: &[u8]) -> bool {
        self.capacity.lock(self.class).room.arrived(self.id, piece, Instant::now())
    }

    /// The body, which is whole, and a permit to answer the request for a plugin. None when it is refused: its body has given way
    /// to others, or its flow has its part of the requests, or its peer, or all have.
    pub(super) fn whole(self, plugin: &str) -> Option<(Vec<u8>, Arc<Permit>)> {
        let flow = Flow { peer: self.peer, plugin: plugin.into() };
        let given_way = Arc::new(Notify::new());
        let mut part = self.capacity.lock(self.class);
        let body = part.room.whole(self.id, Arc::clone(&given_way))?;
        let is_allowed = part.requests.enter(&flow);
        drop(part);
        is_allowed.then(|| (body, Arc::new(Permit { flow, given_way, charge: Arc::new(self) })))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.capacity.lock(self.class).room.end(self.id);
    }
}

/// A request's place among those in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    flow: Flow,
    given_way: Arc<Notify>,
    charge: Arc<Charge>,
}

/// Work on a request, which does not give way until this is dropped.
#[derive(Debug)]
pub(super) struct Working(Arc<Permit>);

impl Drop for Working {
    fn drop(&mut self) {
        let charge = &self.0.charge;
        charge.capacity.lock(charge.class).room.end_work(charge.id);
    }
}

impl Permit {
    pub(super) fn class(&self) -> Class {
        self.charge.class
    }

    pub(super) fn peer(&self) -> Peer {
        self.charge.peer
    }

    /// Returns once the request has given way to others: then its memory is theirs.
    pub(super) async fn given_way(&self) {
        self.given_way.notified().await;
    }

    /// Begins to work on it. None when it has given way.
    pub(super) fn work(self: &Arc<Self>) -> Option<Working> {
        let charge = &self.charge;
        charge.capacity.lock(charge.class).room.begin_work(charge.id).then(|| Working(Arc::clone(self)))
    }

    /// Counts more memory. False when there is no room for it.
    pub(super) fn grow(&self, more: usize) -> bool {
        let charge = &self.charge;
        charge.capacity.lock(charge.class).room.grow(charge.id, more, Instant::now())
    }

    /// Counts less.
    pub(super) fn shrink(&self, less: usize) {
        self.charge.capacity.lock(self.charge.class).room.shrink(self.charge.id, less);
    }

    /// The request takes so much from now on. False when there is no room for it.
    pub(super) fn set(&self, bytes: usize) -> bool {
        let charge = &self.charge;
        charge.capacity.lock(charge.class).room.set(charge.id, bytes, Instant::now())
    }

    /// The request takes what its response does, as long as the result is not dropped. None when there is no room for that.
    pub(super) fn unread(&self, bytes: usize, connection: Arc<Notify>) -> Option<Arc<Charge>> {
        let charge = &self.charge;
        let now = Instant::now();
        let has_room = charge.capacity.lock(charge.class).room.unread(charge.id, bytes, connection, now);
        has_room.then(|| Arc::clone(charge))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.charge.capacity.lock(self.charge.class).requests.leave(&self.flow);
    }
}

/// The response to a request without a permit. It cannot be an AdmissionReview, which would need the request's uid from
/// its body. With Retry-After the API server tries again within the webhook's timeout, then applies the failurePolicy;
/// of a 429 it shows the message only if the body is a Status.
pub(super) fn refusal(plugin: &str) -> Response {
    let message =
        format!("mortise has too many or too large requests for the plugin {plugin:?} in progress; try again");
    let mut refusal = response(
        StatusCode::TOO_MANY_REQUESTS,
        "application/json",
        json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": message, "details": {"retryAfterSeconds": RETRY_AFTER_SECONDS},
        })
        .to_string(),
    );
    refusal.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    refusal
}
