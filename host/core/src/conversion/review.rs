//! ConversionReviews of apiextensions.k8s.io/v1: a request's text comes in, a question to the guest for each of its objects
//! goes out; what the guest made of them comes in, the answer's text goes out.
//!
//! The API server believes a converted object only when it is the same one. That is checked here first, because here it can
//! be said what the guest did.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Conversion, ConversionBackend, ConversionRequest};
use crate::contract::GuestFault;
use crate::metadata;
use crate::object::{Kind, Name, ObjectRef};
use crate::webhook::{cut, without_managed_fields};

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
    /// For whoever wanted it.
    pub message: String,
    /// What the guest is at fault for.
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
    /// Reads a request.
    ///
    /// # Errors
    /// What about it cannot be served, for the one who sent it.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
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
                cut(&other.to_string())
            ));
        }
        Ok(Self { uid, to_api_version: desired_api_version.into(), objects })
    }

    /// Its objects, in their order.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// What the guest is asked about an object of this review; None when the object is what is wanted.
    pub fn question(&self, object: &Value, serving: &ConversionBackend, now_unix_ms: u64) -> Option<ConversionRequest> {
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

    /// What the API server gets for an object.
    ///
    /// # Errors
    /// Why it gets nothing.
    pub fn converted(&self, plugin: &str, object: &Value, answer: Conversion) -> Result<Value, Box<Failure>> {
        let reference = reference(object);
        let at_fault = |fault: GuestFault| {
            let message = format!(
                "the plugin {plugin:?} could not convert {reference} to {}: {}",
                self.to_api_version,
                fault.message()
            );
            Box::new(Failure { object: reference.clone(), message: cut(&message), fault: Some(fault) })
        };
        match answer {
            Conversion::Object(text) => {
                self.checked(object, &text).map_err(|message| at_fault(GuestFault::BadOutcome { message }))
            }
            Conversion::Refused(why) => {
                let message = cut(&format!("{reference}: {why}"));
                Err(Box::new(Failure { message, object: reference, fault: None }))
            }
            Conversion::Fault(fault) => Err(at_fault(fault)),
            Conversion::HostFault(message) => {
                Err(Box::new(Failure { object: reference, message: cut(&message), fault: None }))
            }
        }
    }

    /// The object that a guest gave, if it is the one that it was asked about.
    fn checked(&self, object: &Value, text: &str) -> Result<Value, String> {
        let mut converted: Value =
            serde_json::from_str(text).map_err(|error| format!("the converted object is not JSON: {error}"))?;
        if converted["kind"] != object["kind"] {
            return Err(format!("the converted object is of the kind {}", converted["kind"]));
        }
        if converted["apiVersion"] != *self.to_api_version {
            return Err(format!(
                "the converted object has the apiVersion {}, and {:?} was asked for",
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

    /// The answer, with all objects in the order of the request.
    pub fn success(&self, objects: Vec<Value>) -> String {
        self.answer(json!({"result": {"status": "Success"}, "convertedObjects": objects}))
    }

    /// The answer when one object or more could not be converted.
    pub fn failure(&self, message: &str) -> String {
        self.answer(json!({"result": {"status": "Failure", "message": message}, "convertedObjects": []}))
    }

    fn answer(&self, mut response: Value) -> String {
        response["uid"] = json!(self.uid);
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}).to_string()
    }
}

/// The object, for people.
fn reference(object: &Value) -> ObjectRef {
    let none = Map::new();
    let text =
        |map: &Map<String, Value>, name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object["metadata"].as_object().unwrap_or(&none);
    let object = object.as_object().unwrap_or(&none);
    ObjectRef {
        kind: Kind::new(&text(object, "apiVersion"), &text(object, "kind")),
        name: Name::new(&text(metadata, "namespace"), &text(metadata, "name")),
    }
}
