//! The server over real connections on loopback, asked by a client that believes one authority only.

use std::net::SocketAddr;

use mortise_core::certificates::Validity;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::Authority;
use super::*;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

fn validity() -> Validity {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Validity::beginning(u64::try_from(now.as_millis()).unwrap(), DAY_MS)
}

/// A server that echoes, and what it shows.
async fn server(authority: &Authority) -> (SocketAddr, Arc<ServingCert>) {
    let serving_cert = Arc::new(ServingCert::default());
    serving_cert.show(authority.issue(&["127.0.0.1".to_owned()], validity()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = |asked: WebhookRequest| async move {
        WebhookResponse::json(format!("{} {}", asked.path, String::from_utf8_lossy(&asked.body)))
    };
    tokio::spawn(serve(listener, Arc::clone(&serving_cert), echo));
    (address, serving_cert)
}

async fn connect(address: SocketAddr, bundle: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}

/// Asks on a connection that stays, and gives what comes back up to `end`.
async fn ask(stream: &mut TlsStream<TcpStream>, request: &str, end: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.contains(end) {
        let mut buffer = [0; 4_096];
        let read = timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(read > 0, "the connection ended after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    text
}

const POST: &str = "POST /validate/a?timeout=10s HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";

#[tokio::test]
async fn whoever_believes_the_authority_is_answered() {
    let authority = Authority::create(validity()).unwrap();
    let (address, _leaf) = server(&authority).await;
    let mut stream = connect(address, &authority.certificate).await.unwrap();
    let answer = ask(&mut stream, POST, "/validate/a {}").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("application/json"), "{answer}");
    let answer = ask(&mut stream, "GET /validate/a HTTP/1.1\r\nHost: a\r\n\r\n", "by POST").await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let stranger = Authority::create(validity()).unwrap();
    assert!(connect(address, &stranger.certificate).await.is_err());
}

#[tokio::test]
async fn another_certificate_is_shown_to_the_next_and_drops_nobody() {
    let (before, after) = (Authority::create(validity()).unwrap(), Authority::create(validity()).unwrap());
    let (address, serving_cert) = server(&before).await;
    let mut stays = connect(address, &before.certificate).await.unwrap();
    serving_cert.show(after.issue(&["127.0.0.1".to_owned()], validity()).unwrap());
    ask(&mut stays, POST, "/validate/a {}").await;
    assert!(connect(address, &before.certificate).await.is_err());
    let both = format!("{}{}", before.certificate, after.certificate);
    ask(&mut connect(address, &both).await.unwrap(), POST, "/validate/a {}").await;
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_before_it_is_read() {
    let authority = Authority::create(validity()).unwrap();
    let (address, _leaf) = server(&authority).await;
    let mut stream = connect(address, &authority.certificate).await.unwrap();
    let head = format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", MAX_BODY_BYTES + 1);
    let answer = ask(&mut stream, &head, "bytes").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");

    // One that does not say how long it is.
    let mut stream = connect(address, &authority.certificate).await.unwrap();
    stream.write_all(b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    let chunk = [format!("{:x}\r\n", 1 << 20).as_bytes(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..MAX_BODY_BYTES >> 20 {
        stream.write_all(&chunk).await.unwrap();
    }
    let answer = ask(&mut stream, "1\r\n \r\n", "bytes").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // Others are served on.
    ask(&mut connect(address, &authority.certificate).await.unwrap(), POST, "/validate/a {}").await;
}

#[test]
fn a_certificate_of_another_keeper_is_used_with_its_key_only() {
    let authority = Authority::create(validity()).unwrap();
    let (certificate, key) = (authority.certificate.as_bytes(), authority.key.as_bytes());
    assert!(authority::from_files(certificate, key).is_ok());
    let other = Authority::create(validity()).unwrap();
    for (chain, key) in [(certificate, other.key.as_bytes()), (b"".as_slice(), key), (certificate, b"hello".as_slice())]
    {
        let error = authority::from_files(chain, key).unwrap_err();
        assert!(error.to_string().contains("--webhook-cert-path"), "{error}");
    }
}
