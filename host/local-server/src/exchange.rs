//! One request from its head to its response: it is decoded, refused before its body is read if a web page or nobody sends it,
//! answered by the cluster, perhaps with webhooks' help, counted and audited. Input: HTTP requests. Output: HTTP responses. It
//! must not know kinds.

use std::sync::Arc;

use http::request::Parts;
use hyper::body::Incoming;
use jiff::Timestamp;
use mortise_local_cluster::{Answer, Body, Method, Reply, Request, Status, Subject, User, Watch};
use tokio::sync::{mpsc, watch};

use crate::audit::{self, AuditLog, Received};
use crate::browser::{self, Names};
use crate::current::{Current, guard};
use crate::decode::Refused;
use crate::encode::{self, Response};
use crate::metrics::{Metrics, OpenWatch};
use crate::webhook::{MAX_CALLS, Webhooks};
use crate::{clock, decode, stream};

const PANICKED: &str = "This request caused the cluster to panic. Look in its output for details.";

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) current: Current,
    names: Names,
    pub(crate) webhooks: Webhooks,
    metrics: Arc<Metrics>,
    audit: Option<AuditLog>,
    refused: Refused,
    closing: watch::Sender<bool>,
}

/// A request that the audit log will have.
struct Audited {
    received: Option<Received>,
    subject: Subject,
    dry_run: bool,
}

impl Door {
    pub(crate) fn new(current: Current, names: Names, audit: Option<AuditLog>) -> Self {
        let (webhooks, metrics) = (Webhooks::default(), Arc::default());
        let refused = Refused::default();
        Self { current, names, webhooks, metrics, audit, refused, closing: watch::Sender::new(false) }
    }

