//! How a watch resumes after it broke: from its position, unless the API server's versions went backwards.

use std::sync::Mutex;

use mortise_core::watch_stream::INITIAL_EVENTS_END;

use tokio::sync::mpsc;

use super::*;
use crate::testing::serve;

mod faults;

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
        WatchEvent::Listed(objects) => {
            let shown = |object: &Object| format!("{}@{}", object.name, object.resource_version.0);
            format!("listed {}", objects.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        WatchEvent::Applied(object) => format!("applied {}@{}", object.name, object.resource_version.0),
        WatchEvent::ListDone(version) => format!("list done@{}", version.0),
        WatchEvent::Progress(version) => format!("progress@{}", version.0),
        WatchEvent::Restored { before, now } => format!("restored {} to {}", before.0, now.0),
        other => format!("{other:?}"),
    }
}

/// The events of a watch of Pods until it has opened this many streams, and the queries that it sent. Each stream ends after
/// its response.
async fn watched(streams: usize, respond: fn(&str, usize) -> String) -> (Vec<String>, Vec<String>) {
    let queries = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&queries);
    let api = serve(move |request| {
        let Some(query) = request.path.strip_prefix("/api/v1/pods?") else {
            return ("200 OK", r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}"#.to_owned());
        };
        let query = query.split("&timeoutSeconds").next().unwrap().to_owned();
        let mut queries = log.lock().unwrap();
        queries.push(query.clone());
        let watches = queries.iter().filter(|query| query.starts_with("watch")).count();
        ("200 OK", respond(&query, watches))
    });
    let (sink, mut events) = mpsc::channel(1);
    let watch = tokio::spawn(run(api.await, Slice::from(Kind::new("v1", "Pod")).into(), sink, |event| event));
    let mut shown_events = Vec::new();
    let is_open = |queries: &Mutex<Vec<String>>| {
        queries.lock().unwrap().iter().filter(|query| query.starts_with("watch")).count() < streams
    };
    while is_open(&queries) {
        let event = timeout(DEADLINE, events.recv()).await.unwrap().unwrap();
        shown_events.push(shown(&event));
    }
    watch.abort();
    let queries = queries.lock().unwrap().clone();
    (shown_events, queries)
}

const LIST: &str = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

