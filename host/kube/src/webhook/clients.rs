//! Which clients are the API server: those with a certificate of one of some authorities and, if names are given, with one
//! of these as its common name, as of `--requestheader-allowed-names`. PEM text comes in, a verifier for TLS comes out. It
//! must not know where the text comes from.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use x509_parser::parse_x509_certificate;

use super::authority::CertificateError;

/// Verifies the certificates of clients. One who shows none is let in, and is not verified: the API server shows one to
/// admission webhooks alone, and none to those that convert.
///
/// # Errors
/// When the text has no authority, or one that cannot be used.
pub fn verifier(authorities: &[u8], names: &[String]) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let unreadable = |why: String| CertificateError::Read { what: "the authorities of clients", why };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("there is no certificate".to_owned()));
    }
    let by_authority = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .allow_unauthenticated()
        .build()
        .map_err(|error| unreadable(error.to_string()))?;
    Ok(Arc::new(ByName { by_authority, names: names.to_vec() }))
}

#[derive(Debug)]
struct ByName {
    by_authority: Arc<dyn ClientCertVerifier>,
    /// None: any.
    names: Vec<String>,
}

impl ByName {
    fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, parsed)) = parse_x509_certificate(certificate) else { return false };
        let mut names = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        self.names.is_empty() || names.any(|name| self.names.iter().any(|allowed| allowed == name))
    }
}

impl ClientCertVerifier for ByName {
    fn client_auth_mandatory(&self) -> bool {
        self.by_authority.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.by_authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.by_authority.verify_client_cert(end_entity, intermediates, now)?;
        if self.allows(end_entity) {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
