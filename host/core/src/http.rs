//! HTTP requests of guests, and their replies, as data. A guest's [`Request`] is checked by `plan/requests.rs`, which
//! makes an [`OutgoingRequest`] of it; the engine decides when it is sent; a [`Sent`] is the result.
//!
//! Nothing here knows a socket, or reads a Secret.

use std::sync::Arc;

use crate::digest::{self, fingerprint};
use crate::heap::{HeapBytes, shared};

pub use self::url::Origin;
pub(crate) use self::url::Url;

pub mod redact;
mod url;

/// Longest time from sending a request to the end of its response. As long as a write's, so that a request that is sent
/// while this host may write ends before its claim does (X7).
pub const MAX_TIMEOUT_MS: u64 = crate::limits::WRITE_TIMEOUT_MS;
/// Bytes of a response's body. The pages of the usual APIs have some 100 KiB.
pub const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Headers of a response that are kept.
pub const MAX_RESPONSE_HEADERS: usize = 32;
/// Bytes of a response's headers that are kept.
pub const MAX_RESPONSE_HEADER_BYTES: usize = 8 << 10;

/// Identifies one request of one object for as long as outcomes contain it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HttpId(pub u64);

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// Its name in HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether it changes nothing on the server.
    pub fn only_reads(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }

    /// Whether two of it have the effect of one (RFC 9110, section 9.2.2).
    pub fn is_idempotent(self) -> bool {
        !matches!(self, Self::Post | Self::Patch)
    }
}

/// A header.
pub type Header = (Arc<str>, Arc<str>);

/// A header whose value is in a Secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretHeader {
    /// The header's name.
    pub name: Arc<str>,
    /// What precedes the Secret's value: "Bearer ".
    pub prefix: Arc<str>,
    /// The Secret's name.
    pub secret: Arc<str>,
    /// The key in its data.
    pub key: Arc<str>,
}

/// A request as a guest returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Unique in the outcome.
    pub key: Arc<str>,
    /// The method.
    pub method: Method,
    /// An absolute URL.
    pub url: Arc<str>,
    /// The headers.
    pub headers: Vec<Header>,
    /// Headers that the host fills in.
    pub secret_headers: Vec<SecretHeader>,
    /// The body; empty for none.
    pub body: Arc<[u8]>,
    /// From sending to the end of the response; None: [`MAX_TIMEOUT_MS`].
    pub timeout_ms: Option<u32>,
    /// Send it again when its response is this old.
    pub refresh_after_ms: Option<u32>,
}

impl Request {
    /// A GET of a URL without more.
    pub fn get(key: impl Into<Arc<str>>, url: impl Into<Arc<str>>) -> Self {
        Self {
            key: key.into(),
            method: Method::Get,
            url: url.into(),
            headers: Vec::new(),
            secret_headers: Vec::new(),
            body: Arc::default(),
            timeout_ms: None,
            refresh_after_ms: None,
        }
    }

    /// The hash of its content: of all that the server receives, and the key.
    pub fn fingerprint(&self) -> u128 {
        let count = self.headers.len().to_string();
        let body = digest::of(&self.body).0;
        let mut parts: Vec<&str> = vec![&self.key, self.method.as_str(), &self.url, &body, &count];
        parts.extend(self.headers.iter().flat_map(|(name, value)| [&**name, &**value]));
        for SecretHeader { name, prefix, secret, key } in &self.secret_headers {
            parts.extend([&**name, &**prefix, &**secret, &**key]);
        }
        fingerprint(&parts)
    }
}

/// A checked request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingRequest {
    /// The guest's key.
    pub key: Arc<str>,
    /// The hash of its content.
    pub fingerprint: u128,
    /// The method.
    pub method: Method,
    /// Where it is sent.
    pub origin: Origin,
    /// Path and query.
    pub path: Arc<str>,
    /// The headers, with the host's own.
    pub headers: Vec<Header>,
    /// Headers that the host fills in.
    pub secret_headers: Vec<SecretHeader>,
    /// The namespace of the Secrets.
    pub namespace: Arc<str>,
    /// The body.
    pub body: Arc<[u8]>,
    /// From sending to the end of the response.
    pub timeout_ms: u64,
    /// Send it again when its response is this old.
    pub refresh_after_ms: Option<u64>,
}

impl OutgoingRequest {
    /// What is left of one that is not sent again.
    pub(crate) fn without_body(&self) -> Self {
        Self { body: Arc::default(), ..self.clone() }
    }

    /// Bytes in memory, as the allocator counts them.
    pub fn bytes(&self) -> usize {
        let Self { key, origin, path, headers, secret_headers, namespace, body, .. } = self;
        shared(size_of::<Self>())
            + key.heap_bytes()
            + origin.host.heap_bytes()
            + path.heap_bytes()
            + headers.heap_bytes()
            + secret_headers.heap_bytes()
            + namespace.heap_bytes()
            + shared(body.len())
    }
}

