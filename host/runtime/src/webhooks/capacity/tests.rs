//! Permits by plugin, and a server on loopback whose requests of one plugin never end.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::server::places::MAX_OF_PEER;
use crate::server::{Request, text};
use crate::testing::{DEADLINE, connect_from, serve_on_loopback};

/// An API server's reviews of a plugin.
fn flow(plugin: &str) -> Flow {
    flow_of(0, plugin)
}

fn flow_of(number: u8, plugin: &str) -> Flow {
    Flow { peer: peer(number), plugin: plugin.into() }
}

fn peer(number: u8) -> Peer {
    IpAddr::from(Ipv4Addr::new(10, 0, 0, number)).into()
}

/// Takes permits until none is left; returns their number.
fn fill(in_use: &mut InUse, flow: &Flow) -> usize {
    (0..).take_while(|_| in_use.enter(flow)).count()
}

#[test]
fn q4_a_plugin_alone_has_half_of_what_is_shared_and_each_other_one_has_its_first() {
    let mut in_use = InUse::default();
    assert_eq!(fill(&mut in_use, &flow("spinning")), REQUESTS.shared / 2);
    assert_eq!(fill(&mut in_use, &flow("second")), REQUESTS.shared / 4);
    // Half of them are of another API server: one has three quarters.
    let others = (0..30).map(|number| fill(&mut in_use, &flow_of(number % 2, &format!("other-{number}"))));
    assert!(others.min().unwrap() >= 1);
    assert!(in_use.enter(&flow_of(1, "healthy")));
}

#[test]
fn permits_end_before_connections_do() {
    let mut in_use = InUse::default();
    // One peer has all that one may, and each of the others one.
    let of_others = |number: usize| number.saturating_sub(REQUESTS.of_peer - 1);
    let flows: Vec<Flow> = (0..REQUESTS.all)
        .map(|number| flow_of(u8::try_from(of_others(number)).unwrap(), &format!("{number}")))
        .collect();
    for flow in &flows {
        assert!(in_use.enter(flow), "{flow:?} has its first");
    }
    assert!(!in_use.enter(&flows[0]) && !in_use.enter(&flow_of(200, "one-more")));
    in_use.leave(&flows[0]);
    assert!(in_use.enter(&flow_of(200, "one-more")));
    in_use.leave(&flow_of(200, "one-more"));
    flows[1..].iter().for_each(|flow| in_use.leave(flow));
    assert!(in_use.by_flow.is_empty() && in_use.by_peer.is_empty() && in_use.all == 0, "{in_use:?}");
    const { assert!(REQUESTS.of_peer < MAX_OF_PEER, "a peer's refused requests have connections too") };
}

#[test]
fn plugins_that_spin_get_equal_parts_as_their_requests_end() {
    equal_parts(&[flow("a"), flow("b"), flow("c")]);
}

#[test]
fn peers_that_send_reviews_of_one_plugin_get_equal_parts_as_their_requests_end() {
    equal_parts(&[flow_of(1, "a"), flow_of(2, "a"), flow_of(3, "a")]);
}

fn equal_parts(flows: &[Flow; 3]) {
    let mut in_use = InUse::default();
    for flow in flows {
        fill(&mut in_use, flow);
    }
    for flow in flows.iter().cycle().take(300) {
        in_use.leave(flow);
        for flow in flows {
            in_use.enter(flow);
        }
    }
    let parts: Vec<usize> = in_use.by_flow.values().copied().collect();
    assert!(parts.iter().all(|part| part.abs_diff(REQUESTS.shared / 4) <= 1), "{parts:?}");
}

#[test]
fn a_peer_that_fills_the_parts_of_every_plugin_leaves_another_one_a_request_and_a_large_body_for_each() {
    let mut in_use = InUse::default();
    for number in 0..200 {
        fill(&mut in_use, &flow_of(1, &format!("{number}")));
    }
    assert_eq!(in_use.all, REQUESTS.of_peer);
    assert!(in_use.enter(&flow_of(2, "0")) && in_use.enter(&flow_of(2, "1")));

    let capacity = Capacity::default();
    let whole = |number: u8, bytes: usize| {
        let charge = capacity.begin(Class::Unverified, peer(number));
        let is_there = charge.arrived(&vec![b' '; bytes]);
        charge.whole(&number.to_string()).filter(|_| is_there)
    };
    let most: Vec<_> = (0..10).map_while(|_| whole(1, 8 << 20)).collect();
    assert_eq!(most.len(), ROOM.of_peer >> 23);
    let [second, third] = [2, 3].map(|number| whole(number, 8 << 20));
    assert!(second.is_some() && third.is_some(), "what waits of the first gives way");
    assert!(most[0].1.work().is_none() && most[3].1.work().is_some());
    assert!(whole(4, 60_000).is_some(), "small ones have their own");
}

