//! A server on loopback with plugins that serve nothing yet.

use mortise_wasm::workers::Workers;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::testing::{DEADLINE, connect_from, serve_on_loopback};

fn reviewer(workers: &Workers, only_verified: bool) -> Reviewer {
    Reviewer {
        webhooks: Webhooks::default(),
        workers: workers.submitter().clone(),
        metrics: Arc::new(Metrics::new()),
        faults: Throttle::default(),
        capacity: Capacity::default(),
        parsing: Parsing::default(),
        only_verified,
    }
}

/// The response to the head of a request whose body is never sent.
async fn response(address: &str, path: &str) -> String {
    let mut stream = connect_from("127.0.0.1", address).await;
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = [0; 1_024];
    let read = tokio::time::timeout(DEADLINE, stream.read(&mut response)).await.expect("a response").unwrap();
    String::from_utf8_lossy(&response[..read]).into_owned()
}

#[tokio::test]
async fn no_body_is_read_for_a_path_that_nobody_serves_and_its_bytes_are_not_reserved() {
    let workers = Workers::start(1, |_| {}).unwrap();
    let reviewer = reviewer(&workers, false);
    let capacity = reviewer.capacity.clone();
    let address = serve_on_loopback(move |request| reviewer.clone().respond(request)).await;
    for (path, code) in [("/", 404), ("/other/podset", 404), ("/convert/podset", 500), ("/mutate/podset", 500)] {
        let response = response(&address, path).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {response}");
        assert_eq!(capacity.bytes(), 0);
    }
}

#[tokio::test]
async fn with_an_authority_of_clients_admission_needs_a_certificate_and_conversion_does_not() {
    let workers = Workers::start(1, |_| {}).unwrap();
    let reviewer = reviewer(&workers, true);
    let address = serve_on_loopback(move |request| reviewer.clone().respond(request)).await;
    for path in ["/mutate/podset", "/validate/podset"] {
        let response = response(&address, path).await;
        assert!(response.starts_with("HTTP/1.1 401 ") && response.contains("--webhook-client-ca"), "{response}");
        assert!(response.contains(r#""kind":"Status""#), "the API server shows its message: {response}");
    }
    let response = response(&address, "/convert/podset").await;
    assert!(response.contains("does not convert yet"), "{response}");
}
