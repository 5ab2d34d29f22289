//! Sends the HTTP requests of plugins. A [`Sending`] comes in; a response, or the class of its failure, comes out. Nothing is
//! repeated here, and no redirect is followed.
//!
//! Each request has a connection of its own: they are few, and connections that are kept would need bounds for each plugin
//! and host. Neither headers nor bodies nor values of Secrets are logged, and what comes back has none of the values (G8).

use std::convert::Infallible;
use std::error::Error;
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mortise_core::event::Sending;
use mortise_core::generated::Secret;
use mortise_core::grants::generated_not_granted;
use mortise_core::http::redact::SentValues;
use mortise_core::http::{
    Failure, FailureClass, Header, MAX_RESPONSE_BYTES, MAX_RESPONSE_HEADER_BYTES, MAX_RESPONSE_HEADERS, MAX_TIMEOUT_MS,
    Origin, Response, SecretHeader, Sent,
};
use mortise_core::object::Name;
use mortise_core::tenant;
use mortise_kube::client::ApiServer;
use mortise_kube::clock;
use mortise_kube::limiter::{Limiter, Limits};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

mod address;
#[cfg(test)]
mod tests;

/// The host's own name.
const USER_AGENT: &str = concat!("mortise/", env!("CARGO_PKG_VERSION"));
/// Longest time for one of several addresses of a name, so that one that drops packets leaves time for the next.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest head of a response. Most have less than 4 KiB; the rest of the bounds is of what is kept.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Names that are resolved at once, by share: each on a thread that does not end with its request. A lookup takes milliseconds,
/// and where no server answers half a minute, so those of one share, however short their requests are, keep their own place and
/// their part of the common ones, and every other share has its own place. Tokio has 512 threads for blocking work: enough
/// for four hundred shares whose lookups all hang.
const LOOKUPS: Limits<Arc<str>> = Limits { own: |_| 1, shared: 64, of_one: 16, saved: |_| None };
/// Bytes of a Secret's value in a header: what servers commonly accept of all headers.
const MAX_SECRET_BYTES: usize = 8 << 10;
/// Responses that are searched for values at once: each takes a dozen times its bytes for some milliseconds.
const MAX_SEARCHES: usize = 2;
/// A header that would give a plugin credentials of its own.
const DROPPED: HeaderName = header::SET_COOKIE;

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpClient {
    /// Or why no request can be sent over TLS.
    tls: Result<Arc<ClientConfig>, Arc<str>>,
    /// Also to addresses that are refused otherwise: see `address.rs`.
    to_local: bool,
    lookups: Limiter<Arc<str>>,
    searches: Arc<Semaphore>,
}

impl HttpClient {
    pub(crate) fn new(tls: Result<ClientConfig, String>, to_local: bool) -> Self {
        let (lookups, searches) = (Limiter::new(LOOKUPS), Arc::new(Semaphore::new(MAX_SEARCHES)));
        Self { tls: tls.map(Arc::new).map_err(Arc::from), to_local, lookups, searches }
    }

    /// X7: a request is not sent after its time, and given up when the claim ends, as a write is. Its result would not be
    /// used then.
    pub(crate) async fn send(&self, sending: &Sending, api: &ApiServer) -> Sent {
        if sending.not_after_ms.is_some_and(|not_after_ms| clock::now_ms() > not_after_ms) {
            return Sent::NotSent;
        }
        let claim_ends_ms = sending.not_after_ms.map(|not_after_ms| not_after_ms.saturating_add(MAX_TIMEOUT_MS));
        self.send_until(claim_ends_ms, sending, api).await
    }

    async fn send_until(&self, claim_ends_ms: Option<u64>, sending: &Sending, api: &ApiServer) -> Sent {
        let within = Duration::from_millis(sending.request.timeout_ms);
        let mut exchange = pin!(timeout(within, self.exchange(sending, api)));
        let result = poll_fn(|context| {
            if claim_ends_ms.is_some_and(|ends_ms| clock::now_ms() > ends_ms) {
                return Poll::Ready(None);
            }
            exchange.as_mut().poll(context).map(Some)
        });
        match result.await {
            None => Sent::NotSent,
            Some(Ok(Ok(response))) => Sent::Response(response),
            Some(Ok(Err(sent))) => sent,
            Some(Err(_)) => {
                let (origin, ms) = (&sending.request.origin, sending.request.timeout_ms);
                Sent::Failed(failure(FailureClass::Timeout, format!("{origin} did not respond within {ms} ms")))
            }
        }
    }

