//! Registers the webhooks with the API server: the serving certificate, the server, and each plugin's webhook
//! configurations. A round compares them with what is wanted, writes the difference and reports the result to the
//! engine. The engine writes the CRDs of kinds that are converted: it gets the [`Endpoint`] as soon as the server
//! listens.
//!
//! A round handles the plugins that changed, or that failed and are due again; once a minute all of them. While no
//! plugin has admission or conversion, there is no request to the API server and no open port.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::admission::AdmissionBackend;
use mortise_core::backoff::doubled_ms;
use mortise_core::certificates::Calendar;
use mortise_core::conversion::ConversionBackend;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::lease::Claim;
use mortise_core::refusal::Refusal;
use mortise_core::webhook::Endpoint;
use mortise_kube::client::ApiServer;
use mortise_kube::clock;
use mortise_kube::leadership::Leadership;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use self::progress::{Due, Progress, Shown};
use super::clients::Clients;
use super::review::Reviewer;
use super::{Admission, Wanted, Webhooks};
use crate::config::WebhookConfig;
use crate::input::Input;
use crate::inputs::Inputs;
use crate::server;
use crate::server::tls::{ServingCert, acceptor};
use crate::supervise::Supervisor;

mod certificate;
mod configurations;
mod progress;
#[cfg(test)]
mod tests;

/// How often a full round runs without a known change: somebody may have deleted a configuration, or another replica
/// may have changed the authority. It costs three requests.
const RESYNC: Duration = Duration::from_secs(60);
/// The first and the longest pause of the exponential backoff, which begins anew with a change of any plugin's webhooks. A
/// person who grants a missing right should see it work at once; what is refused for good costs as much as full rounds do.
const FIRST_PAUSE_MS: u64 = 500;
const LONGEST_PAUSE_MS: u64 = 60_000;
/// How long a backend serves after its configuration is deleted: API servers notice that within a second or two.
const LINGER: Duration = Duration::from_secs(5);
/// How soon to check again for what others write: the host that leads, and the engine, which writes the CRDs.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(2);

pub(crate) struct Registrar {
    pub(crate) config: WebhookConfig,
    pub(crate) namespace: String,
    pub(crate) api: ApiServer,
    pub(crate) inputs: Inputs,
    pub(crate) webhooks: Webhooks,
    pub(crate) reviewer: Reviewer,
    pub(crate) supervisor: Supervisor,
    /// Who may send admission reviews, until the server listens.
    pub(crate) clients: Option<Clients>,
    /// Whether this host leads; None without leader election.
    pub(crate) leadership: Option<watch::Receiver<Leadership>>,
    pub(crate) state: State,
}

#[derive(Default)]
pub(crate) struct State {
    listening: bool,
    calendar: Calendar,
    serving_cert: Arc<ServingCert>,
    shown: Option<Shown>,
    /// Why the API server cannot reach the webhooks, as of the last full round.
    refusal: Option<Refusal>,
    /// The CA bundle of the endpoint, as PEM.
    bundle: Option<String>,
    /// The bundle that every configuration and CRD is known to have.
    trusted: Option<String>,
    /// When the next full round is due; None before the first.
    resync_at: Option<Instant>,
    /// Plugins of the next round.
    due: BTreeSet<Arc<str>>,
    /// Plugins whose configurations failed, or wait for the host that leads, and when they are due.
    later: BTreeSet<Arc<str>>,
    later_at: Option<Instant>,
    failures: u32,
    /// The last report to the engine, by plugin.
    reported: Reports<Digest, ()>,
    /// The same for conversion. Each backend is reported, also one of the same digest.
    reported_conversion: Reports<Arc<ConversionBackend>, Endpoint>,
}

type Reports<V, T> = BTreeMap<Arc<str>, (V, Result<T, Refusal>)>;

