//! The two small HTTP servers: `/metrics`, and `/healthz` with `/readyz`. Each asks the event loop, so that an answer is
//! also a proof that the loop turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use mortise_core::engine::Health;
use mortise_core::object::Kind;
use mortise_core::selector::Selector;
use mortise_core::store::Snapshot;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::event_loop::Input;
use crate::metrics::{CacheState, Metrics, PluginState, RequestState, Scraped};
use crate::probes::{self, Answer, Phase};

/// How long the event loop has for an answer: under the kubelet's default timeout of one second, over any batch.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(900);

/// What the event loop tells about itself.
#[derive(Clone, Debug)]
pub(crate) struct HostState {
    /// The driver's own account.
    pub(crate) health: Health,
    /// The cache as it is now.
    pub(crate) snapshot: Snapshot,
    /// The kinds that the cache holds.
    pub(crate) kinds: Vec<Kind>,
    /// Keys that wait, by controller.
    pub(crate) queue_depths: Vec<(Arc<str>, usize)>,
    /// Whether it is beginning or ending.
    pub(crate) phase: Phase,
}

/// Asks the event loop.
#[derive(Clone, Debug)]
pub(crate) struct Inspector {
    inputs: mpsc::Sender<Input>,
}

impl Inspector {
    pub(crate) fn new(inputs: mpsc::Sender<Input>) -> Self {
        Self { inputs }
    }

    /// The loop's report, or why there is none.
    async fn report(&self) -> Result<HostState, String> {
        let ask = async {
            let (answer, report) = oneshot::channel();
            self.inputs.send(Input::Inspect(answer)).await.ok()?;
            report.await.ok()
        };
        match timeout(ANSWER_TIMEOUT, ask).await {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err("the event loop has ended".to_owned()),
            Err(_) => Err(format!("the event loop gave no answer within {} ms", ANSWER_TIMEOUT.as_millis())),
        }
    }
}

/// Serves `/healthz` and `/readyz` until the process ends.
pub(crate) async fn serve_probes(listener: TcpListener, inspector: Inspector) -> anyhow::Result<()> {
    let router = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(inspector);
    axum::serve(listener, router).await.context("serving the health probes")
}

/// Where a scrape's numbers come from.
#[derive(Clone)]
pub(crate) struct Scrape {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) inspector: Inspector,
    /// The client's request counts at this moment.
    pub(crate) requests: Arc<dyn Fn() -> Vec<RequestState> + Send + Sync>,
}

/// Serves `/metrics` until the process ends.
pub(crate) async fn serve_metrics(listener: TcpListener, scrape: Scrape) -> anyhow::Result<()> {
    let router = Router::new().route("/metrics", get(metrics)).with_state(scrape);
    axum::serve(listener, router).await.context("serving the metrics")
}

async fn healthz(State(inspector): State<Inspector>, RawQuery(query): RawQuery) -> Response {
    let failure = inspector.report().await.err();
    respond(probes::live(failure, is_verbose(query.as_deref())))
}

async fn readyz(State(inspector): State<Inspector>, RawQuery(query): RawQuery) -> Response {
    let verbose = is_verbose(query.as_deref());
    let answer = match inspector.report().await {
        Ok(report) => probes::ready(&report.health, report.phase, verbose),
        Err(failure) => probes::unanswered(failure),
    };
    respond(answer)
}

async fn metrics(State(scrape): State<Scrape>) -> Response {
    // A loop that gives no answer is when its counters are wanted most, so they are served without its states.
    let report = scrape.inspector.report().await.ok();
    // Off the I/O threads, of which there are few: every cached object is looked at, and watches and writes must not wait.
    let encoded = spawn_blocking(move || encode(&scrape, report.as_ref())).await;
    match encoded.map_err(anyhow::Error::from).flatten() {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
            (kind, text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response(),
    }
}

fn encode(scrape: &Scrape, report: Option<&HostState>) -> anyhow::Result<String> {
    let scraped = Scraped { requests: (scrape.requests)(), ..report.map(scraped).unwrap_or_default() };
    scrape.metrics.encode(Instant::now(), &scraped).context("writing the metrics")
}

fn scraped(report: &HostState) -> Scraped {
    let plugins = report.health.plugins.iter().map(|plugin| PluginState {
        plugin: plugin.name.clone(),
        digest: plugin.digest.as_ref().map_or_else(|| "".into(), |digest| digest.0.clone()),
        ready: plugin.ready,
    });
    Scraped {
        plugins: plugins.collect(),
        queue_depths: report.queue_depths.clone(),
        cache: report.kinds.iter().map(|kind| cached(&report.snapshot, kind)).collect(),
        requests: Vec::new(),
    }
}

/// Walks every object of a kind, which only a scrape does, on a thread for what blocks and on its own snapshot.
fn cached(snapshot: &Snapshot, kind: &Kind) -> CacheState {
    let bytes = snapshot.list(kind, None, &Selector::default()).map(|object| object.json().len() as u64).sum();
    CacheState { kind: kind.to_string(), objects: snapshot.len(kind) as u64, bytes }
}

fn is_verbose(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose=")))
}

fn respond(answer: Answer) -> Response {
    let status = if answer.passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, answer.text).into_response()
}
