//! Bounds the webhook requests in flight, by plugin: a request gets a permit before its body is read, or is refused at
//! once. Nothing waits here: a request that waited would keep its connection, and connections are what is shared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use super::review::json_of;
use crate::server::{MAX_CONNECTIONS, Response};

#[cfg(test)]
mod tests;

/// The requests in flight. Those that are refused, and bodies that arrive slowly, need some connections too.
///
/// A plugin alone has up to 32, which is several for each worker. However many spin, up to 48 of them, every other
/// plugin has its first one.
const REQUESTS: Limit = Limit { all: MAX_CONNECTIONS - 16, shared: 64 };
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

/// What is in use.
#[derive(Default, Debug)]
struct InUse {
    by_plugin: BTreeMap<Arc<str>, usize>,
    requests: usize,
}

impl InUse {
    fn enter(&mut self, plugin: &Arc<str>) -> bool {
        let own = self.by_plugin.get(plugin).copied().unwrap_or_default();
        let is_allowed = REQUESTS.allows(1, own, self.requests);
        if is_allowed {
            self.by_plugin.insert(Arc::clone(plugin), own + 1);
            self.requests += 1;
        }
        is_allowed
    }

    fn leave(&mut self, plugin: &Arc<str>) {
        let own = self.by_plugin.get_mut(plugin).expect("a request in flight is counted");
        *own -= 1;
        if *own == 0 {
            self.by_plugin.remove(plugin);
        }
        self.requests -= 1;
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
}

impl Capacity {
    /// None when the plugin has its part, or all have.
    pub(super) fn enter(&self, plugin: &str) -> Option<Arc<Permit>> {
        let plugin = plugin.into();
        let is_allowed = self.lock().enter(&plugin);
        is_allowed.then(|| Arc::new(Permit { capacity: self.clone(), plugin }))
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.capacity.lock().leave(&self.plugin);
    }
}

/// The response to a request without a permit. It cannot be an AdmissionReview, which would need the request's uid from
/// its body. With Retry-After the API server tries again within the webhook's timeout, then applies the failurePolicy;
/// of a 429 it shows the message only if the body is a Status.
pub(super) fn refusal(plugin: &str) -> Response {
    let message = format!("mortise has too many requests for the plugin {plugin:?} in progress; try again");
    let mut response = json_of(
        StatusCode::TOO_MANY_REQUESTS,
        json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": message, "details": {"retryAfterSeconds": RETRY_AFTER_SECONDS},
        })
        .to_string(),
    );
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    response
}