impl Registrar {
    /// Runs until the process ends.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let pause = self.round().await;
            let _ = timeout(pause, self.webhooks.changed.notified()).await;
        }
    }

    /// X7: the present claim to lead.
    fn claim(&self) -> Claim {
        self.leadership.as_ref().map_or(Claim::Everlasting, |leadership| Claim::of(leadership.borrow().claim_until_ms))
    }

    fn may_write(&self) -> bool {
        self.claim().allows_writes(clock::now_ms())
    }

    /// Reconciles the plugins that are due; returns the time until the next round.
    async fn round(&mut self) -> Duration {
        let changed = self.webhooks.take_changed();
        if !changed.is_empty() {
            self.state.failures = 0;
        }
        self.state.due.extend(changed);
        let is_served = self.webhooks.all().plugins.values().any(Wanted::is_served);
        let is_past = |at: Option<Instant>| at.is_none_or(|at| at <= Instant::now());
        if is_served && is_past(self.state.resync_at) {
            self.serve().await;
            self.state.later.clear();
            self.state.due.extend(self.webhooks.all().plugins.keys().cloned());
        } else if is_past(self.state.later_at) {
            let later = take(&mut self.state.later);
            self.state.due.extend(later);
        }
        self.reconcile().await;
        if self.state.refusal.is_none() && self.state.later.is_empty() {
            self.state.failures = 0;
            if is_served && is_past(self.state.later_at) && !self.is_trusted().await {
                self.state.later_at = Some(Instant::now() + WAIT_FOR_OTHERS);
            }
        }
        let awaits_others = is_served && self.state.refusal.is_none() && self.state.trusted != self.state.bundle;
        let later_at = self.state.later_at.filter(|_| awaits_others || !self.state.later.is_empty());
        let resync_at = self.state.resync_at.filter(|_| is_served);
        let next = later_at.into_iter().chain(resync_at).min();
        next.map_or(RESYNC, |next| next.saturating_duration_since(Instant::now()))
    }

    /// Renews the certificate, and starts the server once.
    async fn serve(&mut self) {
        let served = match self.certificate().await {
            Ok(trust) => self.listen().await.map(|()| trust),
            Err(refusal) => Err(refusal),
        };
        let pause = match served {
            Ok((bundle, pause)) => {
                self.state.bundle = bundle;
                self.state.refusal = None;
                pause
            }
            Err(refusal) => {
                let pause = self.back_off(&refusal);
                self.state.refusal = Some(refusal);
                pause
            }
        };
        self.state.resync_at = Some(Instant::now() + pause);
    }

    fn back_off(&mut self, refusal: &Refusal) -> Duration {
        if self.state.failures == 0 {
            tracing::warn!(reason = refusal.reason, "the API server cannot call webhooks: {}", refusal.message);
        }
        self.state.failures += 1;
        Duration::from_millis(doubled_ms(FIRST_PAUSE_MS, LONGEST_PAUSE_MS, self.state.failures, &self.namespace))
    }

    async fn reconcile(&mut self) {
        let (due, known) = self.take_due();
        let endpoint = self.endpoint();
        let mut admission = Due::new();
        for (name, wanted) in due {
            self.report_conversion(&name, wanted.conversion, &endpoint).await;
            match (wanted.admission, self.state.refusal.clone()) {
                (Admission::None, _) => {}
                (Admission::Ending, _) => admission.push((name, None)),
                (Admission::Served(backend), None) => admission.push((name, Some(backend))),
                (Admission::Served(backend), Some(refusal)) => self.report(&name, &backend, Err(refusal)).await,
            }
        }
        let (mut is_held, mut failed) = (false, None);
        for (name, backend, progress) in self.configurations(admission, known, &endpoint).await {
            let result = match progress {
                Progress::Done => Ok(()),
                Progress::Foreign(refusal) => Err(refusal),
                Progress::Held => {
                    is_held = true;
                    self.state.later.insert(name);
                    continue;
                }
                Progress::Failed(refusal) => {
                    failed.get_or_insert_with(|| refusal.clone());
                    self.state.later.insert(Arc::clone(&name));
                    Err(refusal)
                }
            };
            match backend {
                Some(backend) => self.report(&name, &backend, result).await,
                None if self.state.later.contains(&name) => {}
                None => self.end(&name).await,
            }
        }
        let pause = failed.map(|refusal| self.back_off(&refusal)).or(is_held.then_some(WAIT_FOR_OTHERS));
        if let Some(pause) = pause {
            self.state.later_at = Some(Instant::now() + pause);
        }
    }

    /// What to register for the plugins that are due, and the number of all plugins.
    fn take_due(&mut self) -> (Vec<(Arc<str>, Wanted)>, usize) {
        let mut all = self.webhooks.all();
        let mut due = Vec::with_capacity(self.state.due.len());
        for name in take(&mut self.state.due) {
            let wanted = all.plugins.get(&name).cloned().unwrap_or_default();
            if wanted.is_nothing() {
                all.plugins.remove(&name);
            }
            due.push((name, wanted));
        }
        (due, all.plugins.len())
    }

    /// Reports a result to the engine if it is new.
    async fn report(&mut self, name: &Arc<str>, backend: &AdmissionBackend, result: Result<(), Refusal>) {
        let report = (backend.digest.clone(), result.clone());
        if self.state.reported.insert(Arc::clone(name), report.clone()) == Some(report) {
            return;
        }
        let (plugin, digest) = (Arc::clone(name), backend.digest.clone());
        self.send(Event::AdmissionServed { plugin, digest, result }).await;
    }

    async fn report_conversion(
        &mut self,
        name: &Arc<str>,
        backend: Option<Arc<ConversionBackend>>,
        endpoint: &Endpoint,
    ) {
        let Some(backend) = backend else {
            self.state.reported_conversion.remove(name);
            return;
        };
        let result = self.state.refusal.clone().map_or_else(|| Ok(endpoint.clone()), Err);
        let last = self.state.reported_conversion.get(name);
        if last.is_some_and(|(of, last)| Arc::ptr_eq(of, &backend) && *last == result) {
            return;
        }
        let (plugin, digest) = (Arc::clone(name), backend.digest.clone());
        self.state.reported_conversion.insert(Arc::clone(name), (backend, result.clone()));
        self.send(Event::ConversionServed { plugin, digest, result }).await;
    }

    /// The configurations are deleted; the backend serves for a while.
    async fn end(&mut self, name: &Arc<str>) {
        self.webhooks.ended(name);
        self.state.reported.remove(name);
        self.send(Event::AdmissionEnded { plugin: Arc::clone(name) }).await;
        let (webhooks, name) = (self.webhooks.clone(), Arc::clone(name));
        self.supervisor.spawn("a webhook's end", async move {
            sleep(LINGER).await;
            webhooks.unroute(&name);
        });
    }

    /// In order: of two contradicting reports the later one holds.
    async fn send(&self, event: Event) {
        // An error means that the loop has ended.
        let _ = self.inputs.send(Input::Event(event)).await;
    }

    async fn listen(&mut self) -> Result<(), Refusal> {
        if self.state.listening {
            return Ok(());
        }
        let refuse = |message| Refusal::new("WebhookNotServed", message);
        let listener = match self.config.bind.listen("--webhook-port").await {
            Ok(Some(listener)) => listener,
            Ok(None) => return Err(refuse("webhooks are off (--webhook-port=0)".to_owned())),
            Err(error) => return Err(refuse(format!("{error:#}"))),
        };
        let clients = self.clients.as_ref().map(Clients::verifier);
        let tls = acceptor(Arc::clone(&self.state.serving_cert), clients)
            .map_err(|error| refuse(format!("setting up TLS for the webhooks: {error}")))?;
        if let Some(clients) = self.clients.take() {
            self.supervisor.task("the reload of --webhook-client-ca", clients.reload());
        }
        let reviewer = self.reviewer.clone();
        self.supervisor.task("the server of the webhooks", async move {
            match server::serve(listener, Some(tls), move |request| reviewer.clone().respond(request)).await {}
        });
        self.state.listening = true;
        Ok(())
    }
}
