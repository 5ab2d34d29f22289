//! The certificate of the metrics' server: from files that somebody else writes, as for the webhooks, or one that the host
//! makes for itself, as controller-runtime does. A scraper cannot check that one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mortise_core::certificates::{LEAF_MS, Validity, renew_at_ms};
use mortise_kube::webhook::authority::{from_files, self_signed};
use tokio::time::sleep;

use crate::clock::now;
use crate::server::tls::ServingCert;

/// How often files are read: it costs next to nothing.
const READ_FILES: Duration = Duration::from_secs(10);
/// Names of the certificate that the host makes: those of controller-runtime's.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Keeps the server's certificate valid.
#[derive(Debug)]
pub(crate) struct Certificate {
    dir: Option<PathBuf>,
    files: Option<(Vec<u8>, Vec<u8>)>,
    serving_cert: Arc<ServingCert>,
}

impl Certificate {
    /// # Errors
    /// When the files cannot be used, or no certificate can be made.
    pub(crate) fn new(dir: Option<PathBuf>, serving_cert: Arc<ServingCert>) -> anyhow::Result<Self> {
        let mut certificate = Self { dir, files: None, serving_cert };
        certificate.renew()?;
        Ok(certificate)
    }

    /// Runs until the process ends. Files that cannot be used leave the certificate before them.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            sleep(self.pause()).await;
            if let Err(error) = self.renew() {
                tracing::warn!("the metrics' server keeps its former certificate: {error:#}");
            }
        }
    }

    fn pause(&self) -> Duration {
        match &self.dir {
            Some(_) => READ_FILES,
            // Two thirds of its life.
            None => Duration::from_millis(renew_at_ms(0, LEAF_MS)),
        }
    }

    fn renew(&mut self) -> anyhow::Result<()> {
        let Some(dir) = &self.dir else {
            let validity = Validity::beginning(now().unix_ms, LEAF_MS);
            self.serving_cert.show(self_signed(&NAMES.map(str::to_owned), validity)?);
            return Ok(());
        };
        let files = (read(dir, "tls.crt")?, read(dir, "tls.key")?);
        if self.files.as_ref() == Some(&files) {
            return Ok(());
        }
        let certificate = from_files("the certificate of --metrics-cert-path", &files.0, &files.1);
        // Also bad ones, so that they are reported once.
        self.files = Some(files);
        self.serving_cert.show(certificate?);
        tracing::info!(dir = %dir.display(), "the metrics' server shows the certificate of --metrics-cert-path");
        Ok(())
    }
}

fn read(dir: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    std::fs::read(dir.join(name))
        .with_context(|| format!("cannot read {name} in the folder {} of --metrics-cert-path", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_from_files_has_to_be_there_at_the_start_and_a_changed_one_is_taken_when_it_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, serving_cert) = (folder.path().to_owned(), Arc::new(ServingCert::default()));
        let new = || Certificate::new(Some(dir.clone()), Arc::clone(&serving_cert));
        let error = format!("{:#}", new().unwrap_err());
        assert!(error.contains("tls.crt in the folder") && error.contains("--metrics-cert-path"), "{error}");
        let write = |key_of_another: bool| {
            let keys = [rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap()];
            let params = rcgen::CertificateParams::new(vec!["metrics.example.com".to_owned()]).unwrap();
            let certificate = params.self_signed(&keys[0]).unwrap();
            std::fs::write(dir.join("tls.crt"), certificate.pem()).unwrap();
            std::fs::write(dir.join("tls.key"), keys[usize::from(key_of_another)].serialize_pem()).unwrap();
            certificate.der().clone()
        };
        write(true);
        assert!(new().unwrap_err().to_string().contains("--metrics-cert-path"));
        let first = write(false);
        let mut certificate = new().unwrap();
        let shown = || serving_cert.shown().unwrap().cert[0].clone();
        assert_eq!(shown(), first);
        write(true);
        assert!(certificate.renew().is_err());
        assert!(certificate.renew().is_ok(), "it is reported once");
        assert_eq!(shown(), first);
        let second = write(false);
        certificate.renew().unwrap();
        assert_eq!(shown(), second);
    }

    #[test]
    fn without_files_the_host_makes_one_and_another_one_when_it_is_due() {
        let serving_cert = Arc::new(ServingCert::default());
        let mut certificate = Certificate::new(None, Arc::clone(&serving_cert)).unwrap();
        let shown = || serving_cert.shown().unwrap().cert[0].clone();
        let first = shown();
        assert!(certificate.pause() < Duration::from_millis(LEAF_MS));
        certificate.renew().unwrap();
        assert_ne!(shown(), first);
    }
}
