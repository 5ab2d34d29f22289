//! Bounds the webhook requests in flight and the bytes of their bodies, by plugin and by peer: a request gets a permit
//! before its body is read, or is refused at once. Nothing waits here: a request that waited would keep its connection,
//! and connections are what is shared.
//!
//! Anybody who reaches the port can send reviews, so what one peer sends for a plugin is a flow, and each flow has a part
//! of its own: the API server's reviews have theirs however many another peer sends for the same plugin. Peers that one
//! NAT hides are one, and share its flows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::server::places::{MAX_CONNECTIONS, MAX_OF_PEER};
use crate::server::{Response, response};

#[cfg(test)]
mod tests;

/// The requests in flight. Those that are refused, and bodies that arrive slowly, need some connections too.
///
/// A plugin alone has up to 32, which is several for each worker. However many spin, up to 48 of them, every other
/// plugin has its first one.
const REQUESTS: Limit = Limit { all: MAX_CONNECTIONS - 16, shared: 64, of_peer: MAX_OF_PEER - 12 };
/// The bytes of their bodies. The guest's request holds as much again, since a review keeps its objects as text.
///
/// A plugin alone has up to five reviews of the largest objects that etcd takes, at 3 MiB each; most have some 10 KiB. What
/// is no peer's holds two of the largest bodies.
const BYTES: Limit = Limit { all: 64 << 20, shared: 32 << 20, of_peer: 48 << 20 };
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
    /// For one peer, whatever plugins it names: three quarters, so that no peer has what another one needs to begin.
    of_peer: usize,
}

impl Limit {
    fn allows(&self, more: usize, own: usize, of_peer: usize, total: usize) -> bool {
        let limit = if own == 0 { self.all } else { self.shared };
        own + more <= limit.saturating_sub(total) && of_peer + more <= self.of_peer
    }
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Usage {
    requests: usize,
    bytes: usize,
}

impl Usage {
    fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.requests -= 1;
        self.bytes -= bytes;
    }
}

/// A plugin's requests of one peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flow {
    peer: IpAddr,
    plugin: Arc<str>,
}

/// What is in use.
#[derive(Default, Debug)]
struct InUse {
    by_flow: BTreeMap<Flow, Usage>,
    by_peer: BTreeMap<IpAddr, Usage>,
    all: Usage,
}

impl InUse {
    fn enter(&mut self, flow: &Flow, bytes: usize) -> bool {
        let own = self.by_flow.get(flow).copied().unwrap_or_default();
        let of_peer = self.by_peer.get(&flow.peer).copied().unwrap_or_default();
        let is_allowed = REQUESTS.allows(1, own.requests, of_peer.requests, self.all.requests)
            && BYTES.allows(bytes, own.bytes, of_peer.bytes, self.all.bytes);
        if is_allowed {
            self.by_flow.entry(flow.clone()).or_default().add(bytes);
            self.by_peer.entry(flow.peer).or_default().add(bytes);
            self.all.add(bytes);
        }
        is_allowed
    }

    fn leave(&mut self, flow: &Flow, bytes: usize) {
        leave(&mut self.by_flow, flow, bytes);
        leave(&mut self.by_peer, &flow.peer, bytes);
        self.all.remove(bytes);
    }
}

fn leave<K: Ord>(usages: &mut BTreeMap<K, Usage>, of: &K, bytes: usize) {
    let usage = usages.get_mut(of).expect("a request in flight is counted");
    usage.remove(bytes);
    if usage.requests == 0 {
        usages.remove(of);
    }
}

/// Grants permits. Clones share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Capacity(Arc<Mutex<InUse>>);

/// A request's permit, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    capacity: Capacity,
    flow: Flow,
    bytes: usize,
}

impl Capacity {
    /// For a request whose body has so many bytes at most. None when its flow has its part, or its peer, or all have.
    pub(super) fn enter(&self, peer: IpAddr, plugin: &str, bytes: usize) -> Option<Arc<Permit>> {
        let flow = Flow { peer, plugin: plugin.into() };
        let is_allowed = self.lock().enter(&flow, bytes);
        is_allowed.then(|| Arc::new(Permit { capacity: self.clone(), flow, bytes }))
    }

    /// The bytes of all requests in flight.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock().all.bytes
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.capacity.lock().leave(&self.flow, self.bytes);
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
