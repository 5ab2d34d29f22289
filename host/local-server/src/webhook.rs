//! Webhooks are asked here: admission and conversion. Input: a call of the cluster's. Output: the review with its response, or
//! why there is none, in the words of kube-apiserver's client. It must not know what is reviewed.

use std::collections::HashMap;
use std::error::Error as _;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mortise_local_cluster::{Call, Cluster};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::endpoint;

/// How many webhooks one request, step or frame may ask. Each configuration has a few, and some are asked again; a list asks
/// once for the conversion of all its objects.
pub(crate) const MAX_CALLS: usize = 100;
/// The clients that are kept, each for one authority and name: a cluster has a few webhooks. Beyond it all are dropped.
const MAX_CLIENTS: usize = 64;
/// Connections that are idle so long are closed, and those beyond so many at once, as kube-apiserver's client does: a server
/// that has too many closes one just when it is used again.
const IDLE: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 25;
/// Calls of one webhook at a time. A thousand requests at once must not be as many connections to its server, which would
/// cut some off; the others wait, within their timeout.
const MAX_AT_ONCE: usize = 64;
/// The largest response. A converted list may have thousands of objects.
const MAX_BODY_BYTES: usize = 64 << 20;
/// The longest timeout that a configuration may have.
const MAX_TIMEOUT_SECONDS: u64 = 30;

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;
/// The authorities and the name that a certificate must have.
type Key = (Vec<u8>, Option<String>);

/// Clients with open connections.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    clients: Mutex<HashMap<Key, Https>>,
    /// By URL.
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Webhooks {
    /// Asks a webhook. A Service of the cluster is reached at one of its endpoints.
    pub(crate) async fn call(&self, call: &Call, cluster: &Cluster) -> Result<Value, String> {
        let seconds = call.timeout_seconds.clamp(1, MAX_TIMEOUT_SECONDS);
        let url = match call.url.contains('?') {
            true => call.url.clone(),
            false => format!("{}?timeout={seconds}s", call.url),
        };
        let failed = |why: String| format!("Post {url:?}: {why}");
        let turn = self.turn(&url);
        let exchange = async {
            let _turn = turn.acquire().await.map_err(|closed| closed.to_string())?;
            self.exchange(call, &url, cluster).await
        };
        match timeout(Duration::from_secs(seconds), exchange).await {
            Ok(Ok((status, body))) => review(status, &body),
            Ok(Err(why)) => Err(failed(why)),
            Err(_) => Err(failed("context deadline exceeded".to_owned())),
        }
    }

    fn turn(&self, url: &str) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= MAX_CLIENTS && !turns.contains_key(url) {
            turns.clear();
        }
        Arc::clone(turns.entry(url.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(MAX_AT_ONCE))))
    }

    async fn exchange(&self, call: &Call, url: &str, cluster: &Cluster) -> Result<(u16, Bytes), String> {
        let named: Uri = url.parse().map_err(|error| format!("invalid URL: {error}"))?;
        let authority = named.authority().ok_or("invalid URL: it has no host")?.clone();
        let (uri, address) = match service(&named) {
            Some((namespace, name)) => {
                let port = named.port_u16().unwrap_or(443).into();
                let address = endpoint::of_service(cluster, namespace, name, port)?;
                (at(&named, &address)?, address)
            }
            None => {
                let address = format!("{}:{}", authority.host(), named.port_u16().unwrap_or(443));
                (named, address)
            }
        };
        let host = HeaderValue::try_from(authority.as_str()).map_err(|error| format!("invalid URL: {error}"))?;
        let request = http::Request::post(uri)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(Bytes::from(call.review.to_string())))
            .map_err(|error| format!("invalid URL: {error}"))?;
        let response = self.client(call)?.request(request).await.map_err(|error| words(&error, &address))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    }

    fn client(&self, call: &Call) -> Result<Https, String> {
        let key = (call.ca_bundle.clone(), call.server_name.clone());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.get(&key) {
            return Ok(known.clone());
        }
        let client = client(&key)?;
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }
}

fn client((ca_bundle, server_name): &Key) -> Result<Https, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_bundle) {
        let certificate =
            certificate.map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block")?;
        roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let connector = match server_name {
        None => builder.enable_http1().build(),
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|error| error.to_string())?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1().build()
        }
    };
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE)
        .build(connector))
}

/// Namespace and name of the Service in a URL such as `https://NAME.NAMESPACE.svc:443/path`.
fn service(url: &Uri) -> Option<(&str, &str)> {
    let (name, namespace) = url.host()?.strip_suffix(".svc")?.split_once('.')?;
    Some((namespace, name))
}

/// The same URL at another address.
fn at(url: &Uri, address: &str) -> Result<Uri, String> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    format!("https://{address}{path}").parse().map_err(|error| format!("invalid address {address}: {error}"))
}

fn review(status: u16, body: &[u8]) -> Result<Value, String> {
    match status {
        200..=299 => serde_json::from_slice(body).map_err(|error| format!("the response is no review: {error}")),
        404 => Err("the server could not find the requested resource".to_owned()),
        500.. => {
            let text: String = String::from_utf8_lossy(body).trim().chars().take(2048).collect();
            Err(format!("an error on the server ({text:?}) has prevented the request from succeeding"))
        }
        _ => Err("the server rejected our request for an unknown reason".to_owned()),
    }
}

/// What went wrong, as a Go client says it.
fn words(error: &Error, address: &str) -> String {
    let mut cause = error.source();
    let mut last = error.to_string();
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == ErrorKind::ConnectionRefused) {
            return format!("dial tcp {address}: connect: connection refused");
        }
        let tls = io.and_then(|io| io.get_ref()).and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                return "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned();
            }
            Some(tls) => return format!("tls: failed to verify certificate: {tls}"),
            None => last = error.to_string(),
        }
        cause = error.source();
    }
    if error.is_connect() { format!("dial tcp {address}: connect: {last}") } else { "EOF".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_name_a_service() {
        let uri: Uri = "https://hook.a.svc:443/validate?timeout=5s".parse().unwrap();
        assert_eq!(service(&uri), Some(("a", "hook")));
        assert_eq!(at(&uri, "127.0.0.1:1").unwrap(), "https://127.0.0.1:1/validate?timeout=5s");
        assert_eq!(service(&"https://127.0.0.1:9443/x".parse().unwrap()), None);
    }

    #[test]
    fn a_response_is_a_review_or_what_a_client_says_to_its_status() {
        assert!(review(200, b"{}").is_ok());
        for (status, body, why) in [
            (500, "boom\n", "an error on the server (\"boom\") has prevented the request from succeeding"),
            (404, "", "the server could not find the requested resource"),
        ] {
            assert_eq!(review(status, body.as_bytes()).unwrap_err(), why);
        }
    }
}
