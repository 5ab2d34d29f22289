//! Responds to the requests of the API server: finds the plugin, submits a call to the workers and waits for its result
//! as long as the API server does. AdmissionReviews come in and go out; `convert.rs` has the ConversionReviews. The
//! body is read only for a path that is served, and of a client that may send it.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use mortise_core::admission::review::{Answer, Review};
use mortise_core::admission::{AdmissionBackend, Verdict};
use mortise_core::conversion::Conversion;
use mortise_core::limits::CallLimits;
use mortise_core::webhook::{Purpose, Subject, at_path};
use mortise_wasm::plugin::{Completion, Plugin};
use mortise_wasm::workers::{Begun, Job, QueueFull, Submitter, WebhookCall, Work};
use serde_json::json as object;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout_at;

use super::capacity::{Capacity, Charge, Class, Permit, refusal};
use super::parsing::Parsing;
use super::room::SMALL_BYTES;
use super::{Route, Webhooks};
use crate::clock::now;
use crate::log;
use crate::log::throttle::Throttle;
use crate::metrics::Metrics;
use crate::server::{Request, Response, response, text};

#[cfg(test)]
mod tests;

/// Responds to reviews. Clones share its parts.
#[derive(Clone, Debug)]
pub(crate) struct Reviewer {
    pub(crate) webhooks: Webhooks,
    pub(crate) workers: Submitter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) faults: Throttle,
    pub(crate) capacity: Capacity,
    pub(crate) parsing: Parsing,
    /// Admission reviews need a client certificate. The API server shows none where it wants a conversion.
    pub(crate) only_verified: bool,
}

/// A call that was submitted.
pub(super) type Pending<R> = Result<oneshot::Receiver<Completion<R>>, Box<QueueFull>>;

