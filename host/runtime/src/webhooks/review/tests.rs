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

/// A guest's object of 4 MiB took the I/O thread for as long as it was compared.
#[tokio::test]
async fn q4_a_small_review_whose_plugin_returns_a_large_object_is_answered_on_a_thread_of_its_own() {
    let parsing = Parsing::default();
    let peer = std::net::IpAddr::from([10, 0, 0, 1]).into();
    let permit = Capacity::default().begin(Class::Unverified, peer).whole("podset").unwrap().1;
    let review = json_review();
    let verdict = |bytes: usize| Verdict::Completed(format!(r#"{{"spec":{{"text":"{}"}}}}"#, "x".repeat(bytes)));
    let small = answer(&parsing, "podset", &review, verdict(10), 500, &permit).await;
    assert!(small.text.contains("JSONPatch"), "{}", small.text);
    // As many as may be read at once are.
    let (end, may_end) = std::sync::mpsc::channel::<()>();
    let may_end = Arc::new(std::sync::Mutex::new(may_end));
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let (parsing, permit, may_end) = (parsing.clone(), Arc::clone(&permit), Arc::clone(&may_end));
            tokio::spawn(async move { parsing.run(1 << 20, &permit, move || may_end.lock().unwrap().recv()).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let mut large = std::pin::pin!(answer(&parsing, "podset", &review, verdict(1 << 20), 500, &permit));
    let waker = std::task::Waker::noop();
    assert!(large.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending(), "it waits for its turn");
    drop(end);
    let large = tokio::time::timeout(DEADLINE, large).await.expect("it is answered");
    assert!(large.text.contains("JSONPatch") && large.text.len() > 1 << 20);
    for busy in busy {
        assert!(busy.await.unwrap().is_err(), "the test has ended it");
    }
}

fn json_review() -> Arc<Review> {
    let kind = serde_json::json!({"group": "example.com", "version": "v1", "kind": "Thing"});
    let review = serde_json::json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "kind": kind, "resource": {"resource": "things"}, "name": "one", "operation": "CREATE",
            "object": {"spec": {}},
        },
    });
    let backend = AdmissionBackend {
        digest: mortise_core::digest::Digest("sha256:0".into()),
        specs: Vec::new().into(),
        limits: CallLimits::default(),
        config: "{}".into(),
    };
    Arc::new(Review::parse(review.to_string().as_bytes(), &Arc::new(backend)).unwrap())
}

#[tokio::test]
async fn q4_a_review_that_waits_is_refused_when_its_memory_is_anothers() {
    let capacity = Capacity::default();
    let whole = |number: u8| {
        let charge = capacity.begin(Class::Unverified, std::net::IpAddr::from([10, 0, 0, number]).into());
        assert!(charge.arrived(&vec![b' '; 8 << 20]));
        charge.whole("podset").expect("there is room")
    };
    let of_one: Vec<_> = (0..4).map(|_| whole(1)).collect();
    let waits = |place: usize| unless_it_gives_way("podset", &of_one[place].1, std::future::pending());
    let others = [whole(2), whole(3)];
    let refused = tokio::time::timeout(DEADLINE, waits(0)).await.expect("its client hears of it");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let answered = unless_it_gives_way("podset", &of_one[3].1, async { text(StatusCode::OK, "reviewed") }).await;
    assert_eq!(answered.status(), StatusCode::OK);
    drop(others);
}
