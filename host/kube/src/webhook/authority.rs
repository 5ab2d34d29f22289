//! Certificates: the host's own authority, what it issues, and certificates from files. `core::certificates` decides when they
//! change.

use std::sync::Arc;

use mortise_core::certificates::Validity;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData as _,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// It cannot be generated.
    #[error("cannot make {what}")]
    Make {
        /// "the webhooks' certificate authority".
        what: &'static str,
        /// Why.
        source: rcgen::Error,
    },
    /// The stored one cannot be parsed.
    #[error("cannot read {what}: {why}")]
    Read {
        /// "the certificate authority of Secret mortise-webhook-ca".
        what: &'static str,
        /// Why.
        why: String,
    },
    /// TLS cannot use it.
    #[error("cannot use {what} for TLS")]
    Use {
        /// Which.
        what: &'static str,
        /// Why.
        source: rustls::Error,
    },
}

/// A certificate authority with its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
    /// When it is valid.
    pub validity: Validity,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl Authority {
    /// Generates an authority.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn create(validity: Validity) -> Result<Self, CertificateError> {
        let made = |source| CertificateError::Make { what: "a certificate authority for the webhooks", source };
        let mut params = params(Vec::new(), validity).map_err(made)?;
        // Distinct names, so that a verifier that trusts two of them tries the right one first.
        params.distinguished_name.push(DnType::CommonName, format!("mortise-webhook-ca-{}", validity.from_ms));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(made)?;
        let certificate = params.self_signed(&key).map_err(made)?.pem();
        let validity = validity_of(&certificate)?;
        Ok(Self { certificate, key: key.serialize_pem(), validity })
    }

    /// Parses a stored authority.
    ///
    /// # Errors
    /// When either part is invalid, or the key is not the certificate's.
    pub fn read(certificate: String, key: String) -> Result<Self, CertificateError> {
        let validity = validity_of(&certificate)?;
        let made = |source| CertificateError::Make { what: "certificates by the stored authority", source };
        let pair = KeyPair::from_pem(&key).map_err(made)?;
        if public_key_of(&certificate)? != pair.subject_public_key_info() {
            return Err(unreadable("its key is another's".to_owned()));
        }
        Issuer::from_ca_cert_pem(&certificate, pair).map_err(made)?;
        Ok(Self { certificate, key, validity })
    }

    /// Issues a certificate for a server with these names and addresses.
    ///
    /// # Errors
    /// When the authority's key or certificate is unusable, or a name is invalid.
    pub fn issue(&self, names: &[String], validity: Validity) -> Result<Arc<CertifiedKey>, CertificateError> {
        let what = "a certificate for the webhooks' server";
        let made = |source| CertificateError::Make { what, source };
        let key = KeyPair::from_pem(&self.key).map_err(made)?;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, key).map_err(made)?;
        // Nobody accepts a certificate after its authority has expired.
        let validity = Validity { until_ms: validity.until_ms.min(self.validity.until_ms), ..validity };
        let mut params = params(names.to_vec(), validity).map_err(made)?;
        params.distinguished_name.push(DnType::CommonName, "mortise-webhook");
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(made)?;
        let certificate = params.signed_by(&key, &issuer).map_err(made)?;
        certified(what, vec![certificate.der().clone()], &key.serialize_pem())
    }
}

/// Makes a certificate that no authority issued, for a server whose clients do not check it.
///
/// # Errors
/// When the system gives no random bytes, or a name is invalid.
pub fn self_signed(names: &[String], validity: Validity) -> Result<Arc<CertifiedKey>, CertificateError> {
    let what = "a certificate for the metrics' server";
    let made = |source| CertificateError::Make { what, source };
    let mut params = params(names.to_vec(), validity).map_err(made)?;
    params.distinguished_name.push(DnType::CommonName, "mortise-metrics");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(made)?;
    let certificate = params.self_signed(&key).map_err(made)?;
    certified(what, vec![certificate.der().clone()], &key.serialize_pem())
}

/// Parses a certificate chain and its key, as cert-manager writes them; `what` is "the certificate of --webhook-cert-path".
///
/// # Errors
/// When either is invalid, or the key is not the certificate's.
pub fn from_files(what: &'static str, chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, CertificateError> {
    let unreadable = |why: String| CertificateError::Read { what, why };
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable("there is none in the file".to_owned()));
    }
    certified(what, chain, &String::from_utf8_lossy(key))
}

fn certified(
    what: &'static str,
    chain: Vec<CertificateDer<'static>>,
    key: &str,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| CertificateError::Read { what, why: format!("its key: {error}") })?;
    let certified = CertifiedKey::from_der(chain, key, &default_provider());
    Ok(Arc::new(certified.map_err(|source| CertificateError::Use { what, source })?))
}

pub(crate) fn params(names: Vec<String>, validity: Validity) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = moment(validity.from_ms);
    params.not_after = moment(validity.until_ms);
    Ok(params)
}

/// Certificates have a resolution of seconds.
fn moment(unix_ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(unix_ms / 1_000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// When a certificate is valid.
///
/// # Errors
/// When it cannot be parsed.
pub fn validity_of(certificate: &str) -> Result<Validity, CertificateError> {
    read(certificate, |parsed| {
        let unix_ms = |time: ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0) * 1_000;
        let validity = parsed.validity();
        Validity { from_ms: unix_ms(validity.not_before), until_ms: unix_ms(validity.not_after) }
    })
}

fn public_key_of(certificate: &str) -> Result<Vec<u8>, CertificateError> {
    read(certificate, |parsed| parsed.public_key().raw.to_vec())
}

fn read<T>(certificate: &str, part: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, CertificateError> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| unreadable(error.to_string()))?;
    let (_, parsed) = parse_x509_certificate(&der).map_err(|error| unreadable(error.to_string()))?;
    Ok(part(&parsed))
}

fn unreadable(why: String) -> CertificateError {
    CertificateError::Read { what: "a certificate authority of the webhooks", why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "the certificate of --webhook-cert-path";

    #[test]
    fn certificates_from_files_are_used_with_their_own_key_only() {
        let validity = Validity { from_ms: 0, until_ms: 1_000_000_000_000 };
        let authority = Authority::create(validity).unwrap();
        let (certificate, key) = (authority.certificate.as_bytes(), authority.key.as_bytes());
        assert!(from_files(WHAT, certificate, key).is_ok());
        let other = Authority::create(validity).unwrap();
        let wrong = [(certificate, other.key.as_bytes()), (b"".as_slice(), key), (certificate, b"hello".as_slice())];
        for (chain, key) in wrong {
            let error = from_files(WHAT, chain, key).unwrap_err();
            assert!(error.to_string().contains("--webhook-cert-path"), "{error}");
        }
    }
}