impl Reviewer {
    /// In this order: the path, the certificate, the body, a permit, its JSON. So what nobody serves costs nothing.
    pub(crate) async fn respond(self, request: Request) -> Response {
        let path = request.path().to_owned();
        let Some((subject, name)) = at_path(&path) else {
            // Not counted: a client could invent any number of paths.
            return text(StatusCode::NOT_FOUND, format!("there is no webhook at {path}"));
        };
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "a webhook request is a POST");
        }
        match subject {
            Subject::Admission(_) if self.only_verified && !request.is_verified() => unverified(),
            Subject::Admission(purpose) => {
                let Some(route) = self.webhooks.route(name) else { return unserved(name, "answer") };
                self.admit(purpose, (name, &path), route, request).await
            }
            Subject::Conversion => {
                let Some(route) = self.webhooks.converter(name) else { return unserved(name, "convert") };
                self.convert((name, &path), route, request).await
            }
        }
    }

    /// The body of a request, and a permit to answer it.
    pub(super) async fn body(
        &self,
        class: Class,
        (name, path): (&str, &str),
        request: Request,
    ) -> Result<(Vec<u8>, Arc<Permit>), Box<Response>> {
        let refuse = || {
            self.metrics.webhook_begins(path).ends(StatusCode::TOO_MANY_REQUESTS.as_u16(), Duration::ZERO);
            Box::new(refusal(name))
        };
        let charge = self.capacity.begin(class, request.peer());
        let mut bytes = 0;
        let take = |piece: &[u8]| {
            bytes += piece.len();
            // Most objects are smaller.
            let is_refused = bytes > SMALL_BYTES && self.metrics.memory.is_scarce();
            (!is_refused && charge.arrived(piece)).then_some(()).ok_or_else(refuse)
        };
        request.read(take).await?;
        charge.whole(name).ok_or_else(refuse)
    }

    /// Queues a call. Its permit is held until it ends, also when its client has gone away; its request is made when it
    /// begins, so that what is queued keeps nothing that the review does not.
    pub(super) fn submit<Q: Send + 'static, R: Counted>(
        &self,
        (share, plugin): (&str, &Arc<Plugin>),
        request: impl Fn() -> Option<Q> + Send + 'static,
        limits: CallLimits,
        until: Instant,
        work: fn(Box<WebhookCall<Q, R>>) -> Work,
        permit: &Arc<Permit>,
    ) -> Pending<R> {
        let (sender, pending) = oneshot::channel();
        let (from, permit, begins) = (permit.peer().address(), Arc::clone(permit), Arc::clone(permit));
        let begin = Box::new(move || {
            let working = begins.work()?;
            Some(Begun { request: request()?, held: Box::new(working) })
        });
        let respond = Box::new(move |mut completion: Completion<R>| {
            if !permit.grow(completion.result.bytes()) {
                completion.result = R::without_room();
            }
            drop(permit);
            // The request may have ended: its client has gone away, or another object has failed.
            let _ = sender.send(completion);
        });
        let call = WebhookCall { plugin: share.into(), from, begin, limits, until, respond };
        self.workers.submit(Job { plugin: Arc::clone(plugin), work: work(Box::new(call)) })?;
        Ok(pending)
    }

    async fn admit(
        &self,
        purpose: Purpose,
        (name, path): (&str, &str),
        route: Route<AdmissionBackend>,
        request: Request,
    ) -> Response {
        let class = if request.is_verified() { Class::Verified } else { Class::Unverified };
        let connection = request.closing();
        let (body, permit) = match self.body(class, (name, path), request).await {
            Ok(whole) => whole,
            Err(response) => return *response,
        };
        let begin = Instant::now();
        let counted = self.metrics.webhook_begins(path);
        let response = self.admitted(purpose, name, &route, body, &permit, connection);
        let response = unless_it_gives_way(name, &permit, response).await;
        counted.ends(response.status().as_u16(), begin.elapsed());
        response
    }

    async fn admitted(
        &self,
        purpose: Purpose,
        name: &str,
        route: &Route<AdmissionBackend>,
        body: Vec<u8>,
        permit: &Arc<Permit>,
        connection: Arc<Notify>,
    ) -> Response {
        let (bytes, backend) = (body.len(), Arc::clone(&route.backend));
        // The review has copies of what it keeps.
        let review = match self.parsing.run(bytes, permit, move || Review::parse(&body, &backend)).await {
            Ok(review) if permit.set(review.bytes()) => Arc::new(review),
            Ok(_) => return refusal(name),
            Err(why) => return text(StatusCode::BAD_REQUEST, why),
        };
        let Some(response) = self.review(purpose, name, route, &review, bytes, permit).await else {
            // Not counted: a client could invent any number of kinds.
            return send(name, review.admitted().text, permit, connection);
        };
        let controller: Arc<str> = format!("{name}/{}", review.kind().kind).into();
        self.metrics.reviewed(&controller, purpose, &response);
        if let Some(fault) = &response.fault {
            log::admission_fault(&self.faults, &controller, &route.backend.digest, review.name(), fault);
        }
        send(name, response.text, permit, connection)
    }

    /// None when the plugin does not admit such objects: its version before did, and the webhook configuration has not
    /// been updated yet.
    async fn review(
        &self,
        purpose: Purpose,
        name: &str,
        route: &Route<AdmissionBackend>,
        review: &Arc<Review>,
        bytes: usize,
        permit: &Arc<Permit>,
    ) -> Option<Answer> {
        let Route { plugin, backend } = route;
        let now_ms = now().unix_ms;
        if review.request(purpose, now_ms).is_none() {
            let why = format!("the webhooks of the plugin {name:?} are being changed for its new version; try again");
            return review.is_of_another_version().then(|| review.unavailable(503, &why));
        }
        let weak = Arc::downgrade(review);
        let request = move || weak.upgrade()?.request(purpose, now_ms);
        let until = Instant::now() + backend.timeout();
        let pending = self.submit((name, plugin), request, backend.limits, until, Work::Admit, permit);
        let late = || {
            format!(
                "the plugin {name:?} did not respond within {} s, including queueing; try again",
                backend.timeout().as_secs()
            )
        };
        Some(match completion(pending, until, late).await {
            Ok(completion) => {
                log::admission(name, review.kind(), review.name(), &completion);
                answer(&self.parsing, name, review, completion.result, bytes, permit).await
            }
            Err((code, why)) => review.unavailable(code, &why),
        })
    }
}

