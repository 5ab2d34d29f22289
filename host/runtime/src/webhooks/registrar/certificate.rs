//! The certificate that the webhooks' server shows, and whom to trust for it: from files that somebody else keeps, or issued by
//! the host's own authority, which a Secret keeps. When an authority changes is decided in `core::certificates`.

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_core::certificates::{AUTHORITY_MS, LEAF_MS, Step, Validity, step};
use mortise_core::crd::conversion;
use mortise_core::refusal::Refusal;
use mortise_core::webhook::Endpoint;
use mortise_core::well_known::WEBHOOK_SECRET;
use mortise_core::write::{WriteError, WriteErrorClass};
use mortise_kube::webhook::authority::{Authority, CertificateError, from_files};
use mortise_kube::webhook::secret::Kept;

use super::progress::Shown;
use super::{Keeper, LOOK_AGAIN, Wanted};

/// How often files are read: they cost nothing to look at.
const LOOK_AT_FILES: Duration = Duration::from_secs(10);
/// Steps of one look at the authority; there are three at most before it waits.
const MAX_STEPS: usize = 5;

/// Whom to trust, as PEM, None for what every machine trusts; and when to look again.
type Trust = (Option<String>, Duration);

impl Keeper {
    /// Sees to it that the server shows a certificate.
    pub(super) async fn certificate(&mut self) -> Result<Trust, Refusal> {
        match self.config.certificate_dir.clone() {
            Some(dir) => self.certificate_of_files(&dir).await,
            None => self.certificate_of_authority().await,
        }
    }

    /// How the API server finds this host.
    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.config.address.clone(),
            ca_bundle: self.state.bundle.as_ref().map(|bundle| STANDARD.encode(bundle).into()),
            namespace: self.namespace.as_str().into(),
        }
    }

    /// Whether everything that names this host trusts its certificates: configurations do, since none is due, and definitions
    /// are looked at; the driver writes them.
    pub(super) async fn is_trusted(&mut self) -> bool {
        if self.state.trusted == self.state.bundle {
            return true;
        }
        let endpoint = self.endpoint();
        let converting: Vec<_> = {
            let all = self.webhooks.all();
            let backend = |(name, wanted): (&Arc<str>, &Wanted)| Some((Arc::clone(name), wanted.conversion.clone()?));
            all.plugins.iter().filter_map(backend).collect()
        };
        for (name, serving) in converting {
            for spec in &*serving.specs {
                match self.api.read_definition(&spec.crd).await {
                    Ok(live) if live.as_ref().is_none_or(|live| conversion::trusts(live, &name, &endpoint)) => {}
                    Ok(_) => return false,
                    Err(error) => {
                        tracing::debug!(crd = %spec.crd, "cannot see whom a definition trusts: {}", error.message);
                        return false;
                    }
                }
            }
        }
        self.state.trusted.clone_from(&self.state.bundle);
        true
    }

    /// What somebody else, such as cert-manager, keeps in files.
    async fn certificate_of_files(&mut self, dir: &Path) -> Result<Trust, Refusal> {
        let read = async |name: &str| tokio::fs::read(dir.join(name)).await;
        let unreadable = |name: &str, error: Error| {
            let message = format!("cannot read {name} in the folder {} of --webhook-cert-path: {error}", dir.display());
            Refusal::new("CertificateUnreadable", message)
        };
        let chain = read("tls.crt").await.map_err(|error| unreadable("tls.crt", error))?;
        let key = read("tls.key").await.map_err(|error| unreadable("tls.key", error))?;
        let certified = from_files(&chain, &key).map_err(unusable)?;
        let files = Shown::Files { chain, key };
        if self.state.shown.as_ref() != Some(&files) {
            self.state.serving_cert.show(certified);
            tracing::info!(dir = %dir.display(), "the webhooks' server shows the certificate of --webhook-cert-path");
            self.state.shown = Some(files);
        }
        let bundle = match read("ca.crt").await {
            Ok(bundle) => Some(String::from_utf8_lossy(&bundle).into_owned()),
            // A certificate of a public authority, which API servers trust already.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable("ca.crt", error)),
        };
        Ok((bundle, LOOK_AT_FILES))
    }

    /// What the host's own authority issues.
    async fn certificate_of_authority(&mut self) -> Result<Trust, Refusal> {
        let unkept = |error: WriteError| unkept(&self.namespace, &error);
        let mut kept = self.api.read_authorities(&self.namespace).await.map_err(unkept)?;
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
                next => take(next, &mut kept, now_ms)?,
            }
            let not_after_ms = self.claim().not_after_ms();
            kept = self.api.write_authorities(&self.namespace, &kept, not_after_ms).await.map_err(unkept)?;
        }
        let is_usable = |authority: &&Authority| authority.validity.holds_at(now_unix_ms());
        let Some(authority) = kept.issuing.as_ref().filter(is_usable) else {
            let message = format!(
                "the host that leads has yet to keep a certificate authority in Secret {}/{WEBHOOK_SECRET}",
                self.namespace
            );
            return Err(Refusal::new("CertificateAwaited", message));
        };
        let renew_at_ms = self.show(authority)?;
        let wait_ms = until_ms.min(renew_at_ms).saturating_sub(now_unix_ms());
        let due = Duration::from_millis(wait_ms).clamp(Duration::from_secs(1), LOOK_AGAIN);
        Ok((Some(kept.bundle()), due))
    }

    /// Shows a certificate of this authority, a new one if it is time; says when it is time for the next.
    fn show(&mut self, authority: &Authority) -> Result<u64, Refusal> {
        let now_ms = now_unix_ms();
        if let Some(Shown::Issued { authority: of, renew_at_ms }) = &self.state.shown
            && *of == authority.certificate
            && now_ms < *renew_at_ms
        {
            return Ok(*renew_at_ms);
        }
        let validity = Validity::beginning(now_ms, LEAF_MS);
        let validity = Validity { until_ms: validity.until_ms.min(authority.validity.until_ms), ..validity };
        self.state.serving_cert.show(authority.issue(&self.config.names, validity).map_err(unusable)?);
        let renew_at_ms = validity.renew_at_ms().max(now_ms + 1_000);
        self.state.shown = Some(Shown::Issued { authority: authority.certificate.clone(), renew_at_ms });
        tracing::info!(names = ?self.config.names, "the webhooks' server shows a new certificate");
        Ok(renew_at_ms)
    }
}

fn take(step: Step, kept: &mut Kept, now_ms: u64) -> Result<(), Refusal> {
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

fn unkept(namespace: &str, error: &WriteError) -> Refusal {
    let message = &error.message;
    if error.class != WriteErrorClass::Denied {
        return Refusal::new("CertificateNotKept", message.clone());
    }
    let message = format!(
        "{message}; `mortise rbac --host --namespace {namespace} | kubectl apply -f -` gives the host that right"
    );
    Refusal::new("Forbidden", message)
}

fn unusable(error: CertificateError) -> Refusal {
    Refusal::new("CertificateUnusable", format!("{:#}", anyhow::Error::from(error)))
}

fn now_unix_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
