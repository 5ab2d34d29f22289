//! Requests to servers on loopback that respond as servers should, or should not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use http::StatusCode;
use mortise_core::certificates::Validity;
use mortise_core::digest::Digest;
use mortise_core::http::redact::REDACTED;
use mortise_core::http::{HttpId, Method, OutgoingRequest};
use mortise_core::object::{Kind, ObjectRef};
use mortise_core::write::Cause;
use mortise_kube::tls;
use mortise_kube::webhook::authority::Authority;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::server::{self, response};
use crate::testing::{DEADLINE, api_server, serve_on_loopback};

/// A server that sends these bytes to each client and closes, after it has read a head; without bytes it never responds.
/// Its address, and the heads.
async fn server(bytes: Option<Vec<u8>>) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut hanging = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {}
            heads.send(String::from_utf8(head).unwrap()).unwrap();
            match &bytes {
                // The client may close before it has read everything.
                Some(bytes) => _ = stream.write_all(bytes).await,
                None => hanging.push(stream),
            }
        }
    });
    (address, received)
}

async fn responding(text: &str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    server(Some(text.as_bytes().to_vec())).await
}

fn request(address: SocketAddr) -> OutgoingRequest {
    OutgoingRequest {
        key: "zone".into(),
        fingerprint: 1,
        method: Method::Get,
        origin: Origin { is_https: false, host: address.ip().to_string().into(), port: address.port() },
        path: "/a?b=c".into(),
        headers: Vec::new(),
        secret_headers: Vec::new(),
        namespace: "default".into(),
        body: Arc::default(),
        timeout_ms: 10_000,
        refresh_after_ms: None,
    }
}

fn sending(request: OutgoingRequest, not_after_ms: Option<u64>) -> Sending {
    let object = ObjectRef { kind: Kind::new("example.com/v1", "Zone"), name: Name::new("default", "a") };
    let cause = Cause { controller: "dns/Zone".into(), object, digest: Digest("sha256:00".into()) };
    Sending {
        id: HttpId(1),
        plugin: "dns".into(),
        cause,
        service_account: None,
        gets_generated: false,
        request: Arc::new(request),
        not_after_ms,
    }
}

fn client(to_local: bool) -> HttpClient {
    HttpClient::new(Err("these tests need none".to_owned()), to_local)
}

/// Sends a request that needs no API server.
async fn send_with(client: &HttpClient, request: OutgoingRequest) -> Sent {
    let api = api_server("127.0.0.1:1").await;
    timeout(DEADLINE, client.send(&sending(request, None), &api)).await.unwrap()
}

async fn send(request: OutgoingRequest) -> Sent {
    send_with(&client(true), request).await
}

#[track_caller]
fn response_of(sent: Sent) -> Response {
    match sent {
        Sent::Response(response) => response,
        sent => panic!("no response: {sent:?}"),
    }
}

#[track_caller]
fn class_of(sent: Sent) -> (FailureClass, String) {
    match sent {
        Sent::Failed(failure) => (failure.class, failure.message.to_string()),
        sent => panic!("no failure: {sent:?}"),
    }
}

#[tokio::test]
async fn a_request_has_its_own_headers_and_the_hosts_and_a_response_the_kept_ones() {
    let text = "HTTP/1.1 201 Created\r\nETag: \"1\"\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nok";
    let (address, mut heads) = responding(text).await;
    let headers = vec![("X-Own".into(), "yes".into()), ("idempotency-key".into(), "0a".into())];
    let request = OutgoingRequest { method: Method::Post, headers, body: Arc::from(*b"body"), ..request(address) };
    let response = response_of(send(request).await);
    assert_eq!((response.status, &*response.body), (201, &b"ok"[..]));
    assert_eq!(response.headers, [("etag".into(), "\"1\"".into()), ("content-length".into(), "2".into())]);
    let head = heads.recv().await.unwrap().to_ascii_lowercase();
    assert!(head.starts_with("post /a?b=c http/1.1\r\n"), "{head}");
    for line in [&format!("host: {address}"), "x-own: yes", "idempotency-key: 0a", "content-length: 4"] {
        assert!(head.lines().any(|found| found == line), "{line:?} is not in {head}");
    }
    assert!(head.contains("user-agent: mortise/"), "{head}");
}

#[tokio::test]
async fn a_redirect_and_an_error_of_the_server_are_responses() {
    for (status, line) in [(302, "Location: http://127.0.0.1:1/"), (503, "Retry-After: 7")] {
        let text = format!("HTTP/1.1 {status} X\r\n{line}\r\nContent-Length: 0\r\n\r\n");
        let (address, mut heads) = responding(&text).await;
        let response = response_of(send(request(address)).await);
        assert_eq!(response.status, status);
        let (name, value) = line.split_once(": ").unwrap();
        assert!(response.headers.contains(&(name.to_lowercase().into(), value.into())), "{:?}", response.headers);
        heads.recv().await.unwrap();
        assert!(heads.try_recv().is_err(), "it is sent once, and no redirect is followed");
    }
}

