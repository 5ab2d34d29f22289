//! Bounds the webhook requests in flight and the bytes of their bodies, by plugin: a request gets a permit before its
//! body is read, or is refused at once. Nothing waits here: a request that waited would keep its connection, and
//! connections are what is shared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::server::{MAX_CONNECTIONS, Response, response};

#[cfg(test)]
mod tests;

/// The requests in flight. Those that are refused, and bodies that arrive slowly, need some connections too.
///
/// A plugin alone has up to 32, which is several for each worker. However many spin, up to 48 of them, every other
/// plugin has its first one.
const REQUESTS: Limit = Limit { all: MAX_CONNECTIONS - 16, shared: 64 };
/// The bytes of their bodies. The guest's request holds as much again, since a review keeps its objects as text.
///
/// A plugin alone has up to five reviews of the largest objects that etcd takes, at 3 MiB each; most have some 10 KiB.
const BYTES: Limit = Limit { all: 64 << 20, shared: 32 << 20 };
/// client-go, and so the API server, sends a request again after this time, ten times or until the webhook's timeout.
const RETRY_AFTER_SECONDS: u64 = 1;

/// How much may be in use.
#[derive(Debug)]
struct Limit {
    /// For all plugins together. What is not shared is for plugins that use none.
    all: usize,
    /// A plugin that uses some gets more while it uses no more than is left of this. So one plugin has half of it, two
    /// have a third each, and a plugin that took its part earlier gives way as its requests end.
    shared: usize,
}

impl Limit {
    fn allows(&self, more: usize, own: usize, total: usize) -> bool {
        let limit = if own == 0 { self.all } else { self.shared };
        own + more <= limit.saturating_sub(total)
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

/// What is in use.
#[derive(Default, Debug)]
struct InUse {
    by_plugin: BTreeMap<Arc<str>, Usage>,
    all: Usage,
}

impl InUse {
    fn enter(&mut self, plugin: &Arc<str>, bytes: usize) -> bool {
        let mut own = self.by_plugin.get(plugin).copied().unwrap_or_default();
        let is_allowed =
            REQUESTS.allows(1, own.requests, self.all.requests) && BYTES.allows(bytes, own.bytes, self.all.bytes);
        if is_allowed {
            own.add(bytes);
            self.by_plugin.insert(Arc::clone(plugin), own);
            self.all.add(bytes);
        }
        is_allowed
    }

    fn leave(&mut self, plugin: &Arc<str>, bytes: usize) {
        let own = self.by_plugin.get_mut(plugin).expect("a request in flight is counted");
        own.remove(bytes);
        if own.requests == 0 {
            self.by_plugin.remove(plugin);
        }
        self.all.remove(bytes);
    }
}

/// Grants permits. Clones share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Capacity(Arc<Mutex<InUse>>);

/// A request's permit, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    capacity: Capacity,
    plugin: Arc<str>,
    bytes: usize,
}

impl Capacity {
    /// For a request whose body has so many bytes at most. None when the plugin has its part, or all have.
    pub(super) fn enter(&self, plugin: &str, bytes: usize) -> Option<Arc<Permit>> {
        let plugin = plugin.into();
        let is_allowed = self.lock().enter(&plugin, bytes);
        is_allowed.then(|| Arc::new(Permit { capacity: self.clone(), plugin, bytes }))
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.capacity.lock().leave(&self.plugin, self.bytes);
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
