//! Sees to it that the API server asks this host, and trusts it: the certificate that the server shows, the server itself, and
//! the webhook configurations of each plugin. It compares what there is with what is wanted, writes the difference, and tells
//! the driver how that came out; then it waits until something changes. Definitions whose objects are converted are the
//! driver's to write: it is told how the API server finds this host as soon as there is somebody who answers.
//!
//! A round looks at the plugins that changed, or that failed and are due again; all are looked at once a minute. Nothing is
//! asked of the API server, and no port is taken, while no plugin has admission or conversion.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::admission::AdmissionBackend;
use mortise_core::conversion::ConversionBackend;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::lease::Claim;
use mortise_core::refusal::Refusal;
use mortise_core::webhook::Endpoint;
use mortise_kube::client::ApiServer;
use mortise_kube::clock;
use mortise_kube::lease::Standing;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use self::progress::{Due, Progress, Shown};
use super::answer::Answerer;
use super::{Admission, Wanted, Webhooks};
use crate::config::WebhookConfig;
use crate::event_loop::Input;
use crate::server;
use crate::server::tls::{ServingCert, acceptor};
use crate::supervise::Supervisor;

mod certificate;
mod configurations;
mod progress;
#[cfg(test)]
mod tests;

/// How often what is there is compared with what is wanted though nothing is known to have changed: somebody may have
/// deleted a configuration, or another replica may have changed the authority. Three requests.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Before the first repetition of what failed, and the most that its doubling comes to. A person who gives a right that was
/// missing should see it work while still looking.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How long the answers go on when a configuration is deleted: API servers hear of that within a second or two.
const LINGER: Duration = Duration::from_secs(5);
/// How soon it is looked whether others have done what is theirs: the host that leads, and the driver with definitions.
const LOOK_AFTER_OTHERS: Duration = Duration::from_secs(2);

/// Everything that the keeper needs.
pub(crate) struct Keeper {
    pub(crate) config: WebhookConfig,
    pub(crate) namespace: String,
    pub(crate) api: ApiServer,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) webhooks: Webhooks,
    pub(crate) answerer: Answerer,
    pub(crate) supervisor: Supervisor,
    /// Whether this host leads; None when it takes part in no election.
    pub(crate) standing: Option<watch::Receiver<Standing>>,
    pub(crate) state: State,
}

/// What the keeper remembers.
#[derive(Default)]
pub(crate) struct State {
    /// The server listens.
    listening: bool,
    serving_cert: Arc<ServingCert>,
    shown: Option<Shown>,
    /// Why the API server cannot ask, as of the last look.
    refusal: Option<Refusal>,
    /// Whom it is to trust, as PEM.
    bundle: Option<String>,
    /// What every configuration and definition is known to trust.
    trusted: Option<String>,
    /// When everything is to be looked at; None: it never was.
    look_at: Option<Instant>,
    /// Plugins that are to be looked at in the next round.
    due: BTreeSet<Arc<str>>,
    /// Those whose configurations failed, or wait for the host that leads, and when they are due.
    later: BTreeSet<Arc<str>>,
    later_at: Option<Instant>,
    failures: u32,
    /// What the driver was told last, by plugin: of which version, and what.
    told: Told<Digest, ()>,
    /// The same of those who convert; each version that begins to is told of.
    told_converting: Told<Arc<ConversionBackend>, Endpoint>,
}

type Told<V, T> = BTreeMap<Arc<str>, (V, Result<T, Refusal>)>;

