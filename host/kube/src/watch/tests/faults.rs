//! What an API server, its connection or a proxy between them can do to a watch: a list that expires in its middle, silence,
//! frames that cannot be read, versions that are no numbers. Nothing of it ends the watch, and nothing counts as deleted.

use std::sync::Mutex;

use super::*;
use crate::testing::UNENDING;

/// What a test's API server responds with to each query, by the number of queries before it that were equal.
type Respond = fn(&str, usize) -> (&'static str, String);

/// What a watch sends, unchanged.
type Wrap = fn(WatchEvent) -> WatchEvent;

/// A watch of Pods and its events.
fn watch_of(api: ApiServer) -> (Watch<mpsc::Sender<WatchEvent>, Wrap>, mpsc::Receiver<WatchEvent>) {
    let (sink, events) = mpsc::channel(100);
    let wrap: Wrap = |event| event;
    (Watch::new(api, Slice::from(Kind::new("v1", "Pod")).into(), sink, wrap), events)
}

/// An API server of Pods, and the queries that it has received.
async fn pods(respond: Respond) -> (ApiServer, Arc<Mutex<Vec<String>>>) {
    let queries = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&queries);
    let api = serve(move |request| {
        let Some(query) = request.path.strip_prefix("/api/v1/pods?") else {
            return ("200 OK", r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}"#.to_owned());
        };
        let query = query.split("&timeoutSeconds").next().unwrap().to_owned();
        let mut queries = log.lock().unwrap();
        let before = queries.iter().filter(|earlier| **earlier == query).count();
        queries.push(query.clone());
        respond(&query, before)
    });
    (api.await, queries)
}

/// The events up to the first that is shown like this.
async fn events_until(api: ApiServer, last: &str) -> Vec<String> {
    let (sink, mut events) = mpsc::channel(1);
    let watch = tokio::spawn(run(api, Slice::from(Kind::new("v1", "Pod")).into(), sink, |event| event));
    let mut found: Vec<String> = Vec::new();
    while found.last().is_none_or(|event| event != last) {
        let event = timeout(DEADLINE, events.recv()).await.unwrap_or_else(|_| panic!("no {last:?} after {found:?}"));
        found.push(shown(&event.expect("the watch runs")));
    }
    watch.abort();
    found
}

fn ok(body: String) -> (&'static str, String) {
    ("200 OK", body)
}

fn from(version: u64) -> String {
    format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}")
}

