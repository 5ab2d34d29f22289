//! The server with real connections on loopback: plain ones, and ones whose client trusts a single authority.

use std::net::SocketAddr;

use mortise_kube::webhook::authority::Authority;
use mortise_kube::webhook::clients::verifier;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::tls::{ClientVerifier, ServingCert, acceptor};
use super::*;
use crate::testing::{DEADLINE, client_certificate, connect_from, serve_on_loopback, validity};
use places::MAX_OF_PEER;

async fn echo(request: Request) -> Response {
    let path = request.path().to_owned();
    match request.body().await {
        Ok(body) => text(StatusCode::OK, format!("{path} {}", String::from_utf8_lossy(&body))),
        Err(response) => *response,
    }
}

/// An echo server, and its certificate.
async fn server(authority: &Authority) -> (SocketAddr, Arc<ServingCert>) {
    let serving_cert = Arc::new(ServingCert::default());
    serving_cert.show(authority.issue(&["127.0.0.1".to_owned()], validity()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Some(acceptor(Arc::clone(&serving_cert), None).unwrap()), echo));
    (address, serving_cert)
}

async fn connect(address: SocketAddr, bundle: &str) -> std::io::Result<TlsStream<TcpStream>> {
    connect_as(address, bundle, None).await
}

type ClientCertificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

async fn connect_as(
    address: SocketAddr,
    bundle: &str,
    certificate: Option<ClientCertificate>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}

