//! Starts every part of the host, and ends them in order: after a signal the writes in flight finish, a second signal
//! ends the process at once, and a part that fails ends it with its name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use mortise_core::engine::{self, Engine};
use mortise_core::event::Event;
use mortise_kube::client::{self, ApiServer};
use mortise_kube::tls;
use mortise_wasm::compile::CacheFolder;
use mortise_wasm::engine::EngineOptions;
use mortise_wasm::workers::{JobDone, Workers};
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::components::Components;
use crate::config::{Config, HttpConfig};
use crate::effects::Performer;
use crate::election::Election;
use crate::event_loop::EventLoop;
use crate::http_client::HttpClient;
use crate::input::Input;
use crate::inputs::{self, Inputs};
use crate::loader::Loader;
use crate::log::throttle::Throttle;
use crate::log::{self, Observations};
use crate::memory;
use crate::metrics::{Metrics, RequestState};
use crate::monitoring::access::Access;
use crate::monitoring::certificate::Certificate;
use crate::monitoring::{Scrape, probe, scrape};
use crate::observer::{Attachment, Observer};
use crate::server;
use crate::server::tls::{ServingCert, acceptor};
use crate::sources::{self, Offers, TenantSources};
use crate::state::{self, Inspector};
use crate::supervise::{Failures, Supervisor, supervisor};
use crate::webhooks::Webhooks;
use crate::webhooks::capacity::Capacity;
use crate::webhooks::clients::Clients;
use crate::webhooks::parsing::Parsing;
use crate::webhooks::registrar::{Registrar, State};
use crate::webhooks::review::Reviewer;

/// Time for writes in flight after a signal: their own timeout. Kubernetes waits 30 s before it kills.
const DRAIN: Duration = Duration::from_secs(10);
/// Threads of the I/O runtime. It moves bytes between sockets and channels and decodes watch events, more than a
/// hundred thousand a second; longer work has its own threads. A second I/O thread makes nothing faster and costs a
/// tenth more CPU (measured): the two wake each other for short work.
const IO_THREADS: usize = 1;

/// Calls in flight for each worker. Waking a thread takes about as long as a small call, so both the workers and the loop
/// should find several.
const CALLS_PER_WORKER: usize = 8;

/// Runs the host until a signal ends it.
///
/// # Errors
/// The part that did not start, the part that failed, or that the end took too long.
pub fn run(config: Config) -> anyhow::Result<()> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .thread_name("mortise-io")
        .enable_all()
        .build()
        .context("starting the I/O threads")?;
    let ended = runtime.block_on(host(config, None));
    // Without waiting: watches never end.
    runtime.shutdown_background();
    ended
}

/// Runs the host as a part of this process, on the caller's runtime, until a signal or the attachment ends it.
///
/// # Errors
/// The part that did not start, the part that failed, or that the end took too long.
pub async fn run_attached(config: Config, attachment: Attachment) -> anyhow::Result<()> {
    host(config, Some(attachment)).await
}

async fn host(config: Config, attachment: Option<Attachment>) -> anyhow::Result<()> {
    // First, so that no signal during the start is lost.
    let mut signals = Signals::new()?;
    let (supervisor, mut failures) = supervisor();
    let (inputs, arrivals) = inputs::queue();
    let access = client::Access { kubeconfig: config.kubeconfig.clone(), context: None };
    let api = ApiServer::connect(&access).await?;
    let metrics = Arc::new(Metrics::new());

    let (publisher, inspector) = state::channel();
    let loader = Arc::new(Loader::new(
        CacheFolder { path: &config.cache_dir, key_file: config.cache_key_file.as_deref() },
        EngineOptions { lines: config.development, quick: config.development, ..EngineOptions::default() },
    )?);
    start_servers(&config, &api, inspector, (&metrics, loader.cache_is_usable()), &supervisor).await?;
    let (observer, asked) = attachment.map(|attachment| (attachment.observer, attachment.stop)).unzip();
    let watch = memory::watch(Arc::clone(&loader), Arc::clone(&metrics.memory), inputs.clone());
    supervisor.task("the measurement of memory", watch);
    let performer = performer(&config, &loader, &api, &inputs, &metrics, &supervisor, observer)?;
    let registrar = registrar(&config, &performer)?;
    let engine = Engine::new(engine::Config {
        instance: config.instance.as_str().into(),
        namespace: config.namespace.as_str().into(),
        call_slots: config.workers.get() * CALLS_PER_WORKER,
        leader_election: config.leader_election.is_some(),
        write_budget: config.write_budget,
        http_requests_per_minute: config.http.as_ref().map(|http| http.requests_per_minute),
        require_service_account: config.require_service_account,
        tenants: config.tenants.clone(),
        audit_interval_ms: config.audit_interval_minutes.saturating_mul(60_000),
    });
    let offers = Offers::new(&sources::of(&config));
    let (stop, stopped) = oneshot::channel();
    let read_again = Arc::new(Notify::new());
    let event_loop = EventLoop::new(engine, arrivals, stopped, performer, offers, Arc::clone(&read_again), publisher);
    let drained = start_loop(event_loop, &supervisor)?;
    sources::start(&config, &api, &inputs, read_again, &supervisor)?;
    let election = match &config.leader_election {
        Some(named) => Some(Election::start(named, &config.instance, access, &inputs, &metrics, &supervisor)?),
        None => None,
    };
    if let Some(election) = &election {
        api.follow(election.leadership());
    }
    let registrar = Registrar { leadership: election.as_ref().map(Election::leadership), ..registrar };
    let registrar = supervisor.task("the registration of the webhooks", registrar.run());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        api_server = api.host(),
        namespace = %config.namespace,
        workers = config.workers,
        identity = if config.require_service_account { "a ServiceAccount for each plugin" } else { "the host's, unless a Plugin names a ServiceAccount" },
        "mortise runs"
    );
    if !config.require_service_account {
        let (folder, kubeconfig) = (config.plugin_dir.as_deref(), config.kubeconfig.as_deref());
        tracing::warn!("{}", who_has_the_hosts_rights(&config.namespace.to_string(), folder, kubeconfig));
    }
    let drain = || {
        api.drain();
        // An error means that the loop has ended, which is a failure too.
        let _ = stop.send(());
    };
    end(&mut signals, asked, &mut failures, &loader, (drain, drained), registrar, election).await
}