fn page(items: &[String], next: &str, version: u64) -> String {
    let items = items.join(",");
    format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_a_list_whose_next_page_has_expired_begins_again_and_ends_whole() {
    let (api, queries) = pods(|query, before| match (query, before) {
        (LIST, _) => {
            ("422 Unprocessable Entity", r#"{"kind":"Status","code":422,"message":"no such field"}"#.to_owned())
        }
        ("limit=500&continue=", _) => ok(page(&[pod("a", 5)], "next", 200)),
        ("limit=500&continue=next", 0) => {
            let expired = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old continue token"}"#;
            ("410 Gone", expired.to_owned())
        }
        ("limit=500&continue=next", _) => ok(page(&[pod("b", 150)], "", 210)),
        _ => ok(String::new()),
    })
    .await;
    let events = events_until(api, "list done@210").await;
    let seen = ["Listing", "listed ns/a@5", "Listing", "listed ns/a@5 ns/b@150", "list done@210"];
    assert_eq!(events, seen, "the first list, which had no b, has no end");
    let queries = queries.lock().unwrap().clone();
    assert!(queries.iter().all(|query| !query.contains("resourceVersion=0")), "the newest state (R4): {queries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_pages_of_the_size_that_its_reader_wants() {
    let (api, queries) = pods(|query, _| match query {
        LIST => ("400 Bad Request", r#"{"kind":"Status","code":400,"message":"no streaming lists"}"#.to_owned()),
        "limit=4&continue=" => ok(page(&[pod("a", 5)], "next", 200)),
        "limit=4&continue=next" => ok(page(&[pod("b", 150)], "", 200)),
        _ => ok(String::new()),
    })
    .await;
    let objects = Objects { page_objects: Some(4), ..Slice::from(Kind::new("v1", "Pod")).into() };
    let (sink, mut events) = mpsc::channel(1);
    let watch = tokio::spawn(run(api, objects, sink, |event| event));
    let mut found: Vec<String> = Vec::new();
    while found.last().is_none_or(|event| event != "list done@200") {
        found.push(shown(&timeout(DEADLINE, events.recv()).await.unwrap().unwrap()));
    }
    watch.abort();
    assert_eq!(found, ["Listing", "listed ns/a@5 ns/b@150", "list done@200"]);
    assert_eq!(queries.lock().unwrap()[1..3], ["limit=4&continue=", "limit=4&continue=next"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn f16_a_watch_whose_connection_is_open_and_silent_is_opened_again_from_its_position() {
    let (api, queries) = pods(|query, _| match query {
        "limit=1" => ok(newest(300)),
        LIST => (UNENDING, [frame("ADDED", &pod("a", 5)), list_end(200)].concat()),
        query if *query == from(200) => (UNENDING, frame("MODIFIED", &pod("a", 201))),
        _ => (UNENDING, String::new()),
    })
    .await;
    let (mut watch, mut events) = watch_of(api);
    watch.idle = Duration::from_millis(50);
    for _ in 0..3 {
        let Err(stop) = timeout(DEADLINE, watch.attempt()).await.expect("silence ends an attempt");
        assert!(matches!(stop, Stop::Silent), "{stop:?}");
        watch.after(stop, LIVED).await.unwrap();
    }
    let mut found = Vec::new();
    while let Ok(event) = events.try_recv() {
        found.push(shown(&event));
    }
    let seen = ["Listing", "listed ns/a@5", "list done@200", "progress@200", "applied ns/a@201", "progress@201"];
    assert_eq!(found, seen, "what came on the next connection is not lost, and nothing is listed again");
    // Versions are compared, because a position from the future is silent too.
    assert_eq!(*queries.lock().unwrap(), [LIST, "limit=1", &from(200), "limit=1", &from(201)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn f21_a_bookmark_moves_the_position_beyond_the_objects_and_a_watch_without_any_moves_with_them() {
    let (api, queries) = pods(|query, _| match query {
        "limit=1" => ok(newest(900)),
        LIST => {
            let bookmark = frame("BOOKMARK", r#"{"kind":"Pod","metadata":{"resourceVersion":"300"}}"#);
            ok([frame("ADDED", &pod("a", 5)), list_end(200), bookmark].concat())
        }
        query if *query == from(300) => ok(frame("MODIFIED", &pod("a", 301))),
        query if *query == from(301) => ok(frame("DELETED", &pod("a", 302))),
        _ => ok(String::new()),
    })
    .await;
    let events = events_until(api, "progress@302").await;
    assert!(events.contains(&"progress@300".to_owned()), "{events:?}");
    let watches: Vec<String> =
        queries.lock().unwrap().iter().filter(|query| query.starts_with("watch")).take(4).cloned().collect();
    assert_eq!(watches, [LIST.to_owned(), from(300), from(301), from(302)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn f22_what_cannot_be_read_of_a_watch_loses_nothing_that_follows() {
    let (api, queries) = pods(|query, before| match (query, before) {
        ("limit=1", _) => ok(newest(900)),
        (LIST, _) => ok([frame("ADDED", &pod("a", 5)), list_end(200)].concat()),
        // A frame is cut where the connection ended.
        (query, 0) if *query == from(200) => {
            let whole = frame("MODIFIED", &pod("a", 201));
            ok([whole.clone(), whole[..whole.len() / 2].to_owned()].concat())
        }
        // A line is no frame, as a proxy's error page.
        (query, 0) if *query == from(201) => ok("<html>bad gateway</html>\n".to_owned()),
        // An object has no metadata, and the next one members that nobody knows.
        (query, 1) if *query == from(201) => {
            let known = pod("b", 203).replace(r#""kind""#, r#""added":{"in":["a later version"]},"kind""#);
            ok([frame("MODIFIED", r#"{"apiVersion":"v1","kind":"Pod"}"#), frame("ADDED", &known)].concat())
        }
        // The server reports an error.
        (query, 0) if *query == from(203) => ok(frame("ERROR", r#"{"kind":"Status","code":500,"message":"no space"}"#)),
        (query, 1) if *query == from(203) => ok(frame("MODIFIED", &pod("b", 204))),
        _ => ok(String::new()),
    })
    .await;
    let events = events_until(api, "applied ns/b@204").await;
    let changes: Vec<&str> = events.iter().filter_map(|event| event.strip_prefix("applied ")).collect();
    assert_eq!(changes, ["ns/a@201", "ns/b@203", "ns/b@204"]);
    assert_eq!(events.iter().filter(|event| *event == "Listing").count(), 1, "the position was kept: {events:?}");
    let unread = events.iter().filter(|event| event.starts_with("Undecodable")).count();
    assert_eq!(unread, 1, "the object without metadata is reported: {events:?}");
    assert_eq!(queries.lock().unwrap().iter().filter(|query| **query == LIST).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn f33_a_kind_whose_versions_are_no_numbers_is_an_error_and_is_never_shown_as_listed() {
    let (api, _) = pods(|query, _| match query {
        LIST => ok([frame("ADDED", &pod("a", 5)), list_end(200).replace("200", "opaque-7f")].concat()),
        _ => ok(newest(200)),
    })
    .await;
    let (sink, mut events) = mpsc::channel(1);
    let watch = tokio::spawn(run(api, Slice::from(Kind::new("v1", "Pod")).into(), sink, |event| event));
    let why = loop {
        match timeout(DEADLINE, events.recv()).await.unwrap().unwrap() {
            WatchEvent::Failed(WatchError::Unavailable(why)) => break why,
            WatchEvent::ListDone(version) => panic!("the list is complete at {version:?}"),
            _ => {}
        }
    };
    watch.abort();
    assert!(why.contains(r#"v1/Pod has the resourceVersion "opaque-7f"; only numbers can be compared"#), "{why}");
}

/// The waits before so many lists of Pods, each of which an API server makes worthless at once.
async fn waits_between_lists(respond: Respond) -> (Vec<Duration>, Vec<String>) {
    let (api, queries) = pods(respond).await;
    let (mut watch, mut events) = watch_of(api);
    let (mut waits, mut found) = (Vec::new(), Vec::new());
    while waits.len() < 6 {
        let lists = queries.lock().unwrap().iter().filter(|query| *query == LIST).count();
        let Err(stop) = timeout(DEADLINE, watch.attempt()).await.expect("each attempt ends");
        if let Stop::Listed(wait) = stop
            && waits.len() < lists
        {
            waits.push(wait);
        }
        let is_listed = matches!(stop, Stop::Listed(_));
        let delay = watch.after(stop, Duration::ZERO).await.unwrap();
        if is_listed {
            sleep(delay).await;
        }
        while let Ok(event) = events.try_recv() {
            found.push(shown(&event));
        }
    }
    (waits, found)
}

#[tokio::test(flavor = "multi_thread")]
async fn q4_lists_that_are_worth_nothing_at_once_follow_each_other_more_and_more_seldom() {
    // Of two API servers with different states every other request finds the older one.
    let (restored, found) = waits_between_lists(|query, before| match (query, before) {
        ("limit=1", _) => ok(newest(100)),
        (LIST, _) => ok(list_end(200)),
        _ => ok(String::new()),
    })
    .await;
    assert!(restored[5] > restored[1] * 8, "{restored:?}");
    assert!(found.iter().any(|event| event == "restored 200 to 100"), "{found:?}");
    let (expired, _) = waits_between_lists(|query, _| match query {
        "limit=1" => ok(newest(200)),
        LIST => ok(list_end(200)),
        _ => {
            let expired = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}"#;
            ("410 Gone", expired.to_owned())
        }
    })
    .await;
    assert!(expired[5] > expired[1] * 8, "{expired:?}");
}

#[tokio::test]
async fn r5_a_kind_that_is_listed_again_and_again_is_reported_once() {
    let (mut watch, mut events) = watch_of(pods(|_, _| ok(String::new())).await.0);
    let mut reported = Vec::new();
    for _ in 0..12 {
        watch.lists.done(Instant::now());
        let wait = watch.lists.wait(Instant::now());
        let delay = watch.after(Stop::Listed(wait), Duration::ZERO).await.unwrap();
        assert!(!watch.is_doubtful && (wait..=wait * 5 / 4).contains(&delay), "{wait:?}, then {delay:?}");
        while let Ok(event) = events.try_recv() {
            reported.push(shown(&event));
        }
    }
    let [failed] = &reported[..] else { panic!("{reported:?}") };
    assert!(failed.contains("v1/Pod is listed once a minute"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_token_repeats_is_a_failure_and_is_tried_again_more_and_more_seldom() {
    let (api, queries) = pods(|query, _| match query {
        LIST => ("400 Bad Request", r#"{"kind":"Status","code":400,"message":"no streaming lists"}"#.to_owned()),
        "limit=500&continue=" => ok(page(&[pod("a", 5)], "again", 200)),
        _ => ok(page(&[pod("b", 6)], "again", 200)),
    })
    .await;
    let (mut watch, mut events) = watch_of(api);
    let mut delays = Vec::new();
    for _ in 0..6 {
        let Err(stop) = timeout(DEADLINE, watch.attempt()).await.expect("a list that repeats itself ends");
        delays.push(watch.after(stop, Duration::ZERO).await.unwrap());
    }
    // The first one finds that there are no streaming lists.
    let lists = queries.lock().unwrap().iter().filter(|query| query.starts_with("limit=500")).count();
    assert_eq!(lists, 5 * 2, "a list has two pages until a token repeats");
    assert!(delays[5] > delays[1] * 4, "{delays:?}");
    let mut shown_events = Vec::new();
    while let Ok(event) = events.try_recv() {
        shown_events.push(shown(&event));
    }
    assert!(!shown_events.iter().any(|event| event.starts_with("list done")), "{shown_events:?}");
    let failed = shown_events.iter().find(|event| event.starts_with("Failed")).expect("it is reported");
    assert!(failed.contains("the list of pods does not end"), "{failed}");
}
