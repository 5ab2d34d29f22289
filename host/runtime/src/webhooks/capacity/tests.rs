//! Permits by plugin, and a server on loopback whose requests of one plugin never end.

use std::future::pending;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::server::{Request, text};
use crate::testing::{DEADLINE, serve_on_loopback};

/// Takes permits until none is left; returns their number.
fn fill(in_use: &mut InUse, plugin: &str) -> usize {
    fill_with(in_use, plugin, 0)
}

fn fill_with(in_use: &mut InUse, plugin: &str, bytes: usize) -> usize {
    let plugin = plugin.into();
    (0..).take_while(|_| in_use.enter(&plugin, bytes)).count()
}

#[test]
fn q4_a_plugin_alone_has_half_of_what_is_shared_and_each_other_one_has_its_first() {
    let mut in_use = InUse::default();
    assert_eq!(fill(&mut in_use, "spinning"), REQUESTS.shared / 2);
    assert_eq!(fill(&mut in_use, "second"), REQUESTS.shared / 4);
    let others = (0..46).map(|number| fill(&mut in_use, &format!("other-{number}")));
    assert!(others.min().unwrap() >= 1);
    assert!(in_use.enter(&"healthy".into(), 0));
}

#[test]
fn permits_end_before_connections_do() {
    let mut in_use = InUse::default();
    let plugins: Vec<Arc<str>> = (0..REQUESTS.all).map(|number| format!("plugin-{number}").into()).collect();
    for plugin in &plugins {
        assert!(in_use.enter(plugin, 0), "{plugin} has its first");
    }
    assert!(!in_use.enter(&plugins[0], 0) && !in_use.enter(&"one-more".into(), 0));
    in_use.leave(&plugins[0], 0);
    assert!(in_use.enter(&"one-more".into(), 0));
    in_use.leave(&"one-more".into(), 0);
    plugins[1..].iter().for_each(|plugin| in_use.leave(plugin, 0));
    assert!(in_use.by_plugin.is_empty() && in_use.all == Usage::default(), "{in_use:?}");
}

#[test]
fn plugins_that_spin_get_equal_parts_as_their_requests_end() {
    let mut in_use = InUse::default();
    let plugins: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
    for plugin in &plugins {
        fill(&mut in_use, plugin);
    }
    for plugin in plugins.iter().cycle().take(300) {
        in_use.leave(plugin, 0);
        for plugin in &plugins {
            in_use.enter(plugin, 0);
        }
    }
    let parts: Vec<usize> = in_use.by_plugin.values().map(|usage| usage.requests).collect();
    assert!(parts.iter().all(|part| part.abs_diff(REQUESTS.shared / 4) <= 1), "{parts:?}");
}

#[test]
fn bodies_have_a_bound_in_all_and_a_plugin_with_large_ones_leaves_space_for_others() {
    let mut in_use = InUse::default();
    assert_eq!(fill_with(&mut in_use, "spinning", 1 << 20), (BYTES.shared / 2) >> 20);
    assert!(!in_use.enter(&"spinning".into(), 1 << 20) && in_use.enter(&"spinning".into(), 0), "by its bytes");
    let largest = 8 << 20;
    let others = (BYTES.all - BYTES.shared / 2) / largest;
    for number in 0..others {
        assert!(in_use.enter(&format!("other-{number}").into(), largest), "{number}");
    }
    assert_eq!(in_use.all.bytes, BYTES.all);
    assert!(!in_use.enter(&"one-more".into(), 1));
    in_use.leave(&"spinning".into(), 1 << 20);
    assert!(in_use.enter(&"one-more".into(), 1 << 20) && !in_use.enter(&"last".into(), 1));
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
            let Some(_permit) = capacity.enter(&plugin, request.body_bytes()) else { return refusal(&plugin) };
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
