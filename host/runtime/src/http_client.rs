//! Sends the HTTP requests of plugins. A [`Sending`] comes in; a response, or the class of its failure, comes out. Nothing is
//! repeated here, and no redirect is followed.
//!
//! Each request has a connection of its own: they are few, and connections that are kept would need bounds for each plugin
//! and host. Neither headers nor bodies nor values of Secrets are logged.

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
use mortise_core::http::{
    Failure, FailureClass, Header, MAX_RESPONSE_BYTES, MAX_RESPONSE_HEADER_BYTES, MAX_RESPONSE_HEADERS, MAX_TIMEOUT_MS,
    Origin, Response, SecretHeader, Sent,
};
use mortise_core::object::Name;
use mortise_core::service_account::ServiceAccount;
use mortise_kube::client::ApiServer;
use mortise_kube::clock;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
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
/// Names that are resolved at once, each on a thread that does not end with its request. Tokio has 512 for blocking work.
const MAX_LOOKUPS: usize = 128;
/// A header that would give a plugin credentials of its own.
const DROPPED: HeaderName = header::SET_COOKIE;

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpClient {
    /// Or why no request can be sent over TLS.
    tls: Result<Arc<ClientConfig>, Arc<str>>,
    /// Also to addresses that are refused otherwise: see `address.rs`.
    to_local: bool,
    lookups: Arc<Semaphore>,
}

impl HttpClient {
    pub(crate) fn new(tls: Result<ClientConfig, String>, to_local: bool) -> Self {
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self { tls: tls.map(Arc::new).map_err(Arc::from), to_local, lookups }
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
            Some(Ok(Err(failure))) => Sent::Failed(failure),
            Some(Err(_)) => {
                let (origin, ms) = (&sending.request.origin, sending.request.timeout_ms);
                Sent::Failed(failure(FailureClass::Timeout, format!("{origin} did not respond within {ms} ms")))
            }
        }
    }

    async fn exchange(&self, sending: &Sending, api: &ApiServer) -> Result<Response, Failure> {
        let message = message(sending, api).await?;
        let origin = &sending.request.origin;
        let stream = self.connect(origin).await?;
        if !origin.is_https {
            return respond(stream, message, origin).await;
        }
        let failed = |why: String| failure(FailureClass::Tls, format!("no TLS with {origin}: {why}"));
        let tls = self.tls.clone().map_err(|why| failed(why.to_string()))?;
        let name = ServerName::try_from(origin.host.to_string()).map_err(|error| failed(error.to_string()))?;
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| failed(error.to_string()))?;
        respond(stream, message, origin).await
    }

    /// Connects to the first address that accepts. The addresses that are checked are those that are connected to, so a name
    /// cannot belong to another one meanwhile.
    async fn connect(&self, origin: &Origin) -> Result<TcpStream, Failure> {
        let failed = |why: String| failure(FailureClass::Connect, format!("cannot connect to {origin}: {why}"));
        let found: Vec<SocketAddr> = match origin.address() {
            Some(address) => vec![SocketAddr::new(address, origin.port)],
            None => {
                let name = (origin.host.to_string(), origin.port);
                let lookup = async { lookup_host(name).await.map(Iterator::collect) };
                resolve(&self.lookups, lookup).await.map_err(|error| failed(error.to_string()))?
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

/// The lookup has its permit until it returns, also when the request that began it is over: its thread waits until then.
async fn resolve<T, L>(lookups: &Arc<Semaphore>, lookup: L) -> io::Result<T>
where
    T: Send + 'static,
    L: Future<Output = io::Result<T>> + Send + 'static,
{
    let permit = Arc::clone(lookups).acquire_owned().await.map_err(io::Error::other)?;
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

/// The request as it is sent.
async fn message(sending: &Sending, api: &ApiServer) -> Result<Request<Full<Bytes>>, Failure> {
    let (request, account) = (&sending.request, sending.service_account.as_deref());
    let mut builder = Request::builder()
        .method(request.method.as_str())
        .uri(&*request.path)
        .header(header::HOST, request.origin.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close");
    for (name, value) in &request.headers {
        builder = builder.header(&**name, &**value);
    }
    for secret in &request.secret_headers {
        builder = builder.header(&*secret.name, secret_value(secret, &request.namespace, account, api).await?);
    }
    let body = Full::new(Bytes::copy_from_slice(&request.body));
    builder.body(body).map_err(|error| {
        failure(FailureClass::Protocol, format!("the request to {} cannot be sent: {error}", request.origin))
    })
}

/// Reads a Secret with the plugin's rights, at the time of sending, so that a changed Secret counts at once.
async fn secret_value(
    header: &SecretHeader,
    namespace: &str,
    account: Option<&ServiceAccount>,
    api: &ApiServer,
) -> Result<HeaderValue, Failure> {
    let name = Name::new(namespace, &header.secret);
    let failed = |why: &str| failure(FailureClass::Secret, format!("Secret {name}: {why}"));
    let secret = match api.read_secret(&name, account).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return Err(failed("it does not exist")),
        Err(error) => return Err(failed(&format!("it cannot be read: {}", error.message))),
    };
    let Some(encoded) = secret["data"].get(&*header.key).and_then(Value::as_str) else {
        return Err(failed(&format!("it has no key {:?}", header.key)));
    };
    if encoded.is_empty() {
        return Err(failed(&format!("{:?} is empty", header.key)));
    }
    let value = STANDARD.decode(encoded).map_err(|_| failed(&format!("{:?} is not base64", header.key)))?;
    let mut value = HeaderValue::from_bytes(&[header.prefix.as_bytes(), &value].concat()).map_err(|_| {
        failed(&format!(
            "{:?} has a character that a header must not have, such as a line break at the end",
            header.key
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn respond<S>(stream: S, message: Request<Full<Bytes>>, origin: &Origin) -> Result<Response, Failure>
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
        read(response, origin).await
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

async fn read(response: http::Response<Incoming>, origin: &Origin) -> Result<Response, Failure> {
    let (head, body) = response.into_parts();
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
