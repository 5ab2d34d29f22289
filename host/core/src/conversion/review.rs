//! ConversionReviews of apiextensions.k8s.io/v1, the guest requests for their objects, and the responses.
//!
//! The API server refuses a converted object with another identity. The host checks that first to name the plugin.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Conversion, ConversionBackend, ConversionRequest};
use crate::contract::GuestFault;
use crate::metadata;
use crate::object::{Kind, Name, ObjectRef};
use crate::text::DENIAL;
use crate::webhook::{too_wide, without_managed_fields};

/// One request of the API server.
#[derive(Clone, PartialEq, Debug)]
pub struct Review {
    uid: String,
    to_api_version: Arc<str>,
    objects: Vec<Value>,
}

/// Why an object was not converted.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The object.
    pub object: ObjectRef,
    /// For the client.
    pub message: String,
    /// The guest's fault, for logs and metrics.
    pub fault: Option<GuestFault>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReview {
    api_version: String,
    kind: String,
    request: RawRequest,
}

#[derive(Deserialize)]
struct RawRequest {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Value>,
}

impl Review {
    /// Parses a review.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        if let Some(why) = too_wide(body) {
            return Err(format!("the ConversionReview cannot be read: {why}"));
        }
        let RawReview { api_version, kind, request } =
            serde_json::from_slice(body).map_err(|error| format!("the ConversionReview cannot be read: {error}"))?;
        if api_version != "apiextensions.k8s.io/v1" || kind != "ConversionReview" {
            return Err(format!(
                "this is {api_version} {kind}; mortise answers apiextensions.k8s.io/v1 ConversionReview"
            ));
        }
        let RawRequest { uid, desired_api_version, objects } = request;
        if let Some(other) = objects.iter().find(|object| !object["metadata"].is_object()) {
            return Err(format!(
                "the ConversionReview carries something without metadata: {}",
                DENIAL.own(other.to_string())
            ));
        }
        Ok(Self { uid, to_api_version: desired_api_version.into(), objects })
    }

    /// The objects to convert.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// The guest's request for one object of this review; None when the object already has the wanted version.
    pub fn request(&self, object: &Value, serving: &ConversionBackend, now_unix_ms: u64) -> Option<ConversionRequest> {
        if object["apiVersion"] == *self.to_api_version {
            return None;
        }
        Some(ConversionRequest {
            object: without_managed_fields(object.clone()).to_string().into(),
            to_api_version: Arc::clone(&self.to_api_version),
            now_unix_ms,
            config: Arc::clone(&serving.config),
        })
    }

    /// Checks the guest's result for one object.
    pub fn converted(&self, plugin: &str, object: &Value, answer: Conversion) -> Result<Value, Box<Failure>> {
        let reference = reference(object);
        let at_fault = |fault: GuestFault| {
            let message = format!(
                "the plugin {plugin:?} could not convert {reference} to {}: {}",
                self.to_api_version,
                fault.message()
            );
            Box::new(Failure { object: reference.clone(), message: DENIAL.own(message), fault: Some(fault) })
        };
        match answer {
            Conversion::Object(text) => {
                self.checked(object, &text).map_err(|message| at_fault(GuestFault::bad_outcome(message)))
            }
            Conversion::Refused(why) => {
                let message = DENIAL.own(format!("{reference}: {why}"));
                Err(Box::new(Failure { message, object: reference, fault: None }))
            }
            Conversion::Fault(fault) => Err(at_fault(fault)),
            Conversion::HostFault(message) => {
                Err(Box::new(Failure { object: reference, message: DENIAL.own(message), fault: None }))
            }
        }
    }

    /// Parses a converted object and checks that it has the same identity.
    fn checked(&self, object: &Value, text: &str) -> Result<Value, String> {
        let mut converted: Value =
            serde_json::from_str(text).map_err(|error| format!("the converted object is not JSON: {error}"))?;
        if converted["kind"] != object["kind"] {
            return Err(format!("the converted object is of the kind {}", converted["kind"]));
        }
        if converted["apiVersion"] != *self.to_api_version {
            return Err(format!(
                "the converted object has the apiVersion {}, and {:?} was requested",
                converted["apiVersion"], &*self.to_api_version
            ));
        }
        let mut before = object["metadata"].clone();
        let managed = before.as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
        if let Some(place) = metadata::not_to_change(&before, &converted["metadata"]) {
            return Err(format!("conversion changed {place}"));
        }
        if let (Some(managed), Some(metadata)) = (managed, converted["metadata"].as_object_mut()) {
            metadata.insert("managedFields".to_owned(), managed);
        }
        Ok(converted)
    }

    /// The response with all objects, in the order of the request.
    pub fn success(&self, objects: Vec<Value>) -> String {
        self.response(json!({"result": {"status": "Success"}, "convertedObjects": objects}))
    }

    /// The response when some object could not be converted.
    pub fn failure(&self, message: &str) -> String {
        self.response(json!({"result": {"status": "Failure", "message": message}, "convertedObjects": []}))
    }

    fn response(&self, mut response: Value) -> String {
        response["uid"] = json!(self.uid);
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}).to_string()
    }
}

fn reference(object: &Value) -> ObjectRef {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    ObjectRef {
        kind: Kind::new(&text(&object["apiVersion"]), &text(&object["kind"])),
        name: Name::new(&text(&metadata["namespace"]), &text(&metadata["name"])),
    }
}
