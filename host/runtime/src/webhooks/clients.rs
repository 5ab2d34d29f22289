//! The file of `--webhook-client-ca`: read at the start and again when it changes. A path comes in, what verifies client
//! certificates comes out. `mortise_kube::webhook::clients` knows certificates.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mortise_kube::webhook::clients::verifier;
use tokio::time::sleep;

use crate::config::WebhookClients;
use crate::server::tls::ClientVerifier;

/// How often the file is read: it costs next to nothing.
const READ_FILE: Duration = Duration::from_secs(10);

/// Who may send admission reviews.
#[derive(Debug)]
pub(crate) struct Clients {
    config: WebhookClients,
    text: Vec<u8>,
    verifier: Arc<ClientVerifier>,
}

impl Clients {
    /// # Errors
    /// When the file cannot be used. The host does not start: without it, anybody could send reviews.
    pub(crate) fn read(config: WebhookClients) -> anyhow::Result<Self> {
        let unusable = || format!("cannot use {}, which --webhook-client-ca names", config.authorities.display());
        let text = std::fs::read(&config.authorities).with_context(unusable)?;
        let verifier = verifier(&text, &config.names).with_context(unusable)?;
        Ok(Self { config, text, verifier: Arc::new(ClientVerifier::new(verifier)) })
    }

    pub(crate) fn verifier(&self) -> Arc<ClientVerifier> {
        Arc::clone(&self.verifier)
    }

    /// Runs until the process ends.
    pub(crate) async fn reload(mut self) -> anyhow::Result<()> {
        let never: Infallible = async {
            loop {
                sleep(READ_FILE).await;
                self.read_again().await;
            }
        }
        .await;
        match never {}
    }

    /// A file that cannot be used leaves the one before it.
    async fn read_again(&mut self) {
        let path = self.config.authorities.display();
        let text = match tokio::fs::read(&self.config.authorities).await {
            Ok(text) if text == self.text => return,
            Ok(text) => text,
            Err(error) => return tracing::debug!(%path, %error, "cannot read the file of --webhook-client-ca again"),
        };
        match verifier(&text, &self.config.names) {
            Ok(verifier) => {
                self.verifier.change(verifier);
                tracing::info!(%path, "the webhooks' server verifies its clients by the changed --webhook-client-ca");
            }
            Err(error) => {
                tracing::warn!(%path, %error, "the changed --webhook-client-ca cannot be used; the former one is")
            }
        }
        self.text = text;
    }
}

#[cfg(test)]
mod tests;
