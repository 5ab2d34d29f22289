//! TLS to servers other than the API server, with the authorities that this machine trusts or with given ones. Certificates
//! come in, a configuration comes out; who connects is not known here.

use kube::Config;
use kube::client::ConfigExt as _;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate in the PEM text cannot be read.
    #[error("it is no list of certificates in PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The PEM text has no certificate.
    #[error("it has no certificate")]
    Empty,
    /// This machine trusts no authority, or one that cannot be used.
    #[error("cannot use the authorities that TLS needs")]
    Authorities(#[source] Box<kube::Error>),
}

/// Trusts the authorities in a PEM text, or without one those of this machine, as the client of the API server does for a
/// kubeconfig that names none. It speaks HTTP/1.1.
///
/// # Errors
/// When there is no usable authority.
pub fn client_config(authorities: Option<&[u8]>) -> Result<ClientConfig, TlsError> {
    // Nothing is sent to this address.
    let mut config = Config::new(http::Uri::from_static("https://localhost"));
    if let Some(pem) = authorities {
        let read = CertificateDer::pem_slice_iter(pem).map(|read| read.map(|certificate| certificate.to_vec()));
        let certificates = read.collect::<Result<Vec<Vec<u8>>, _>>().map_err(TlsError::Pem)?;
        if certificates.is_empty() {
            return Err(TlsError::Empty);
        }
        config.root_cert = Some(certificates);
    }
    let mut tls = config.rustls_client_config().map_err(|error| TlsError::Authorities(Box::new(error)))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tls)
}
