//! TLS for a server whose certificate changes while it runs, as do the authorities of its clients.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

/// The certificate for new connections. Open ones keep theirs, so a change drops none.
#[derive(Default)]
pub(crate) struct ServingCert {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServingCert {
    pub(crate) fn show(&self, key: Arc<CertifiedKey>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    pub(crate) fn shown(&self) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for ServingCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCert").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown()
    }
}

/// What verifies the certificates of new connections' clients. Open ones stay verified.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    current: RwLock<Arc<dyn ClientCertVerifier>>,
}

impl ClientVerifier {
    pub(crate) fn new(verifier: Arc<dyn ClientCertVerifier>) -> Self {
        Self { current: RwLock::new(verifier) }
    }

    pub(crate) fn change(&self, verifier: Arc<dyn ClientCertVerifier>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = verifier;
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.current().client_auth_mandatory()
    }

    /// None, as the list changes. A client then shows what it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

/// Without a verifier no client is asked for a certificate.
///
/// # Errors
/// When this process cannot do TLS at all.
pub(crate) fn acceptor(
    serving_cert: Arc<ServingCert>,
    clients: Option<Arc<ClientVerifier>>,
) -> Result<TlsAcceptor, Error> {
    let builder =
        ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let verifies = clients.is_some();
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(serving_cert);
    if verifies {
        // A session that is resumed would keep a certificate that is verified no more.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    // HTTP/2 is off, as by default in controller-runtime: the API server does not need it for webhooks.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
