//! An HTTP request as the cluster takes it. Input: head, then body. Output: the request, or a refusal. It must not know what
//! is asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use mortise_local_cluster::{Credentials, Method, Request, Status, User};
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Largest body, as kube-apiserver has it.
const MAX_BODY_BYTES: usize = 3 << 20;
/// How much of a body that is too large is read to its end: a client that still sends when its connection is closed does not
/// see why.
const MAX_BYTES_TO_DROP: usize = 64 << 20;
/// How much of the body of a refused request is taken from its connection, and for how long: a client that sends it meanwhile
/// might see a reset instead of the refusal. As much as Go's server takes; clients on loopback need milliseconds.
const MAX_REFUSED_BYTES: usize = 256 << 10;
const MAX_REFUSED_TIME: Duration = Duration::from_secs(1);
/// Such bodies at once. Nobody's requests come over 900 connections of a hundred streams each; the bodies of further
/// ones are not read.
const MAX_REFUSED: usize = 64;

/// A request without its body, and why it is not one that the cluster answers. What cannot be read of it is empty: who asks comes
/// first. The user is that of the client's certificate.
pub(crate) fn head(head: &Parts, user: Option<User>) -> (Request, Option<Status>) {
    let (method, path) = (method(&head.method), decoded(head.uri.path()));
    let query = query(head.uri.query().unwrap_or_default());
    let fault = if method.is_none() {
        let message = "the server does not allow this method on the requested resource";
        Some(refusal(405, "MethodNotAllowed", message))
    } else if head.headers.contains_key(header::UPGRADE) {
        let message = "this cluster has no containers: exec, attach and port-forward are not served";
        Some(refusal(501, "NotImplemented", message))
    } else if path.is_none() || query.is_none() {
        Some(refusal(400, "BadRequest", "the path and the query must be UTF-8 text"))
    } else {
        None
    };
    let headers = head.headers.iter();
    let headers =
        headers.map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into()));
    let request = Request {
        method: method.unwrap_or(Method::Post),
        path: path.unwrap_or_default(),
        query: query.unwrap_or_default(),
        headers: headers.collect(),
        credentials: credentials(&head.headers, user),
        body: Vec::new(),
    };
    (request, fault)
}

pub(crate) fn refusal(code: u16, reason: &'static str, message: &str) -> Status {
    Status { code, reason, message: message.to_owned(), details: None }
}

fn method(method: &http::Method) -> Option<Method> {
    Some(match *method {
        http::Method::GET | http::Method::HEAD => Method::Get,
        http::Method::POST => Method::Post,
        http::Method::PUT => Method::Put,
        http::Method::PATCH => Method::Patch,
        http::Method::DELETE => Method::Delete,
        _ => return None,
    })
}

fn credentials(headers: &HeaderMap, user: Option<User>) -> Credentials {
    if let Some(user) = user {
        return Credentials::User(user);
    }
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match value.and_then(|value| value.split_once(' ')) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            Credentials::Token(token.trim().to_owned())
        }
        _ => Credentials::None,
    }
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

/// The parameters in their order; a blank may come as a plus.
fn query(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(&key.replace('+', " "))?, decoded(&value.replace('+', " "))?))
    };
    pairs.map(pair).collect()
}

/// The bodies of refused requests, which are taken from their connections. Nothing is kept of them.
#[derive(Debug)]
pub(crate) struct Refused(Arc<Semaphore>);

impl Default for Refused {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_REFUSED)))
    }
}

impl Refused {
    pub(crate) fn take(&self, body: impl Body<Data = Bytes> + Send + Unpin + 'static) {
        let Ok(place) = Arc::clone(&self.0).try_acquire_owned() else { return };
        tokio::spawn(async move {
            // One that does not come is left.
            let _ = timeout(MAX_REFUSED_TIME, drain(body)).await;
            drop(place);
        });
    }
}

async fn drain(mut body: impl Body<Data = Bytes> + Unpin) {
    let mut left = MAX_REFUSED_BYTES;
    while let (Some(Ok(frame)), 1..) = (body.frame().await, left) {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
    }
}

/// Reads a body to its end.
pub(crate) async fn body(mut body: Incoming) -> Result<Vec<u8>, Status> {
    let broke_off = |error| refusal(400, "BadRequest", &format!("the request broke off: {error}"));
    let (mut bytes, mut dropped) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(broke_off)?.into_data() else { continue };
        if dropped == 0 && bytes.len() + data.len() <= MAX_BODY_BYTES {
            bytes.extend_from_slice(&data);
            continue;
        }
        dropped += data.len();
        if dropped > MAX_BYTES_TO_DROP {
            break;
        }
    }
    if dropped > 0 {
        let message = format!("Request entity too large: limit is {MAX_BODY_BYTES}");
        return Err(refusal(413, "RequestEntityTooLarge", &message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// A body that never comes; it counts those that are there.
    struct Never {
        _counted: Arc<()>,
    }

    impl Body for Never {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn the_bodies_of_refused_requests_that_are_read_have_a_bound_and_further_ones_are_left() {
        let (refused, count) = (Refused::default(), Arc::new(()));
        (0..MAX_REFUSED + 10).for_each(|_| refused.take(Never { _counted: Arc::clone(&count) }));
        assert_eq!(Arc::strong_count(&count), 1 + MAX_REFUSED);
        let all_left = refused.0.acquire_many(u32::try_from(MAX_REFUSED).unwrap());
        let _all = timeout(30 * MAX_REFUSED_TIME, all_left).await.expect("one that does not come is left").unwrap();
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn parameters_are_decoded_in_their_order() {
        let found = query("labelSelector=a%3Db%2Cc&watch&&x=1+2&x=").unwrap();
        let found = found.iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>();
        assert_eq!(found, ["labelSelector:a=b,c", "watch:", "x:1 2", "x:"]);
        assert!(query("a=%ff").is_none());
    }

    #[test]
    fn a_certificate_comes_before_a_token_and_other_schemes_are_nobody() {
        let credentials = |value: &str, user| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            credentials(&headers, user)
        };
        assert_eq!(credentials("bearer t", None), Credentials::Token("t".to_owned()));
        assert_eq!(credentials("Basic eA==", None), Credentials::None);
        assert_eq!(credentials("Bearer t", Some(User::default())), Credentials::User(User::default()));
    }
}
