//! The real loop, engine and servers, without an API server: what probes and metrics show meanwhile, and how the host
//! ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mortise_core::component::Offer;
use mortise_core::digest;
use mortise_core::engine::{self, Engine, WriteBudget};
use mortise_core::object::{Kind, ResourceVersion};
use mortise_core::store::Store;
use mortise_source::{Origin, SourceEvent};
use mortise_wasm::engine::{EngineOptions, Pooling};
use mortise_wasm::workers::{JobDone, Workers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::{Effect, Event, EventLoop, Input, LOOK_FOR_UNUSED, Phase, clock, interval};
use crate::components::Components;
use crate::effects::Performer;
use crate::http_client::HttpClient;
use crate::input::{Source, SourceInput};
use crate::inputs::{INPUTS, Inputs, queue};
use crate::loader::Loader;
use crate::log::Observations;
use crate::metrics::Metrics;
use crate::monitoring::{Scrape, probe, scrape};
use crate::observer::Observer;
use crate::sources::{Offers, TenantSources};
use crate::state::{self, HostState, Inspector};
use crate::supervise::{Failures, supervisor};
use crate::tenancy::Tenancy;
use crate::testing::{DEADLINE, api_server, serve_on_loopback};
use crate::webhooks::Webhooks;

struct Host {
    inputs: Inputs,
    stop: oneshot::Sender<()>,
    metrics: Arc<Metrics>,
    inspector: Inspector,
    _failures: Failures,
    folder: tempfile::TempDir,
}

/// A host whose API server refuses connections.
async fn host() -> Host {
    let (host, mut event_loop) = at_rest().await;
    tokio::spawn(async move { event_loop.run().await });
    host
}

/// The same, with a loop that does not run yet.
async fn at_rest() -> (Host, EventLoop) {
    let folder = tempfile::tempdir().unwrap();
    let api = api_server("127.0.0.1:1").await;
    let (inputs, arrivals) = queue();
    let (supervisor, failures) = supervisor();
    let metrics = Arc::new(Metrics::new());
    let loader = Loader::new(
        &folder.path().join("cache"),
        EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() },
    )
    .unwrap();
    let components = Components::start(Arc::new(loader), &api, &inputs, &metrics, &supervisor).unwrap();
    let tenants = TenantSources::start(&api, &inputs, &supervisor).unwrap();
    let performer = Performer {
        api,
        inputs: inputs.clone(),
        supervisor: supervisor.clone(),
        metrics: Arc::clone(&metrics),
        workers: Workers::start(1, |_| {}).unwrap(),
        jobs: Vec::new(),
        components,
        watches: BTreeMap::new(),
        tenants,
        audit: None,
        observations: Observations::default(),
        observer: None,
        webhooks: Webhooks::default(),
        http: HttpClient::new(Err("no test needs it".to_owned()), false),
    };
    let engine = Engine::new(engine::Config {
        instance: "test".into(),
        namespace: "mortise-system".into(),
        call_slots: 2,
        leader_election: false,
        write_budget: WriteBudget::default(),
        http_requests_per_minute: None,
        require_service_account: false,
        tenants: None,
        audit_interval_ms: 0,
    });
    let (stop, stopped) = oneshot::channel();
    let offers = Offers::new(&[Source::ConfigMaps]);
    let (publisher, inspector) = state::channel();
    let event_loop = EventLoop::new(engine, arrivals, stopped, performer, offers, Arc::new(Notify::new()), publisher);
    (Host { inputs, stop, metrics, inspector, _failures: failures, folder }, event_loop)
}

async fn probes(inspector: &Inspector) -> String {
    let inspector = inspector.clone();
    serve_on_loopback(move |request| probe(inspector.clone(), request)).await
}

async fn metrics(metrics: &Arc<Metrics>, inspector: &Inspector) -> String {
    let (metrics, inspector) = (Arc::clone(metrics), inspector.clone());
    let requests = Arc::new(Vec::new);
    let cache_is_usable = Arc::default();
    let source = Scrape { metrics, inspector, requests, cache_is_usable, access: None, latest: Arc::default() };
    serve_on_loopback(move |request| scrape(source.clone(), request)).await
}

