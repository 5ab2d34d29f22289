//! Responds to the requests of the API server: finds the plugin, submits a call to the workers and waits for its result
//! as long as the API server does. AdmissionReviews come in and go out; `convert.rs` has the ConversionReviews. The
//! body is read only for a path that is served.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use mortise_core::admission::AdmissionBackend;
use mortise_core::admission::review::{Answer, Review};
use mortise_core::limits::CallLimits;
use mortise_core::webhook::{Purpose, Subject, at_path};
use mortise_wasm::plugin::{Completion, Plugin};
use mortise_wasm::workers::{Job, QueueFull, Submitter, WebhookCall, Work};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::capacity::{Capacity, Permit, refusal};
use super::{Route, Webhooks};
use crate::clock::now;
use crate::log;
use crate::log::throttle::Throttle;
use crate::metrics::Metrics;
use crate::server::{Request, Response, response, text};

/// Responds to reviews. Clones share its parts.
#[derive(Clone, Debug)]
pub(crate) struct Reviewer {
    pub(crate) webhooks: Webhooks,
    pub(crate) workers: Submitter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) faults: Throttle,
    pub(crate) capacity: Capacity,
}

/// A call that was submitted.
pub(super) type Pending<R> = Result<oneshot::Receiver<Completion<R>>, Box<QueueFull>>;

impl Reviewer {
    pub(crate) async fn respond(self, request: Request) -> Response {
        let path = request.path().to_owned();
        let Some((subject, name)) = at_path(&path) else {
            // Not counted: a client could invent any number of paths.
            return text(StatusCode::NOT_FOUND, format!("there is no webhook at {path}"));
        };
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "a webhook request is a POST");
        }
        let Some(permit) = self.capacity.enter(name, request.body_bytes()) else {
            let is_served = match subject {
                Subject::Admission(_) => self.webhooks.route(name).is_some(),
                Subject::Conversion => self.webhooks.converter(name).is_some(),
            };
            if is_served {
                self.metrics.webhook_begins(&path).ends(StatusCode::TOO_MANY_REQUESTS.as_u16(), Duration::ZERO);
            }
            return refusal(name);
        };
        match subject {
            Subject::Admission(purpose) => self.admit(purpose, name, &path, request, &permit).await,
            Subject::Conversion => self.convert(name, &path, request, &permit).await,
        }
    }

    /// The permit is held until the call ends, also when its client has gone away.
    pub(super) fn submit<Q, R: Send + 'static>(
        &self,
        (name, plugin): (&str, &Arc<Plugin>),
        request: Q,
        limits: CallLimits,
        until: Instant,
        work: fn(Box<WebhookCall<Q, R>>) -> Work,
        permit: &Arc<Permit>,
    ) -> Pending<R> {
        let (sender, pending) = oneshot::channel();
        let permit = Arc::clone(permit);
        let respond = Box::new(move |completion| {
            drop(permit);
            // The request may have ended: its client has gone away, or another object has failed.
            let _ = sender.send(completion);
        });
        let call = WebhookCall { plugin: name.into(), request, limits, until, respond };
        self.workers.submit(Job { plugin: Arc::clone(plugin), work: work(Box::new(call)) })?;
        Ok(pending)
    }

    async fn admit(
        &self,
        purpose: Purpose,
        name: &str,
        path: &str,
        request: Request,
        permit: &Arc<Permit>,
    ) -> Response {
        let Some(route) = self.webhooks.route(name) else {
            let why =
                format!("the plugin {name:?} does not answer yet; `kubectl get plugin {name}` shows how far it is");
            // The API server applies the failurePolicy, and shows the text of this status alone.
            return text(StatusCode::INTERNAL_SERVER_ERROR, why);
        };
        let body = match request.body().await {
            Ok(body) => body,
            Err(response) => return *response,
        };
        let begin = Instant::now();
        let counted = self.metrics.webhook_begins(path);
        let review = Review::parse(&body, &route.backend);
        // The review has copies of what it keeps.
        drop(body);
        let review = match review {
            Ok(review) => review,
            Err(why) => {
                counted.ends(StatusCode::BAD_REQUEST.as_u16(), begin.elapsed());
                return text(StatusCode::BAD_REQUEST, why);
            }
        };
        let reviewed = self.review(purpose, name, &route, &review, permit).await;
        counted.ends(StatusCode::OK.as_u16(), begin.elapsed());
        let Some(response) = reviewed else {
            // Not counted: a client could invent any number of kinds.
            return json(review.admitted().text);
        };
        let controller: Arc<str> = format!("{name}/{}", review.kind().kind).into();
        self.metrics.reviewed(&controller, purpose, &response);
        if let Some(fault) = &response.fault {
            log::admission_fault(&self.faults, &controller, &route.backend.digest, review.name(), fault);
        }
        json(response.text)
    }

    /// None when the plugin does not admit such objects: its version before did, and the webhook configuration has not
    /// been updated yet.
    async fn review(
        &self,
        purpose: Purpose,
        name: &str,
        route: &Route<AdmissionBackend>,
        review: &Review,
        permit: &Arc<Permit>,
    ) -> Option<Answer> {
        let Route { plugin, backend } = route;
        let Some(request) = review.request(purpose, now().unix_ms) else {
            let why = format!("the webhooks of the plugin {name:?} are being changed for its new version; try again");
            return review.is_of_another_version().then(|| review.unavailable(503, &why));
        };
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
                review.answer(name, completion.result)
            }
            Err((code, why)) => review.unavailable(code, &why),
        })
    }
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

pub(super) fn json(body: impl Into<Bytes>) -> Response {
    response(StatusCode::OK, "application/json", body)
}