/// Sends a request on an open connection; returns the response up to `end`.
async fn send(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str, end: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    // TLS may keep the end of it while the server reads slowly.
    stream.flush().await.unwrap();
    let mut text = String::new();
    while !text.contains(end) {
        let mut buffer = [0; 4_096];
        let read = timeout(DEADLINE, stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(read > 0, "the connection ended after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    text
}

const POST: &str = "POST /validate/a?timeout=10s HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_client_that_trusts_the_authority_gets_a_response() {
    let authority = Authority::create(validity()).unwrap();
    let (address, _leaf) = server(&authority).await;
    let mut stream = connect(address, &authority.certificate).await.unwrap();
    let response = send(&mut stream, POST, "/validate/a {}").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let stranger = Authority::create(validity()).unwrap();
    assert!(connect(address, &stranger.certificate).await.is_err());
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_drops_none() {
    let (before, after) = (Authority::create(validity()).unwrap(), Authority::create(validity()).unwrap());
    let (address, serving_cert) = server(&before).await;
    let mut stays = connect(address, &before.certificate).await.unwrap();
    serving_cert.show(after.issue(&["127.0.0.1".to_owned()], validity()).unwrap());
    send(&mut stays, POST, "/validate/a {}").await;
    assert!(connect(address, &before.certificate).await.is_err());
    let both = format!("{}{}", before.certificate, after.certificate);
    send(&mut connect(address, &both).await.unwrap(), POST, "/validate/a {}").await;
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_before_it_is_read() {
    let authority = Authority::create(validity()).unwrap();
    let (address, _leaf) = server(&authority).await;
    let mut stream = connect(address, &authority.certificate).await.unwrap();
    let head = format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", MAX_BODY_BYTES + 1);
    let response = send(&mut stream, &head, "bytes").await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");

    // Without a Content-Length.
    let mut stream = connect(address, &authority.certificate).await.unwrap();
    stream.write_all(b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    let chunk = [format!("{:x}\r\n", 1 << 20).as_bytes(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..MAX_BODY_BYTES >> 20 {
        stream.write_all(&chunk).await.unwrap();
    }
    let response = send(&mut stream, "1\r\n \r\n", "bytes").await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    // Other connections work.
    send(&mut connect(address, &authority.certificate).await.unwrap(), POST, "/validate/a {}").await;
}

/// So that a test may have thousands of connections.
fn with_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_take_no_place_from_a_probe() {
    with_many_files();
    let address = serve_on_loopback(echo).await;
    let (closed, mut closings) = tokio::sync::mpsc::unbounded_channel();
    let mut idle = Vec::new();
    for _ in 0..1_000 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let closed = closed.clone();
        idle.push(tokio::spawn(async move {
            // Ends when the server does.
            let _ = stream.read(&mut [0]).await;
            let _ = closed.send(());
        }));
    }
    let probe = async {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        send(&mut stream, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "/healthz ").await
    };
    let response = timeout(Duration::from_secs(5), probe).await.expect("the probe is answered");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let the_others = async {
        for _ in 0..1_000 - MAX_CONNECTIONS {
            closings.recv().await;
        }
    };
    timeout(DEADLINE, the_others).await.expect("those over the bound are closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_being_answered_is_not_cut_off_and_one_that_only_arrives_is() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        move |request: Request| {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            async move {
                if request.path() == "/slow" {
                    begun.notify_one();
                    go.notified().await;
                }
                echo(request).await
            }
        }
    };
    let address = serve_on_loopback(slow).await;
    let mut answered = TcpStream::connect(&address).await.unwrap();
    answered.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    timeout(DEADLINE, begun.notified()).await.expect("the request is being answered");
    let mut arriving = TcpStream::connect(&address).await.unwrap();
    arriving.write_all(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
    let mut newer = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        newer.push(TcpStream::connect(&address).await.unwrap());
    }
    // On a slow machine its time may be over before its place is taken; then it is refused first.
    let mut end = Vec::new();
    let _ = timeout(DEADLINE, arriving.read_to_end(&mut end)).await.expect("its place is taken");
    assert!(!end.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&end));
    go.notify_one();
    let response = send(&mut answered, "", "/slow ").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_more_requests_at_once_than_a_peer_has_connections_none_is_cut_off() {
    with_many_files();
    let address = serve_on_loopback(echo).await;
    let requests = (0..MAX_OF_PEER + 200).map(|_| {
        let address = address.clone();
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            send(&mut stream, "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "/a ").await
        })
    });
    for request in requests.collect::<Vec<_>>() {
        let response = timeout(DEADLINE, request).await.expect("it is answered").unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }
}

/// The address of a client that fills what it may, and of one that needs little.
const CROWD: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_of_one_peer_close_none_of_another_that_was_idle_longer() {
    let address = serve_on_loopback(echo).await;
    let mut kept = connect_from(OTHER, &address).await;
    send(&mut kept, GET, "/a ").await;
    let (closed, mut closings) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..MAX_OF_PEER + 50 {
        let (mut stream, closed) = (connect_from(CROWD, &address).await, closed.clone());
        tokio::spawn(async move {
            let _ = stream.read(&mut [0]).await;
            let _ = closed.send(());
        });
    }
    let the_crowds = async {
        for _ in 0..50 {
            closings.recv().await;
        }
    };
    timeout(DEADLINE, the_crowds).await.expect("those over the bound are closed");
    let response = send(&mut kept, GET, "/a ").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_peer_that_never_end_leave_places_for_another() {
    let address = serve_on_loopback(|request: Request| async move {
        if request.path() == "/slow" { std::future::pending().await } else { echo(request).await }
    })
    .await;
    with_many_files();
    let mut slow = Vec::new();
    for _ in 0..2 * MAX_CONNECTIONS {
        let mut stream = connect_from(CROWD, &address).await;
        stream.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        slow.push(stream);
    }
    let mut other = connect_from(OTHER, &address).await;
    let response = send(&mut other, GET, "/a ").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

/// A thousand addresses of loopback.
fn thousand() -> impl Iterator<Item = String> {
    (0..1_000).map(|number| format!("127.1.{}.{}", number / 250, number % 250 + 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn q4_a_thousand_peers_that_never_end_their_handshake_keep_out_neither_an_open_connection_nor_a_new_one() {
    with_many_files();
    let authority = Authority::create(validity()).unwrap();
    let (address, _leaf) = server(&authority).await;
    let mut open = connect(address, &authority.certificate).await.unwrap();
    send(&mut open, POST, "/validate/a {}").await;
    let mut silent = Vec::new();
    for (number, peer) in thousand().enumerate() {
        let mut stream = connect_from(&peer, &address.to_string()).await;
        if number % 2 == 0 {
            // The beginning of a ClientHello.
            stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        }
        silent.push(stream);
    }
    let mut new = timeout(DEADLINE, connect(address, &authority.certificate)).await.expect("a place").unwrap();
    let response = send(&mut new, POST, "/validate/a {}").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let response = send(&mut open, POST, "/validate/a {}").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn q4_a_thousand_peers_that_send_half_of_a_head_or_a_body_keep_out_neither_an_open_connection_nor_a_new_one() {
    with_many_files();
    let address = serve_on_loopback(echo).await;
    let mut open = connect_from(OTHER, &address).await;
    send(&mut open, GET, "/a ").await;
    let mut slow = Vec::new();
    for (number, peer) in thousand().enumerate() {
        let mut stream = connect_from(&peer, &address).await;
        let half =
            ["GET /a HTTP/1.1\r\n", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n "][number % 2];
        let _ = stream.write_all(half.as_bytes()).await;
        slow.push(stream);
    }
    let mut new = connect_from(CROWD, &address).await;
    let response = send(&mut new, GET, "/a ").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let response = send(&mut open, GET, "/a ").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[tokio::test]
async fn a_body_in_the_smallest_chunks_is_given_on_piece_by_piece_and_a_connection_can_be_closed() {
    let (closing, mut closings) = tokio::sync::mpsc::unbounded_channel();
    let address = serve_on_loopback(move |request: Request| {
        closing.send(request.closing()).unwrap();
        async move {
            let mut pieces = 0;
            let read = request.read(|piece| {
                assert!(piece.len() <= BUFFER_BYTES);
                pieces += 1;
                if pieces == 3 { Err(Box::new(text(StatusCode::TOO_MANY_REQUESTS, "enough"))) } else { Ok(()) }
            });
            match read.await {
                Ok(()) => text(StatusCode::OK, "read"),
                Err(response) => *response,
            }
        }
    })
    .await;
    let chunked = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n";
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let response = send(&mut stream, &format!("{chunked}1\r\nc\r\n"), "enough").await;
    assert!(response.starts_with("HTTP/1.1 429 "), "{response}");
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let response = send(&mut stream, &format!("{chunked}0\r\n\r\n"), "read").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    closings.recv().await.unwrap();
    closings.recv().await.unwrap().notify_one();
    let ended = timeout(DEADLINE, stream.read(&mut [0; 16])).await.expect("it is closed");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_client_is_verified_by_a_certificate_of_the_authority_with_an_allowed_name_and_another_one_is_cut_off() {
    let (authority, stranger) = (Authority::create(validity()).unwrap(), Authority::create(validity()).unwrap());
    let serving_cert = Arc::new(ServingCert::default());
    serving_cert.show(authority.issue(&["127.0.0.1".to_owned()], validity()).unwrap());
    let by_name = verifier(authority.certificate.as_bytes(), &["kube-apiserver".to_owned()]).unwrap();
    let clients = Arc::new(ClientVerifier::new(by_name));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = acceptor(serving_cert, Some(Arc::clone(&clients))).unwrap();
    tokio::spawn(serve(listener, Some(tls), |request: Request| async move {
        text(StatusCode::OK, format!("verified: {}.", request.is_verified()))
    }));
    let respond = async |certificate: Option<ClientCertificate>| {
        let mut stream = connect_as(address, &authority.certificate, certificate).await?;
        stream.write_all(GET.as_bytes()).await?;
        let mut response = vec![0; 4_096];
        // In TLS 1.3 a refused client notices it when it reads.
        let read = timeout(DEADLINE, stream.read(&mut response)).await.expect("the server responds or ends it")?;
        std::io::Result::Ok(String::from_utf8_lossy(&response[..read]).into_owned())
    };
    let response = respond(Some(client_certificate(&authority, "kube-apiserver"))).await.unwrap();
    assert!(response.ends_with("verified: true."), "{response}");
    let response = respond(None).await.unwrap();
    assert!(response.ends_with("verified: false."), "{response}");
    for refused in [client_certificate(&stranger, "kube-apiserver"), client_certificate(&authority, "kubelet")] {
        let error = respond(Some(refused)).await.expect_err("it is cut off");
        assert!(error.to_string().contains("alert"), "{error}");
    }
    clients.change(verifier(stranger.certificate.as_bytes(), &[]).unwrap());
    let response = respond(Some(client_certificate(&stranger, "kubelet"))).await.unwrap();
    assert!(response.ends_with("verified: true."), "{response}");
    assert!(respond(Some(client_certificate(&authority, "kube-apiserver"))).await.is_err(), "nothing is resumed");
}