impl HeapBytes for SecretHeader {
    fn heap_bytes(&self) -> usize {
        let Self { name, prefix, secret, key } = self;
        [name, prefix, secret, key].into_iter().map(HeapBytes::heap_bytes).sum()
    }
}

/// The result of sending a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// There is a response.
    Response(Response),
    /// There is none.
    Failed(Failure),
    /// It was not sent: nobody has granted its origin what it carries. The message names the grant.
    NotGranted(Arc<str>),
    /// It was not sent: this host may not any more.
    NotSent,
}

impl From<Failure> for Sent {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Arc<[u8]>,
}

impl Response {
    pub(crate) fn bytes(&self) -> usize {
        shared(self.body.len()) + self.headers.heap_bytes()
    }

    /// The seconds of its Retry-After, in milliseconds. A date is not read: clocks differ.
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        let (_, value) = self.headers.iter().find(|(name, _)| &**name == "retry-after")?;
        value.parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1_000))
    }

    /// 429, and all that the server is at fault for.
    pub(crate) fn is_temporary(&self) -> bool {
        self.status == 429 || self.status >= 500
    }
}

/// Why there is no response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The class.
    pub class: FailureClass,
    /// What happened, for a person; without values of Secrets.
    pub message: Arc<str>,
}

/// Classes of failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureClass {
    /// No response in time.
    Timeout,
    /// No connection, or it was lost.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The host does not send to this address.
    Address,
    /// The value of a secret header cannot be read.
    Secret,
    /// The body is too large, or there is no room for it.
    TooLarge,
    /// The response is not HTTP.
    Protocol,
}

impl FailureClass {
    /// The word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Address => "address",
            Self::Secret => "secret",
            Self::TooLarge => "too_large",
            Self::Protocol => "protocol",
        }
    }
}

/// What a guest reads of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The response, or why there is none.
    pub result: Result<Response, Failure>,
    /// When it came.
    pub received_unix_ms: u64,
}

impl Reply {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let content = match &self.result {
            Ok(response) => response.bytes(),
            Err(failure) => failure.message.heap_bytes(),
        };
        shared(size_of::<Self>()) + content
    }
}

/// The reply to one request of an object, as an input of its calls.
#[derive(Clone, Debug)]
pub struct Replied {
    /// The hash of the request's content.
    pub fingerprint: u128,
    /// Which reply it is: no two of one run of the host have the same number, so that nobody hashes or compares bodies.
    pub number: u64,
    /// The reply.
    pub reply: Arc<Reply>,
}

impl std::hash::Hash for Replied {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.fingerprint, self.number).hash(state);
    }
}

#[cfg(test)]
impl OutgoingRequest {
    /// A GET.
    pub(crate) fn sample(key: &str, fingerprint: u128) -> Self {
        Self {
            key: key.into(),
            fingerprint,
            method: Method::Get,
            origin: Origin { is_https: true, host: "a.example".into(), port: 443 },
            path: "/".into(),
            headers: Vec::new(),
            secret_headers: Vec::new(),
            namespace: "default".into(),
            body: Arc::default(),
            timeout_ms: MAX_TIMEOUT_MS,
            refresh_after_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_of_the_content_and_not_of_when_it_is_sent() {
        let one = Request::get("zone", "https://a.example/1");
        let header = |name: &str, value: &str| (Arc::from(name), Arc::from(value));
        let secret = SecretHeader { name: "a".into(), prefix: "b".into(), secret: "c".into(), key: "d".into() };
        let others = [
            Request::get("zones", "https://a.example/1"),
            Request::get("zone", "https://a.example/2"),
            Request { method: Method::Head, ..one.clone() },
            Request { body: Arc::from(*b"x"), ..one.clone() },
            Request { headers: vec![header("a", "b"), header("c", "d")], ..one.clone() },
            Request { headers: vec![header("a", "b")], ..one.clone() },
            Request { secret_headers: vec![secret], ..one.clone() },
        ];
        let mut all: Vec<u128> = others.iter().map(Request::fingerprint).chain([one.fingerprint()]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), others.len() + 1);
        let later = Request { timeout_ms: Some(1), refresh_after_ms: Some(60_000), ..one.clone() };
        assert_eq!(later.fingerprint(), one.fingerprint());
    }

    #[test]
    fn retry_after_is_a_number_of_seconds() {
        let response = |value: &str| Response {
            status: 503,
            headers: vec![("retry-after".into(), value.into())],
            body: Arc::default(),
        };
        assert_eq!(response("120").retry_after_ms(), Some(120_000));
        assert_eq!(response("Fri, 31 Dec 1999 23:59:59 GMT").retry_after_ms(), None);
    }
}
