//! The host's Lease: reads, creates and updates it as [`mortise_core::lease`] decides, and publishes until when this host
//! leads.
//!
//! It runs on a thread and a connection of its own, so that neither a busy host nor its other requests delay a renewal. By a
//! watch, a standby host notices at once that the leader released the Lease; without the right to watch, at its next read.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Method;
use mortise_core::lease::{Act, Election, Lease, WriteFailure};
use mortise_core::object::{Kind, Object};
use mortise_core::time::Now;
use mortise_core::watch::WatchEvent;
use mortise_core::well_known::HOST;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::answers::Size;
use crate::client::{ApiServer, NOT_FOUND, request};
use crate::clock;
use crate::discovery::escape;
use crate::failure::Failure;
use crate::leadership::Leadership;
use crate::retry::random;
use crate::watch::{Objects, run as keep_watched};

#[cfg(test)]
mod tests;

/// Longest a request may take: client-go's, half of the time in which a leader must renew, so that after a dead connection
/// there is time for another.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The API server's deadline, so that a renewal that the host gave up on is not applied later.
const SERVER_TIMEOUT_SECONDS: u64 = 4;
/// Events of the watch that wait; then the watch waits.
const EVENTS: usize = 4;
/// 403.
const FORBIDDEN: u16 = 403;
/// 409.
const CONFLICT: u16 = 409;

/// A Lease, and a host that wants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The namespace of the Lease.
    pub namespace: Arc<str>,
    /// The name of the Lease.
    pub name: Arc<str>,
    /// The host; unique, also among its predecessors. See [`identity`].
    pub identity: Arc<str>,
}

/// A request to release the Lease, answered when that is done or has failed. Only for a host that no longer writes.
pub type Release = oneshot::Sender<()>;

/// The system gives no random bytes.
#[derive(Debug, Error)]
#[error("cannot make an identity for the leader election: the system gives no random bytes")]
pub struct NoIdentity(#[from] getrandom::Error);

/// `hostname_uuid`, as client-go's users make it: two hosts on one machine differ, and so do a host and its predecessor. The
/// hostname is for people.
///
/// # Errors
/// When the system gives no random bytes.
pub fn identity(hostname: &str) -> Result<Arc<str>, NoIdentity> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{hostname}_{}", uuid::Builder::from_random_bytes(bytes).into_uuid()).into())
}

/// Takes part in the election until a request arrives on `release`, and publishes each change of this host's leadership.
pub async fn run(
    api: ApiServer,
    candidate: Candidate,
    leadership: watch::Sender<Leadership>,
    release: mpsc::Receiver<Release>,
) {
    let (sink, events) = mpsc::channel(EVENTS);
    let scope = Objects {
        kind: Kind::new("coordination.k8s.io/v1", "Lease"),
        namespace: Some(Arc::clone(&candidate.namespace)),
        selector: None,
        name: Some(Arc::clone(&candidate.name)),
        page_objects: None,
    };
    let watched = keep_watched(api.clone(), scope, sink, |event| event);
    let Candidate { namespace, name, identity } = &candidate;
    let election = Election::new(namespace, name, identity);
    let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", escape(namespace));
    let mut part = Part { api, candidate, collection, election, leadership, events, logged: Logged::default() };
    tokio::join!(watched, part.run(release));
}

/// One host's part in the election.
struct Part {
    api: ApiServer,
    candidate: Candidate,
    collection: String,
    election: Election,
    leadership: watch::Sender<Leadership>,
    events: mpsc::Receiver<WatchEvent>,
    logged: Logged,
}

/// What was logged last, to log changes only.
#[derive(Default)]
struct Logged {
    leads: bool,
    holder: Option<Arc<str>>,
    failure: Option<String>,
}

impl Part {
    async fn run(&mut self, mut release: mpsc::Receiver<Release>) {
        loop {
            let act = self.election.next(now());
            self.publish();
            match act {
                Act::Read => {
                    let read = self.read().await;
                    let lease = read.map_err(|failure| self.failed(&failure.during("reading")));
                    self.election.on_read(clock::now_ms(), random(), lease);
                }
                Act::Create(lease) => self.write(Method::POST, self.collection.clone(), &lease).await,
                Act::Replace(lease) => self.write(Method::PUT, self.path(), &lease).await,
                Act::WaitUntil(until_ms) => {
                    let delay = Duration::from_millis(until_ms.saturating_sub(clock::now_ms()));
                    tokio::select! {
                        () = sleep(delay) => {}
                        Some(event) = self.events.recv() => self.on_watch_event(&event),
                        Some(done) = release.recv() => {
                            self.release().await;
                            // The requester may have stopped waiting.
                            let _ = done.send(());
                            return;
                        }
                    }
                }
            }
        }
    }

