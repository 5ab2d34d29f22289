//! Identities: a certificate authority, the server's certificate, what the API server shows to admission webhooks, the key
//! that signs ServiceAccount tokens, static tokens of named users, and kubeconfigs. All exist before anything starts, so a
//! client needs nothing but a file.
//!
//! Keys are P-256: they are fast to generate and need no openssl, and the API server accepts them for ServiceAccount
//! tokens.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use sha2::{Digest, Sha256};

use crate::layout::Layout;

/// The user with all rights (group `system:masters`).
pub const ADMIN: &str = "admin";

/// Creates all keys, certificates, tokens and the kubeconfigs of `users` and the administrator.
pub(crate) fn create(layout: &Layout, users: &[String]) -> Result<()> {
    for dir in [layout.pki(""), layout.kubeconfig("")] {
        // Everyone who can read these files is an administrator of this cluster.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("create {}", dir.display()))?;
    }
    certificates(layout).context("make the API server's certificate")?;
    etcd(layout).context("make the certificate of etcd and its clients")?;
    webhook_client(layout).context("make the certificate that the API server shows to webhooks")?;
    let signing = KeyPair::generate().context("make the key that signs ServiceAccount tokens")?;
    secret(&layout.pki("service-account.key"), &signing.serialize_pem())?;
    secret(&layout.pki("service-account.pub"), &signing.public_key_pem())?;

    let mut tokens = String::new();
    for user in std::iter::once(ADMIN).chain(users.iter().map(String::as_str)) {
        if user.is_empty() || user.contains([',', '"', '\n', '/']) {
            bail!("a user cannot be called {user:?}: the name is part of a token file and of a file name");
        }
        let token = random_token()?;
        let group = if user == ADMIN { ",system:masters" } else { "" };
        tokens.push_str(&format!("{token},{user},{user}{group}\n"));
        kubeconfig(layout, user, &token)?;
    }
    secret(&layout.pki("tokens.csv"), &tokens)
}

/// Writes a kubeconfig that presents `token`, and returns its path.
pub(crate) fn kubeconfig(layout: &Layout, user: &str, token: &str) -> Result<PathBuf> {
    let path = layout.kubeconfig(user);
    // JSON is YAML. The authority's path is absolute, so the file works from any directory.
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "control-plane", "cluster": {
            "server": layout.server(), "certificate-authority": layout.pki("ca.crt"),
        }}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "control-plane", "context": {"cluster": "control-plane", "user": user}}],
        "current-context": "control-plane",
    });
    secret(&path, &format!("{config:#}\n"))?;
    Ok(path)
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// A client certificate of an authority of its own, and the files by which the API server shows it to every admission
/// webhook: <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers>.
fn webhook_client(layout: &Layout) -> Result<()> {
    let authority = authority("webhook-client-ca")?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let client = params.signed_by(&key, &authority)?;
    secret(&layout.pki("webhook-client-ca.crt"), &authority.pem())?;
    secret(&layout.pki("webhook-client.crt"), &client.pem())?;
    secret(&layout.pki("webhook-client.key"), &key.serialize_pem())?;

    // "*" is the user for every address without one of its name.
    let user = serde_json::json!({
        "client-certificate": layout.pki("webhook-client.crt"), "client-key": layout.pki("webhook-client.key"),
    });
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]});
    secret(&layout.pki("webhooks.kubeconfig"), &format!("{kubeconfig:#}\n"))?;
    let plugin = |name: &str| {
        serde_json::json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": layout.pki("webhooks.kubeconfig"),
        }})
    };
    let admission = serde_json::json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    secret(&layout.admission_config(), &format!("{admission:#}\n"))
}

fn certificates(layout: &Layout) -> Result<()> {
    let authority = authority("control-plane-ca")?;

    let mut params = CertificateParams::new(["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned))?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let key = KeyPair::generate()?;
    let server = params.signed_by(&key, &authority)?;
    secret(&layout.pki("ca.crt"), &authority.pem())?;
    secret(&layout.pki("apiserver.crt"), &server.pem())?;
    secret(&layout.pki("apiserver.key"), &key.serialize_pem())
}

/// A certificate that etcd serves with and demands: the API server and etcd itself show it.
fn etcd(layout: &Layout) -> Result<()> {
    let authority = authority("etcd-ca")?;
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, "etcd");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let made = params.signed_by(&key, &authority)?;
    secret(&layout.pki("etcd-ca.crt"), &authority.pem())?;
    secret(&layout.pki("etcd.crt"), &made.pem())?;
    secret(&layout.pki("etcd.key"), &key.serialize_pem())
}

/// The hash of a new private key: as hard to guess as the key, and needs no other source of randomness.
fn random_token() -> Result<String> {
    let key = KeyPair::generate().context("make a token")?;
    Ok(Sha256::digest(key.serialized_der()).iter().map(|byte| format!("{byte:02x}")).collect())
}

fn secret(path: &Path, text: &str) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_gets_a_token_and_a_kubeconfig_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        create(&layout, &["viewer".to_owned()]).unwrap();
        let tokens = fs::read_to_string(layout.pki("tokens.csv")).unwrap();
        let lines = tokens.lines().map(|line| line.split(',').collect::<Vec<_>>()).collect::<Vec<_>>();
        let [admin, viewer] = lines.as_slice() else { panic!("{tokens}") };
        assert_eq!(admin[1..], ["admin", "admin", "system:masters"]);
        assert_eq!(viewer[1..], ["viewer", "viewer"]);
        assert_ne!(admin[0], viewer[0]);
        let config = fs::read_to_string(layout.kubeconfig("viewer")).unwrap();
        assert!(config.contains(viewer[0]) && config.contains(&layout.server()), "{config}");
    }

    #[test]
    fn a_name_that_would_break_the_token_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        for name in ["", "a,b", "../a", "a\nb"] {
            assert!(create(&layout, &[name.to_owned()]).is_err(), "{name:?}");
        }
    }
}
