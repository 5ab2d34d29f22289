//! Responds to `/healthz`, `/readyz` and `/metrics` with the state that the event loop published last.
//! `monitoring/access.rs` says who may read the metrics, `monitoring/certificate.rs` has their server's certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use http::StatusCode;
use mortise_core::object::Kind;
use mortise_core::selector::Selector;
use mortise_core::store::Snapshot;
use mortise_kube::clock;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;

use self::access::Access;
use crate::log;
use crate::metrics::machine::MachineState;
use crate::metrics::{CacheState, Metrics, PluginState, RequestState, Scraped};
use crate::probes::{self, Lateness};
use crate::server::{Request, Response, response, text};
use crate::state::{HostState, Inspector};

pub(crate) mod access;
pub(crate) mod certificate;

/// Responds on the port of the health probes.
pub(crate) async fn probe(inspector: Inspector, request: Request) -> Response {
    let verbose = request.query().split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let now_ms = clock::now_ms();
    let failure = inspector.failure(now_ms);
    let result = match (request.path(), failure) {
        ("/healthz", failure) => probes::live(failure, verbose),
        ("/readyz", Some(failure)) => probes::loop_failed(failure),
        ("/readyz", None) => {
            let state = inspector.state();
            let lag = &inspector.lag;
            let lateness = Lateness { most_ms: lag.most_ms(now_ms), failure: lag.failure(now_ms) };
            probes::ready(&state.health, state.phase(now_ms), lateness, verbose)
        }
        (path, _) => return text(StatusCode::NOT_FOUND, format!("there is no probe at {path}")),
    };
    text(if result.passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, result.text)
}

/// After an encoding none begins for so many times as it took: scrapes take a quarter of a core at most.
const PAUSE_PER_COST: u32 = 3;

/// The sources of a scrape.
#[derive(Clone)]
pub(crate) struct Scrape {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) inspector: Inspector,
    /// The client's present request counts.
    pub(crate) requests: Arc<dyn Fn() -> Vec<RequestState> + Send + Sync>,
    /// Whether the folder of the compile cache could be used last.
    pub(crate) cache_is_usable: Arc<AtomicBool>,
    /// None: anybody may read the metrics.
    pub(crate) access: Option<Access>,
    /// One encoding at a time, since each resets the gauges.
    pub(crate) latest: Arc<Mutex<Option<Encoded>>>,
}

/// The last encoded metrics.
pub(crate) struct Encoded {
    text: Bytes,
    began: Instant,
    ended: Instant,
}

/// Responds on the port of the metrics.
pub(crate) async fn scrape(scrape: Scrape, request: Request) -> Response {
    const PATH: &str = "/metrics";
    if request.path() != PATH {
        return text(StatusCode::NOT_FOUND, "the metrics are at /metrics");
    }
    if let Some(access) = &scrape.access
        && let Err(refused) = access.check(&request, PATH).await
    {
        return *refused;
    }
    match encoded(scrape).await {
        Ok(text) => response(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
    }
}

/// The metrics at a moment after this scrape began. Scrapes that wait for the same encoding share the next one.
async fn encoded(scrape: Scrape) -> anyhow::Result<Bytes> {
    let arrived = Instant::now();
    let mut latest = Arc::clone(&scrape.latest).lock_owned().await;
    if let Some(latest) = &*latest {
        if latest.began >= arrived {
            return Ok(latest.text.clone());
        }
        sleep_until((latest.ended + PAUSE_PER_COST * (latest.ended - latest.began)).into()).await;
    }
    // Off the I/O threads: it visits every cached object, and watches and writes must not wait.
    let encoded = spawn_blocking(move || {
        let began = Instant::now();
        let text = Bytes::from(encode(&scrape, &scrape.inspector.state())?);
        *latest = Some(Encoded { text: text.clone(), began, ended: Instant::now() });
        Ok(text)
    });
    encoded.await.context("the encoding of the metrics ended")?
}

fn encode(scrape: &Scrape, state: &HostState) -> anyhow::Result<String> {
    let plugins = state.health.plugins.iter().map(|plugin| PluginState {
        plugin: plugin.name.clone(),
        digest: plugin.digest.as_ref().map_or_else(|| "".into(), |digest| digest.0.clone()),
        ready: plugin.ready,
    });
    let scraped = Scraped {
        plugins: plugins.collect(),
        queue_depths: state.queue_depths.clone(),
        cache: state.kinds.iter().map(|kind| cached(&state.snapshot, kind)).collect(),
        requests: (scrape.requests)(),
        most_lag_ms: scrape.inspector.lag.most_ms(clock::now_ms()),
        machine: machine(scrape),
    };
    scrape.metrics.encode(Instant::now(), &scraped).context("writing the metrics")
}

fn machine(scrape: &Scrape) -> MachineState {
    let (over_budget, unwritten) = log::dropped();
    let cache_is_usable = scrape.cache_is_usable.load(Ordering::Relaxed);
    MachineState { memory: scrape.metrics.memory.state(), cache_is_usable, over_budget, unwritten }
}

fn cached(snapshot: &Snapshot, kind: &Kind) -> CacheState {
    let bytes = snapshot.list(kind, None, &Selector::default()).map(|object| object.json().len() as u64).sum();
    CacheState { kind: kind.to_string(), objects: snapshot.len(kind) as u64, bytes }
}
