//! One question of the API server: which plugin it is for, a worker's turn, and the answer within the time that the API
//! server gives. Requests come in, AdmissionReviews go out. A body is read only for a path that is served.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, StatusCode};
use mortise_core::admission::review::{Answer, Review};
use mortise_core::admission::{AdmissionBackend, Verdict};
use mortise_core::webhook::{Purpose, Subject, at_path};
use mortise_wasm::plugin::{Completion, Plugin};
use mortise_wasm::workers::{Job, QueueFull, Submitter, WebhookCall, Work};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Route, Webhooks};
use crate::log;
use crate::log::throttle::Throttle;
use crate::metrics::Metrics;
use crate::server::{Request, Response, response, text};

/// Everything that an answer needs. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Answerer {
    pub(crate) webhooks: Webhooks,
    pub(crate) workers: Submitter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) faults: Throttle,
}

impl Answerer {
    /// Answers one request.
    pub(crate) async fn answer(self, request: Request) -> Response {
        let path = request.path().to_owned();
        let Some((subject, name)) = at_path(&path) else {
            // Not counted: a client could make up as many paths as it likes.
            return text(StatusCode::NOT_FOUND, format!("there is no webhook at {path}"));
        };
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "webhooks are asked by POST");
        }
        match subject {
            Subject::Admission(purpose) => self.admit(purpose, name, &path, request).await,
            Subject::Conversion => self.convert(name, &path, request).await,
        }
    }

    /// Hands work to the workers.
    pub(super) fn submit(&self, plugin: &Arc<Plugin>, work: Work) -> Result<(), Box<QueueFull>> {
        self.workers.submit(Job { plugin: Arc::clone(plugin), work })
    }

    async fn admit(&self, purpose: Purpose, name: &str, path: &str, request: Request) -> Response {
        let Some(route) = self.webhooks.route(name) else {
            return unserved(name);
        };
        let body = match request.body().await {
            Ok(body) => body,
            Err(answer) => return *answer,
        };
        let begin = Instant::now();
        let counted = self.metrics.webhook_begins(path);
        let review = match Review::parse(&body, &route.serving) {
            Ok(review) => review,
            Err(why) => {
                counted.ends(StatusCode::BAD_REQUEST.as_u16(), begin.elapsed());
                return text(StatusCode::BAD_REQUEST, why);
            }
        };
        let judged = self.judge(purpose, name, &route, &review).await;
        counted.ends(StatusCode::OK.as_u16(), begin.elapsed());
        let Some(answer) = judged else {
            // Not counted: a client could make up as many kinds as it likes.
            return json(review.admitted().text);
        };
        let controller: Arc<str> = format!("{name}/{}", review.kind().kind).into();
        self.metrics.reviewed(&controller, purpose, &answer);
        if let Some(fault) = &answer.fault {
            log::admission_fault(&self.faults, &controller, &route.serving.digest, review.name(), fault);
        }
        json(answer.text)
    }

    /// None when the plugin does not ask about such objects: the version before it did, and its webhook has not been
    /// changed yet.
    async fn judge(
        &self,
        purpose: Purpose,
        name: &str,
        route: &Route<AdmissionBackend>,
        review: &Review,
    ) -> Option<Answer> {
        let Route { plugin, serving } = route;
        let Some(question) = review.question(purpose, now_unix_ms()) else {
            let why = format!("the webhooks of the plugin {name:?} are being changed for its new version; try again");
            return review.is_of_another_version().then(|| review.unavailable(503, &why));
        };
        let (sender, report) = oneshot::channel::<Completion<Verdict>>();
        let patience = serving.patience();
        let admit = WebhookCall {
            plugin: name.into(),
            question,
            limits: serving.limits,
            until: Instant::now() + patience,
            answer: Box::new(move |report| {
                // Who asked may have given up.
                let _ = sender.send(report);
            }),
        };
        if let Err(full) = self.submit(plugin, Work::Admit(Box::new(admit))) {
            return Some(review.unavailable(429, &format!("mortise has too much to do: {full}; try again")));
        }
        Some(match timeout(patience, report).await {
            Ok(Ok(report)) => {
                log::admission(name, review.kind(), review.name(), &report);
                review.answer(name, report.answer)
            }
            Ok(Err(_)) => review.unavailable(503, "mortise is ending; try again"),
            Err(_) => review.unavailable(503, &late(name, patience)),
        })
    }
}

/// The webhook is there, and the plugin is not, or not yet. Whether what is asked about goes on without it stands in the
/// webhook, as if there were no host.
fn unserved(name: &str) -> Response {
    let why = format!("the plugin {name:?} does not answer yet; `kubectl get plugin {name}` shows how far it is");
    // Of the statuses only this one has the API server repeat the words.
    text(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// A review.
pub(super) fn json(body: impl Into<Bytes>) -> Response {
    response(StatusCode::OK, "application/json", body)
}

fn late(name: &str, patience: Duration) -> String {
    format!(
        "the plugin {name:?} gave no answer within {} s, its own calls and those before it together; try again",
        patience.as_secs()
    )
}

pub(super) fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
