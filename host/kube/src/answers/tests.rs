//! Responses at their bounds and one byte beyond, and places that are held.

use std::time::Duration;

use futures::FutureExt as _;
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::time::{sleep, timeout};

use super::*;
use crate::allocations::counted;
use crate::client::ApiServer;
use crate::testing::{UNENDING, serve};

const DEADLINE: Duration = Duration::from_secs(30);

/// An API server whose response to a path that ends with a number has so many bytes; one under /apis/hostile has no end.
async fn sized() -> ApiServer {
    let api = serve(|request| {
        let bytes = request.path.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        (if request.path.starts_with("/apis/hostile") { UNENDING } else { "200 OK" }, "x".repeat(bytes))
    });
    api.await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_has_the_bound_of_what_it_can_be() {
    let api = sized().await;
    for (size, most) in [(Size::Small, SMALL_BYTES), (Size::Object, OBJECT_BYTES), (Size::List, LIST_BYTES)] {
        let fits = api.get(&format!("/api/v1/{most}"), DEADLINE, size).await.unwrap();
        assert_eq!(fits.body.len(), most);
        let beyond = api.get(&format!("/api/v1/{}", most + 1), DEADLINE, size).await;
        assert!(matches!(beyond, Err(Failure::TooLarge)), "{size:?}");
    }
}

/// A buffer that doubles had twice the bytes of a response, and more than it may have.
#[test]
fn a_response_has_half_more_of_the_allocator_than_it_has_bytes_and_no_more_than_it_may_have() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (answers, piece) = (Answers::default(), Bytes::from(vec![b' '; 10_000]));
    for (size, most) in [(Size::Object, OBJECT_BYTES), (Size::List, LIST_BYTES)] {
        for bytes in [OWN_BYTES, most / 2, most] {
            let frames = (0..bytes / piece.len()).map(|_| Ok::<_, kube::Error>(Frame::data(piece.clone())));
            let mut body = StreamBody::new(futures::stream::iter(frames));
            let (count, (text, _room)) = counted(|| {
                let read = async { answers.read(&mut body, "/api/v1/a", size, None, Instant::now() + DEADLINE).await };
                runtime.block_on(read).unwrap()
            });
            let (counted, allocated) = (text.len(), count.held_bytes.unsigned_abs());
            println!("response, {size:?}: counted {counted}, allocated {allocated}, resident {}", count.resident_bytes);
            assert!(counted > bytes - piece.len() && allocated <= counted + counted / 2, "{allocated} of {counted}");
            assert!(allocated <= most + (64 << 10), "{allocated} of {most}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_responses_without_an_end_hold_the_places_of_their_group_and_others_have_theirs() {
    let api = sized().await;
    let hostile: Vec<_> = (0..20)
        .map(|_| {
            let api = api.clone();
            let path = format!("/apis/hostile.example.com/v1/{}", SMALL_BYTES + 1);
            tokio::spawn(async move { api.get(&path, DEADLINE * 2, Size::Object).await.map(|_| ()) })
        })
        .collect();
    let objects = &api.answers().objects;
    let group = group("/apis/hostile.example.com/v1/x");
    let all_taken = async {
        while objects.enter(Arc::clone(&group)).now_or_never().is_some() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, all_taken).await.expect("twenty of them take its three places");
    for path in ["/api/v1/100000", "/apis/apps/v1/100000"] {
        let read = timeout(DEADLINE, api.get(path, DEADLINE, Size::Object)).await;
        assert_eq!(read.unwrap().unwrap().body.len(), 100_000, "{path}");
    }
    hostile.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_keeps_its_place_until_its_objects_are_taken_over() {
    let api = sized().await;
    let mut pages = Vec::new();
    for _ in 0..3 {
        pages.push(api.get("/apis/apps/v1/9", DEADLINE, Size::List).await.unwrap());
    }
    let next = {
        let api = api.clone();
        tokio::spawn(async move { api.get("/apis/apps/v1/9", DEADLINE, Size::List).await.map(|_| ()) })
    };
    for path in ["/api/v1/9", "/apis/batch/v1/9"] {
        timeout(DEADLINE, api.get(path, DEADLINE, Size::List)).await.unwrap().unwrap();
    }
    timeout(DEADLINE, api.get("/apis/apps/v1/9", DEADLINE, Size::Object)).await.unwrap().unwrap();
    assert!(!next.is_finished(), "three pages of its group are held");
    pages.pop();
    timeout(DEADLINE, next).await.unwrap().unwrap().unwrap();
}

/// Each group had a page of 16 MiB and an object of 8 MiB of its own: sixty-four groups, a GiB at a start.
#[tokio::test(flavor = "multi_thread")]
async fn however_many_groups_send_without_an_end_their_largest_responses_have_room_together_and_each_group_has_a_mib() {
    let api = sized().await;
    for (size, places) in [(Size::Object, &api.answers().largest_objects), (Size::List, &api.answers().largest_lists)] {
        let hostile: Vec<_> = (0..LARGEST_AT_ONCE)
            .map(|group| {
                let (api, path) = (api.clone(), format!("/apis/hostile-{group}.example.com/v1/{}", OWN_BYTES + 1));
                tokio::spawn(async move { api.get(&path, DEADLINE * 2, size).await.map(|_| ()) })
            })
            .collect();
        let all_taken = async {
            while places.available_permits() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, all_taken).await.expect("four of them have all room");
        let fits = timeout(DEADLINE, api.get(&format!("/apis/apps/v1/{OWN_BYTES}"), DEADLINE, size)).await;
        assert_eq!(fits.unwrap().unwrap().body.len(), OWN_BYTES);
        let beyond = api.get(&format!("/apis/apps/v1/{}", OWN_BYTES + 1), Duration::from_millis(200), size).await;
        match size {
            Size::List => assert!(matches!(beyond, Err(Failure::TooLarge)), "it is asked for with fewer objects"),
            _ => assert!(matches!(beyond, Err(Failure::Lost(_))), "it is tried again"),
        }
        // None keeps its room for longer than it may, though its own deadline is a minute.
        let path = format!("/apis/apps/v1/{}", OWN_BYTES + 1);
        let largest = timeout(DEADLINE, api.get(&path, DEADLINE, size)).await;
        assert_eq!(largest.unwrap().unwrap().body.len(), OWN_BYTES + 1);
        for hostile in hostile {
            assert!(timeout(DEADLINE, hostile).await.unwrap().unwrap().is_err());
        }
    }
}

#[test]
fn the_group_of_a_path_has_its_version() {
    for (path, expected) in [
        ("/api/v1", "/api/v1"),
        ("/api/v1/namespaces/a/pods/b", "/api/v1"),
        ("/apis/apps/v1/deployments", "/apis/apps/v1"),
        ("/apis/apps/v1", "/apis/apps/v1"),
        ("/readyz", "/readyz"),
    ] {
        assert_eq!(&*group(path), expected);
    }
}
