//! The Secret that stores the webhooks' certificate authority, so that a restart finds it and replicas share it. Every write
//! carries the version that was read, so of two hosts that write at once one gets a conflict.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_core::certificates::{Authorities, Validity};
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::response;
use mortise_core::well_known::{HOST, MANAGED_BY_LABEL, WEBHOOK_SECRET as NAME};
use mortise_core::write::request::SERVER_TIMEOUT_SECONDS;
use mortise_core::write::{WriteError, WriteErrorClass};

use super::authority::{Authority, CertificateError, validity_of};
use crate::answers::Size;
use crate::client::{ApiServer, NOT_FOUND, READ_TIMEOUT, request};
use crate::discovery::escape;
use crate::failure::Failure;

/// The authorities that the Secret stores. Their keys are never logged.
#[derive(Clone, PartialEq, Default)]
pub struct Kept {
    /// The authority that issues.
    pub issuing: Option<Authority>,
    /// The one that will issue next.
    pub next: Option<Authority>,
    /// The previous one's certificate, which is still trusted.
    pub previous: Option<(String, Validity)>,
    /// The Secret as it was read, with its version; None when there is none.
    read: Option<Secret>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("authorities", &self.authorities(false)).finish_non_exhaustive()
    }
}

impl Kept {
    /// Their validity, for the core to decide by.
    pub fn authorities(&self, next_is_trusted: bool) -> Authorities {
        let validity = |authority: &Authority| authority.validity;
        Authorities {
            issuing: self.issuing.as_ref().map(validity),
            next: self.next.as_ref().map(validity),
            previous: self.previous.as_ref().map(|(_, validity)| *validity),
            next_is_trusted,
        }
    }

    /// Makes the next authority the issuing one.
    pub fn promote(&mut self) {
        self.previous = self.issuing.take().map(|before| (before.certificate, before.validity));
        self.issuing = self.next.take();
    }

    /// All trusted certificates, as PEM.
    pub fn bundle(&self) -> String {
        let authorities = self.issuing.iter().chain(&self.next).map(|authority| &authority.certificate);
        authorities.chain(self.previous.as_ref().map(|(certificate, _)| certificate)).map(String::as_str).collect()
    }

    /// Parses a Secret. An authority that cannot be parsed is left out: a new one replaces it.
    fn of(secret: Secret) -> (Self, Vec<CertificateError>) {
        let mut data = secret.data.clone().unwrap_or_default();
        let mut text = |key: &str| data.remove(key).map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
        let mut errors = Vec::new();
        let mut pair = |certificate: &str, key: &str| match (text(certificate), text(key)) {
            (Some(certificate), Some(key)) => {
                Authority::read(certificate, key).map_err(|error| errors.push(error)).ok()
            }
            _ => None,
        };
        let (issuing, next) = (pair(ISSUING.0, ISSUING.1), pair(NEXT.0, NEXT.1));
        let previous = text(PREVIOUS).and_then(|certificate| {
            let validity = validity_of(&certificate).map_err(|error| errors.push(error)).ok()?;
            Some((certificate, validity))
        });
        (Self { issuing, next, previous, read: Some(secret) }, errors)
    }

    fn secret(&self, namespace: &str) -> Secret {
        let mut data = BTreeMap::new();
        let mut put = |key: &str, text: &str| drop(data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec())));
        for (authority, (certificate, key)) in [(&self.issuing, ISSUING), (&self.next, NEXT)] {
            if let Some(authority) = authority {
                put(certificate, &authority.certificate);
                put(key, &authority.key);
            }
        }
        if let Some((certificate, _)) = &self.previous {
            put(PREVIOUS, certificate);
        }
        let mut secret = self.read.clone().unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(namespace.to_owned()),
                labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), HOST.to_owned())])),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        });
        secret.metadata.managed_fields = None;
        secret.data = Some(data);
        secret
    }
}

const ISSUING: (&str, &str) = ("ca.crt", "ca.key");
const NEXT: (&str, &str) = ("next.crt", "next.key");
const PREVIOUS: &str = "previous.crt";

