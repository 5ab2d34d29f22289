//! Responses as they travel: bytes with a length, compressed when large, or a stream of frames. Input: what the cluster
//! answered. Output: an HTTP response. It must not know requests beyond their headers.

use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use mortise_local_cluster::{Request, Status};
use serde_json::Value;
use tokio::sync::mpsc;

/// Bodies from this size on are compressed for clients that accept it, as kube-apiserver does.
const MIN_BYTES_TO_COMPRESS: usize = 128 << 10;

pub(crate) type Response = http::Response<Sent>;

/// The body of a response.
#[derive(Debug)]
pub(crate) enum Sent {
    Whole(Full<Bytes>),
    /// Chunks until the sender is dropped.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Stream(chunks) => chunks.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A response with all its bytes.
pub(crate) fn whole(status: u16, content_type: &'static str, mut bytes: Vec<u8>, compress: bool) -> Response {
    let compressed = compress && bytes.len() >= MIN_BYTES_TO_COMPRESS;
    if compressed {
        bytes = gzip(&bytes);
    }
    let mut response = response(status, content_type, Sent::Whole(Full::new(bytes.into())));
    if compressed {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

pub(crate) fn stream(content_type: &'static str, chunks: mpsc::Receiver<Bytes>) -> Response {
    response(200, content_type, Sent::Stream(chunks))
}

pub(crate) fn refused(status: &Status) -> Response {
    whole(status.code, "application/json", document(&status.to_json(), false), false)
}

fn response(status: u16, content_type: &'static str, body: Sent) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Adds a header; what cannot be one is left out.
pub(crate) fn add_header(response: &mut Response, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
        response.headers_mut().append(name, value);
    }
}

/// A document as kube-apiserver writes it.
pub(crate) fn document(value: &Value, pretty: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    let written =
        if pretty { serde_json::to_writer_pretty(&mut bytes, value) } else { serde_json::to_writer(&mut bytes, value) };
    written.expect("a JSON value is written to memory");
    bytes.push(b'\n');
    bytes
}

/// Whether a person reads the document: as the query says, else browsers and curl.
pub(crate) fn is_pretty(request: &Request) -> bool {
    match request.parameter("pretty") {
        Some(text) if !text.is_empty() => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        _ => {
            let agent = request.header("user-agent").unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
        }
    }
}

pub(crate) fn accepts_gzip(request: &Request) -> bool {
    let accepted = request.header("accept-encoding").unwrap_or_default();
    accepted.split(',').any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("a document is written to memory");
    encoder.finish().expect("a document is written to memory")
}
