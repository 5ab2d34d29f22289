//! The HTTPS server that the API server asks: connections come in, the path and body of each request go to whoever answers,
//! and the answer goes back. What a question means is not known here.
//!
//! `webhook/authority.rs` makes certificates, `webhook/secret.rs` keeps their authority in the cluster, and
//! `webhook/configurations.rs` writes the objects by which the API server knows where to ask. Everything that a client may
//! do is bounded: connections, handshakes, the time and size of a request.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub mod authority;
pub mod configurations;
pub mod secret;

/// Connections at once. An API server keeps some two dozen; the rest is for others of its kind, and for health checks.
const MAX_CONNECTIONS: usize = 256;
/// What a handshake may take. It is milliseconds for whoever means it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be silent, from one request to the head of the next. API servers end theirs after 90 s, so this
/// end never closes one that is about to be used; who only takes up places loses them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
/// What a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest request. An AdmissionReview holds an object twice, of which etcd takes 1.5 MiB and the API server 3 MiB.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Before a listener that failed is asked again: what fails it, such as too many open files, takes a moment to pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The certificate that the server shows to whoever connects next. Connections that exist keep theirs, so a change drops
/// nobody.
#[derive(Default)]
pub struct ServingCert {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServingCert {
    /// Shows another certificate from now on.
    pub fn show(&self, key: Arc<CertifiedKey>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }
}

impl fmt::Debug for ServingCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCert").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookRequest {
    /// "/validate/podset".
    pub path: String,
    /// JSON, as far as its sender says the truth.
    pub body: Bytes,
}

/// Its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookResponse {
    /// The HTTP status.
    pub code: StatusCode,
    /// JSON for a success, else a sentence.
    pub body: String,
}

impl WebhookResponse {
    /// A success.
    pub fn json(body: String) -> Self {
        Self { code: StatusCode::OK, body }
    }

    /// An error, in words.
    pub fn error(code: StatusCode, why: impl Into<String>) -> Self {
        Self { code, body: why.into() }
    }
}

/// Serves until it is dropped. Each connection has a task of its own.
///
/// # Errors
/// When this process cannot do TLS at all.
pub async fn serve<A, F>(
    listener: TcpListener,
    serving_cert: Arc<ServingCert>,
    answer: A,
) -> Result<Infallible, rustls::Error>
where
    A: Fn(WebhookRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = WebhookResponse> + Send + 'static,
{
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(serving_cert);
    // HTTP/2 is off, as it is by default in controller-runtime: the API server has no need of it here.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Further connections wait in the system's own queue.
        let place = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot take a webhook connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        tokio::spawn(async move {
            let _place = place;
            connection(stream, &acceptor, answer).await;
        });
    }
}

async fn connection<A, F>(stream: TcpStream, acceptor: &TlsAcceptor, answer: A)
where
    A: Fn(WebhookRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = WebhookResponse> + Send + 'static,
{
    // Answers are small, and the one who asks waits.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return tracing::debug!(%error, "a webhook connection came to nothing: does its caBundle hold this host's CA?");
        }
        Err(_) => return tracing::debug!("a webhook connection did not finish its handshake in time"),
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move { Ok::<_, Infallible>(response(exchange(request, answer).await)) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a webhook connection ended");
    }
}

async fn exchange<A, F>(request: Request<Incoming>, answer: A) -> WebhookResponse
where
    A: Fn(WebhookRequest) -> F,
    F: Future<Output = WebhookResponse>,
{
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return WebhookResponse::error(StatusCode::METHOD_NOT_ALLOWED, "webhooks are asked by POST");
    }
    let too_large = || {
        WebhookResponse::error(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request has more than {MAX_BODY_BYTES} bytes"),
        )
    };
    // By its own words; what says nothing of its length is counted.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return too_large();
    }
    let body = match timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return too_large(),
        Ok(Err(error)) => {
            return WebhookResponse::error(StatusCode::BAD_REQUEST, format!("the request broke off: {error}"));
        }
        Err(_) => return WebhookResponse::error(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"),
    };
    answer(WebhookRequest { path: head.uri.path().to_owned(), body }).await
}

fn response(told: WebhookResponse) -> Response<Full<Bytes>> {
    let is_json = told.code == StatusCode::OK;
    let mut response = Response::new(Full::new(Bytes::from(told.body)));
    *response.status_mut() = told.code;
    let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests;
