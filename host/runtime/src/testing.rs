//! What several tests of this crate need: a client of an API server, and servers on loopback.

use std::time::Duration;

use mortise_core::certificates::Validity;
use mortise_kube::client::{Access, ApiServer};
use mortise_kube::webhook::authority::Authority;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::allocations::Count;
use crate::clock::now;
use crate::server::{Request, Response, serve};

/// What is counted for a structure against what the allocator gave for it: an eighth more at most, for the nodes of trees and
/// the places of queues beside it.
#[track_caller]
pub(crate) fn check_counted(name: &str, counted: usize, count: &Count) {
    let allocated = count.held_bytes.unsigned_abs();
    println!("{name}: counted {counted}, allocated {allocated}, resident {}", count.resident_bytes);
    assert!(counted + counted / 8 >= allocated, "{name}: {counted} bytes were counted, {allocated} allocated");
}

/// Only a failing test waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A client of the API server at this address.
pub(crate) async fn api_server(address: &str) -> ApiServer {
    // An error means that another test was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Config","current-context":"c",
        "clusters":[{{"name":"c","cluster":{{"server":"http://{address}"}}}}],
        "users":[{{"name":"u","user":{{}}}}],"contexts":[{{"name":"c","context":{{"cluster":"c","user":"u"}}}}]}}"#
    );
    std::fs::write(&kubeconfig, text).unwrap();
    ApiServer::connect(&Access { kubeconfig: Some(kubeconfig), context: None }).await.unwrap()
}

/// Serves without TLS; returns the address.
pub(crate) async fn serve_on_loopback<R, F>(respond: R) -> String
where
    R: Fn(Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, None, respond));
    address.to_string()
}

/// Connects from another address of loopback, so as another peer.
pub(crate) async fn connect_from(peer: &str, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{peer}:0").parse().unwrap()).unwrap();
    socket.connect(address.parse().unwrap()).await.unwrap()
}

/// A day from now.
pub(crate) fn validity() -> Validity {
    Validity::beginning(now().unix_ms, 24 * 3_600 * 1_000)
}

/// A client's certificate with this common name, and its key.
pub(crate) fn client_certificate(
    authority: &Authority,
    name: &str,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key).unwrap()).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
    (certificate, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}
