//! Documents that clients keep and ask for again by their hash. Input: a document. Output: a response with its `ETag`, or
//! that nothing changed. It must not know what is in a document.

use sha2::{Digest, Sha512};

use crate::request::{Body, Request, Response};

/// The hash that names a document.
pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}

/// A document with its hash; without its bytes when the client has this one already.
pub(crate) fn respond(
    request: &Request,
    hash: &str,
    content_type: &'static str,
    bytes: impl FnOnce() -> Vec<u8>,
) -> Response {
    let tag = format!("\"{hash}\"");
    let known = request.header("if-none-match").is_some_and(|known| known == tag);
    let headers = vec![("ETag", tag), ("Vary", "Accept".to_owned()), ("Cache-Control", "public".to_owned())];
    let (status, body) = if known { (304, Vec::new()) } else { (200, bytes()) };
    Response { status, headers, content_type, body: Body::Bytes(body) }
}