/// Two peers had all of them.
#[test]
fn q4_beside_any_36_peers_that_have_as_many_requests_as_they_may_another_one_has_its_first() {
    for peers in [1, 2, 3, 10, 36] {
        let mut in_use = InUse::default();
        for round in 0..REQUESTS.all {
            for number in 0..peers {
                in_use.enter(&flow_of(number, &format!("{round}")));
            }
        }
        assert!(in_use.enter(&flow_of(100, "0")), "beside {peers}: {}", in_use.all);
        let parts: Vec<usize> = (0..peers).map(|number| in_use.by_peer[&peer(number)]).collect();
        let fair = 3 * REQUESTS.all / (3 * usize::from(peers) + 1);
        assert!(parts.iter().all(|part| part.abs_diff(fair) <= 1), "{parts:?} of {fair}");
    }
}

#[test]
fn q4_requests_without_a_certificate_and_conversions_take_nothing_of_those_with_one() {
    let capacity = Capacity::default();
    let mut kept = Vec::new();
    for class in [Class::Unverified, Class::Conversion] {
        for number in 0..=255 {
            let charge = capacity.begin(class, peer(number));
            if charge.arrived(&vec![b' '; 1 << 20]) {
                kept.extend(charge.whole("podset"));
            }
        }
    }
    // One less than there is room for, so that the next peer has some.
    assert_eq!(kept.len(), 2 * (((ROOM.all - (8 << 20)) >> 20) - 1));
    let charge = capacity.begin(Class::Verified, peer(1));
    assert!(charge.arrived(&vec![b' '; 8 << 20]) && charge.whole("podset").is_some());
    drop(kept);
    assert_eq!(capacity.bytes(), 0);
}

async fn post(address: &str, plugin: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST /validate/{plugin} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn q4_reviews_of_one_plugin_that_hang_are_refused_beyond_its_part_and_another_plugins_is_answered() {
    let capacity = Capacity::default();
    let address = serve_on_loopback(move |request: Request| respond(capacity.clone(), request)).await;
    let (sender, mut refused) = mpsc::unbounded_channel();
    for _ in 0..200 {
        let mut stream = post(&address, "spinning").await;
        let sender = sender.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 4_096];
            let read = stream.read(&mut buffer).await.unwrap_or_default();
            let _ = sender.send(String::from_utf8_lossy(&buffer[..read]).into_owned());
            // Ends when the server does.
            let _ = stream.read(&mut buffer).await;
        });
    }
    for _ in 0..200 - REQUESTS.shared / 2 {
        let response = timeout(DEADLINE, refused.recv()).await.expect("it is refused at once").unwrap();
        // One that was idle when its place was taken gets no response.
        if !response.is_empty() {
            assert!(response.starts_with("HTTP/1.1 429 ") && response.contains("retry-after: 1"), "{response}");
            assert!(response.contains("the plugin \\\"spinning\\\" in progress"), "{response}");
        }
    }
    let mut response = vec![0; 64];
    let mut stream = post(&address, "healthy").await;
    let read = timeout(DEADLINE, stream.read(&mut response)).await.expect("it is answered").unwrap();
    assert!(response[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
    assert!(refused.try_recv().is_err(), "requests in progress are not cut off");
}

#[tokio::test(flavor = "multi_thread")]
async fn q4_bodies_that_arrive_slowly_from_many_peers_keep_no_review_out_and_reserve_nothing() {
    let capacity = Capacity::default();
    let address = serve_on_loopback({
        let capacity = capacity.clone();
        move |request: Request| respond(capacity.clone(), request)
    })
    .await;
    let head = |bytes: usize| format!("POST /validate/podset HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
    let mut slow = Vec::new();
    for number in 1..=200 {
        let mut stream = connect_from(&format!("127.0.1.{number}"), &address).await;
        stream.write_all(head(8 << 20).as_bytes()).await.unwrap();
        stream.write_all(b" ").await.unwrap();
        slow.push(stream);
    }
    let all_arrive = async {
        while capacity.bytes() < 200 << 10 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, all_arrive).await.expect("they are in flight");
    assert_eq!(capacity.bytes(), 200 << 10, "1.6 GB were declared");
    for size in [10_000, 8 << 20] {
        let mut stream = connect_from("127.0.0.2", &address).await;
        let request = [head(size).as_bytes(), &vec![b' '; size]].concat();
        stream.write_all(&request).await.unwrap();
        let mut response = [0; 1_024];
        let read = timeout(DEADLINE, stream.read(&mut response)).await.expect("a response").unwrap();
        assert!(response[..read].starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response));
    }
    drop(slow);
    let all_end = async {
        while capacity.bytes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, all_end).await.expect("they end with their connections");
}

/// Takes a body as the reviews do.
async fn respond(capacity: Capacity, request: Request) -> Response {
    let plugin = request.path().rsplit('/').next().unwrap_or_default().to_owned();
    let charge = capacity.begin(Class::Unverified, request.peer());
    let refuse = || Box::new(refusal(&plugin));
    if let Err(response) = request.read(|piece| charge.arrived(piece).then_some(()).ok_or_else(refuse)).await {
        return *response;
    }
    match charge.whole(&plugin) {
        None => refusal(&plugin),
        Some(_whole) if plugin == "spinning" => pending().await,
        Some(_) => text(StatusCode::OK, "reviewed"),
    }
}