    async fn exchange(&self, sending: &Sending, api: &ApiServer) -> Result<Response, Sent> {
        let (message, values) = message(sending, api).await?;
        match self.responded(sending, message, !values.is_empty()).await {
            Ok(response) => Ok(self.without(values, response).await?),
            Err(Failure { class, message }) => Err(Failure { class, message: values.text(&message) }.into()),
        }
    }

    async fn responded(
        &self,
        sending: &Sending,
        message: Request<Full<Bytes>>,
        is_searched: bool,
    ) -> Result<Response, Failure> {
        let origin = &sending.request.origin;
        let stream = self.connect(&sending.plugin, origin).await?;
        if !origin.is_https {
            return respond(stream, message, origin, is_searched).await;
        }
        let failed = |why: String| failure(FailureClass::Tls, format!("no TLS with {origin}: {why}"));
        let tls = self.tls.clone().map_err(|why| failed(why.to_string()))?;
        let name = ServerName::try_from(origin.host.to_string()).map_err(|error| failed(error.to_string()))?;
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| failed(error.to_string()))?;
        respond(stream, message, origin, is_searched).await
    }

    /// The response without the values that the request carried. Off the threads that all connections are read on; a search
    /// keeps its place until its end, also when its request is over.
    async fn without(&self, values: SentValues, response: Response) -> Result<Response, Failure> {
        if values.is_empty() {
            return Ok(response);
        }
        let ended = |why: String| failure(FailureClass::Protocol, format!("the response was not searched: {why}"));
        let place = Arc::clone(&self.searches).acquire_owned().await.map_err(|error| ended(error.to_string()))?;
        let search = spawn_blocking(move || {
            let response = values.redact(response);
            drop(place);
            response
        });
        search.await.map_err(|error| ended(error.to_string()))
    }

    /// Connects to the first address that accepts. The addresses that are checked are those that are connected to, so a name
    /// cannot belong to another one meanwhile.
    async fn connect(&self, plugin: &Arc<str>, origin: &Origin) -> Result<TcpStream, Failure> {
        let failed = |why: String| failure(FailureClass::Connect, format!("cannot connect to {origin}: {why}"));
        let found: Vec<SocketAddr> = match origin.address() {
            Some(address) => vec![SocketAddr::new(address, origin.port)],
            None => {
                let name = (origin.host.to_string(), origin.port);
                let lookup = async { lookup_host(name).await.map(Iterator::collect) };
                resolve(&self.lookups, tenant::share(plugin), lookup)
                    .await
                    .map_err(|error| failed(error.to_string()))?
            }
        };
        let allowed: Vec<SocketAddr> =
            found.iter().copied().filter(|found| self.to_local || !address::is_local(found.ip())).collect();
        if let (Some(first), []) = (found.first(), allowed.as_slice()) {
            let why = format!(
                "{origin} is at {}, a loopback, link-local or metadata address, to which the host sends requests only with \
                 --allow-http=local",
                first.ip()
            );
            return Err(failure(FailureClass::Address, why));
        }
        let mut why = "the name has no address".to_owned();
        for address in allowed {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Only delays small requests if it fails.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = format!("no answer from {address} within {} s", CONNECT_TIMEOUT.as_secs()),
            }
        }
        Err(failed(why))
    }
}

/// The lookup has its share's permit until it returns, also when the request that began it is over: its thread waits until
/// then.
async fn resolve<T, L>(lookups: &Limiter<Arc<str>>, share: Arc<str>, lookup: L) -> io::Result<T>
where
    T: Send + 'static,
    L: Future<Output = io::Result<T>> + Send + 'static,
{
    let permit = lookups.enter(share).await;
    let lookup = async move {
        let found = lookup.await;
        drop(permit);
        found
    };
    tokio::spawn(lookup).await.map_err(io::Error::other)?
}

fn failure(class: FailureClass, message: String) -> Failure {
    Failure { class, message: message.into() }
}

