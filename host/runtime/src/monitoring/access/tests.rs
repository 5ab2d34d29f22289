//! A server of metrics, and an API server that knows two tokens and counts what it is asked.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::*;
use crate::server::response;
use crate::testing::{DEADLINE, api_server, connect_from, serve_on_loopback};

type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

async fn answer(counts: Counts, request: Request) -> Response {
    let path = request.path().to_owned();
    let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
    let body: Value = serde_json::from_slice(&request.body().await.unwrap()).unwrap();
    *counts.lock().unwrap().entry(kind.clone()).or_default() += 1;
    let spec = &body["spec"];
    let status = match (&*kind, spec["token"].as_str()) {
        ("tokenreviews", Some(name @ ("prometheus" | "stranger"))) => json!({
            "authenticated": true,
            "user": {"username": name, "uid": "u", "groups": ["system:authenticated"], "extra": {"k": ["v"]}},
        }),
        ("tokenreviews", _) => json!({"authenticated": false, "error": "unknown"}),
        _ => {
            assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
            assert_eq!(
                (&spec["uid"], &spec["groups"], &spec["extra"]),
                (&json!("u"), &json!(["system:authenticated"]), &json!({"k": ["v"]}))
            );
            json!({"allowed": spec["user"] == "prometheus"})
        }
    };
    response(StatusCode::CREATED, "application/json", json!({"kind": body["kind"], "status": status}).to_string())
}

struct World {
    counts: Counts,
    address: String,
}

impl World {
    async fn new() -> Self {
        let counts = Counts::default();
        let counted = Arc::clone(&counts);
        let api = serve_on_loopback(move |request| answer(Arc::clone(&counted), request)).await;
        Self { address: serve(&api).await, counts }
    }

    fn asked(&self) -> usize {
        self.counts.lock().unwrap().values().sum()
    }
}

async fn serve(api: &str) -> String {
    let access = Access::new(api_server(api).await);
    serve_on_loopback(move |request: Request| {
        let access = access.clone();
        async move {
            match access.check(&request, "/metrics").await {
                Ok(()) => text(StatusCode::OK, "the metrics"),
                Err(refused) => *refused,
            }
        }
    })
    .await
}

async fn get(peer: &str, address: &str, authorization: &str) -> String {
    let mut stream = connect_from(peer, address).await;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut response)).await.expect("a response").unwrap();
    response
}

#[tokio::test]
async fn a_client_without_a_token_is_not_authenticated_and_one_without_the_right_is_forbidden() {
    let world = World::new().await;
    for none in
        ["", "Authorization: Basic cHJvbWV0aGV1cw==\r\n", "Authorization: Bearer \r\n", "Authorization: Bearer x\r\n"]
    {
        let response = get("127.0.0.1", &world.address, none).await;
        assert!(response.starts_with("HTTP/1.1 401 ") && response.contains("www-authenticate: Bearer"), "{response}");
    }
    assert_eq!(world.asked(), 1, "only the token is reviewed");
    let response = get("127.0.0.1", &world.address, "Authorization: Bearer stranger\r\n").await;
    assert!(response.starts_with("HTTP/1.1 403 ") && response.contains("stranger may not get the path"), "{response}");
    let response = get("127.0.0.1", &world.address, "authorization: bearer prometheus\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("the metrics"), "{response}");
}

#[tokio::test]
async fn twenty_scrapes_at_once_and_twenty_in_turn_ask_the_api_server_twice() {
    let world = World::new().await;
    let scrape = || {
        let address = world.address.clone();
        async move { get("127.0.0.1", &address, "Authorization: Bearer prometheus\r\n").await }
    };
    let at_once: Vec<_> = (0..20).map(|_| tokio::spawn(scrape())).collect();
    for response in at_once {
        assert!(response.await.unwrap().starts_with("HTTP/1.1 200 "));
    }
    for _ in 0..20 {
        assert!(scrape().await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(world.asked(), 2);
}

#[tokio::test]
async fn a_peer_that_tries_tokens_is_refused_before_the_api_server_is_asked_and_another_peer_is_not() {
    let world = World::new().await;
    let mut codes = BTreeMap::new();
    for number in 0..100 {
        let response = get("127.0.0.1", &world.address, &format!("Authorization: Bearer {number}\r\n")).await;
        *codes.entry(response[9..12].to_owned()).or_insert(0) += 1;
    }
    assert_eq!(codes, BTreeMap::from([("401".to_owned(), 20), ("429".to_owned(), 80)]));
    assert_eq!(world.asked(), 20);
    let response = get("127.0.0.2", &world.address, "Authorization: Bearer prometheus\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let response = get("127.0.0.1", &world.address, "Authorization: Bearer prometheus\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "what is decided needs no further one: {response}");
}

#[tokio::test]
async fn without_an_answer_of_the_api_server_nothing_is_shown_and_the_reason_is() {
    let address = serve("127.0.0.1:1").await;
    let response = get("127.0.0.1", &address, "Authorization: Bearer prometheus\r\n").await;
    assert!(response.starts_with("HTTP/1.1 503 ") && response.contains("did not say whether"), "{response}");
}
