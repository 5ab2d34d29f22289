//! A server on loopback with plugins that serve nothing yet.

use mortise_wasm::workers::Workers;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::testing::{DEADLINE, connect_from, serve_on_loopback};

#[tokio::test]
async fn no_body_is_read_for_a_path_that_nobody_serves_and_its_bytes_are_not_reserved() {
    let workers = Workers::start(1, |_| {}).unwrap();
    let reviewer = Reviewer {
        webhooks: Webhooks::default(),
        workers: workers.submitter().clone(),
        metrics: Arc::new(Metrics::new()),
        faults: Throttle::default(),
        capacity: Capacity::default(),
        parsing: Parsing::default(),
    };
    let capacity = reviewer.capacity.clone();
    let address = serve_on_loopback(move |request| reviewer.clone().respond(request)).await;
    for (path, code) in [("/", "404"), ("/other/podset", "404"), ("/convert/podset", "500"), ("/mutate/podset", "500")]
    {
        let mut stream = connect_from("127.0.0.1", &address).await;
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = [0; 1_024];
        // The body is never sent.
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut response)).await.expect("a response").unwrap();
        let response = String::from_utf8_lossy(&response[..read]);
        assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {response}");
        assert_eq!(capacity.bytes(), 0);
    }
}
