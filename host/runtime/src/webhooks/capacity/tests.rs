//! Permits by plugin, and a server on loopback whose requests of one plugin never end.

use std::future::pending;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::server::{Request, text};
use crate::testing::{DEADLINE, connect_from, serve_on_loopback};

/// An API server's reviews of a plugin.
fn flow(plugin: &str) -> Flow {
    flow_of(0, plugin)
}

fn flow_of(peer: u8, plugin: &str) -> Flow {
    Flow { peer: Ipv4Addr::new(10, 0, 0, peer).into(), plugin: plugin.into() }
}

/// Takes permits until none is left; returns their number.
fn fill(in_use: &mut InUse, flow: &Flow) -> usize {
    fill_with(in_use, flow, 0)
}

fn fill_with(in_use: &mut InUse, flow: &Flow, bytes: usize) -> usize {
    (0..).take_while(|_| in_use.enter(flow, bytes)).count()
}

#[test]
fn q4_a_plugin_alone_has_half_of_what_is_shared_and_each_other_one_has_its_first() {
    let mut in_use = InUse::default();
    assert_eq!(fill(&mut in_use, &flow("spinning")), REQUESTS.shared / 2);
    assert_eq!(fill(&mut in_use, &flow("second")), REQUESTS.shared / 4);
    // The last ones are those of another API server: one has three quarters.
    let others = (0..46).map(|number| fill(&mut in_use, &flow_of(number / 23, &format!("other-{number}"))));
    assert!(others.min().unwrap() >= 1);
    assert!(in_use.enter(&flow_of(1, "healthy"), 0));
}

#[test]
fn permits_end_before_connections_do() {
    let mut in_use = InUse::default();
    let flows: Vec<Flow> =
        (0..REQUESTS.all).map(|number| flow_of(u8::from(number >= REQUESTS.of_peer), &format!("{number}"))).collect();
    for flow in &flows {
        assert!(in_use.enter(flow, 0), "{flow:?} has its first");
    }
    assert!(!in_use.enter(&flows[0], 0) && !in_use.enter(&flow_of(2, "one-more"), 0));
    in_use.leave(&flows[0], 0);
    assert!(in_use.enter(&flow_of(2, "one-more"), 0));
    in_use.leave(&flow_of(2, "one-more"), 0);
    flows[1..].iter().for_each(|flow| in_use.leave(flow, 0));
    assert!(in_use.by_flow.is_empty() && in_use.by_peer.is_empty() && in_use.all == Usage::default(), "{in_use:?}");
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
        in_use.leave(flow, 0);
        for flow in flows {
            in_use.enter(flow, 0);
        }
    }
    let parts: Vec<usize> = in_use.by_flow.values().map(|usage| usage.requests).collect();
    assert!(parts.iter().all(|part| part.abs_diff(REQUESTS.shared / 4) <= 1), "{parts:?}");
}

#[test]
fn a_peer_that_fills_the_parts_of_every_plugin_leaves_another_one_a_request_and_a_large_body_for_each() {
    let mut in_use = InUse::default();
    let largest = 8 << 20;
    for number in 0..200 {
        fill_with(&mut in_use, &flow_of(1, &format!("{number}")), largest);
        fill(&mut in_use, &flow_of(1, &format!("{number}")));
    }
    assert_eq!(in_use.all, Usage { requests: REQUESTS.of_peer, bytes: BYTES.of_peer });
    assert!(in_use.enter(&flow_of(2, "0"), largest) && in_use.enter(&flow_of(2, "1"), largest));
    assert!(!in_use.enter(&flow_of(2, "2"), 1), "there is a bound of all bytes");
}

#[test]
fn bodies_have_a_bound_in_all_and_a_plugin_with_large_ones_leaves_space_for_others() {
    let mut in_use = InUse::default();
    let spinning = flow("spinning");
    assert_eq!(fill_with(&mut in_use, &spinning, 1 << 20), (BYTES.shared / 2) >> 20);
    assert!(!in_use.enter(&spinning, 1 << 20) && in_use.enter(&spinning, 0), "by its bytes");
    let largest = 8 << 20;
    let others = (BYTES.all - BYTES.shared / 2) / largest;
    for number in 0..others {
        assert!(in_use.enter(&flow_of(u8::from(number > 2), &format!("other-{number}")), largest), "{number}");
    }
    assert_eq!(in_use.all.bytes, BYTES.all);
    assert!(!in_use.enter(&flow_of(2, "one-more"), 1));
    in_use.leave(&spinning, 1 << 20);
    assert!(in_use.enter(&flow_of(2, "one-more"), 1 << 20) && !in_use.enter(&flow_of(2, "last"), 1));
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
    let address = serve_on_loopback(move |request: Request| {
        let capacity = capacity.clone();
        async move {
            let plugin = request.path().rsplit('/').next().unwrap_or_default().to_owned();
            let Some(_permit) = capacity.enter(request.peer(), &plugin, request.body_bytes()) else {
                return refusal(&plugin);
            };
            let _ = request.body().await;
            if plugin == "spinning" { pending().await } else { text(StatusCode::OK, "reviewed") }
        }
    })
    .await;
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
async fn bodies_that_arrive_slowly_from_one_peer_are_refused_beyond_its_part_and_another_peers_is_taken() {
    let capacity = Capacity::default();
    let address = serve_on_loopback({
        let capacity = capacity.clone();
        move |request: Request| {
            let capacity = capacity.clone();
            async move {
                let Some(_permit) = capacity.enter(request.peer(), "podset", request.body_bytes()) else {
                    return refusal("podset");
                };
                match request.body().await {
                    Ok(_) => text(StatusCode::OK, "reviewed"),
                    Err(response) => *response,
                }
            }
        }
    })
    .await;
    let head = |bytes: usize| format!("POST /validate/podset HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
    let mut slow = Vec::new();
    for _ in 0..(BYTES.shared / 2) >> 20 {
        let mut stream = connect_from("127.0.0.1", &address).await;
        stream.write_all(head(1 << 20).as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let all_arrive = async {
        while capacity.bytes() < BYTES.shared / 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, all_arrive).await.expect("they are in flight");
    let review = async |peer: &str| {
        let mut stream = connect_from(peer, &address).await;
        let request = [head(1 << 20).as_bytes(), &vec![b' '; 1 << 20]].concat();
        // A refusal may come before the body has left.
        let _ = stream.write_all(&request).await;
        let mut response = [0; 1_024];
        let read = timeout(DEADLINE, stream.read(&mut response)).await.expect("a response").unwrap_or_default();
        String::from_utf8_lossy(&response[..read]).into_owned()
    };
    let response = review("127.0.0.2").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let mut stream = connect_from("127.0.0.1", &address).await;
    stream.write_all(head(1 << 20).as_bytes()).await.unwrap();
    let mut refused = [0; 1_024];
    let read = timeout(DEADLINE, stream.read(&mut refused)).await.expect("a response").unwrap();
    let refused = String::from_utf8_lossy(&refused[..read]);
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("too large requests"), "{refused}");
    drop(slow);
    let all_end = async {
        while capacity.bytes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, all_end).await.expect("they end with their connections");
    let response = review("127.0.0.1").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}
