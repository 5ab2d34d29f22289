//! Sees to it that the API server asks this host, and believes it: the certificate authority in its Secret, the certificate
//! that the server shows, the server itself, and the webhook configurations of each plugin. It compares what there is with
//! what is wanted, writes the difference, and tells the driver how that came out; then it waits until something changes.
//! Definitions whose objects are converted are the driver's to write: it is told how the API server finds this host as
//! soon as there is somebody who answers.
//!
//! Nothing is asked of the API server, and no port is taken, while no plugin has admission or conversion.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use mortise_core::admission::AdmissionBackend;
use mortise_core::admission::configuration::{Change, Configuration, Resources, change, name_of, plugin_of, wanted};
use mortise_core::certificates::{AUTHORITY_MS, LEAF_MS, Step, Validity, step};
use mortise_core::conversion::ConversionBackend;
use mortise_core::crd;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::lease::Claim;
use mortise_core::refusal::Refusal;
use mortise_core::webhook::Endpoint;
use mortise_core::well_known::WEBHOOK_SECRET;
use mortise_core::write::{WriteError, WriteErrorClass};
use mortise_kube::client::ApiServer;
use mortise_kube::clock;
use mortise_kube::lease::Standing;
use mortise_kube::webhook::authority::{Authority, from_files};
use mortise_kube::webhook::secret::Kept;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::answer::Answerer;
use super::{Admission, Wanted, Webhooks};
use crate::config::WebhookConfig;
use crate::event_loop::Input;
use crate::server::serve;
use crate::server::tls::{ServingCert, acceptor};
use crate::supervise::Supervisor;

/// How often what is there is compared with what is wanted though nothing is known to have changed: somebody may have
/// deleted a configuration, or another replica may have changed the authority. Three requests.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The same where the certificate is somebody else's, whose files cost nothing to look at.
const LOOK_AT_FILES: Duration = Duration::from_secs(10);
/// Before the first repetition of what failed, and the most that its doubling comes to. A person who gives a right that was
/// missing should see it work while still looking.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How long the answers go on when a configuration is deleted: API servers hear of that within a second or two.
const LINGER: Duration = Duration::from_secs(5);
/// How soon it is looked whether others have done what is theirs: the host that leads, and the driver with definitions.
const LOOK_AFTER_OTHERS: Duration = Duration::from_secs(2);
/// Steps of one look at the authority; there are three at most before it waits.
const MAX_STEPS: usize = 5;

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
    pub(crate) serving_cert: Arc<ServingCert>,
    pub(crate) state: State,
}

/// What the keeper remembers.
#[derive(Default)]
pub(crate) struct State {
    /// The server listens.
    listening: bool,
    /// What the current certificate was made of, and when it is due.
    shown: Option<Shown>,
    /// What every configuration and definition is known to trust.
    trusted: Option<String>,
    /// What the driver was told last.
    told: Reported<Digest, ()>,
    /// The same of those who convert; each version that begins to is told of.
    told_converting: Reported<Arc<ConversionBackend>, Endpoint>,
    failures: u32,
}

/// By plugin, which version was spoken of, and what was said.
type Reported<V, T> = BTreeMap<Arc<str>, (V, Result<T, Refusal>)>;

#[derive(PartialEq, Eq)]
enum Shown {
    /// Issued by the authority of this certificate, until it is to be renewed.
    Issued { authority: String, renew_at_ms: u64 },
    /// As it stands in files.
    Files { chain: Vec<u8>, key: Vec<u8> },
}

/// How far a configuration is. Of two, the greater one is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    /// As it is wanted.
    Done,
    /// It is somebody else's.
    Foreign,
    /// It is to be written, and this host may not (X7).
    Held,
}

/// Why a plugin is not asked.
struct Trouble {
    reason: &'static str,
    message: String,
}

