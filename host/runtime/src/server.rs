//! The HTTP/1.1 server for metrics, probes and webhooks: connections, TLS and their bounds. It knows no paths.
//!
//! Every connection has a task. At its bound a listener closes the connection that has been idle longest, so idle
//! connections do not exclude new ones; no request in progress is cut off, nor one that has had no time to arrive.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

#[cfg(test)]
mod tests;
pub(crate) mod tls;

/// Connections of one listener. An API server keeps some two dozen for webhooks, a Prometheus one, a kubelet none;
/// three listeners take less than half of the 1,024 files that a process may open by default.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// A handshake takes milliseconds.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// From one request to the end of the next one's head. API servers close their connections after 90 s and scrapes come
/// every minute, so this never closes one that is about to be used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest body. An AdmissionReview holds an object twice; etcd takes objects of 1.5 MiB, the API server of 3 MiB.
const MAX_BODY_BYTES: usize = 8 << 20;
/// The buffer of a connection, and so the largest head. API servers send less than 1 KiB of headers.
const BUFFER_BYTES: usize = 64 << 10;
/// A connection is not closed for another one before it has been idle this long. A request arrives within milliseconds of
/// its connection; a thousand idle connections delay a probe by two seconds.
const MIN_IDLE: Duration = Duration::from_millis(250);
/// The same with TLS, whose handshake takes several turns of both sides, perhaps on a busy machine. A review that is cut
/// off is not sent again.
const MIN_IDLE_TLS: Duration = Duration::from_secs(1);
/// Pause when no connection can be accepted: too many open files, or none that may be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

pub(crate) type Response = http::Response<Full<Bytes>>;

pub(crate) fn response(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response {
    response(code, "text/plain; charset=utf-8", body)
}

/// A request whose head has arrived.
#[derive(Debug)]
pub(crate) struct Request {
    head: Parts,
    body: Incoming,
    activity: Arc<Activity>,
}

impl Request {
    pub(crate) fn method(&self) -> &Method {
        &self.head.method
    }

    /// "/validate/podset".
    pub(crate) fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// Empty without one.
    pub(crate) fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// The most bytes that [`Request::body`] returns: the Content-Length, if there is one.
    pub(crate) fn body_bytes(&self) -> usize {
        let exact = self.body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        exact.map_or(MAX_BODY_BYTES, |bytes| bytes.min(MAX_BODY_BYTES))
    }

    /// Reads the body. The connection counts as idle until it has arrived.
    ///
    /// # Errors
    /// The response to a body that is too large, too slow or incomplete.
    pub(crate) async fn body(self) -> Result<Bytes, Box<Response>> {
        let refuse = |code, why: String| Err(Box::new(text(code, why)));
        let too_large =
            || refuse(StatusCode::PAYLOAD_TOO_LARGE, format!("the request has more than {MAX_BODY_BYTES} bytes"));
        // By its Content-Length; without one the bytes are counted.
        if self.body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            return too_large();
        }
        self.activity.idle();
        let body = match timeout(BODY_TIMEOUT, Limited::new(self.body, MAX_BODY_BYTES).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return too_large(),
            Ok(Err(error)) => return refuse(StatusCode::BAD_REQUEST, format!("the request broke off: {error}")),
            Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time".to_owned()),
        };
        self.activity.busy();
        Ok(body)
    }
}

/// When a connection last became idle, in nanoseconds since its listener began.
#[derive(Debug)]
struct Activity {
    began: Instant,
    idle_since: AtomicU64,
}

/// `idle_since` while a request is in progress.
const BUSY: u64 = u64::MAX;

impl Activity {
    fn new(began: Instant) -> Arc<Self> {
        let activity = Self { began, idle_since: AtomicU64::new(BUSY) };
        activity.idle();
        Arc::new(activity)
    }

    fn idle(&self) {
        self.idle_since.store(self.now(), Ordering::Relaxed);
    }

    fn busy(&self) {
        self.idle_since.store(BUSY, Ordering::Relaxed);
    }

    fn idle_since(&self) -> u64 {
        self.idle_since.load(Ordering::Relaxed)
    }

    fn is_idle_for(&self, least: Duration) -> bool {
        u128::from(self.now().saturating_sub(self.idle_since())) >= least.as_nanos()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(BUSY - 1)
    }
}

/// Accepts connections until it is dropped; open ones last until they end.
pub(crate) async fn serve<R, F>(listener: TcpListener, tls: Option<TlsAcceptor>, respond: R) -> Infallible
where
    R: Fn(Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let began = Instant::now();
    let min_idle = if tls.is_some() { MIN_IDLE_TLS } else { MIN_IDLE };
    let mut open = Vec::with_capacity(MAX_CONNECTIONS);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        close_idle(&mut open, min_idle).await;
        let activity = Activity::new(began);
        let task = tokio::spawn(connection(stream, tls.clone(), respond.clone(), Arc::clone(&activity)));
        open.push((activity, task.abort_handle()));
    }
}

/// Closes a connection if there is no place for one more.
async fn close_idle(open: &mut Vec<(Arc<Activity>, AbortHandle)>, min_idle: Duration) {
    if open.len() == MAX_CONNECTIONS {
        open.retain(|(_, task)| !task.is_finished());
    }
    while open.len() == MAX_CONNECTIONS {
        let oldest = open.iter().enumerate().min_by_key(|(_, (activity, _))| activity.idle_since());
        let oldest = oldest.filter(|(_, (activity, _))| activity.is_idle_for(min_idle));
        let Some((index, idle_since)) = oldest.map(|(index, (activity, _))| (index, activity.idle_since())) else {
            sleep(ACCEPT_PAUSE).await;
            open.retain(|(_, task)| !task.is_finished());
            continue;
        };
        // A request may have arrived while this process had no processor: the runtime looks at sockets first.
        yield_now().await;
        if open[index].0.idle_since() == idle_since {
            open.swap_remove(index).1.abort();
        }
    }
}

async fn connection<R, F>(stream: TcpStream, tls: Option<TlsAcceptor>, respond: R, activity: Arc<Activity>)
where
    R: Fn(Request) -> F + Clone,
    F: Future<Output = Response>,
{
    // Responses are small, and the client waits.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return exchange(stream, respond, activity).await };
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            activity.idle();
            exchange(stream, respond, activity).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed: does the caBundle hold this host's CA?"),
        Err(_) => tracing::debug!("a TLS handshake did not end in time"),
    }
}

/// Responds to the requests of one connection in turn.
async fn exchange<R, F>(stream: impl AsyncRead + AsyncWrite + Unpin, respond: R, activity: Arc<Activity>)
where
    R: Fn(Request) -> F + Clone,
    F: Future<Output = Response>,
{
    let service = service_fn(|request: http::Request<Incoming>| {
        let (respond, activity) = (respond.clone(), Arc::clone(&activity));
        async move {
            activity.busy();
            let (head, body) = request.into_parts();
            let response = respond(Request { head, body, activity: Arc::clone(&activity) }).await;
            activity.idle();
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}
