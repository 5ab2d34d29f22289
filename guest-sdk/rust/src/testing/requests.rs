//! The host's checks of HTTP requests, with the host's messages.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::generated::is_key;
use super::metadata::{Refused, shown};
use crate::http::{Method, Request};
use crate::manifest::Http;
use crate::view::native::tree::text;

/// Requests of one outcome.
const MAX_REQUESTS: usize = 16;
/// Bytes of a key.
const MAX_KEY_BYTES: usize = 253;
/// Bytes of a URL.
const MAX_URL_BYTES: usize = 4096;
/// Bytes of a DNS name.
const MAX_HOST_BYTES: usize = 253;
/// Headers of one request.
const MAX_HEADERS: usize = 32;
/// Bytes of its headers.
const MAX_HEADER_BYTES: usize = 8 << 10;
/// Headers from Secrets.
const MAX_SECRET_HEADERS: usize = 4;
/// Bytes of a body.
const MAX_BODY_BYTES: usize = 256 << 10;
/// Milliseconds of a timeout.
const MAX_TIMEOUT_MS: u32 = 10_000;
/// Headers that the host or the connection sets.
const RESERVED: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Headers by which the host could not find a Secret's value in the response.
const OBSCURING: [&str; 2] = ["accept-encoding", "range"];

/// Checks the requests of an outcome about `primary`.
pub(super) fn check(requests: &[Request], declared: &[&Http], primary: &Value) -> Refused {
    if requests.len() > MAX_REQUESTS {
        return Err(format!("requests: there are {}, the most is {MAX_REQUESTS}", requests.len()));
    }
    let mut keys = BTreeSet::new();
    for request in requests {
        let key = request.key();
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(format!("request {:?}: a key has 1 to {MAX_KEY_BYTES} bytes", shown(key)));
        }
        if !keys.insert(key) {
            return Err(format!("request {key:?}: the key appears twice"));
        }
        one(request, declared, primary).map_err(|why| format!("request {key:?}: {why}"))?;
    }
    Ok(())
}

fn one(request: &Request, declared: &[&Http], primary: &Value) -> Refused {
    let method = request.method().as_str();
    let only_reads = matches!(request.method(), Method::Get | Method::Head);
    let origin = origin(request.url()).map_err(|why| format!("url: {why}"))?;
    // Manifests may write an origin in other ways; the host merges the declarations of one.
    let of_origin: Vec<&&Http> =
        declared.iter().filter(|http| self::origin(http.origin).as_ref() == Ok(&origin)).collect();
    if !of_origin.iter().any(|http| http.methods.contains(&request.method())) {
        return Err(format!("{method} {origin} is not declared under http of the manifest"));
    }
    let body = request.content().len();
    if only_reads && body > 0 {
        return Err(format!("body: {method} has none"));
    }
    if body > MAX_BODY_BYTES {
        return Err(format!("body: it has {body} bytes, the most is {MAX_BODY_BYTES}"));
    }
    if let Some(ms) = request.timeout_ms().filter(|ms| !(1..=MAX_TIMEOUT_MS).contains(ms)) {
        return Err(format!("timeout: {ms} ms is not within 1 and {MAX_TIMEOUT_MS}"));
    }
    if request.refresh_after_ms().is_some() && !only_reads {
        return Err(format!("refresh: {method} is not repeated; only GET and HEAD are"));
    }
    headers(request)?;
    for [name, _, secret, key] in request.secret_headers() {
        if text(primary, "/metadata/namespace").is_empty() {
            return Err(format!("headers: {name}: the object has no namespace, and a Secret is in the object's"));
        }
        if !of_origin.iter().any(|http| http.secrets.contains(&secret)) {
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

fn headers(request: &Request) -> Refused {
    let (all, secret) = (request.headers().count(), request.secret_headers().count());
    if all > MAX_HEADERS {
        return Err(format!("headers: there are {all}, the most is {MAX_HEADERS}"));
    }
    if secret > MAX_SECRET_HEADERS {
        return Err(format!("headers: {secret} are from Secrets, the most is {MAX_SECRET_HEADERS}"));
    }
    let has_secrets = secret > 0;
    let secret = request.secret_headers().map(|[name, prefix, ..]| (name, prefix));
    let headers: Vec<(&str, &str)> = request.headers().chain(secret).collect();
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_HEADER_BYTES {
        return Err(format!("headers: they have {bytes} bytes, the most is {MAX_HEADER_BYTES}"));
    }
    for (name, value) in headers {
        let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
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
        if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte) || byte == b'\t') {
            return Err(format!("headers: {name}: its value has a character that is not visible ASCII"));
        }
    }
    Ok(())
}

/// Scheme, host and port of a URL in one notation.
fn origin(url: &str) -> Result<String, &'static str> {
    if url.len() > MAX_URL_BYTES {
        return Err("it has more than 4096 bytes");
    }
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme @ ("https" | "http"), rest)) => (scheme, rest),
        _ => return Err("it begins with neither https:// nor http://"),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let is_of_path = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%[]".contains(byte);
    match path.bytes().find(|byte| !is_of_path(byte)) {
        Some(b'#') => return Err("a fragment is not sent to servers"),
        Some(_) => return Err("the path has a character that has to be percent-encoded"),
        None => {}
    }
    if authority.contains('@') {
        return Err("a URL has no user; put credentials into a header");
    }
    let wrong = "the host is neither a DNS name nor an IP address";
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(wrong)?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let number = digits.parse::<u16>().ok().filter(|number| *number > 0);
            Some(number.ok_or("the port is not within 1 and 65535")?)
        }
        None if port.is_empty() => None,
        _ => return Err(wrong),
    };
    let host = host.to_ascii_lowercase();
    let host = match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if !authority.starts_with('[') => address.to_string(),
        Ok(IpAddr::V6(address)) if authority.starts_with('[') => format!("[{address}]"),
        Err(_) if !authority.starts_with('[') && is_dns_name(&host) => host,
        _ => return Err(wrong),
    };
    let own = if scheme == "https" { 443 } else { 80 };
    let port = port.filter(|port| *port != own).map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{scheme}://{host}{port}"))
}

fn is_dns_name(host: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= MAX_HOST_BYTES
        && host.split('.').all(is_label)
        && !last.starts_with(|first: char| first.is_ascii_digit())
}
