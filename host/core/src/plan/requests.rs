//! Checks the HTTP requests of an outcome against the manifest and the bounds of the contract.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fault::{bad, shown};
use super::generated::is_key;
use crate::contract::GuestFault;
use crate::digest::fingerprint;
use crate::http::{Header, MAX_TIMEOUT_MS, Method, OutgoingRequest, Request, SecretHeader, Url};
use crate::limits::{MAX_REQUEUE_MS, MIN_REQUEUE_MS};
use crate::manifest::ControllerSpec;
use crate::manifest::http::{HttpRule, rule_of};
use crate::object::Object;

/// Requests of one outcome. Each keeps a response in memory; an object that needs more is several objects.
const MAX_REQUESTS: usize = 16;
/// Bytes of a key, as of a child's.
const MAX_KEY_BYTES: usize = 253;
/// Headers of one request, with those of Secrets apart.
const MAX_HEADERS: usize = 32;
/// Bytes of a request's headers: what servers commonly accept.
const MAX_HEADER_BYTES: usize = 8 << 10;
/// Headers from Secrets of one request: a key and its secret, twice.
const MAX_SECRET_HEADERS: usize = 4;
/// Bytes of a request's body.
const MAX_BODY_BYTES: usize = 256 << 10;
/// A hash of the owner's UID and the content. Servers that know it carry a request out once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Headers that the host or the connection sets.
const RESERVED: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    IDEMPOTENCY_KEY,
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Headers that have a server send a part of its response, or encode it, so that the host could not find in it the values of
/// Secrets that the request carries.
const OBSCURING: [&str; 2] = ["accept-encoding", "range"];

pub(super) fn prepare(
    spec: &ControllerSpec,
    primary: &Object,
    requests: &[Request],
) -> Result<Vec<Arc<OutgoingRequest>>, GuestFault> {
    if requests.len() > MAX_REQUESTS {
        return bad(format!("requests: there are {}, the most is {MAX_REQUESTS}", requests.len()));
    }
    let mut keys = BTreeSet::new();
    let mut prepared = Vec::with_capacity(requests.len());
    for request in requests {
        if request.key.is_empty() || request.key.len() > MAX_KEY_BYTES {
            return bad(format!("request {:?}: a key has 1 to {MAX_KEY_BYTES} bytes", shown(&request.key)));
        }
        if !keys.insert(&request.key) {
            return bad(format!("request {:?}: the key appears twice", request.key));
        }
        match check(spec, primary, request) {
            Ok(outgoing) => prepared.push(Arc::new(outgoing)),
            Err(why) => return bad(format!("request {:?}: {why}", request.key)),
        }
    }
    Ok(prepared)
}

fn check(spec: &ControllerSpec, primary: &Object, request: &Request) -> Result<OutgoingRequest, String> {
    let Url { origin, path } = Url::parse(&request.url).map_err(|why| format!("url: {why}"))?;
    let method = request.method;
    let Some(rule) = rule_of(&spec.http, &origin).filter(|rule| rule.methods.contains(&method)) else {
        return Err(format!("{} {origin} is not declared under http of the manifest", method.as_str()));
    };
    if method.only_reads() && !request.body.is_empty() {
        return Err(format!("body: {} has none", method.as_str()));
    }
    if request.body.len() > MAX_BODY_BYTES {
        return Err(format!("body: it has {} bytes, the most is {MAX_BODY_BYTES}", request.body.len()));
    }
    let timeout_ms = request.timeout_ms.map_or(MAX_TIMEOUT_MS, u64::from);
    if !(1..=MAX_TIMEOUT_MS).contains(&timeout_ms) {
        return Err(format!("timeout: {timeout_ms} ms is not within 1 and {MAX_TIMEOUT_MS}"));
    }
    if request.refresh_after_ms.is_some() && !method.only_reads() {
        return Err(format!("refresh: {} is not repeated; only GET and HEAD are", method.as_str()));
    }
    check_headers(request)?;
    check_secrets(rule, primary, &request.secret_headers)?;
    let fingerprint = request.fingerprint();
    Ok(OutgoingRequest {
        key: Arc::clone(&request.key),
        fingerprint,
        method,
        origin,
        path,
        headers: request.headers.iter().cloned().chain(idempotency_key(method, primary, fingerprint)).collect(),
        secret_headers: request.secret_headers.clone(),
        namespace: Arc::clone(&primary.name.namespace),
        body: Arc::clone(&request.body),
        timeout_ms,
        refresh_after_ms: request.refresh_after_ms.map(|ms| u64::from(ms).clamp(MIN_REQUEUE_MS, MAX_REQUEUE_MS)),
    })
}

/// The same for every repetition, also after a restart. A server that knows it would not carry out a PUT or a DELETE that
/// is wanted again, as after a drift; these may be repeated without it.
fn idempotency_key(method: Method, primary: &Object, content: u128) -> Option<Header> {
    let key = || format!("{:032x}", fingerprint(&[&primary.uid, &content.to_string()]));
    (!method.is_idempotent()).then(|| (IDEMPOTENCY_KEY.into(), key().into()))
}

fn check_headers(request: &Request) -> Result<(), String> {
    let (all, secret) = (request.headers.len(), request.secret_headers.len());
    if all > MAX_HEADERS {
        return Err(format!("headers: there are {all}, the most is {MAX_HEADERS}"));
    }
    if secret > MAX_SECRET_HEADERS {
        return Err(format!("headers: {secret} are from Secrets, the most is {MAX_SECRET_HEADERS}"));
    }
    let has_secrets = secret > 0;
    let secret = request.secret_headers.iter().map(|header| (&header.name, &header.prefix));
    let headers = || request.headers.iter().map(|(name, value)| (name, value)).chain(secret.clone());
    let bytes: usize = headers().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_HEADER_BYTES {
        return Err(format!("headers: they have {bytes} bytes, the most is {MAX_HEADER_BYTES}"));
    }
    for (name, value) in headers() {
        if name.is_empty() || !name.bytes().all(is_of_token) {
            return Err(format!("headers: {:?} is not the name of a header", shown(name)));
        }
        let lower = name.to_ascii_lowercase();
        if RESERVED.contains(&lower.as_str()) || lower.starts_with("proxy-") {
            return Err(format!("headers: {name}: the host sets it"));
        }
        if has_secrets && OBSCURING.contains(&lower.as_str()) {
            return Err(format!(
                "headers: {name}: a request with a Secret has none, so that its value is found in the response"
            ));
        }
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return Err(format!("headers: {name}: its value has a character that is not visible ASCII"));
        }
    }
    Ok(())
}

fn check_secrets(rule: &HttpRule, primary: &Object, headers: &[SecretHeader]) -> Result<(), String> {
    for SecretHeader { name, secret, key, .. } in headers {
        if primary.name.namespace.is_empty() {
            return Err(format!("headers: {name}: the object has no namespace, and a Secret is in the object's"));
        }
        if !rule.secrets.contains(secret) {
            let origin = &rule.origin;
            return Err(format!(
                "headers: {name}: Secret {:?} is not declared for {origin} under http of the manifest",
                shown(secret)
            ));
        }
        if key.is_empty() {
            return Err(format!("headers: {name}: it names no key of Secret {secret}"));
        }
        if !is_key(key) {
            let key = shown(key);
            return Err(format!("headers: {name}: {key:?} is not a key that Secret {secret} can have"));
        }
    }
    Ok(())
}

/// RFC 9110, section 5.6.2.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
