//! The real loop, driver and servers, before an API server that is not there: what the host answers while it waits for
//! the cluster, and how it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::component::Offer;
use mortise_core::digest::Digest;
use mortise_core::engine::{self, Engine, WriteBudget};
use mortise_kube::client::{Access, ApiServer};
use mortise_source::SourceEvent;
use mortise_wasm::engine::Pooling;
use mortise_wasm::workers::Workers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::{EventLoop, INPUTS, Input};
use crate::components::Components;
use crate::effects::Performer;
use crate::http::{Inspector, Scrape, serve_metrics, serve_probes};
use crate::loader::Loader;
use crate::log::Reconciles;
use crate::metrics::Metrics;
use crate::probes::Phase;
use crate::sources::{Offers, Source, SourceInput};
use crate::supervise::{Falls, supervisor};
use crate::webhooks::Webhooks;

/// Longer than anything here takes on a busy machine; only a failing test waits for it.
const DEADLINE: Duration = Duration::from_secs(30);

struct Host {
    inputs: mpsc::Sender<Input>,
    stop: oneshot::Sender<()>,
    metrics: Arc<Metrics>,
    _falls: Falls,
    _folder: tempfile::TempDir,
}

/// A host whose API server refuses every connection.
async fn host() -> Host {
    let (host, mut event_loop) = at_rest().await;
    tokio::spawn(async move { event_loop.run().await });
    host
}

/// The same, before its loop has begun to turn.
async fn at_rest() -> (Host, EventLoop) {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
        "clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
        "users":[{"name":"u","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}"#;
    std::fs::write(&kubeconfig, text).unwrap();
    let api = ApiServer::connect(&Access { kubeconfig: Some(kubeconfig), context: None }).await.unwrap();
    let (inputs, receiver) = mpsc::channel(INPUTS);
    let (supervisor, falls) = supervisor();
    let metrics = Arc::new(Metrics::new());
    let loader = Arc::new(Loader::new(&folder.path().join("cache"), Pooling::OnDemand).unwrap());
    let performer = Performer {
        api,
        inputs: inputs.clone(),
        supervisor: supervisor.clone(),
        metrics: Arc::clone(&metrics),
        workers: Workers::start(1, |_| {}).unwrap(),
        components: Components::start(&loader, &inputs, &metrics, &supervisor).unwrap(),
        watches: BTreeMap::new(),
        audit: None,
        reconciles: Reconciles::default(),
        webhooks: Webhooks::new(),
    };
    let driver = Engine::new(engine::Config {
        instance: "test".into(),
        namespace: "mortise-system".into(),
        call_slots: 2,
        leader_election: false,
        write_budget: WriteBudget::default(),
        audit_interval_ms: 0,
    });
    let (stop, stopped) = oneshot::channel();
    let offers = Offers::new(&[Source::ConfigMaps]);
    let event_loop = EventLoop::new(driver, receiver, stopped, performer, offers, Arc::new(Notify::new()));
    (Host { inputs, stop, metrics, _falls: falls, _folder: folder }, event_loop)
}

/// Where one of the servers listens.
async fn probes(inputs: mpsc::Sender<Input>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(serve_probes(listener, Inspector::new(inputs)));
    address
}

async fn get(address: &str, path: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    timeout(DEADLINE, exchange).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_its_api_server_lives_and_is_not_ready() {
    let host = host().await;
    let address = probes(host.inputs.clone()).await;
    let healthz = get(&address, "/healthz").await;
    assert!(healthz.starts_with("HTTP/1.1 200") && healthz.ends_with("ok"), "{healthz}");
    let readyz = get(&address, "/readyz").await;
    assert!(readyz.starts_with("HTTP/1.1 500"), "{readyz}");
    assert!(
        readyz.contains("[+]event-loop ok\n") && readyz.contains("[-]sources failed: not listed yet\n"),
        "{readyz}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_is_refused_is_told_by_the_probe_and_by_a_metric() {
    let host = host().await;
    let offer = Offer {
        name: "broken".into(),
        source: "file broken.wasm".into(),
        digest: Digest(format!("sha256:{}", "0".repeat(64)).into()),
        config: "{}".into(),
    };
    let found = SourceEvent::Found { offer, bytes: b"\0asm cut".as_slice().into() };
    for event in [found, SourceEvent::Listed] {
        host.inputs.send(Input::Source(SourceInput { source: Source::ConfigMaps, event })).await.unwrap();
    }
    let address = probes(host.inputs.clone()).await;
    let refused = async {
        loop {
            let readyz = get(&address, "/readyz?verbose").await;
            if readyz.contains("[-]plugin/broken failed: Malformed") {
                return readyz;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let readyz = timeout(DEADLINE, refused).await.expect("the plugin is refused");
    assert!(readyz.contains("[+]sources ok\n"), "{readyz}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let inspector = Inspector::new(host.inputs.clone());
    let scrape = Scrape { metrics: Arc::clone(&host.metrics), inspector, requests: Arc::new(Vec::new) };
    tokio::spawn(serve_metrics(listener, scrape));
    let scraped = get(&address, "/metrics").await;
    assert!(scraped.contains("application/openmetrics-text; version=1.0.0"), "{scraped}");
    for line in [
        r#"mortise_plugin_refusals_total{plugin="broken",reason="Malformed"} 1"#,
        r#"mortise_plugin_ready{plugin="broken"} 0"#,
    ] {
        assert!(scraped.contains(line), "no {line} in\n{scraped}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_with_nothing_in_flight_ends_the_loop_at_once() {
    let (host, mut event_loop) = at_rest().await;
    host.stop.send(()).unwrap();
    timeout(DEADLINE, event_loop.run()).await.expect("the loop ends");
    drop(event_loop);
    let address = probes(host.inputs).await;
    let healthz = get(&address, "/healthz").await;
    assert!(healthz.contains("[-]event-loop failed: the event loop has ended"), "{healthz}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_word_to_stop_needs_no_place_among_the_inputs_and_comes_before_those_that_wait() {
    let (host, mut event_loop) = at_rest().await;
    let mut answers = Vec::new();
    for _ in 0..INPUTS {
        let (answer, report) = oneshot::channel();
        host.inputs.try_send(Input::Inspect(answer)).unwrap();
        answers.push(report);
    }
    assert!(host.inputs.try_reserve().is_err(), "the channel is full");
    host.stop.send(()).unwrap();
    timeout(DEADLINE, event_loop.run()).await.expect("the loop ends");
    // Some may be looked at until what is in flight has ended, and none before the word.
    let early =
        answers.iter_mut().filter_map(|report| report.try_recv().ok()).filter(|report| report.phase != Phase::Ending);
    assert_eq!(early.count(), 0);
}