    /// Ends the watches, and lets connections end after their requests.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until the door closes.
    pub(crate) async fn closed(&self) {
        // The sender is `self`, so there is no error.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Responds to a request. The user is that of the client's certificate.
    pub(crate) async fn respond(
        self: Arc<Self>,
        request: http::Request<Incoming>,
        user: Option<User>,
        peer: String,
    ) -> Response {
        let at = clock::now();
        let (head, body) = request.into_parts();
        if let Err(status) = browser::check(&head, &self.names) {
            self.refused.take(body);
            return encode::refused(&status);
        }
        let id = audit_id(&head);
        let (mut request, fault) = decode::head(&head, user);
        let refusal = self.refusal(&request);
        let read = match refusal.clone().or(fault) {
            Some(status) => {
                self.refused.take(body);
                Err(status)
            }
            None => decode::body(body).await,
        };
        let mut response = match read {
            Ok(body) => {
                request.body = body;
                let audited = self.audited(&head, &request, id.clone(), at, peer);
                self.encode(&request, audited).await
            }
            Err(status) => {
                // It is not counted: anybody who reaches the port could make series.
                if let (Some(_), Some(log)) = (refusal, &self.audit) {
                    log.write(&self.received(&head, &request, id.clone(), at, peer), status.code);
                }
                encode::refused(&status)
            }
        };
        encode::add_header(&mut response, "audit-id", &id);
        response
    }

    /// Why the cluster refuses a request whatever its body.
    fn refusal(&self, head: &Request) -> Option<Status> {
        let cluster = self.current.snapshot();
        let panicked = |_| Some(decode::refusal(500, "InternalError", PANICKED));
        guard(|| cluster.refusal(head, clock::now())).unwrap_or_else(panicked)
    }

    fn audited(&self, head: &Parts, request: &Request, id: String, at: Timestamp, peer: String) -> Audited {
        let received = self.audit.is_some().then(|| self.received(head, request, id, at, peer));
        Audited { received, subject: Subject::of(request), dry_run: request.parameter("dryRun") == Some("All") }
    }

    fn received(&self, head: &Parts, request: &Request, id: String, at: Timestamp, peer: String) -> Received {
        let mut subject = Subject::of(request);
        if subject.verb == "create" && subject.name.is_empty() {
            subject.name = audit::name_in(&request.body).unwrap_or_default();
        }
        let cluster = self.current.snapshot();
        Received {
            id,
            at,
            uri: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            peer,
            user_agent: request.header("user-agent").unwrap_or_default().to_owned(),
            user: guard(|| cluster.user(request, clock::now())).ok().flatten().unwrap_or_default(),
            impersonated: request.header("impersonate-user").map(str::to_owned),
            subject,
        }
    }

    async fn encode(self: &Arc<Self>, request: &Request, audited: Audited) -> Response {
        let (status, body, content_type, headers) = match self.answer(request).await {
            Ok(answered) => (answered.status, answered.body, answered.content_type, answered.headers),
            Err(message) => {
                self.finish(&audited, 500);
                return encode::whole(500, "text/plain; charset=utf-8", message.into(), false);
            }
        };
        let compress = encode::accepts_gzip(request);
        let mut response = match body {
            _ if request.path == "/metrics" && !matches!(status, 401 | 403) => {
                encode::whole(200, "text/plain; version=0.0.4; charset=utf-8", self.metrics.text().into(), compress)
            }
            Body::Json(value) => {
                let document = encode::document(&value, encode::is_pretty(request));
                encode::whole(status, content_type, document, compress)
            }
            Body::Text(text) if encode::is_pretty(request) => {
                let value = serde_json::from_str(&text).unwrap_or_default();
                encode::whole(status, content_type, encode::document(&value, true), compress)
            }
            Body::Text(text) => encode::whole(status, content_type, text.into_bytes(), compress),
            Body::Bytes(bytes) => encode::whole(status, content_type, bytes, compress),
            Body::Watch(watch) => return self.watch(*watch, content_type, audited),
        };
        for (name, value) in headers {
            encode::add_header(&mut response, name, &value);
        }
        self.finish(&audited, response.status().as_u16());
        response
    }

    /// Counts and audits what is answered.
    fn finish(&self, audited: &Audited, code: u16) {
        self.metrics.count(&audited.subject, code, audited.dry_run);
        if let (Some(log), Some(received)) = (&self.audit, &audited.received) {
            log.write(received, code);
        }
    }

    /// What the cluster answers, or that it panicked.
    async fn answer(&self, request: &Request) -> Result<mortise_local_cluster::Response, &'static str> {
        let mut answers = Vec::new();
        while answers.len() <= MAX_CALLS {
            let reply = match request.method {
                // Reading changes nothing, so it waits for no change.
                Method::Get => {
                    let cluster = self.current.snapshot();
                    guard(|| (*cluster).clone().request(request, &answers, clock::now()))
                }
                _ => self.current.change(|cluster| cluster.request(request, &answers, clock::now())),
            };
            match reply {
                Ok(Reply::Done(response)) => return Ok(response),
                Ok(Reply::Call(call)) => {
                    let result = self.webhooks.call(&call, &self.current.snapshot()).await;
                    answers.push(Answer { call: *call, result });
                }
                Err(_) => return Err(PANICKED),
            }
        }
        Err("This request asks webhooks without end.")
    }

    fn watch(self: &Arc<Self>, watch: Watch, content_type: &'static str, audited: Audited) -> Response {
        let (sender, receiver) = mpsc::channel(stream::MAX_CHUNKS);
        let clusters = self.current.subscribe();
        let watched = AuditedWatch { open: Some(self.metrics.open(&audited.subject)), door: Arc::clone(self), audited };
        tokio::spawn(async move {
            tokio::select! {
                () = stream::send(&watched.door.webhooks, watch, clusters, sender) => {}
                () = watched.door.closed() => {}
            }
        });
        encode::stream(content_type, receiver)
    }
}

/// A watch, which is audited when it ends, also by the end of the server.
struct AuditedWatch {
    door: Arc<Door>,
    audited: Audited,
    open: Option<OpenWatch>,
}

impl Drop for AuditedWatch {
    fn drop(&mut self) {
        // It is not open any more when its record says so.
        self.open = None;
        self.door.finish(&self.audited, 200);
    }
}

/// The client's own name for the request, or a new one.
fn audit_id(head: &Parts) -> String {
    let said = head.headers.get("audit-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    said.map_or_else(
        || {
            let mut bytes = [0; 16];
            // Without randomness requests have the same name, which clients do not mind.
            let _ = getrandom::fill(&mut bytes);
            uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
        },
        str::to_owned,
    )
}