/// Who can do what the host may, where plugins may act as the host itself, and how to see what that is.
fn who_has_the_hosts_rights(namespace: &str, folder: Option<&Path>, kubeconfig: Option<&Path>) -> String {
    let folder = folder.map(|folder| format!(", who may write into {}", folder.display())).unwrap_or_default();
    let kubeconfig = kubeconfig.map(|file| format!(" --kubeconfig {}", file.display())).unwrap_or_default();
    format!(
        "plugins whose Plugin names no ServiceAccount act with the host's own rights, which `kubectl auth can-i --list{kubeconfig}` prints \
         with the host's credentials. So who may write ConfigMaps in the namespace {namespace}{folder}, or who may write Plugins, has \
         them: he brings a component, or has one act as the host; --require-service-account refuses such plugins"
    )
}

/// Waits for a signal, a failure or a process that embeds the host, then for the writes in flight.
async fn end(
    signals: &mut Signals,
    asked: Option<oneshot::Receiver<()>>,
    failures: &mut Failures,
    loader: &Loader,
    (drain, mut drained): (impl FnOnce(), oneshot::Receiver<()>),
    registrar: AbortHandle,
    election: Option<Election>,
) -> anyhow::Result<()> {
    let failed = tokio::select! {
        name = signals.next() => {
            tracing::info!(signal = name, "ending: writes in flight finish, nothing new begins");
            None
        }
        _ = wait(asked) => None,
        failure = failures.next() => Some(failure),
    };
    // First, since a second signal may end the process at any time.
    loader.withdraw();
    if let Some(failure) = failed {
        return Err(failure);
    }
    drain();
    tokio::select! {
        biased;
        Ok(()) = &mut drained => {
            // Webhooks are served to the end; the registrar writes no more.
            registrar.abort();
            // Only now, with no write in flight: the next leader may write at once.
            if let Some(election) = election {
                election.end().await;
            }
            tracing::info!("ended");
            Ok(())
        }
        name = signals.next() => bail!("{name} came a second time: ended at once; every write is safe to repeat"),
        failure = failures.next() => Err(failure),
        () = sleep(DRAIN) => bail!(
            "writes were still in flight {} s after the signal; every write is safe to repeat",
            DRAIN.as_secs()
        ),
    }
}

/// Waits until the attachment says so; without one, for ever.
async fn wait(asked: Option<oneshot::Receiver<()>>) {
    match asked {
        Some(asked) => drop(asked.await),
        None => std::future::pending().await,
    }
}

fn performer(
    config: &Config,
    loader: &Arc<Loader>,
    api: &ApiServer,
    inputs: &Inputs,
    metrics: &Arc<Metrics>,
    supervisor: &Supervisor,
    observer: Option<Arc<dyn Observer>>,
) -> anyhow::Result<Performer> {
    let workers = {
        let (inputs, metrics, supervisor) = (inputs.clone(), Arc::clone(metrics), supervisor.clone());
        let observer = observer.clone();
        Workers::start(config.workers.get(), move |job: JobDone| {
            let _guard = supervisor.guard("a guest worker");
            log::called(&job);
            if let Some(observer) = &observer {
                observer.called(&job);
            }
            metrics.called(&job.cause.controller, &job.done);
            // An error means that the loop has ended.
            let _ = inputs.blocking_send(Input::Event(Event::CallDone(job.id, job.done)));
        })
        .context("starting the threads that run plugins")?
    };
    Ok(Performer {
        api: api.clone(),
        inputs: inputs.clone(),
        supervisor: supervisor.clone(),
        metrics: Arc::clone(metrics),
        workers,
        jobs: Vec::new(),
        components: Components::start(Arc::clone(loader), api, inputs, metrics, supervisor)?,
        watches: BTreeMap::new(),
        tenants: TenantSources::start(api, inputs, supervisor)?,
        audit: None,
        observations: Observations::default(),
        observer,
        webhooks: Webhooks::default(),
        http: http_client(config.http.as_ref())?,
    })
}

