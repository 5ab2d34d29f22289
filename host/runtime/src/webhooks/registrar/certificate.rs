//! The webhooks' serving certificate and its CA bundle: from files of the administrator, or issued by the host's own
//! authority, which a Secret holds. `core::certificates` decides when an authority changes.

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
use super::{RESYNC, Registrar, Wanted};
use crate::clock::now;

/// How often files are read: it costs next to nothing.
const READ_FILES: Duration = Duration::from_secs(10);
/// Steps of the authority in one round; there are three at most before it waits.
const MAX_STEPS: usize = 5;

/// The CA bundle as PEM, None for public authorities, and when to check again.
type Trust = (Option<String>, Duration);

impl Registrar {
    /// Gives the server a valid certificate.
    pub(super) async fn certificate(&mut self) -> Result<Trust, Refusal> {
        match self.config.certificate_dir.clone() {
            Some(dir) => self.certificate_of_files(&dir).await,
            None => self.certificate_of_authority().await,
        }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.config.address.clone(),
            ca_bundle: self.state.bundle.as_ref().map(|bundle| STANDARD.encode(bundle).into()),
            namespace: self.namespace.as_str().into(),
        }
    }

    /// Whether every configuration and CRD has the present bundle: no configuration is due, so they have, and the CRDs,
    /// which the engine writes, are read.
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
        for (name, backend) in converting {
            for spec in &*backend.specs {
                match self.api.read_definition(&spec.crd).await {
                    Ok(live) if live.as_ref().is_none_or(|live| conversion::trusts(live, &name, &endpoint)) => {}
                    Ok(_) => return false,
                    Err(error) => {
                        tracing::debug!(crd = %spec.crd, "cannot read the CA bundle of a CRD: {}", error.message);
                        return false;
                    }
                }
            }
        }
        self.state.trusted.clone_from(&self.state.bundle);
        true
    }

    /// Files that somebody else, such as cert-manager, writes.
    async fn certificate_of_files(&mut self, dir: &Path) -> Result<Trust, Refusal> {
        let read = async |name: &str| tokio::fs::read(dir.join(name)).await;
        let unreadable = |name: &str, error: Error| {
            let message = format!("cannot read {name} in the folder {} of --webhook-cert-path: {error}", dir.display());
            Refusal::new("CertificateUnreadable", message)
        };
        let chain = read("tls.crt").await.map_err(|error| unreadable("tls.crt", error))?;
        let key = read("tls.key").await.map_err(|error| unreadable("tls.key", error))?;
        let certified = from_files("the certificate of --webhook-cert-path", &chain, &key).map_err(unusable)?;
        let files = Shown::Files { chain, key };
        if self.state.shown.as_ref() != Some(&files) {
            self.state.serving_cert.show(certified);
            tracing::info!(dir = %dir.display(), "the webhooks' server shows the certificate of --webhook-cert-path");
            self.state.shown = Some(files);
        }
        let bundle = match read("ca.crt").await {
            Ok(bundle) => Some(String::from_utf8_lossy(&bundle).into_owned()),
            // A public authority, which API servers trust already.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable("ca.crt", error)),
        };
        Ok((bundle, READ_FILES))
    }

    async fn certificate_of_authority(&mut self) -> Result<Trust, Refusal> {
        let refused = |error: WriteError| refused(&self.namespace, &error);
        let mut kept = self.api.read_authorities(&self.namespace).await.map_err(refused)?;
        let mut until_ms = 0;
        for _ in 0..MAX_STEPS {
            let now_ms = self.state.calendar.time(now());
            if !self.may_write() {
                // The replica that leads creates the next authority; this one issues from the present one while it is
                // valid.
                until_ms = u64::MAX;
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
            kept = self.api.write_authorities(&self.namespace, &kept, not_after_ms).await.map_err(refused)?;
        }
        let now_ms = self.state.calendar.time(now());
        let is_usable = |authority: &&Authority| authority.validity.holds_at(now_ms);
        let Some(authority) = kept.issuing.as_ref().filter(is_usable) else {
            let message = format!(
                "the host that leads has not stored a certificate authority in Secret {}/{WEBHOOK_SECRET} yet",
                self.namespace
            );
            return Err(Refusal::new("CertificateAwaited", message));
        };
        let renew_at_ms = self.show(authority, now_ms)?;
        let wait_ms = until_ms.min(renew_at_ms).saturating_sub(now_ms);
        let due = Duration::from_millis(wait_ms).clamp(Duration::from_secs(1), RESYNC);
        Ok((Some(kept.bundle()), due))
    }

    /// Issues a certificate if none of this authority is valid; returns when to renew it.
    fn show(&mut self, authority: &Authority, now_ms: u64) -> Result<u64, Refusal> {
        if let Some(Shown::Issued { authority: of, renew_at_ms }) = &self.state.shown
            && *of == authority.certificate
            && now_ms < *renew_at_ms
        {
            return Ok(*renew_at_ms);
        }
        let validity = Validity::beginning(now_ms, LEAF_MS);
        let validity = Validity { until_ms: validity.until_ms.min(authority.validity.until_ms), ..validity };
        self.state.serving_cert.show(authority.issue(&self.config.names, validity).map_err(unusable)?);
        let renew_at_ms = validity.renew_at_ms(LEAF_MS).max(now_ms + 1_000);
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
            tracing::info!("created a certificate authority for the webhooks");
        }
        Step::Prepare => {
            kept.next = Some(create()?);
            tracing::info!("created the webhooks' next certificate authority; it is trusted before it issues");
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

fn refused(namespace: &str, error: &WriteError) -> Refusal {
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