    fn on_watch_event(&mut self, event: &WatchEvent) {
        let mut observed = |lease| self.election.on_observed(clock::now_ms(), Some(&holder_of(lease)));
        match event {
            // The watch is of this Lease alone.
            WatchEvent::Listed(objects) => objects.iter().for_each(observed),
            WatchEvent::Applied(object) => observed(object),
            WatchEvent::Deleted(_) => self.election.on_observed(clock::now_ms(), None),
            // Without a watch the Lease is read.
            _ => {}
        }
    }

    async fn write(&mut self, method: Method, path: String, lease: &Value) {
        let sent_ms = clock::now_ms();
        let written = self.send(method, &path, lease).await.map_err(|failure| {
            let refused =
                matches!(&failure, Failure::Response(refused) if [CONFLICT, NOT_FOUND].contains(&refused.code));
            self.failed(&failure.during("writing"));
            if refused { WriteFailure::Refused } else { WriteFailure::Unknown }
        });
        if written.is_ok() {
            self.logged.failure = None;
        }
        self.election.on_written(sent_ms, clock::now_ms(), random(), written);
    }

    /// Releases the Lease, so that the next host need not wait until it expires.
    async fn release(&mut self) {
        let Some(lease) = self.election.release(now()) else { return };
        self.logged.leads = false;
        self.publish();
        match self.send(Method::PUT, &self.path(), &lease).await {
            Ok(_) => tracing::info!(lease = %self.lease(), "released the Lease"),
            Err(failure) => tracing::warn!(
                lease = %self.lease(),
                "could not release the Lease, so the next host leads when it has expired: {}",
                failure.message()
            ),
        }
    }

    async fn read(&self) -> Result<Option<Lease>, Failure> {
        match self.api.get(&self.path(), TIMEOUT, Size::Object).await {
            Ok(response) => parse(&response.body).map(Some),
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn send(&self, method: Method, path: &str, lease: &Value) -> Result<Lease, Failure> {
        let path = format!("{path}?fieldManager={HOST}&timeout={SERVER_TIMEOUT_SECONDS}s");
        let request = request(method, &path, Some("application/json"), Bytes::from(lease.to_string()))?;
        parse(&self.api.send(request, TIMEOUT, Size::Object).await?.body)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection, escape(&self.candidate.name))
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.candidate.namespace, self.candidate.name)
    }

    /// Publishes this host's leadership, and logs its changes.
    fn publish(&mut self) {
        let (claim_until_ms, since_ms) = (self.election.claim_until_ms(), self.election.since_ms());
        let leadership = Leadership { claim_until_ms, since_ms };
        self.leadership.send_if_modified(|before| std::mem::replace(before, leadership) != leadership);
        let leads = leadership.claim_until_ms.is_some();
        let led = std::mem::replace(&mut self.logged.leads, leads);
        let holder = self.election.holder().filter(|holder| !holder.is_empty());
        let is_new_holder = self.logged.holder.as_ref() != holder;
        self.logged.holder = holder.cloned();
        let lease = self.lease();
        match (led, leads) {
            (false, true) => tracing::info!(%lease, identity = %self.candidate.identity, "this host leads"),
            (true, false) => tracing::warn!(
                %lease,
                "this host no longer leads: its Lease was not renewed in time, or another host took it"
            ),
            (false, false) if is_new_holder => {
                if let Some(leader) = holder {
                    tracing::info!(%lease, %leader, "this host is on standby: another leads");
                }
            }
            _ => {}
        }
    }

    /// Logs a failure once.
    fn failed(&mut self, failure: &Failure) {
        let mut message = failure.message();
        if matches!(failure, Failure::Response(refused) if refused.code == FORBIDDEN) {
            message.push_str("; `mortise rbac --host` prints the rights that a host needs");
        }
        if self.logged.failure.as_ref() != Some(&message) {
            tracing::warn!(lease = %self.lease(), "the Lease of the leader election: {message}");
            self.logged.failure = Some(message);
        }
    }
}

fn parse(json: &[u8]) -> Result<Lease, Failure> {
    Lease::parse(json).map_err(|error| Failure::Lost(mortise_core::response::chain(&error)))
}

/// The holder of a Lease.
fn holder_of(lease: &Object) -> String {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Shape {
        spec: Spec,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        holder_identity: Option<String>,
    }
    let shape: Shape = serde_json::from_str(lease.json()).unwrap_or_default();
    shape.spec.holder_identity.unwrap_or_default()
}

fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono_ms: clock::now_ms(), unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX) }
}