/// A machine that trusts no authority may still send requests without TLS.
fn http_client(config: Option<&HttpConfig>) -> anyhow::Result<HttpClient> {
    let Some(config) = config else { return Ok(HttpClient::new(Err("the host sends no requests".to_owned()), false)) };
    let tls = match &config.authorities {
        Some(file) => {
            let unusable = || format!("cannot use {}, which --http-ca names", file.display());
            let pem = std::fs::read(file).with_context(unusable)?;
            Ok(tls::client_config(Some(&pem)).with_context(unusable)?)
        }
        None => tls::client_config(None).map_err(|error| format!("{:#}", anyhow::Error::from(error))),
    };
    Ok(HttpClient::new(tls, config.to_local))
}

fn registrar(config: &Config, performer: &Performer) -> anyhow::Result<Registrar> {
    let webhooks = performer.webhooks.clone();
    let (workers, metrics) = (performer.workers.submitter().clone(), Arc::clone(&performer.metrics));
    let clients = config.webhook.clients.clone().map(Clients::read).transpose()?;
    Ok(Registrar {
        config: config.webhook.clone(),
        namespace: config.namespace.to_string(),
        api: performer.api.clone(),
        inputs: performer.inputs.clone(),
        reviewer: Reviewer {
            webhooks: webhooks.clone(),
            workers,
            metrics,
            faults: Throttle::default(),
            capacity: Capacity::default(),
            parsing: Parsing::default(),
            only_verified: clients.is_some(),
        },
        webhooks,
        supervisor: performer.supervisor.clone(),
        clients,
        leadership: None,
        state: State::default(),
    })
}

/// The event loop has a thread of its own: it computes, and neither it nor the sockets should wait for the other.
fn start_loop(mut event_loop: EventLoop, supervisor: &Supervisor) -> anyhow::Result<oneshot::Receiver<()>> {
    let (done, drained) = oneshot::channel();
    let guard = supervisor.guard("the event loop");
    let runtime = Handle::current();
    let work = move || {
        let _guard = guard;
        runtime.block_on(event_loop.run());
        // Before the loop's channel closes, which ends the watches.
        let _ = done.send(());
    };
    thread::Builder::new().name("mortise-loop".to_owned()).spawn(work).context("starting the event loop's thread")?;
    Ok(drained)
}

async fn start_servers(
    config: &Config,
    api: &ApiServer,
    inspector: Inspector,
    (metrics, cache_is_usable): (&Arc<Metrics>, Arc<AtomicBool>),
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    if let Some(listener) = config.probes.listen("--health-probe-bind-address").await? {
        let inspector = inspector.clone();
        supervisor.task("the server of the health probes", async move {
            match server::serve(listener, None, move |request| probe(inspector.clone(), request)).await {}
        });
    }
    if let Some(listener) = config.metrics.listen("--metrics-bind-address").await? {
        let tls = match &config.secure_metrics {
            Some(secure) => {
                let serving_cert = Arc::new(ServingCert::default());
                let certificate = Certificate::new(secure.certificate_dir.clone(), Arc::clone(&serving_cert))?;
                supervisor.task("the renewal of the metrics' certificate", certificate.run());
                Some(acceptor(serving_cert, None).context("setting up TLS for the metrics")?)
            }
            None => None,
        };
        let (metrics, access, api) = (Arc::clone(metrics), tls.as_ref().map(|_| Access::new(api.clone())), api.clone());
        let requests = Arc::new(move || requests(&api));
        let source = Scrape { metrics, inspector, requests, cache_is_usable, access, latest: Arc::default() };
        supervisor.task("the server of the metrics", async move {
            match server::serve(listener, tls, move |request| scrape(source.clone(), request)).await {}
        });
    }
    Ok(())
}

fn requests(api: &ApiServer) -> Vec<RequestState> {
    let counted = api.counts().all().into_iter();
    let host = api.host();
    counted
        .map(|row| RequestState { code: row.code, method: row.method, host: host.to_owned(), count: row.count })
        .collect()
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        Ok(Self { terminate, interrupt })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g9_a_host_that_lends_its_own_rights_says_which_and_to_whom() {
        let said = "plugins whose Plugin names no ServiceAccount act with the host's own rights, which `kubectl auth can-i --list \
                    --kubeconfig /kc` prints with the host's credentials. So who may write ConfigMaps in the namespace \
                    mortise-system, who may write into /plugins, or who may write Plugins, has them: he brings a component, or has \
                    one act as the host; --require-service-account refuses such plugins";
        let [folder, kubeconfig] = ["/plugins", "/kc"].map(Path::new);
        assert_eq!(who_has_the_hosts_rights("mortise-system", Some(folder), Some(kubeconfig)), said);
        let in_a_pod = said.replace(", who may write into /plugins", "").replace(" --kubeconfig /kc", "");
        assert_eq!(who_has_the_hosts_rights("mortise-system", None, None), in_a_pod);
    }
}