impl Keeper {
    /// Runs until the process ends.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let pause = self.round().await;
            // What changes meanwhile is looked at once.
            let _ = timeout(pause, self.webhooks.news.notified()).await;
        }
    }

    /// X7: the right to write, as it is now.
    fn claim(&self) -> Claim {
        self.standing.as_ref().map_or(Claim::Everlasting, |standing| Claim::of(standing.borrow().claim_until_ms))
    }

    fn may_write(&self) -> bool {
        self.claim().allows_writes(clock::now_ms())
    }

    /// Brings about what is wanted of the plugins that are due, as far as that is possible now, and says how long that may be
    /// good for.
    async fn round(&mut self) -> Duration {
        let changed = self.webhooks.take_changed();
        self.state.due.extend(changed);
        let is_asked = self.webhooks.all().plugins.values().any(Wanted::is_asked);
        let is_past = |at: Option<Instant>| at.is_none_or(|at| at <= Instant::now());
        if is_asked && is_past(self.state.look_at) {
            self.look().await;
            self.state.later.clear();
            self.state.due.extend(self.webhooks.all().plugins.keys().cloned());
        } else if is_past(self.state.later_at) {
            let later = take(&mut self.state.later);
            self.state.due.extend(later);
        }
        self.bring_about().await;
        if self.state.refusal.is_none() && self.state.later.is_empty() {
            self.state.failures = 0;
            if is_asked && is_past(self.state.later_at) && !self.is_trusted().await {
                self.state.later_at = Some(Instant::now() + LOOK_AFTER_OTHERS);
            }
        }
        let awaits_others = is_asked && self.state.refusal.is_none() && self.state.trusted != self.state.bundle;
        let later_at = self.state.later_at.filter(|_| awaits_others || !self.state.later.is_empty());
        let look_at = self.state.look_at.filter(|_| is_asked);
        let next = later_at.into_iter().chain(look_at).min();
        next.map_or(LOOK_AGAIN, |next| next.saturating_duration_since(Instant::now()))
    }

    /// Sees to it that the server listens and shows a certificate.
    async fn look(&mut self) {
        let found = match self.certificate().await {
            Ok(trust) => self.listen().await.map(|()| trust),
            Err(refusal) => Err(refusal),
        };
        let pause = match found {
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
        self.state.look_at = Some(Instant::now() + pause);
    }

    fn back_off(&mut self, refusal: &Refusal) -> Duration {
        if self.state.failures == 0 {
            tracing::warn!(reason = refusal.reason, "the API server cannot ask plugins: {}", refusal.message);
        }
        self.state.failures += 1;
        FIRST_PAUSE.saturating_mul(1 << (self.state.failures - 1).min(10)).min(LAST_PAUSE)
    }

    async fn bring_about(&mut self) {
        let (due, known) = self.take_due();
        let endpoint = self.endpoint();
        let mut admission = Due::new();
        for (name, wanted) in due {
            self.tell_converting(&name, wanted.conversion, &endpoint).await;
            match (wanted.admission, self.state.refusal.clone()) {
                (Admission::None, _) => {}
                (Admission::Ending, _) => admission.push((name, None)),
                (Admission::Asked(serving), None) => admission.push((name, Some(serving))),
                (Admission::Asked(serving), Some(refusal)) => self.tell(&name, &serving, Err(refusal)).await,
            }
        }
        let (mut is_held, mut failed) = (false, None);
        for (name, serving, progress) in self.configurations(admission, known, &endpoint).await {
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
            match serving {
                Some(serving) => self.tell(&name, &serving, result).await,
                None if self.state.later.contains(&name) => {}
                None => self.end(&name).await,
            }
        }
        let pause = failed.map(|refusal| self.back_off(&refusal)).or(is_held.then_some(LOOK_AFTER_OTHERS));
        if let Some(pause) = pause {
            self.state.later_at = Some(Instant::now() + pause);
        }
    }

    /// What is wanted of the plugins that are due, and how many plugins there are.
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

    /// Tells the driver, if that is news to it.
    async fn tell(&mut self, name: &Arc<str>, serving: &AdmissionBackend, result: Result<(), Refusal>) {
        let news = (serving.digest.clone(), result.clone());
        if self.state.told.insert(Arc::clone(name), news.clone()) == Some(news) {
            return;
        }
        let (plugin, digest) = (Arc::clone(name), serving.digest.clone());
        self.send(Event::AdmissionServed { plugin, digest, result }).await;
    }

    async fn tell_converting(&mut self, name: &Arc<str>, serving: Option<Arc<ConversionBackend>>, endpoint: &Endpoint) {
        let Some(serving) = serving else {
            self.state.told_converting.remove(name);
            return;
        };
        let result = self.state.refusal.clone().map_or_else(|| Ok(endpoint.clone()), Err);
        let told = self.state.told_converting.get(name);
        if told.is_some_and(|(of, told)| Arc::ptr_eq(of, &serving) && *told == result) {
            return;
        }
        let (plugin, digest) = (Arc::clone(name), serving.digest.clone());
        self.state.told_converting.insert(Arc::clone(name), (serving, result.clone()));
        self.send(Event::ConversionServed { plugin, digest, result }).await;
    }

    /// The configurations are gone: those who asked by them are answered for a while.
    async fn end(&mut self, name: &Arc<str>) {
        self.webhooks.ended(name);
        self.state.told.remove(name);
        self.send(Event::AdmissionEnded { plugin: Arc::clone(name) }).await;
        let (webhooks, name, alarm) =
            (self.webhooks.clone(), Arc::clone(name), self.supervisor.alarm("a webhook's end"));
        tokio::spawn(async move {
            let _alarm = alarm;
            sleep(LINGER).await;
            webhooks.unroute(&name);
        });
    }

    /// In the order in which it happened: of two that contradict each other the later one holds.
    async fn send(&self, event: Event) {
        // A loop that has ended wants no answers.
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
        let tls = acceptor(Arc::clone(&self.state.serving_cert))
            .map_err(|error| refuse(format!("setting up TLS for the webhooks: {error}")))?;
        let answerer = self.answerer.clone();
        self.supervisor.task("the server of the webhooks", async move {
            match server::serve(listener, Some(tls), move |request| answerer.clone().answer(request)).await {}
        });
        self.state.listening = true;
        Ok(())
    }
}
