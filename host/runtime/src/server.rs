//! The HTTP/1.1 server for metrics, probes and webhooks: connections, TLS and their bounds. It knows no paths.
//!
//! Every connection has a task. At a bound, which `server/places.rs` decides, a listener closes a connection that has been
//! idle long, so idle connections do not exclude new ones, nor one peer's those of another; no request in progress is cut
//! off, nor one that has had no time to arrive.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use self::peer::Peer;
use self::places::{Choice, MAX_CONNECTIONS, Open, Standing, Waiting, choose};

pub(crate) mod peer;
pub(crate) mod places;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

/// A handshake takes milliseconds.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// From one request to the end of the next one's head. API servers close their connections after 90 s and scrapes come
/// every minute, so this never closes one that is about to be used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest body. An AdmissionReview holds an object twice; etcd takes objects of 1.5 MiB, the API server of 3 MiB.
pub(crate) const MAX_BODY_BYTES: usize = 8 << 20;
/// The buffer of a connection, and so the largest head. API servers send less than 1 KiB of headers, and tokens of scrapers
/// have some.
const BUFFER_BYTES: usize = 16 << 10;
/// A connection is not closed for another one before it has been idle this long. A request arrives within milliseconds of
/// its connection; a thousand idle connections delay a probe by two seconds.
const MIN_IDLE: Duration = Duration::from_millis(250);
/// The same with TLS, whose handshake takes several turns of both sides, perhaps on a busy machine. A review that is cut
/// off is not sent again. Thrice as many connections as there are places are through in a second.
const MIN_IDLE_TLS: Duration = Duration::from_millis(500);
/// How often a connection that waits looks for a place, and the pause when none can be accepted, as with too many open
/// files.
const PLACE_PAUSE: Duration = Duration::from_millis(20);

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
    from: Origin,
}

impl Request {
    /// Who sends it.
    pub(crate) fn peer(&self) -> Peer {
        self.from.peer
    }

    /// Its connection is closed when this is notified.
    pub(crate) fn closing(&self) -> Arc<Notify> {
        Arc::clone(&self.from.activity.closing)
    }

    /// Whether TLS verified a certificate of its client.
    pub(crate) fn is_verified(&self) -> bool {
        self.from.activity.standing() == Standing::Verified
    }

    pub(crate) fn method(&self) -> &Method {
        &self.head.method
    }

    /// "/validate/podset".
    pub(crate) fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// The token of its Authorization header.
    pub(crate) fn bearer_token(&self) -> Option<&str> {
        let (scheme, token) = self.head.headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    }

    /// Empty without one.
    pub(crate) fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// Reads the body piece by piece, as it arrives: nothing is kept here. The connection counts as idle until it has arrived.
    ///
    /// # Errors
    /// The response to a body that is too large, too slow or incomplete, or whose next piece is refused.
    pub(crate) async fn read(
        mut self,
        mut take: impl FnMut(&[u8]) -> Result<(), Box<Response>>,
    ) -> Result<(), Box<Response>> {
        let refuse = |code, why: String| Err(Box::new(text(code, why)));
        let too_large =
            || refuse(StatusCode::PAYLOAD_TOO_LARGE, format!("the request has more than {MAX_BODY_BYTES} bytes"));
        // By its Content-Length; without one the bytes are counted.
        if self.body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            return too_large();
        }
        self.from.activity.idle();
        let arrive = async {
            let mut bytes = 0;
            while let Some(frame) = self.body.frame().await {
                let broke_off =
                    |error| Box::new(text(StatusCode::BAD_REQUEST, format!("the request broke off: {error}")));
                let frame = frame.map_err(broke_off)?;
                // Trailers say nothing.
                let Ok(piece) = frame.into_data() else { continue };
                bytes += piece.len();
                if bytes > MAX_BODY_BYTES {
                    return too_large();
                }
                take(&piece)?;
            }
            Ok(())
        };
        let arrived = timeout(BODY_TIMEOUT, arrive).await;
        arrived
            .unwrap_or_else(|_| refuse(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time".to_owned()))?;
        self.from.activity.busy();
        Ok(())
    }

    /// The whole body.
    #[cfg(test)]
    pub(crate) async fn body(self) -> Result<Vec<u8>, Box<Response>> {
        let mut body = Vec::new();
        self.read(|piece| {
            body.extend_from_slice(piece);
            Ok(())
        })
        .await?;
        Ok(body)
    }
}

/// When a connection last became idle, in nanoseconds since its listener began, and what it has shown.
#[derive(Debug)]
struct Activity {
    began: Instant,
    idle_since: AtomicU64,
    /// A [`Standing`].
    standing: AtomicU8,
    closing: Arc<Notify>,
}

/// `idle_since` while a request is in progress.
const BUSY: u64 = u64::MAX;

impl Activity {
    fn new(began: Instant) -> Arc<Self> {
        let (idle_since, standing) = (AtomicU64::new(BUSY), AtomicU8::new(Standing::New as u8));
        let activity = Self { began, idle_since, standing, closing: Arc::default() };
        activity.idle();
        Arc::new(activity)
    }

    fn idle(&self) {
        self.idle_since.store(self.now(), Ordering::Relaxed);
    }

    fn busy(&self) {
        self.idle_since.store(BUSY, Ordering::Relaxed);
    }

    fn has_shown(&self, standing: Standing) {
        self.standing.fetch_max(standing as u8, Ordering::Relaxed);
    }

    fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Relaxed) {
            0 => Standing::New,
            1 => Standing::Answered,
            _ => Standing::Verified,
        }
    }

    fn idle_since(&self) -> u64 {
        self.idle_since.load(Ordering::Relaxed)
    }

    /// Since when it is idle, if for so long.
    fn idle_for(&self, least: Duration) -> Option<u64> {
        let idle_since = self.idle_since();
        (u128::from(self.now().saturating_sub(idle_since)) >= least.as_nanos()).then_some(idle_since)
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
    let mut server = Server {
        began: Instant::now(),
        min_idle: if tls.is_some() { MIN_IDLE_TLS } else { MIN_IDLE },
        tls,
        respond,
        open: Vec::with_capacity(MAX_CONNECTIONS),
    };
    let mut waiting = Waiting::new();
    loop {
        let accepted = if waiting.is_empty() {
            Some(listener.accept().await)
        } else {
            timeout(PLACE_PAUSE, listener.accept()).await.ok()
        };
        match accepted {
            Some(Ok((stream, address))) => waiting.add(Instant::now(), address.ip().into(), stream),
            Some(Err(error)) => {
                tracing::debug!(%error, "cannot accept a connection");
                sleep(PLACE_PAUSE).await;
            }
            None => {}
        }
        server.place(&mut waiting).await;
    }
}

struct Server<R> {
    began: Instant,
    min_idle: Duration,
    tls: Option<TlsAcceptor>,
    respond: R,
    open: Vec<Connection>,
}

struct Connection {
    peer: Peer,
    activity: Arc<Activity>,
    task: AbortHandle,
}

impl<R, F> Server<R>
where
    R: Fn(Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    /// Gives the connections that wait the places that there are for them, those of peers that have shown something first. It
    /// waits for no peer, so none keeps another.
    async fn place(&mut self, waiting: &mut Waiting<TcpStream>) {
        self.open.retain(|connection| !connection.task.is_finished());
        let has_shown = |open: &&Connection| open.activity.standing() > Standing::New;
        let known: BTreeSet<Peer> = self.open.iter().filter(has_shown).map(|open| open.peer).collect();
        self.place_those(waiting, |peer| known.contains(&peer)).await;
        self.place_those(waiting, |_| true).await;
    }

    async fn place_those(&mut self, waiting: &mut Waiting<TcpStream>, are: impl Fn(Peer) -> bool) {
        let (mut index, mut without, mut has_none) = (0, BTreeSet::new(), true);
        while let Some(peer) = waiting.peer(index) {
            let may_have = are(peer) && !without.contains(&peer) && (has_none || self.has_one(peer));
            if !may_have {
                index += 1;
            } else if !self.make_place(peer).await {
                without.insert(peer);
                // What is not closed for a peer without a connection is not closed for another one either.
                has_none &= self.has_one(peer);
                index += 1;
            } else if let Some(stream) = waiting.take(index) {
                let activity = Activity::new(self.began);
                let from = Origin { peer, activity: Arc::clone(&activity) };
                let task = tokio::spawn(connection(stream, self.tls.clone(), self.respond.clone(), from));
                self.open.push(Connection { peer, activity, task: task.abort_handle() });
            }
        }
    }

    fn has_one(&self, peer: Peer) -> bool {
        self.open.iter().any(|connection| connection.peer == peer)
    }

    /// Closes a connection if there is no place for one more of this peer. False: none may be closed.
    async fn make_place(&mut self, peer: Peer) -> bool {
        loop {
            let seen = |open: &Connection| Open {
                peer: open.peer,
                idle_since: open.activity.idle_for(self.min_idle),
                standing: open.activity.standing(),
            };
            let index = match choose(peer, &self.open.iter().map(seen).collect::<Vec<_>>()) {
                Choice::Free => return true,
                Choice::Wait => return false,
                Choice::InsteadOf(index) => index,
            };
            let idle_since = self.open[index].activity.idle_since();
            // A request may have arrived while this process had no processor: the runtime looks at sockets first.
            yield_now().await;
            if self.open[index].activity.idle_since() == idle_since {
                self.open.swap_remove(index).task.abort();
                return true;
            }
        }
    }
}

/// Where a connection comes from, and when it was last used.
#[derive(Clone, Debug)]
struct Origin {
    peer: Peer,
    activity: Arc<Activity>,
}

async fn connection<R, F>(stream: TcpStream, tls: Option<TlsAcceptor>, respond: R, from: Origin)
where
    R: Fn(Request) -> F + Clone,
    F: Future<Output = Response>,
{
    // Responses are small, and the client waits.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return exchange(stream, respond, from).await };
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            from.activity.idle();
            if stream.get_ref().1.peer_certificates().is_some() {
                from.activity.has_shown(Standing::Verified);
            }
            exchange(stream, respond, from).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed: does the caBundle hold this host's CA?"),
        Err(_) => tracing::debug!("a TLS handshake did not end in time"),
    }
}

/// Responds to the requests of one connection in turn, until somebody closes it.
async fn exchange<R, F>(stream: impl AsyncRead + AsyncWrite + Unpin, respond: R, from: Origin)
where
    R: Fn(Request) -> F + Clone,
    F: Future<Output = Response>,
{
    let closing = Arc::clone(&from.activity.closing);
    let service = service_fn(|request: http::Request<Incoming>| {
        let (respond, from) = (respond.clone(), from.clone());
        async move {
            from.activity.busy();
            let (head, body) = request.into_parts();
            let response = respond(Request { head, body, from: from.clone() }).await;
            if response.status().is_success() {
                from.activity.has_shown(Standing::Answered);
            }
            from.activity.idle();
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = served => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended");
            }
        }
        () = closing.notified() => tracing::debug!("a connection gave way to others"),
    }
}
