//! Reads and writes webhook configurations. `core::admission::configuration` decides their content.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use mortise_core::admission::configuration::{Change, Configuration};
use mortise_core::contract::Propagation;
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::response;
use mortise_core::well_known::{HOST, MANAGED_BY_LABEL};
use mortise_core::write::request::SERVER_TIMEOUT_SECONDS;
use mortise_core::write::{WriteError, WriteOp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answers::Size;
use crate::client::{ApiServer, NOT_FOUND, READ_TIMEOUT, request};
use crate::discovery::escape;
use crate::failure::Failure;

#[derive(Deserialize)]
struct List {
    items: Vec<Value>,
}

impl ApiServer {
    /// Lists the configurations of one kind with the host's label, or the one of this name: by a list too, which takes no
    /// further right.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn list_configurations(&self, of: Configuration, name: Option<&str>) -> Result<Vec<Value>, WriteError> {
        let label = escape(&format!("{MANAGED_BY_LABEL}={HOST}"));
        let name = name.map(|name| format!("&fieldSelector={}", escape(&format!("metadata.name={name}"))));
        let path = format!("{}?labelSelector={label}{}", collection(of), name.unwrap_or_default());
        let list = async {
            let response = self.get(&path, READ_TIMEOUT, Size::List).await?;
            let list: List = serde_json::from_slice(&response.body)
                .map_err(|error| Failure::Lost(format!("the response cannot be read: {error}")))?;
            Ok(list.items)
        };
        list.await.map_err(|failure: Failure| failure.during(&format!("listing {}", of.resource())).into_write_error())
    }

    /// The name of a kind's resource; None when the API server serves no such kind.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn resource_name(&self, kind: &Kind) -> Result<Option<Arc<str>>, WriteError> {
        match self.resource(kind).await {
            Ok(resource) => Ok(Some(resource.plural().into())),
            Err(Failure::NotServed(_)) => Ok(None),
            Err(failure) => Err(failure.into_write_error()),
        }
    }

    /// Writes one change, not after this moment (X7).
    ///
    /// # Errors
    /// The API server's error; a conflict when the configuration changed since it was read.
    pub async fn change_configuration(
        &self,
        of: Configuration,
        change: &Change,
        not_after_ms: Option<u64>,
    ) -> Result<(), WriteError> {
        let query = format!("fieldManager={HOST}&timeout={SERVER_TIMEOUT_SECONDS}s");
        let json = Some("application/json");
        let by_name = |name: &str| format!("{}/{}", collection(of), escape(name));
        let request = match change {
            Change::Create(body) => {
                let path = format!("{}?{query}", collection(of));
                request(Method::POST, &path, json, Bytes::from(body.to_string()))
            }
            Change::Update(body) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{}?{query}", by_name(name));
                request(Method::PUT, &path, json, Bytes::from(body.to_string()))
            }
            Change::Delete { name, uid } => {
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
                let path = format!("{}?timeout={SERVER_TIMEOUT_SECONDS}s", by_name(name));
                request(Method::DELETE, &path, json, Bytes::from(options.to_string()))
            }
        };
        let write = async {
            let response = self.send_while_claimed(request?, None, not_after_ms).await?;
            confirmed(&response.body, of, change).map_err(Failure::Lost)
        };
        match (write.await, change) {
            (Ok(()), _) => Ok(()),
            (Err(Failure::Response(refused)), Change::Delete { .. }) if refused.code == NOT_FOUND => Ok(()),
            (Err(failure), _) => Err(failure.during(&format!("writing {}", of.resource())).into_write_error()),
        }
    }
}

/// Whether a response says that the change was made.
fn confirmed(body: &[u8], of: Configuration, change: &Change) -> Result<(), String> {
    let kind = || Kind::new("admissionregistration.k8s.io/v1", of.kind());
    let target = |name: &str| ObjectRef { kind: kind(), name: Name::new("", name) };
    let op = match change {
        Change::Create(body) | Change::Update(body) => {
            let target = target(body["metadata"]["name"].as_str().unwrap_or_default());
            WriteOp::Create { target, body: "".into() }
        }
        Change::Delete { name, uid } => {
            let (target, propagation) = (target(name), Propagation::Background);
            WriteOp::Delete { target, uid: uid.as_str().into(), propagation }
        }
    };
    response::written(body, &op).map(|_| ())
}

fn collection(of: Configuration) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{}", of.resource())
}