fn newest(version: u64) -> String {
    format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_broke_resumes_from_its_position() {
    let (events, queries) = watched(3, |query, watches| match (query, watches) {
        ("limit=1", 1) => newest(200),
        ("limit=1", _) => newest(300),
        (LIST, 1) => [frame("ADDED", &pod("a", 5)), list_end(200)].concat(),
        (_, 2) => frame("MODIFIED", &pod("a", 201)),
        _ => String::new(),
    })
    .await;
    assert_eq!(
        events[..5],
        ["Listing", "listed ns/a@5", "list done@200", "progress@200", "applied ns/a@201"],
        "{events:?}"
    );
    let from = |version: u64| format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    assert_eq!(queries, [LIST, "limit=1", &from(200), "limit=1", &from(201)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_api_server_has_lower_versions_now_reports_that_and_lists_again() {
    let (events, queries) = watched(3, |query, watches| match (query, watches) {
        // The first watch ends before the restore.
        ("limit=1", 1) => newest(120),
        ("limit=1", _) => newest(130),
        (LIST, 1) => [frame("ADDED", &pod("a", 5)), frame("ADDED", &pod("b", 150)), list_end(200)].concat(),
        (LIST, 2) => [frame("ADDED", &pod("a", 5)), list_end(125)].concat(),
        _ => String::new(),
    })
    .await;
    assert_eq!(
        events.join(", ").replace(", listed", "").split(", ").take(5).collect::<Vec<_>>(),
        ["Listing ns/a@5 ns/b@150", "list done@200", "restored 200 to 120", "Listing ns/a@5", "list done@125"],
        "{events:?}"
    );
    let from = "watch=true&allowWatchBookmarks=true&resourceVersion=125".to_owned();
    assert_eq!(queries, [LIST, "limit=1", LIST, "limit=1", &from], "and resumes from the list");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_fails_shows_its_objects_then_the_failure_and_begins_again() {
    let (events, _) = watched(2, |query, watches| match (query, watches) {
        (LIST, 1) => {
            let error = r#"{"kind":"Status","code":500,"reason":"InternalError","message":"no space"}"#;
            [frame("ADDED", &pod("a", 5)), frame("ERROR", error)].concat()
        }
        (LIST, _) => list_end(9),
        _ => newest(9),
    })
    .await;
    let [listing, listed, failed, again] = &events[..4] else { panic!("{events:?}") };
    assert_eq!([listing, listed, again], ["Listing", "listed ns/a@5", "Listing"]);
    assert!(failed.starts_with("Failed") && failed.contains("no space"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_a_long_list_come_in_order_and_some_at_a_time() {
    let (events, _) = watched(2, |query, watches| match (query, watches) {
        ("limit=1", _) => newest(2_000),
        (LIST, 1) => {
            let added = (0..1_000).map(|number| frame("ADDED", &pod(&number.to_string(), number + 1)));
            added.chain([list_end(2_000)]).collect()
        }
        _ => String::new(),
    })
    .await;
    let lists: Vec<&str> = events.iter().filter_map(|event| event.strip_prefix("listed ")).collect();
    let names: Vec<String> = (0..1_000).map(|number| format!("ns/{number}@{}", number + 1)).collect();
    assert_eq!(lists.join(" "), names.join(" "));
    let most = lists.iter().map(|names| names.split(' ').count()).max().unwrap();
    assert!((2..=LISTED_BYTES / pod("0", 1).len() + 1).contains(&most), "{most} objects in one event");
}

#[tokio::test]
async fn only_a_watch_that_ended_early_compares_versions() {
    let (sink, _events) = mpsc::channel(1);
    let mut watch = Watch::new(
        serve(|_| ("200 OK", String::new())).await,
        Slice::from(Kind::new("v1", "Pod")).into(),
        sink,
        |event| event,
    );
    let mut is_doubtful = async |newest, stop, lived_s| {
        watch.newest = ResourceVersion(newest);
        watch.after(stop, Duration::from_secs(lived_s)).await.unwrap();
        watch.is_doubtful
    };
    assert!(!is_doubtful(9, Stop::Closed, WATCH_SECONDS).await);
    assert!(!is_doubtful(9, Stop::Closed, SHORTEST_WATCH.as_secs()).await);
    assert!(is_doubtful(9, Stop::Closed, 60).await);
    assert!(is_doubtful(9, Stop::Silent, WATCH_SECONDS).await, "a version from the future is silent");
    assert!(is_doubtful(9, Stop::Expired(String::new()), WATCH_SECONDS).await);
    assert!(is_doubtful(9, Stop::Failed(Failure::NotSent(String::new())), 0).await);
    assert!(!is_doubtful(0, Stop::Closed, 1).await, "no version was seen");
}

#[tokio::test]
async fn a_watch_with_many_events_is_opened_on_a_connection_of_its_own_the_next_time() {
    let (sink, _events) = mpsc::channel(1);
    let api = serve(|_| ("200 OK", String::new())).await;
    let mut watch = Watch::new(api, Slice::from(Kind::new("v1", "Pod")).into(), sink, |event| event);
    let since = Instant::now().checked_sub(Duration::from_secs(290)).unwrap();
    let mut ended = async |bytes| {
        let class = watch.class;
        watch.stream = Some(Stream { class, since, bytes });
        watch.after(Stop::Closed, Duration::from_secs(290)).await.unwrap();
        watch.class
    };
    assert_eq!(ended(1 << 10).await, Class::Shared);
    assert_eq!(ended(1 << 40).await, Class::Own);
    assert_eq!(ended(1 << 10).await, Class::Shared);
    assert_eq!(ended(1 << 40).await, Class::Own);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_is_watched_in_its_namespace_with_its_labels_and_only_of_a_kind_that_has_namespaces() {
    let (paths, mut seen) = mpsc::unbounded_channel();
    let api = serve(move |request| {
        let _ = paths.send(request.path.clone());
        let resources = r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true},
            {"name":"nodes","kind":"Node","namespaced":false}]}"#;
        ("200 OK", if request.path == "/api/v1" { resources.to_owned() } else { list_end(9) })
    });
    let api = api.await;
    let slice =
        |kind| Slice { namespace: Some("shop".into()), labels: Some("app=web".into()), ..Kind::new("v1", kind).into() };
    let (sink, _events) = mpsc::channel(9);
    let watch = tokio::spawn(run(api.clone(), slice("Pod").into(), sink, |event| event));
    assert_eq!(timeout(DEADLINE, seen.recv()).await.unwrap().unwrap(), "/api/v1");
    let path = timeout(DEADLINE, seen.recv()).await.unwrap().unwrap();
    watch.abort();
    assert!(path.starts_with(&format!("/api/v1/namespaces/shop/pods?{LIST}")), "{path}");
    assert!(path.ends_with("&labelSelector=app%3Dweb"), "{path}");
    let (sink, mut events) = mpsc::channel(9);
    let watch = tokio::spawn(run(api.clone(), slice("Node").into(), sink, |event| event));
    let WatchEvent::Failed(WatchError::NotServed(why)) = timeout(DEADLINE, events.recv()).await.unwrap().unwrap()
    else {
        panic!("no error")
    };
    watch.abort();
    assert_eq!(why, "v1/Node has no namespaces; declare it without");
    for (kind, is_cluster_scoped) in [("Node", true), ("Pod", false)] {
        let (sink, mut events) = mpsc::channel(9);
        let watch = tokio::spawn(run(api.clone(), Slice::from(Kind::new("v1", kind)).into(), sink, |event| event));
        let mut first = timeout(DEADLINE, events.recv()).await.unwrap().unwrap();
        if is_cluster_scoped {
            assert!(matches!(first, WatchEvent::ClusterScoped), "{first:?}");
            first = timeout(DEADLINE, events.recv()).await.unwrap().unwrap();
        }
        assert!(matches!(first, WatchEvent::Listing), "{first:?}");
        watch.abort();
    }
}
