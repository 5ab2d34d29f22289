//! How a watch goes on after it broke: from where it was, unless the API server's versions went backwards.

use std::sync::Mutex;

use super::*;
use crate::testing::serve;

const DEADLINE: Duration = Duration::from_secs(10);

fn pod(name: &str, version: u64) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"namespace":"ns","name":"{name}","uid":"of-{name}","resourceVersion":"{version}"}}}}"#
    )
}

fn frame(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// The bookmark that ends a streaming list at a version.
fn list_end(version: u64) -> String {
    let annotations = format!(r#""annotations":{{"{INITIAL_EVENTS_END}":"true"}}"#);
    frame("BOOKMARK", &format!(r#"{{"metadata":{{"resourceVersion":"{version}",{annotations}}}}}"#))
}

fn shown(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Listed(object) => format!("listed {}@{}", object.name, object.resource_version.0),
        WatchEvent::Applied(object) => format!("applied {}@{}", object.name, object.resource_version.0),
        WatchEvent::ListDone(version) => format!("list done@{}", version.0),
        WatchEvent::Progress(version) => format!("progress@{}", version.0),
        WatchEvent::Restored { before, now } => format!("restored {} to {}", before.0, now.0),
        other => format!("{other:?}"),
    }
}

/// What a watch of Pods reports until it has been asked for this many streams, and the queries that it sent. A stream is what
/// the answer to it says, and ends at once.
async fn watched(streams: usize, answer: fn(&str, usize) -> String) -> (Vec<String>, Vec<String>) {
    let queries = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&queries);
    let api = serve(move |asked| {
        let Some(query) = asked.path.strip_prefix("/api/v1/pods?") else {
            return ("200 OK", r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}"#.to_owned());
        };
        let query = query.split("&timeoutSeconds").next().unwrap().to_owned();
        let mut queries = log.lock().unwrap();
        queries.push(query.clone());
        let watches = queries.iter().filter(|query| query.starts_with("watch")).count();
        ("200 OK", answer(&query, watches))
    });
    let (sink, mut events) = mpsc::channel(1);
    let watch = tokio::spawn(run(api.await, Scope::all(Kind::new("v1", "Pod")), sink, |event| event));
    let mut told = Vec::new();
    let is_open = |queries: &Mutex<Vec<String>>| {
        queries.lock().unwrap().iter().filter(|query| query.starts_with("watch")).count() < streams
    };
    while is_open(&queries) {
        let event = timeout(DEADLINE, events.recv()).await.unwrap().unwrap();
        told.push(shown(&event));
    }
    watch.abort();
    let queries = queries.lock().unwrap().clone();
    (told, queries)
}

const LIST: &str = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

fn newest(version: u64) -> String {
    format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_broke_goes_on_from_where_it_was() {
    let (told, queries) = watched(3, |query, watches| match (query, watches) {
        ("limit=1", 1) => newest(200),
        ("limit=1", _) => newest(300),
        (LIST, 1) => [frame("ADDED", &pod("a", 5)), list_end(200)].concat(),
        (_, 2) => frame("MODIFIED", &pod("a", 201)),
        _ => String::new(),
    })
    .await;
    assert_eq!(
        told[..5],
        ["Listing", "listed ns/a@5", "list done@200", "progress@200", "applied ns/a@201"],
        "{told:?}"
    );
    let from = |version: u64| format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    assert_eq!(queries, [LIST, "limit=1", &from(200), "limit=1", &from(201)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_api_server_has_lower_versions_now_says_so_and_lists_anew() {
    let (told, queries) = watched(3, |query, watches| match (query, watches) {
        // The first answer is of before the restore, so there is something to be seen of its end.
        ("limit=1", 1) => newest(120),
        ("limit=1", _) => newest(130),
        (LIST, 1) => [frame("ADDED", &pod("a", 5)), frame("ADDED", &pod("b", 150)), list_end(200)].concat(),
        (LIST, 2) => [frame("ADDED", &pod("a", 5)), list_end(125)].concat(),
        _ => String::new(),
    })
    .await;
    assert_eq!(
        told[..7],
        [
            "Listing",
            "listed ns/a@5",
            "listed ns/b@150",
            "list done@200",
            "restored 200 to 120",
            "Listing",
            "listed ns/a@5"
        ],
        "{told:?}"
    );
    let from = "watch=true&allowWatchBookmarks=true&resourceVersion=125".to_owned();
    assert_eq!(queries, [LIST, "limit=1", LIST, "limit=1", &from], "and then as ever");
}

#[tokio::test]
async fn only_a_watch_that_ended_before_its_time_is_in_doubt() {
    let (sink, _events) = mpsc::channel(1);
    let mut watch =
        Watch::new(serve(|_| ("200 OK", String::new())).await, Scope::all(Kind::new("v1", "Pod")), sink, |event| event);
    let mut is_doubtful = async |newest, stop, lived_s| {
        watch.newest = ResourceVersion(newest);
        watch.after(stop, Duration::from_secs(lived_s)).await.unwrap();
        watch.is_doubtful
    };
    assert!(!is_doubtful(9, Stop::Closed, WATCH_SECONDS).await);
    assert!(!is_doubtful(9, Stop::Closed, SHORTEST_WATCH.as_secs()).await);
    assert!(is_doubtful(9, Stop::Closed, 60).await);
    assert!(is_doubtful(9, Stop::Silent, WATCH_SECONDS).await, "what a version that is too high looks like");
    assert!(is_doubtful(9, Stop::Expired(String::new()), WATCH_SECONDS).await);
    assert!(is_doubtful(9, Stop::Failed(Failure::NotSent(String::new())), 0).await);
    assert!(!is_doubtful(0, Stop::Closed, 1).await, "nothing was seen that could go backwards");
}