#[tokio::test]
async fn a_body_may_have_a_mebibyte_and_no_more() {
    for (bytes, fits) in [(MAX_RESPONSE_BYTES, true), (MAX_RESPONSE_BYTES + 1, false)] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
        let (address, _heads) = server(Some([head, vec![b'x'; bytes]].concat())).await;
        match send(request(address)).await {
            Sent::Response(response) => assert!(fits && response.body.len() == bytes),
            sent => assert!(!fits && class_of(sent).0 == FailureClass::TooLarge),
        }
    }
    // Without a length, until the server closes, and it never would.
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 4 << 20]].concat();
    let (address, _heads) = server(Some(endless)).await;
    assert_eq!(class_of(send(request(address)).await).0, FailureClass::TooLarge);
}

#[tokio::test]
async fn headers_are_kept_within_their_bounds() {
    let many: String = (0..40).map(|n| format!("h{n:02}: {}\r\n", "x".repeat(297))).collect();
    let (address, _heads) = responding(&format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{many}\r\n")).await;
    let response = response_of(send(request(address)).await);
    let bytes: usize = response.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert_eq!((response.headers.len(), bytes <= MAX_RESPONSE_HEADER_BYTES), (28, true), "{bytes}");
}

#[tokio::test]
async fn each_failure_has_its_class_and_names_the_server() {
    let (hanging, _heads) = server(None).await;
    let late = class_of(send(OutgoingRequest { timeout_ms: 100, ..request(hanging) }).await);
    assert_eq!(late, (FailureClass::Timeout, format!("http://{hanging} did not respond within 100 ms")));

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (class, message) = class_of(send(request(free)).await);
    assert!(class == FailureClass::Connect && message.contains(&free.to_string()), "{message}");

    for (text, expected) in [
        ("", FailureClass::Connect),
        ("SSH-2.0-OpenSSH\r\n\r\n", FailureClass::Protocol),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", FailureClass::Connect),
    ] {
        let (address, _heads) = responding(text).await;
        let (class, message) = class_of(send(request(address)).await);
        assert!(class == expected && message.contains(&address.to_string()), "{text:?}: {class:?} {message}");
    }

    let unknown = Origin { is_https: false, host: "does-not-exist.invalid".into(), port: 80 };
    let (class, _) = class_of(send(OutgoingRequest { origin: unknown, ..request(free) }).await);
    assert_eq!(class, FailureClass::Connect);
}

#[tokio::test]
async fn an_address_of_this_machine_gets_no_connection_unless_that_is_allowed() {
    let (address, mut heads) = responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    for host in ["127.0.0.1", "localhost"] {
        let origin = Origin { is_https: false, host: host.into(), port: address.port() };
        let request = OutgoingRequest { origin, ..request(address) };
        let (class, message) = class_of(send_with(&client(false), request.clone()).await);
        assert!(class == FailureClass::Address && message.contains("--allow-http=local"), "{message}");
        assert!(heads.try_recv().is_err(), "{host}");
        assert_eq!(response_of(send(request).await).status, 200);
        heads.recv().await.unwrap();
    }
}

#[tokio::test]
async fn x7_nothing_is_sent_after_its_time_and_nothing_is_awaited_after_the_claim() {
    let api = api_server("127.0.0.1:1").await;
    let (address, mut heads) = server(None).await;
    let late = sending(request(address), Some(clock::now_ms() - 1));
    assert_eq!(client(true).send(&late, &api).await, Sent::NotSent);
    assert!(heads.try_recv().is_err());
    let soon = sending(OutgoingRequest { timeout_ms: 500, ..request(address) }, Some(clock::now_ms() + 60_000));
    assert_eq!(class_of(client(true).send(&soon, &api).await).0, FailureClass::Timeout);
    let ends_ms = clock::now_ms() + 100;
    assert_eq!(client(true).send_until(Some(ends_ms), &soon, &api).await, Sent::NotSent);
}

/// Requests whose lookups hang until the gate opens, and which are over at once. How many lookups began of this share.
async fn lookups_of(share: &str, requests: usize, lookups: &Limiter<Arc<str>>, gate: &watch::Receiver<bool>) -> usize {
    let begun = Arc::new(AtomicUsize::new(0));
    for _ in 0..requests {
        let (begun, mut gate) = (Arc::clone(&begun), gate.clone());
        let lookup = async move {
            begun.fetch_add(1, Ordering::SeqCst);
            gate.wait_for(|is_open| *is_open).await.map(drop).map_err(io::Error::other)
        };
        assert!(timeout(Duration::ZERO, resolve(lookups, share.into(), lookup)).await.is_err(), "its request is over");
    }
    // Tasks run in the order in which they were spawned, on this one thread.
    tokio::spawn(async {}).await.unwrap();
    begun.load(Ordering::SeqCst)
}

#[tokio::test]
async fn q4_lookups_that_hang_hold_places_of_their_share_when_their_requests_are_over_and_no_others() {
    let (lookups, (open, gate)) = (Limiter::new(LOOKUPS), watch::channel(false));
    assert_eq!(lookups_of("dead", 100, &lookups, &gate).await, 1 + LOOKUPS.of_one);
    let mut begun = 1 + LOOKUPS.of_one;
    for share in 0..9 {
        let of_share = lookups_of(&share.to_string(), 100, &lookups, &gate).await;
        assert!((1..=1 + LOOKUPS.of_one).contains(&of_share), "{of_share}");
        begun += of_share;
    }
    assert_eq!(begun, 10 + LOOKUPS.shared);
    let next = timeout(DEADLINE, resolve(&lookups, "honest".into(), async { Ok("next") }));
    assert_eq!(next.await.unwrap().unwrap(), "next");
    let dead = resolve(&lookups, "dead".into(), async { Ok("again") });
    open.send(true).unwrap();
    assert_eq!(timeout(DEADLINE, dead).await.unwrap().unwrap(), "again");
}

#[tokio::test]
async fn a_server_is_authenticated_by_the_given_authorities() {
    let authority = Authority::create(validity()).unwrap();
    let serving_cert = Arc::new(server::tls::ServingCert::default());
    serving_cert.show(authority.issue(&["127.0.0.1".to_owned()], validity()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = server::tls::acceptor(serving_cert, None).unwrap();
    tokio::spawn(server::serve(listener, Some(acceptor), |_| async { server::text(StatusCode::OK, "over TLS") }));

    let of = |authority: &Authority| {
        let tls = tls::client_config(Some(authority.certificate.as_bytes())).unwrap();
        HttpClient::new(Ok(tls), true)
    };
    let origin = Origin { is_https: true, ..request(address).origin };
    let request = OutgoingRequest { origin, ..request(address) };
    assert_eq!(&*response_of(send_with(&of(&authority), request.clone()).await).body, b"over TLS");
    let another = Authority::create(validity()).unwrap();
    let (class, message) = class_of(send_with(&of(&another), request.clone()).await);
    assert!(class == FailureClass::Tls && message.contains("certificate"), "{message}");
    let (class, message) = class_of(send_with(&client(true), request).await);
    assert!(class == FailureClass::Tls && message.contains("these tests need none"), "{message}");
    assert!(tls::client_config(Some(b"no PEM")).is_err());
}

fn validity() -> Validity {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Validity::beginning(u64::try_from(now.as_millis()).unwrap(), 24 * 3_600 * 1_000)
}

#[tokio::test]
async fn a_secret_is_read_when_the_request_is_sent_and_its_errors_do_not_show_it() {
    const SECRETS: &str = r#"{"resources":[{"name":"secrets","kind":"Secret","namespaced":true}]}"#;
    let long = "s3cret".repeat(MAX_SECRET_BYTES);
    let data = json!({
        "token": STANDARD.encode("s3cret"), "lines": STANDARD.encode("s3cret\n"), "long": STANDARD.encode(long), "empty": "",
    });
    let secret = |name: &str, annotations: Value| {
        let metadata = json!({
            "name": name, "namespace": "default", "uid": "u", "resourceVersion": "1", "annotations": annotations,
        });
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data}).to_string()
    };
    let record = json!({"token": {"recipe": "alphanumeric-6", "drawnAt": "2026-01-01T00:00:00Z"}}).to_string();
    let secrets = [
        secret("dns", json!({})),
        secret("made", json!({"mortise.dev/generated": record})),
        secret("unreadable", json!({"mortise.dev/generated": "x"})),
    ];
    let api = serve_on_loopback(move |request| {
        let (code, body) = match request.path() {
            "/api/v1" => (StatusCode::OK, SECRETS.to_owned()),
            "/api/v1/namespaces/default/secrets/dns" => (StatusCode::OK, secrets[0].clone()),
            "/api/v1/namespaces/default/secrets/made" => (StatusCode::OK, secrets[1].clone()),
            "/api/v1/namespaces/default/secrets/unreadable" => (StatusCode::OK, secrets[2].clone()),
            _ => (StatusCode::NOT_FOUND, r#"{"kind":"Status","code":404,"details":{"name":"x"}}"#.to_owned()),
        };
        async move { response(code, "application/json", body) }
    });
    let api = api_server(&api.await).await;
    let (address, mut heads) = responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let with = |secret: &str, key: &str| {
        let (secret, key) = (secret.into(), key.into());
        let header = SecretHeader { name: "Authorization".into(), prefix: "Bearer ".into(), secret, key };
        sending(OutgoingRequest { secret_headers: vec![header], ..request(address) }, None)
    };
    // Also one that the host has made, and one with a record that nobody can read, where that is granted.
    for (secret, gets_generated) in [("dns", false), ("dns", true), ("made", true), ("unreadable", true)] {
        let sending = Sending { gets_generated, ..with(secret, "token") };
        assert_eq!(response_of(client(true).send(&sending, &api).await).status, 200);
        let head = heads.recv().await.unwrap();
        assert!(head.contains("authorization: Bearer s3cret\r\n"), "{head}");
        assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
    }
    for secret in ["made", "unreadable"] {
        let Sent::NotGranted(why) = client(true).send(&with(secret, "token"), &api).await else {
            panic!("it was sent")
        };
        let grant = format!("add \"http://{address}\" to spec.grants.generatedValuesTo of the Plugin dns");
        assert!(why.contains(&format!("Secret default/{secret}")) && why.contains(&grant), "{why}");
        assert!(!why.contains("s3cret") && heads.try_recv().is_err(), "{why}");
    }
    for (secret, key, why) in [
        ("none", "token", "Secret default/none: it does not exist"),
        ("dns", "none", "Secret default/dns: it has no key \"none\""),
        ("dns", "empty", "Secret default/dns: \"empty\" is empty"),
        ("dns", "long", "\"long\" has more than 8192 bytes"),
        ("dns", "lines", "\"lines\" has a character that a header must not have, such as a line break at the end"),
    ] {
        let (class, message) = class_of(client(true).send(&with(secret, key), &api).await);
        assert!(class == FailureClass::Secret && message.contains(why), "{message}");
        assert!(!message.contains("s3cret") && heads.try_recv().is_err());
    }
}

/// A client of an API server with one Secret, whose token is "s3cret".
async fn with_secret() -> ApiServer {
    let secret = json!({
        "kind": "Secret", "apiVersion": "v1", "metadata": {
            "name": "dns", "namespace": "default", "uid": "u", "resourceVersion": "1",
        },
        "data": {"token": STANDARD.encode("s3cret")},
    });
    let api = serve_on_loopback(move |request| {
        let resources = json!({"resources": [{"name": "secrets", "kind": "Secret", "namespaced": true}]});
        let body = if request.path() == "/api/v1" { resources } else { secret.clone() };
        async move { response(StatusCode::OK, "application/json", body.to_string()) }
    });
    api_server(&api.await).await
}

#[tokio::test]
async fn g8_a_server_that_echoes_a_request_shows_the_plugin_no_value_that_it_carried() {
    let api = with_secret().await;
    let echo = format!("Bearer s3cret, {}, s%33cret, 733363726574", STANDARD.encode("Bearer s3cret"));
    let text = |more: &str| {
        let length = echo.len();
        format!("HTTP/1.1 200 OK\r\nX-Echo: Bearer s3cret\r\nS3cret: 1\r\n{more}Content-Length: {length}\r\n\r\n{echo}")
    };
    let header = SecretHeader {
        name: "Authorization".into(),
        prefix: "Bearer ".into(),
        secret: "dns".into(),
        key: "token".into(),
    };
    let with = |address| sending(OutgoingRequest { secret_headers: vec![header.clone()], ..request(address) }, None);
    let (address, mut heads) = responding(&text("")).await;
    let response = response_of(client(true).send(&with(address), &api).await);
    assert!(heads.recv().await.unwrap().contains("Bearer s3cret"));
    let body = String::from_utf8(response.body.to_vec()).unwrap();
    let parts = format!("Bearer {REDACTED}, QmVhcmVyI{REDACTED}==, {REDACTED}, {REDACTED}");
    assert_eq!(body, parts);
    let expected = [
        ("x-echo".into(), format!("Bearer {REDACTED}").into()),
        ("content-length".into(), body.len().to_string().into()),
    ];
    assert_eq!(response.headers, expected);
    // In another encoding nothing would be found.
    let (address, _heads) = responding(&text("Content-Encoding: gzip\r\n")).await;
    let (class, why) = class_of(client(true).send(&with(address), &api).await);
    assert!(class == FailureClass::Protocol && why.contains("content-encoding"), "{why}");
    let (address, _heads) = responding(&text("Content-Encoding: Identity\r\n")).await;
    assert_eq!(response_of(client(true).send(&with(address), &api).await).status, 200);
    // Without a Secret a response is what the server sent.
    let (address, _heads) = responding(&text("Content-Encoding: gzip\r\n")).await;
    assert_eq!(&*response_of(send(request(address)).await).body, echo.as_bytes());
}
