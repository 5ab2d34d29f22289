//! Identities: the authority that the server makes, the certificate it serves with, and the administrator's kubeconfig.
//! Input: a folder to keep the authority in, or none. Output: certificates and keys. It must not know connections.
//!
//! Keys are P-256, which take no time to make. Leaf certificates are made anew at each start; those of earlier starts stay
//! valid with their authority.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use crate::file;

/// The names that the server is reached by.
const NAMES: [&str; 6] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// What signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What the server proves its identity with.
pub(crate) struct Serving {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// What clients verify it with.
    pub(crate) authority_pem: String,
}

impl Authority {
    /// The authority that a folder keeps, or a new one.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self> {
        let Some(folder) = folder else { return Self::new().map(|(authority, _)| authority) };
        file::folder(folder)?;
        let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
        if !certificate.is_file() {
            let (authority, secret) = Self::new()?;
            // The key first: a certificate without a key would be taken for a whole authority.
            file::replace(&key, secret.as_bytes())?;
            file::replace(&certificate, authority.pem.as_bytes())?;
            return Ok(authority);
        }
        let pem = std::fs::read_to_string(&certificate).with_context(|| format!("read {}", certificate.display()))?;
        let secret = std::fs::read_to_string(&key).with_context(|| format!("read {}", key.display()))?;
        let secret = KeyPair::from_pem(&secret).with_context(|| format!("read the key in {}", key.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&pem, secret).with_context(|| {
            format!("read the certificate in {}: remove the file for a new one", certificate.display())
        })?;
        Ok(Self { issuer, pem })
    }

    fn new() -> Result<(Self, String)> {
        let mut params = CertificateParams::new(Vec::new()).context("make an authority")?;
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("make an authority's key")?;
        let secret = key.serialize_pem();
        let pem = params.self_signed(&key).context("make an authority's certificate")?.pem();
        Ok((Self { issuer: Issuer::new(params, key), pem }, secret))
    }

    /// What clients' certificates are verified with.
    pub(crate) fn certificate(&self) -> Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).context("read the authority's certificate")
    }

    /// The certificate and key in these files, or new ones.
    pub(crate) fn serving(&self, files: Option<&(PathBuf, PathBuf)>) -> Result<Serving> {
        let Some((certificate, key)) = files else {
            let mut params = CertificateParams::new(NAMES.map(str::to_owned)).context("name the server")?;
            params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let key = KeyPair::generate().context("make the server's key")?;
            let made = params.signed_by(&key, &self.issuer).context("make the server's certificate")?;
            let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
            return Ok(Serving { chain: vec![made.der().clone()], key, authority_pem: self.pem.clone() });
        };
        let pem =
            std::fs::read(certificate).with_context(|| format!("read the certificate {}", certificate.display()))?;
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.with_context(|| format!("read the certificate {}: it must be PEM", certificate.display()))?;
        let key = PrivateKeyDer::from_pem_file(key)
            .with_context(|| format!("read the private key {}: it must be PEM", key.display()))?;
        // Who signed them is not known here; clients that have the file itself verify the server with it.
        Ok(Serving { chain, key, authority_pem: String::from_utf8_lossy(&pem).into_owned() })
    }

    /// The kubeconfig of an administrator.
    pub(crate) fn kubeconfig(&self, url: &str, serving: &Serving) -> Result<String> {
        let mut params = CertificateParams::new(Vec::new()).context("name the administrator")?;
        params.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().context("make the administrator's key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("make the administrator's certificate")?;
        let encoded = |pem: &str| BASE64_STANDARD.encode(pem);
        // JSON is YAML.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {
                "server": url, "certificate-authority-data": encoded(&serving.authority_pem),
            }}],
            "users": [{"name": "admin", "user": {
                "client-certificate-data": encoded(&certificate.pem()),
                "client-key-data": encoded(&key.serialize_pem()),
            }}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        });
        Ok(format!("{config:#}\n"))
    }
}