async fn get(address: &str, path: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    };
    timeout(DEADLINE, exchange).await.expect("a response")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_its_api_server_is_live_and_not_ready() {
    let host = host().await;
    let address = probes(&host.inspector).await;
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
async fn a_refused_component_shows_in_the_probe_and_in_a_metric() {
    let host = host().await;
    let (file, bytes) = (host.folder.path().join("broken.wasm"), b"\0asm cut");
    std::fs::write(&file, bytes).unwrap();
    let offer = Offer::new("broken", "file broken.wasm", digest::of(bytes), "{}");
    let found = SourceEvent::Found { offer, origin: Origin::File(file) };
    for event in [found, SourceEvent::Listed] {
        host.inputs.send(Input::Source(SourceInput { source: Source::ConfigMaps, event })).await.unwrap();
    }
    let address = probes(&host.inspector).await;
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

    let address = metrics(&host.metrics, &host.inspector).await;
    let scraped = get(&address, "/metrics").await;
    assert!(scraped.contains("application/openmetrics-text; version=1.0.0"), "{scraped}");
    for line in [
        r#"mortise_plugin_refusals_total{plugin="broken",reason="Malformed"} 1"#,
        r#"mortise_plugin_ready{plugin="broken"} 0"#,
    ] {
        assert!(scraped.contains(line), "no {line} in\n{scraped}");
    }
}

/// Counts the lists of tenants that the engine takes.
#[derive(Default)]
struct TenantLists(AtomicUsize);

impl Observer for TenantLists {
    fn event(&self, event: &Event) {
        self.0.fetch_add(usize::from(matches!(event, Event::TenantListed(_))), Ordering::SeqCst);
    }

    fn effect(&self, _: &Effect) {}

    fn called(&self, _: &JobDone) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_what_the_channel_still_holds_of_a_tenant_that_has_ended_is_not_taken() {
    let (_host, mut event_loop) = at_rest().await;
    let lists = Arc::new(TenantLists::default());
    event_loop.performer.observer = Some(lists.clone());
    let (earlier, later) = (Tenancy::new("team-a".into()), Tenancy::new("team-a".into()));
    earlier.end();
    for (tenancy, taken) in [(earlier, 0), (later, 1)] {
        event_loop.take(Input::Tenant(tenancy, Event::TenantListed("team-a".into()).into(), None));
        assert_eq!(lists.0.load(Ordering::SeqCst), taken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_with_nothing_in_flight_ends_the_loop_at_once() {
    let (host, mut event_loop) = at_rest().await;
    host.stop.send(()).unwrap();
    timeout(DEADLINE, event_loop.run()).await.expect("the loop ends");
    drop(event_loop);
    let address = probes(&host.inspector).await;
    let healthz = get(&address, "/healthz").await;
    assert!(healthz.contains("[-]event-loop failed: the event loop has ended"), "{healthz}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stop_signal_passes_a_full_channel_of_inputs() {
    let (host, mut event_loop) = at_rest().await;
    for _ in 0..INPUTS {
        host.inputs.send(Input::Event(Event::Tick)).await.unwrap();
    }
    let further = host.inputs.send(Input::Event(Event::Tick));
    assert!(timeout(Duration::ZERO, further).await.is_err(), "the channel is full");
    host.stop.send(()).unwrap();
    event_loop.round(&mut interval(LOOK_FOR_UNUSED), &mut Vec::new()).await;
    assert_eq!(event_loop.inputs.len(), INPUTS, "none was taken");
    assert_eq!(host.inspector.state().phase, Phase::Ending);
    timeout(DEADLINE, event_loop.run()).await.expect("the loop ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_stays_in_one_step_is_not_live_and_is_scraped_with_its_last_state() {
    let (mut publisher, inspector) = state::channel();
    let kind = Kind::new("v1", "Pod");
    let mut store = Store::new();
    store.begin_list(&kind);
    store.end_list(&kind, ResourceVersion(1));
    let now_ms = clock::now_ms();
    let state = HostState {
        snapshot: store.snapshot(),
        kinds: vec![kind],
        queue_depths: vec![("podset/PodSet".into(), 7)],
        ..HostState::clone(&inspector.state())
    };
    publisher.publish(state, now_ms, now_ms);
    let (probes, scrapes) = (probes(&inspector).await, metrics(&Arc::new(Metrics::new()), &inspector).await);
    publisher.working(now_ms);
    assert!(get(&probes, "/healthz").await.starts_with("HTTP/1.1 200"));
    publisher.working(now_ms.saturating_sub(60_000));
    for path in ["/healthz", "/readyz"] {
        let response = get(&probes, path).await;
        assert!(response.starts_with("HTTP/1.1 500"), "{response}");
        assert!(response.contains("[-]event-loop failed: the event loop has been in one step for 6"), "{response}");
    }
    let scraped = get(&scrapes, "/metrics").await;
    for line in [
        r#"workqueue_depth{name="podset/PodSet",controller="podset/PodSet"} 7"#,
        r#"mortise_cache_objects{kind="v1/Pod"} 0"#,
    ] {
        assert!(scraped.contains(line), "no {line} in\n{scraped}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapes_that_wait_for_one_in_progress_share_the_next_one() {
    let (_publisher, inspector) = state::channel();
    let (begin, begun) = std::sync::mpsc::channel();
    let (end, may_end) = std::sync::mpsc::channel::<()>();
    let may_end = Mutex::new(may_end);
    let requests = move || {
        begin.send(()).unwrap();
        // After the first one its sender is gone, and the others do not wait.
        let _ = may_end.lock().unwrap().recv_timeout(DEADLINE);
        Vec::new()
    };
    let metrics = Arc::new(Metrics::new());
    let (requests, cache_is_usable) = (Arc::new(requests), Arc::default());
    let source = Scrape { metrics, inspector, requests, cache_is_usable, access: None, latest: Arc::default() };
    let arrived = Arc::new(AtomicUsize::new(0));
    let address = {
        let arrived = Arc::clone(&arrived);
        serve_on_loopback(move |request| {
            arrived.fetch_add(1, Ordering::SeqCst);
            scrape(source.clone(), request)
        })
        .await
    };
    let spawn = || {
        let address = address.clone();
        tokio::spawn(async move { get(&address, "/metrics").await })
    };
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let wait = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{what}"));
    };
    let mut scrapes = vec![spawn()];
    until("the first one is in progress", &|| begun.try_recv().is_ok()).await;
    scrapes.extend((0..20).map(|_| spawn()));
    until("the others wait", &|| arrived.load(Ordering::SeqCst) == 21).await;
    drop(end);
    for scraped in scrapes {
        assert!(scraped.await.unwrap().starts_with("HTTP/1.1 200"));
    }
    // The last to arrive may have begun to wait only when the second one had begun.
    let encoded = begun.try_iter().count();
    assert!((1..=2).contains(&encoded), "{encoded} for 20");
}
