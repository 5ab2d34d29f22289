//! Connections: TLS, HTTP/1.1 and HTTP/2, and who the client's certificate says it is. Input: a listener. Output: requests
//! to the door. It must not know paths.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use mortise_local_cluster::User;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::authority::{Authority, Serving};
use crate::exchange::Door;

/// Open connections. A client has a few; a test that opens a thousand waits for its turn, and the process may open 1,024
/// files by default.
const MAX_CONNECTIONS: usize = 900;
/// A handshake takes milliseconds.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests of one HTTP/2 connection at a time, as kube-apiserver allows them.
const MAX_STREAMS: u32 = 100;
/// Pause when no connection can be accepted: too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// TLS with the serving certificate; a client's certificate must be of the authority.
pub(crate) fn acceptor(serving: Serving, authority: &Authority) -> Result<TlsAcceptor> {
    let provider = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate()?).context("use the authority's certificate")?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = verifier.allow_unauthenticated().build().context("verify clients with the authority")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("set up TLS")?
        .with_client_cert_verifier(verifier)
        .with_single_cert(serving.chain, serving.key)
        .context("serve with this certificate: does the private key belong to it?")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until the door closes, and then waits for the open ones to end.
pub(crate) async fn accept(listener: TcpListener, tls: TlsAcceptor, door: Arc<Door>) {
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        while open.len() >= MAX_CONNECTIONS {
            open.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(open.spawn(converse(stream, tls.clone(), Arc::clone(&door)))),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            () = door.closed() => break,
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Responds to the requests of one connection. A client that breaks off has no one to tell.
async fn converse(stream: TcpStream, tls: TlsAcceptor, door: Arc<Door>) {
    // Responses are small, and the client waits.
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().map(|address| address.ip().to_string()).unwrap_or_default();
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await else { return };
    let certificates = stream.get_ref().1.peer_certificates();
    let user = certificates.and_then(<[_]>::first).and_then(user);
    let service = service_fn(|request| {
        let (door, user, peer) = (Arc::clone(&door), user.clone(), peer.clone());
        async move { Ok::<_, Infallible>(door.respond(request, user, peer).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = door.closed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The user of a client certificate: its common name, with its organizations as groups.
fn user(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    let subject = read.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
    let mut groups: Vec<String> = groups.map(str::to_owned).collect();
    groups.push("system:authenticated".to_owned());
    let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = vec![("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={digest}")])];
    Some(User { name, uid: String::new(), groups, extra })
}