impl ApiServer {
    /// Reads the Secret of a namespace.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn read_authorities(&self, namespace: &str) -> Result<Kept, WriteError> {
        let path = format!("/api/v1/namespaces/{}/secrets/{NAME}", escape(namespace));
        let response = match self.get(&path, READ_TIMEOUT, Size::Object).await {
            Ok(response) => response,
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => return Ok(Kept::default()),
            Err(failure) => {
                return Err(failure.during("reading the webhooks' certificate authority").into_write_error());
            }
        };
        let secret: Secret = serde_json::from_slice(&response.body).map_err(|error| WriteError {
            class: WriteErrorClass::Invalid,
            message: format!("Secret {namespace}/{NAME} cannot be read: {error}"),
        })?;
        let (kept, errors) = Kept::of(secret);
        for error in errors {
            tracing::warn!(%namespace, secret = NAME, %error, "the Secret's certificate authority cannot be used; a new one replaces it");
        }
        Ok(kept)
    }

    /// Writes the Secret, not after this moment (X7), and returns it as it was written.
    ///
    /// # Errors
    /// A conflict when another host wrote in between; else the API server's error.
    pub async fn write_authorities(
        &self,
        namespace: &str,
        kept: &Kept,
        not_after_ms: Option<u64>,
    ) -> Result<Kept, WriteError> {
        let query = format!("fieldManager={HOST}&timeout={SERVER_TIMEOUT_SECONDS}s");
        let collection = format!("/api/v1/namespaces/{}/secrets", escape(namespace));
        let (method, path) = match kept.read {
            None => (Method::POST, format!("{collection}?{query}")),
            Some(_) => (Method::PUT, format!("{collection}/{NAME}?{query}")),
        };
        let write = async {
            // A Secret of the API's own types is always JSON.
            let body = serde_json::to_vec(&kept.secret(namespace))
                .map_err(|error| Failure::Invalid(format!("the Secret cannot be written as JSON: {error}")))?;
            let request = request(method, &path, Some("application/json"), Bytes::from(body))?;
            let response = self.send_while_claimed(request, None, not_after_ms).await?;
            let secret = ObjectRef { kind: Kind::new("v1", "Secret"), name: Name::new(namespace, NAME) };
            response::object(&response.body, &secret).map_err(Failure::Lost)?;
            serde_json::from_slice(&response.body).map_err(|error| {
                Failure::Lost(format!("the Secret was written, but the response cannot be read: {error}"))
            })
        };
        match write.await {
            Ok(secret) => Ok(Kept { read: Some(secret), ..kept.clone() }),
            Err(failure) => Err(failure.during("writing the webhooks' certificate authority").into_write_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(from_ms: u64) -> Authority {
        Authority::create(Validity { from_ms, until_ms: from_ms + 1_000_000_000 }).unwrap()
    }

    #[test]
    fn a_secret_is_read_as_it_was_written_and_after_the_next_takes_over_the_previous_is_still_trusted() {
        let (first, second) = (authority(1_000), authority(500_000_000));
        let kept = Kept { issuing: Some(first.clone()), next: Some(second.clone()), ..Kept::default() };
        let (mut read, errors) = Kept::of(kept.secret("n"));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!((read.issuing.as_ref(), read.next.as_ref()), (Some(&first), Some(&second)));
        assert_eq!(read.bundle(), format!("{}{}", first.certificate, second.certificate));
        read.promote();
        assert_eq!(read.issuing, Some(second.clone()));
        assert_eq!(read.bundle(), format!("{}{}", second.certificate, first.certificate));
        let (again, _) = Kept::of(read.secret("n"));
        assert_eq!(again.previous, Some((first.certificate, first.validity)));
        assert_eq!(again.next, None, "its key is stored once");
    }

    #[test]
    fn authorities_that_cannot_be_parsed_are_left_out_with_their_errors() {
        let mut secret = Kept { issuing: Some(authority(1_000)), ..Kept::default() }.secret("n");
        let data = secret.data.as_mut().unwrap();
        data.insert("ca.key".to_owned(), ByteString(authority(1_000).key.into_bytes()));
        data.insert("previous.crt".to_owned(), ByteString(b"hello".to_vec()));
        let (kept, errors) = Kept::of(secret);
        assert_eq!((kept.issuing, kept.previous), (None, None));
        assert_eq!(errors.len(), 2, "{errors:?}");
    }
}
