//! Tokens of ServiceAccounts: JSON web tokens that the cluster's key signs. Input: claims, or a token and the
//! time. Output: a token, or its user. It must not know requests.

use std::hint::black_box;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::Cluster;
use crate::resource::Storage;
use crate::uid;
use crate::user::User;

/// The issuer, and the audience of tokens for the API server itself.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";
const BLOCK: usize = 64;

/// What a token says.
pub(crate) struct Claims<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) account: &'a str,
    pub(crate) account_uid: &'a str,
    pub(crate) audiences: &'a [String],
    pub(crate) lasts_seconds: i64,
    pub(crate) bound: Vec<Bound>,
}

/// An object that must be there as long as a token is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// `pod`, `node` or `secret`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Makes a token.
pub(crate) fn issue(cluster: &mut Cluster, claims: &Claims<'_>, now: Timestamp) -> String {
    let Claims { namespace, account, account_uid, audiences, lasts_seconds, bound } = claims;
    let mut kubernetes = json!({
        "namespace": namespace, "serviceaccount": {"name": account, "uid": account_uid},
    });
    for Bound { kind, name, uid } in bound {
        kubernetes[*kind] = json!({"name": name, "uid": uid});
    }
    let from = now.as_second();
    let body = json!({
        "aud": audiences, "exp": from.saturating_add(*lasts_seconds), "iat": from, "nbf": from, "iss": AUDIENCE,
        "jti": uid::uid(cluster), "kubernetes.io": kubernetes, "sub": format!("system:serviceaccount:{namespace}:{account}"),
    });
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&json!({"alg": "HS256", "typ": "JWT"})), encode(&body));
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature(cluster.options.token_key, signed.as_bytes())))
}

/// The user of a token that is valid for the API server.
pub(crate) fn user(cluster: &Cluster, token: &str, now: Timestamp) -> Option<User> {
    let (signed, signature_text) = token.rsplit_once('.')?;
    let sent = BASE64_URL_SAFE_NO_PAD.decode(signature_text).ok()?;
    if !same(&sent, &signature(cluster.options.token_key, signed.as_bytes())) {
        return None;
    }
    let body = BASE64_URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let valid =
        body["exp"].as_i64()? > now.as_second() && body["aud"].as_array()?.iter().any(|known| known == AUDIENCE);
    let kubernetes = &body["kubernetes.io"];
    let namespace = kubernetes["namespace"].as_str()?;
    let account = &kubernetes["serviceaccount"];
    let lives = |plural: &str, namespace: &str, claim: &Value| {
        let found = cluster.store.get(&Storage::new("", plural), namespace, claim["name"].as_str()?)?;
        (claim["uid"] == found.uid()).then_some(())
    };
    if !valid {
        return None;
    }
    lives("serviceaccounts", namespace, account)?;
    let mut extra = vec![credential(&body)];
    for (kind, plural, namespace) in
        [("pod", "pods", namespace), ("secret", "secrets", namespace), ("node", "nodes", "")]
    {
        let Some(claim) = kubernetes.get(kind) else { continue };
        // A Pod's token outlives its node.
        if kind != "node" || kubernetes.get("pod").is_none() {
            lives(plural, namespace, claim)?;
        }
        if kind != "secret" {
            for key in ["name", "uid"] {
                let value = claim[key].as_str().unwrap_or_default().to_owned();
                extra.push((format!("authentication.kubernetes.io/{kind}-{key}"), vec![value]));
            }
        }
    }
    Some(User {
        name: body["sub"].as_str()?.to_owned(),
        uid: account["uid"].as_str()?.to_owned(),
        groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        extra,
    })
}

/// Whether two secrets are the same. How long it takes tells nothing of where they differ.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |seen, (one, other)| black_box(seen | (one ^ other)));
    one.len() == other.len() && differences == 0
}

fn credential(body: &Value) -> (String, Vec<String>) {
    let id = format!("JTI={}", body["jti"].as_str().unwrap_or_default());
    ("authentication.kubernetes.io/credential-id".to_owned(), vec![id])
}

/// HMAC with SHA-256 (RFC 2104).
fn signature(token_key: u64, message: &[u8]) -> Vec<u8> {
    let mut key = [0_u8; BLOCK];
    let made = Sha256::new().chain_update(b"service account key").chain_update(token_key.to_le_bytes()).finalize();
    key[..made.len()].copy_from_slice(&made);
    let pad = |with: u8| key.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn secrets_are_the_same_in_all_their_bytes_and_in_their_length() {
        assert!(same(b"abc", b"abc") && same(b"", b""));
        for other in ["", "ab", "abcd", "abd", "xbc"] {
            assert!(!same(b"abc", other.as_bytes()) && !same(other.as_bytes(), b"abc"), "{other}");
        }
    }
}
