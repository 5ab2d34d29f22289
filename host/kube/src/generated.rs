//! Makes generated values when their write is sent: randomness of the system, keys and certificates. What is kept of the live
//! object and where the values go is decided by `core::generated`.

use std::fmt::Display;
use std::sync::Arc;

use mortise_core::certificates::Validity;
use mortise_core::generated::{Draws, Pair, RandomSource, Secret, complete};
use mortise_core::object::ObjectRef;
use mortise_core::response::{CONFLICT, Refused};
use mortise_core::service_account::ServiceAccount;
use mortise_core::write::Precondition;
use rcgen::{BasicConstraints, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::Value;

use crate::client::{ApiServer, NOT_FOUND, Response};
use crate::failure::Failure;
use crate::webhook::authority::params;

/// The system's randomness.
struct System;

impl RandomSource for System {
    type Error = Failure;

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        getrandom::fill(buffer).map_err(|error| Failure::NotSent(format!("the system gives no random bytes: {error}")))
    }

    fn pair(&mut self, names: &[Arc<str>], validity: Validity) -> Result<Pair, Failure> {
        pair(names, validity).map_err(|error| Failure::Invalid(format!("cannot make the certificate: {error}")))
    }
}

/// A certificate for servers and their clients, of an authority that has issued no other: its key is dropped here, so a
/// reader of the Secret gets one certificate and not the means to make more.
fn pair(names: &[Arc<str>], validity: Validity) -> Result<Pair, rcgen::Error> {
    let mut of_authority = params(Vec::new(), validity)?;
    // Distinct names, so that a verifier that trusts two of them tries the right one first.
    of_authority.distinguished_name.push(DnType::CommonName, format!("mortise-generated-ca-{}", validity.from_ms));
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    of_authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let authority = of_authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(of_authority, key);
    let mut of_server = params(names.iter().map(|name| name.to_string()).collect(), validity)?;
    of_server.use_authority_key_identifier_extension = true;
    of_server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    of_server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = of_server.signed_by(&key, &issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem(), authority })
}

impl ApiServer {
    /// The body to apply, with its values, and with the version of the live object as a precondition: the values that stay are
    /// those of this version.
    pub(crate) async fn with_generated(
        &self,
        target: &ObjectRef,
        body: &str,
        only_if: &Precondition,
        draws: &Draws,
        account: Option<&ServiceAccount>,
    ) -> Result<Arc<str>, Failure> {
        let (Precondition::Is(uid) | Precondition::Unchanged { uid, .. }) = only_if else {
            return Ok(complete(body, None, draws, &mut System)?.into());
        };
        let response = self.live(target, account).await?;
        let live = Secret::read(str::from_utf8(&response.body).map_err(unreadable)?).map_err(unreadable)?;
        if live.metadata("uid").as_deref() != Some(uid) {
            return Err(changed("another object has the name now"));
        }
        let body = complete(body, Some(&live), draws, &mut System)?;
        let mut object: Value = serde_json::from_str(&body).map_err(unreadable)?;
        object["metadata"]["resourceVersion"] = live.metadata("resourceVersion").into();
        Ok(object.to_string().into())
    }

    async fn live(&self, target: &ObjectRef, account: Option<&ServiceAccount>) -> Result<Response, Failure> {
        match self.get_live(target, account).await {
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND && refused.names_object => {
                Err(changed("the object is gone"))
            }
            read => read,
        }
    }
}

fn changed(message: &str) -> Failure {
    Failure::Response(Refused { code: CONFLICT, message: message.to_owned(), ..Refused::default() })
}

fn unreadable(error: impl Display) -> Failure {
    Failure::Invalid(format!("the object cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use mortise_core::generated::{Recipe, Wanted};
    use mortise_core::object::{Kind, Name};
    use mortise_core::write::{Write, WriteError, WriteErrorClass, WriteId, WriteOp};
    use serde_json::json;

    use super::*;
    use crate::testing::serve;

    /// What the API server got of an apply of a password and a key, and its result. The live Secret has version 7 and,
    /// unless it is another's, the UID of the write. Each PATCH is refused with a long message that repeats what was sent.
    async fn apply(live_uid: &'static str, rotation: &str) -> (Vec<Value>, WriteError) {
        let record = json!({"password": {"recipe": "alphanumeric-16", "drawnAt": "2026-01-01T00:00:00Z"}}).to_string();
        let live = json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"password": "bGl2ZQ==", "theirs": "YQ=="},
            "metadata": {"namespace": "ns", "name": "a", "uid": live_uid, "resourceVersion": "7", "annotations": {"mortise.dev/generated": record}},
        });
        let sent = Arc::new(Mutex::new(Vec::new()));
        let patches = Arc::clone(&sent);
        let api = serve(move |request| match (&*request.method, &*request.path) {
            ("GET", "/api/v1") => {
                let resources = json!([{"name": "secrets", "kind": "Secret", "namespaced": true}]);
                ("200 OK", json!({"resources": resources}).to_string())
            }
            ("GET", _) => ("200 OK", live.to_string()),
            _ => {
                let body: Value = serde_json::from_str(&request.body).unwrap();
                let message = format!("{} {} {}", "x".repeat(480), body["data"], "x".repeat(2_000));
                patches.lock().unwrap().push(body);
                ("422 Unprocessable Entity", json!({"kind": "Status", "code": 422, "message": message}).to_string())
            }
        });
        let wanted = |key: &str, recipe| Wanted { key: key.into(), recipe, rotation: rotation.into() };
        let wanted = [wanted("password", Recipe::Alphanumeric(16)), wanted("key", Recipe::Bytes(32))].into();
        let op = WriteOp::Apply {
            target: ObjectRef { kind: Kind::new("v1", "Secret"), name: Name::new("ns", "a") },
            body: json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}).to_string().into(),
            force: true,
            only_if: Precondition::Is("u-1".into()),
            draws: Some(Draws { wanted, now_unix_ms: 1_800_000_000_000 }),
        };
        let write = Write {
            id: WriteId(1),
            plugin: Some("p".into()),
            cause: None,
            service_account: None,
            op,
            not_after_ms: None,
        };
        let error = api.await.execute(&write).await.unwrap_err();
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        (sent, error)
    }

    #[tokio::test]
    async fn x8_an_apply_takes_over_what_is_live_and_holds_for_this_version_alone() {
        let (sent, error) = apply("u-1", "").await;
        let [body] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("u-1"), &json!("7")));
        assert_eq!((&body["data"]["password"], &body["data"]["theirs"]), (&json!("bGl2ZQ=="), &Value::Null));
        let key = body["data"]["key"].as_str().unwrap();
        assert_eq!(key.len(), 44, "32 bytes in base64");
        assert!(error.class == WriteErrorClass::Invalid && error.message.starts_with("HTTP 422 "), "{error:?}");
        assert!(!error.message.contains(&key[..4]) && !error.message.contains("bGl2"), "{error:?}");

        let (again, _) = apply("u-1", "2").await;
        assert_ne!(again[0]["data"]["password"], "bGl2ZQ==", "another rotation");
        assert_ne!(again[0]["data"]["key"].as_str(), Some(key), "each is random");
        let (sent, error) = apply("u-2", "").await;
        assert_eq!((sent.len(), error.class), (0, WriteErrorClass::Conflict), "another object has the name");
    }
}