/// The response for a guest's result, which may be much longer than the object.
async fn answer(
    parsing: &Parsing,
    plugin: &str,
    review: &Arc<Review>,
    verdict: Verdict,
    bytes: usize,
    permit: &Arc<Permit>,
) -> Answer {
    let (plugin, review, bytes) = (plugin.to_owned(), Arc::clone(review), bytes.max(verdict.bytes()));
    parsing.run(bytes, permit, move || review.answer(&plugin, verdict)).await
}

/// The response to a request, or a refusal once its memory is another peer's.
pub(super) async fn unless_it_gives_way(
    plugin: &str,
    permit: &Permit,
    response: impl Future<Output = Response>,
) -> Response {
    tokio::select! {
        biased;
        () = permit.given_way() => refusal(plugin),
        response = response => response,
    }
}

/// The response to a review without a client certificate. Of a 401 the API server shows the message only if the body is a
/// Status.
fn unverified() -> Response {
    let message = "mortise reviews objects only for a client certificate of --webhook-client-ca; the API server's has to be \
                   in the kubeconfig that its AdmissionConfiguration names";
    let status = object!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized",
        "message": message,
    });
    response(StatusCode::UNAUTHORIZED, "application/json", status.to_string())
}

/// The response when the plugin has no such webhook. The API server applies the failurePolicy, and shows the text of this
/// status alone.
fn unserved(name: &str, what: &str) -> Response {
    let why = format!("the plugin {name:?} does not {what} yet; `kubectl get plugin {name}` shows how far it is");
    text(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// Waits for a call to end; else a status and the reason.
pub(super) async fn completion<R>(
    pending: Pending<R>,
    until: Instant,
    late: impl FnOnce() -> String,
) -> Result<Completion<R>, (u16, String)> {
    let pending = pending.map_err(|full| (429, format!("mortise has too much to do: {full}; try again")))?;
    match timeout_at(until.into(), pending).await {
        Ok(Ok(completion)) => Ok(completion),
        Ok(Err(_)) => Err((503, "mortise is ending; try again".to_owned())),
        Err(_) => Err((503, late())),
    }
}

/// A result that a guest returns, which takes memory until it is answered with.
pub(super) trait Counted: Send + 'static {
    fn bytes(&self) -> usize;

    /// Instead of one that there is no room for.
    fn without_room() -> Self;
}

pub(super) const NO_ROOM: &str = "mortise has too many or too large requests in progress; try again";

impl Counted for Verdict {
    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn without_room() -> Self {
        Self::HostFault(NO_ROOM.to_owned())
    }
}

impl Counted for Conversion {
    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn without_room() -> Self {
        Self::HostFault(NO_ROOM.to_owned())
    }
}

/// A response of this size is not counted: all of a listener's connections have 8 MiB of them.
const SMALL_RESPONSE_BYTES: usize = 16 << 10;

/// The response to a review. A large one is counted until its client has read it.
pub(super) fn send(plugin: &str, text: String, permit: &Permit, connection: Arc<Notify>) -> Response {
    let json = |body: Bytes| response(StatusCode::OK, "application/json", body);
    if text.len() <= SMALL_RESPONSE_BYTES {
        return json(text.into());
    }
    match permit.unread(text.capacity(), connection) {
        Some(charge) => json(Bytes::from_owner(Unread { text, _charge: charge })),
        None => refusal(plugin),
    }
}

/// A response that its client has not read.
struct Unread {
    text: String,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}