/// The request as it is sent, and the values of Secrets in it.
async fn message(sending: &Sending, api: &ApiServer) -> Result<(Request<Full<Bytes>>, SentValues), Sent> {
    let request = &sending.request;
    let mut builder = Request::builder()
        .method(request.method.as_str())
        .uri(&*request.path)
        .header(header::HOST, request.origin.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close");
    if !request.secret_headers.is_empty() {
        builder = builder.header(header::ACCEPT_ENCODING, "identity");
    }
    for (name, value) in &request.headers {
        builder = builder.header(&**name, &**value);
    }
    let mut values = SentValues::default();
    for secret in &request.secret_headers {
        let value = secret_value(secret, sending, api).await?;
        builder = builder.header(&*secret.name, secret_header(secret, &request.namespace, &value)?);
        values.add(&value);
    }
    let body = Full::new(Bytes::copy_from_slice(&request.body));
    match builder.body(body) {
        Ok(message) => Ok((message, values)),
        Err(error) => {
            let why = format!("the request to {} cannot be sent: {error}", request.origin);
            Err(failure(FailureClass::Protocol, why).into())
        }
    }
}

/// Reads a Secret with the plugin's rights, at the time of sending, so that a changed Secret counts at once.
async fn secret_value(header: &SecretHeader, sending: &Sending, api: &ApiServer) -> Result<Vec<u8>, Sent> {
    let Sending { plugin, request, .. } = sending;
    let name = Name::new(&request.namespace, &header.secret);
    let failed = |why: &str| Sent::Failed(failure(FailureClass::Secret, format!("Secret {name}: {why}")));
    let secret = match api.read_secret(&name, sending.service_account.as_deref()).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return Err(failed("it does not exist")),
        Err(error) => return Err(failed(&format!("it cannot be read: {}", error.message))),
    };
    let secret = Secret::read(&secret).map_err(|error| failed(&format!("it cannot be read: {error}")))?;
    let Some(encoded) = secret.values(|key| *key == *header.key).remove(&*header.key) else {
        return Err(failed(&format!("it has no key {:?}", header.key)));
    };
    if encoded.is_empty() {
        return Err(failed(&format!("{:?} is empty", header.key)));
    }
    if secret.is_made(&header.key) && !sending.gets_generated {
        let why = generated_not_granted(plugin, &name, &header.key, &request.origin);
        return Err(Sent::NotGranted(why.into()));
    }
    let value = STANDARD.decode(encoded).map_err(|_| failed(&format!("{:?} is not base64", header.key)))?;
    if value.len() > MAX_SECRET_BYTES {
        return Err(failed(&format!("{:?} has more than {MAX_SECRET_BYTES} bytes", header.key)));
    }
    Ok(value)
}

/// The header with a Secret's value.
fn secret_header(header: &SecretHeader, namespace: &str, value: &[u8]) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_bytes(&[header.prefix.as_bytes(), value].concat()).map_err(|_| {
        let why = format!(
            "Secret {namespace}/{}: {:?} has a character that a header must not have, such as a line break at the end",
            header.secret, header.key
        );
        failure(FailureClass::Secret, why)
    })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn respond<S>(
    stream: S,
    message: Request<Full<Bytes>>,
    origin: &Origin,
    is_searched: bool,
) -> Result<Response, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lost = |error: hyper::Error| {
        let class = if error.is_parse() { FailureClass::Protocol } else { FailureClass::Connect };
        let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        failure(class, format!("no response from {origin}: {error}{cause}"))
    };
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let response = async {
        let response = sender.send_request(message).await.map_err(lost)?;
        read(response, origin, is_searched).await
    };
    // The connection moves the bytes. What it has received before its end, or its error, comes through the response.
    let connection = async {
        let _ = connection.await;
        pending::<Infallible>().await
    };
    tokio::select! {
        response = response => response,
        never = connection => match never {},
    }
}

/// One that is searched has no encoding, in which nothing would be found.
async fn read(response: http::Response<Incoming>, origin: &Origin, is_searched: bool) -> Result<Response, Failure> {
    let (head, body) = response.into_parts();
    let is_encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if is_searched && head.headers.get_all(header::CONTENT_ENCODING).iter().any(is_encoded) {
        let why =
            format!("the response of {origin} has a content-encoding, to a request with a Secret that asked for none");
        return Err(failure(FailureClass::Protocol, why));
    }
    let body = match Limited::new(body, MAX_RESPONSE_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let why = format!("the response of {origin} has more than {MAX_RESPONSE_BYTES} bytes");
            return Err(failure(FailureClass::TooLarge, why));
        }
        Err(error) => return Err(failure(FailureClass::Connect, format!("the response of {origin} ended: {error}"))),
    };
    Ok(Response { status: head.status.as_u16(), headers: kept(&head.headers), body: Arc::from(&*body) })
}

/// The headers that the plugin reads.
fn kept(headers: &http::HeaderMap) -> Vec<Header> {
    let mut bytes = 0;
    let readable = headers.iter().filter(|(name, _)| **name != DROPPED);
    let text = readable.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let within = text.take(MAX_RESPONSE_HEADERS).take_while(|(name, value)| {
        bytes += name.len() + value.len();
        bytes <= MAX_RESPONSE_HEADER_BYTES
    });
    within.map(|(name, value)| (name.into(), value.into())).collect()
}