impl Keeper {
    /// Runs until the process ends.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let mut changed = self.webhooks.subscribe();
        loop {
            let wanted = changed.borrow_and_update().clone();
            if wanted.admission.is_empty() && wanted.conversion.is_empty() {
                changed.changed().await.context("the event loop has ended")?;
                continue;
            }
            let pause = self.round(&wanted).await;
            // What changes meanwhile is looked at once.
            if let Ok(ended) = timeout(pause, changed.changed()).await {
                ended.context("the event loop has ended")?;
            }
        }
    }

    /// X7: the right to write, as it is now.
    fn claim(&self) -> Claim {
        self.standing.as_ref().map_or(Claim::Everlasting, |standing| Claim::of(standing.borrow().claim_until_ms))
    }

    fn may_write(&self) -> bool {
        self.claim().allows_writes(clock::now_ms())
    }

    /// Brings about what is wanted, as far as that is possible now, and says how long that may be good for.
    async fn round(&mut self, wanted: &Wanted) -> Duration {
        let is_asked = !wanted.conversion.is_empty() || wanted.admission.values().any(Option::is_some);
        let (bundle, due) = if is_asked {
            match self.certificate().await {
                Ok(found) => found,
                Err(trouble) => return self.unserved(wanted, &trouble).await,
            }
        } else {
            (None, LOOK_AGAIN)
        };
        if is_asked && let Err(trouble) = self.listen().await {
            return self.unserved(wanted, &trouble).await;
        }
        let endpoint = Endpoint {
            address: self.config.address.clone(),
            ca_bundle: bundle.as_ref().map(|bundle| base64(bundle).into()),
            namespace: self.namespace.as_str().into(),
        };
        self.tell_converting(wanted, &Ok(endpoint.clone())).await;
        match self.written(wanted, &endpoint, &bundle).await {
            Ok(is_done) => {
                self.state.failures = 0;
                if !is_done {
                    return LOOK_AFTER_OTHERS;
                }
                self.state.trusted = bundle;
                due
            }
            Err(trouble) => self.troubled(&wanted.admission, &trouble).await,
        }
    }

    /// Whether everything that names this host is as it is wanted: what is the keeper's to write, and what is the driver's.
    async fn written(
        &mut self,
        wanted: &Wanted,
        endpoint: &Endpoint,
        bundle: &Option<String>,
    ) -> Result<bool, Trouble> {
        let is_done = self.configurations(&wanted.admission, endpoint).await?;
        Ok(is_done && (self.state.trusted == *bundle || self.is_trusted_by_definitions(wanted, endpoint).await?))
    }

    /// Whether every definition believes whom `endpoint` names. The driver writes them, so this host only looks.
    async fn is_trusted_by_definitions(&self, wanted: &Wanted, endpoint: &Endpoint) -> Result<bool, Trouble> {
        for (name, serving) in &wanted.conversion {
            for spec in &*serving.specs {
                let live = self
                    .api
                    .read_definition(&spec.crd)
                    .await
                    .map_err(|error| Trouble { reason: "DefinitionUnreadable", message: error.message.clone() })?;
                if live.is_some_and(|live| !crd::conversion::trusts(&live, name, endpoint)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// There is no server, or nobody could believe it: neither question can be asked.
    async fn unserved(&mut self, wanted: &Wanted, trouble: &Trouble) -> Duration {
        let refusal = Refusal::new(trouble.reason, trouble.message.clone());
        self.tell_converting(wanted, &Err(refusal)).await;
        self.troubled(&wanted.admission, trouble).await
    }

    /// Tells every plugin that is to be asked what is in the way, and how long to wait before the next try.
    async fn troubled(&mut self, wanted: &Admission, trouble: &Trouble) -> Duration {
        if self.state.failures == 0 {
            tracing::warn!(reason = trouble.reason, "the API server cannot ask plugins: {}", trouble.message);
        }
        let refusal = Refusal::new(trouble.reason, trouble.message.clone());
        for (name, serving) in wanted {
            if let Some(serving) = serving {
                self.tell(name, serving, Err(refusal.clone())).await;
            }
        }
        self.state.failures += 1;
        FIRST_PAUSE.saturating_mul(1 << (self.state.failures - 1).min(10)).min(LAST_PAUSE)
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

    /// Tells the driver of all who convert, as far as that is news to it.
    async fn tell_converting(&mut self, wanted: &Wanted, result: &Result<Endpoint, Refusal>) {
        self.state.told_converting.retain(|name, _| wanted.conversion.contains_key(name));
        for (name, serving) in &wanted.conversion {
            let is_known = |(of, told): &(Arc<ConversionBackend>, _)| Arc::ptr_eq(of, serving) && told == result;
            if self.state.told_converting.get(name).is_some_and(is_known) {
                continue;
            }
            self.state.told_converting.insert(Arc::clone(name), (Arc::clone(serving), result.clone()));
            let (plugin, digest) = (Arc::clone(name), serving.digest.clone());
            self.send(Event::ConversionServed { plugin, digest, result: result.clone() }).await;
        }
    }

    /// In the order in which it happened: of two that contradict each other the later one holds.
    async fn send(&self, event: Event) {
        // A loop that has ended wants no answers.
        let _ = self.inputs.send(Input::Event(event)).await;
    }

    // === certificates ===

    /// A certificate to show, whom to trust for it, and when to look again.
    async fn certificate(&mut self) -> Result<(Option<String>, Duration), Trouble> {
        match self.config.certificate_dir.clone() {
            Some(dir) => self.certificate_of_files(&dir).await.map(|bundle| (bundle, LOOK_AT_FILES)),
            None => self.certificate_of_authority().await.map(|(bundle, due)| (Some(bundle), due)),
        }
    }

    /// What somebody else, such as cert-manager, keeps in files.
    async fn certificate_of_files(&mut self, dir: &Path) -> Result<Option<String>, Trouble> {
        let read = async |name: &str| tokio::fs::read(dir.join(name)).await;
        let unreadable = |name: &str, error: std::io::Error| Trouble {
            reason: "CertificateUnreadable",
            message: format!("cannot read {name} in the folder {} of --webhook-cert-path: {error}", dir.display()),
        };
        let chain = read("tls.crt").await.map_err(|error| unreadable("tls.crt", error))?;
        let key = read("tls.key").await.map_err(|error| unreadable("tls.key", error))?;
        let files = Shown::Files { chain, key };
        if self.state.shown.as_ref() != Some(&files)
            && let Shown::Files { chain, key } = &files
        {
            let certified = from_files(chain, key).map_err(unusable)?;
            self.serving_cert.show(certified);
            tracing::info!(dir = %dir.display(), "the webhooks' server shows the certificate of --webhook-cert-path");
            self.state.shown = Some(files);
        }
        match read("ca.crt").await {
            Ok(bundle) => Ok(Some(String::from_utf8_lossy(&bundle).into_owned())),
            // A certificate of a public authority, which API servers trust already.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable("ca.crt", error)),
        }
    }

    /// What the host's own authority issues.
    async fn certificate_of_authority(&mut self) -> Result<(String, Duration), Trouble> {
        let mut kept = self.api.read_authorities(&self.namespace).await.map_err(|error| self.secret_trouble(&error))?;
        let mut until_ms = 0;
        for _ in 0..MAX_STEPS {
            let now_ms = now_unix_ms();
            if !self.may_write() {
                // Another replica makes the next one; what this one issues by is good for as long as it holds.
                until_ms = now_ms + millis(LOOK_AGAIN);
                break;
            }
            let is_trusted = self.state.trusted.as_ref() == Some(&kept.bundle());
            match step(now_ms, &kept.authorities(is_trusted)) {
                Step::Wait { until_ms: until } => {
                    until_ms = until;
                    break;
                }
                next => self.take(next, &mut kept, now_ms)?,
            }
            kept = self
                .api
                .write_authorities(&self.namespace, &kept, self.claim().not_after_ms())
                .await
                .map_err(|error| self.secret_trouble(&error))?;
        }
        let is_usable = |authority: &&Authority| authority.validity.holds_at(now_unix_ms());
        let Some(authority) = kept.issuing.as_ref().filter(is_usable) else {
            return Err(Trouble {
                reason: "CertificateAwaited",
                message: format!(
                    "the host that leads has yet to keep a certificate authority in Secret {}/{WEBHOOK_SECRET}",
                    self.namespace
                ),
            });
        };
        let renew_at_ms = self.show(authority)?;
        let wait_ms = until_ms.min(renew_at_ms).saturating_sub(now_unix_ms());
        Ok((kept.bundle(), Duration::from_millis(wait_ms).clamp(Duration::from_secs(1), LOOK_AGAIN)))
    }

    fn take(&self, step: Step, kept: &mut Kept, now_ms: u64) -> Result<(), Trouble> {
        let create = || Authority::create(Validity::beginning(now_ms, AUTHORITY_MS)).map_err(unusable);
        match step {
            Step::Create => {
                (kept.issuing, kept.next, kept.previous) = (Some(create()?), None, None);
                tracing::info!("made a certificate authority for the webhooks");
            }
            Step::Prepare => {
                kept.next = Some(create()?);
                tracing::info!("made the webhooks' next certificate authority; it is trusted before it issues");
            }
            Step::Promote => {
                kept.promote();
                tracing::info!("the webhooks' next certificate authority issues from now on");
            }
            Step::Forget => kept.previous = None,
            Step::Wait { .. } => {}
        }
        Ok(())
    }

    /// Shows a certificate of this authority, a new one if it is time; says when it is time for the next.
    fn show(&mut self, authority: &Authority) -> Result<u64, Trouble> {
        let now_ms = now_unix_ms();
        if let Some(Shown::Issued { authority: of, renew_at_ms }) = &self.state.shown
            && *of == authority.certificate
            && now_ms < *renew_at_ms
        {
            return Ok(*renew_at_ms);
        }
        let validity = Validity::beginning(now_ms, LEAF_MS);
        let validity = Validity { until_ms: validity.until_ms.min(authority.validity.until_ms), ..validity };
        self.serving_cert.show(authority.issue(&self.config.names, validity).map_err(unusable)?);
        let renew_at_ms = validity.renew_at_ms().max(now_ms + 1_000);
        self.state.shown = Some(Shown::Issued { authority: authority.certificate.clone(), renew_at_ms });
        tracing::info!(names = ?self.config.names, "the webhooks' server shows a new certificate");
        Ok(renew_at_ms)
    }

    fn secret_trouble(&self, error: &WriteError) -> Trouble {
        if error.class == WriteErrorClass::Denied {
            let namespace = &self.namespace;
            return Trouble {
                reason: "Forbidden",
                message: format!(
                    "{}; `mortise rbac --host --namespace {namespace} | kubectl apply -f -` gives the host that right",
                    error.message
                ),
            };
        }
        Trouble { reason: "CertificateNotKept", message: error.message.clone() }
    }

    // === the server ===

    async fn listen(&mut self) -> Result<(), Trouble> {
        if self.state.listening {
            return Ok(());
        }
        let trouble = |message| Trouble { reason: "WebhookNotServed", message };
        let off = || "webhooks are off (--webhook-port=0)".to_owned();
        let listener = match self.config.bind.listen("--webhook-port").await {
            Ok(Some(listener)) => listener,
            Ok(None) => return Err(trouble(off())),
            Err(error) => return Err(trouble(format!("{error:#}"))),
        };
        let tls = acceptor(Arc::clone(&self.serving_cert))
            .map_err(|error| trouble(format!("setting up TLS for the webhooks: {error}")))?;
        let answerer = self.answerer.clone();
        self.supervisor.task("the server of the webhooks", async move {
            match serve(listener, Some(tls), move |request| answerer.clone().answer(request)).await {}
        });
        self.state.listening = true;
        Ok(())
    }

    // === configurations ===

    /// Brings all configurations about; false when there is something to write that this host may not.
    async fn configurations(&mut self, wanted: &Admission, endpoint: &Endpoint) -> Result<bool, Trouble> {
        if wanted.is_empty() {
            return Ok(true);
        }
        let discovered = self.discovered(wanted).await?;
        let mut found: BTreeMap<&Arc<str>, Written> = BTreeMap::new();
        for of in Configuration::ALL {
            let live = self.api.list_configurations(of).await.map_err(|error| write_trouble(of, "list", &error))?;
            for (name, serving) in wanted {
                let written = self.configuration(of, name, serving.as_deref(), &live, (endpoint, &discovered)).await?;
                let both = found.entry(name).or_insert(Written::Done);
                *both = written.max(*both);
            }
        }
        for (name, serving) in wanted {
            match (serving, found.get(name)) {
                (_, None | Some(Written::Held)) => {}
                (None, Some(_)) => {
                    self.state.told.remove(name);
                    self.end(name);
                    self.send(Event::AdmissionEnded { plugin: Arc::clone(name) }).await;
                }
                (Some(serving), Some(Written::Done)) => self.tell(name, serving, Ok(())).await,
                (Some(serving), Some(Written::Foreign)) => self.tell(name, serving, Err(belongs_to_others(name))).await,
            }
        }
        Ok(!found.values().any(|written| *written == Written::Held))
    }

    /// The resources of the kinds that plugins are asked about and do not bring. One that is not served has no objects to
    /// ask about.
    async fn discovered(&self, wanted: &Admission) -> Result<Resources, Trouble> {
        let specs = wanted.values().flatten().flat_map(|serving| serving.specs.iter());
        let mut discovered = Resources::new();
        for spec in specs.filter(|spec| !spec.is_own()) {
            let name = self.api.resource_name(&spec.kind).await;
            let name = name.map_err(|error| Trouble { reason: "KindUnknown", message: error.message })?;
            discovered.extend(name.map(|name| (spec.kind.clone(), name)));
        }
        Ok(discovered)
    }

    /// Brings one configuration about.
    async fn configuration(
        &self,
        of: Configuration,
        name: &Arc<str>,
        serving: Option<&AdmissionBackend>,
        live: &[Value],
        (endpoint, discovered): (&Endpoint, &Resources),
    ) -> Result<Written, Trouble> {
        let found = live.iter().find(|live| plugin_of(live, &self.namespace) == Some(&**name));
        let wanted = |serving| wanted(of, name, &self.namespace, serving, endpoint, discovered);
        let Some(change) = change(found, serving.and_then(wanted)) else {
            return Ok(Written::Done);
        };
        let verb = match &change {
            Change::Create(_) => "create",
            Change::Update(_) => "update",
            Change::Delete { .. } => "delete",
        };
        if !self.may_write() {
            return Ok(Written::Held);
        }
        match self.api.change_configuration(of, &change, self.claim().not_after_ms()).await {
            Ok(()) => {
                tracing::info!(plugin = %name, kind = of.kind(), verb, "wrote a webhook configuration");
                Ok(Written::Done)
            }
            // The list shows what carries the host's label alone.
            Err(error) if error.class == WriteErrorClass::AlreadyExists => Ok(Written::Foreign),
            Err(error) => Err(write_trouble(of, verb, &error)),
        }
    }

    /// The configurations are gone: those who asked by them are answered for a while.
    fn end(&self, name: &Arc<str>) {
        let (webhooks, name, alarm) =
            (self.webhooks.clone(), Arc::clone(name), self.supervisor.alarm("a webhook's end"));
        tokio::spawn(async move {
            let _alarm = alarm;
            sleep(LINGER).await;
            webhooks.ended(&name);
        });
    }
}

fn belongs_to_others(name: &str) -> Refusal {
    let message = format!(
        "a webhook configuration named {:?} exists and is none of mortise's; delete or rename it, or rename the plugin",
        name_of(name)
    );
    Refusal::new("WebhookForeign", message)
}

fn write_trouble(of: Configuration, verb: &str, error: &WriteError) -> Trouble {
    if error.class == WriteErrorClass::Denied {
        let (resource, message) = (of.resource(), &error.message);
        return Trouble {
            reason: "Forbidden",
            message: format!(
                "{message}; the host needs the verb {verb} on {resource}: `mortise rbac --host | kubectl apply -f -` gives it \
                 all of its rights"
            ),
        };
    }
    Trouble { reason: "WebhookNotWritten", message: error.message.clone() }
}

fn unusable(error: mortise_kube::webhook::authority::CertificateError) -> Trouble {
    Trouble { reason: "CertificateUnusable", message: format!("{:#}", anyhow::Error::from(error)) }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn now_unix_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
