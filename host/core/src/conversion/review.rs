//! ConversionReviews of apiextensions.k8s.io/v1, the guest requests for their objects, and the responses. Objects stay text:
//! a tree takes up to a hundred times as much, and anybody who reaches the port sends them.
//!
//! The API server refuses a converted object with another identity. The host checks that first to name the plugin.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Conversion, ConversionBackend, ConversionRequest};
use crate::contract::GuestFault;
use crate::heap::HeapBytes;
use crate::json::level::{Level, member, parse};
use crate::metadata::{self, members_of};
use crate::object::{Kind, Name, ObjectRef};
use crate::text::DENIAL;
use crate::webhook::{Parts, text_with_managed_fields, text_without_managed_fields};

/// Objects of one review. The API server sends all of a list at once; more take more than the largest body, at 250 bytes each.
const MAX_OBJECTS: usize = 1 << 15;
/// The converted objects of one response: twice the largest review. The plugin writes them.
const MAX_CONVERTED_BYTES: usize = 16 << 20;

/// One request of the API server.
#[derive(Clone, PartialEq, Debug)]
pub struct Review {
    uid: String,
    to_api_version: Arc<str>,
    objects: Vec<Original>,
}

/// An object to convert.
#[derive(Clone, PartialEq, Debug)]
pub struct Original {
    /// Its JSON, as it was sent.
    text: Box<str>,
    reference: ObjectRef,
}

impl Original {
    /// Its JSON, as it was sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn bytes(&self) -> usize {
        let ObjectRef { kind, name } = &self.reference;
        let names = [&kind.api_version, &kind.kind, &name.namespace, &name.name];
        size_of::<Self>() + self.text.heap_bytes() + names.map(HeapBytes::heap_bytes).iter().sum::<usize>()
    }

    /// Its kind and its name.
    pub fn reference(&self) -> &ObjectRef {
        &self.reference
    }
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

/// The response in which all objects are converted, while it is written.
#[derive(Debug)]
pub struct Success {
    text: String,
    is_empty: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReview<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: RawRequest<'a>,
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(borrow)]
    objects: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawObject<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

#[derive(Deserialize)]
struct RawMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
}

impl Review {
    /// Parses a review.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let RawReview { api_version, kind, request } =
            serde_json::from_slice(body).map_err(|error| format!("the ConversionReview cannot be read: {error}"))?;
        if api_version != "apiextensions.k8s.io/v1" || kind != "ConversionReview" {
            return Err(format!(
                "this is {api_version} {kind}; mortise answers apiextensions.k8s.io/v1 ConversionReview"
            ));
        }
        let RawRequest { uid, desired_api_version, objects } = request;
        let objects = match Level::of(objects, MAX_OBJECTS) {
            Level::List(objects) => objects.into_iter().map(original).collect::<Result<_, _>>()?,
            Level::Wide => {
                return Err(format!(
                    "the ConversionReview has more than {MAX_OBJECTS} objects; list fewer at once (`kubectl get --chunk-size`)"
                ));
            }
            Level::Object(_) | Level::Scalar => {
                return Err("the ConversionReview cannot be read: its objects are no list".to_owned());
            }
        };
        Ok(Self { uid, to_api_version: desired_api_version.into(), objects })
    }

    /// What it keeps.
    pub fn bytes(&self) -> usize {
        self.uid.len() + self.to_api_version.len() + self.objects.iter().map(Original::bytes).sum::<usize>()
    }

    /// The objects to convert.
    pub fn objects(&self) -> &[Original] {
        &self.objects
    }

    /// The guest's request for one object of this review; None when the object already has the wanted version.
    pub fn request(
        &self,
        object: &Original,
        serving: &ConversionBackend,
        now_unix_ms: u64,
    ) -> Option<ConversionRequest> {
        if object.reference.kind.api_version == self.to_api_version {
            return None;
        }
        Some(ConversionRequest {
            object: text_without_managed_fields(&object.text)?,
            to_api_version: Arc::clone(&self.to_api_version),
            now_unix_ms,
            config: Arc::clone(&serving.config),
        })
    }

    /// Checks the guest's result for one object; the text of the converted object comes out.
    pub fn converted(&self, plugin: &str, object: &Original, answer: Conversion) -> Result<String, Box<Failure>> {
        let reference = object.reference.clone();
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
                self.checked(object, text).map_err(|message| at_fault(GuestFault::bad_outcome(message)))
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

    /// Checks that a converted object has the same identity, and puts back its managedFields.
    fn checked(&self, object: &Original, text: String) -> Result<String, String> {
        let is_not_json = |error| format!("the converted object is not JSON: {error}");
        let converted = parse(&text).map_err(is_not_json)?;
        let members = members_of(Some(converted)).map_err(|why| format!("the converted object {why}"))?;
        let shown = |part| member(&members, part).map_or("null", RawValue::get);
        let is = |part, wanted: &str| serde_json::from_str::<Cow<'_, str>>(shown(part)).is_ok_and(|is| is == wanted);
        if !is("kind", &object.reference.kind.kind) {
            return Err(format!("the converted object is of the kind {}", shown("kind")));
        }
        if !is("apiVersion", &self.to_api_version) {
            return Err(format!(
                "the converted object has the apiVersion {}, and {:?} was requested",
                shown("apiVersion"),
                &*self.to_api_version
            ));
        }
        let too_many = |why: String| format!("the metadata {why}");
        let before: &RawValue = serde_json::from_str(&object.text).map_err(is_not_json)?;
        let parts = Parts::of(&object.text).ok_or("the object has its metadata twice")?;
        let before = members_of(Some(before)).map_err(too_many)?;
        let mut before = members_of(member(&before, "metadata")).map_err(too_many)?;
        before.retain(|(name, _)| name != "managedFields");
        let after = members_of(member(&members, "metadata")).map_err(too_many)?;
        if let Some(place) = metadata::not_to_change(&before, &after) {
            return Err(format!("conversion changed {place}"));
        }
        match parts.managed_fields.and_then(|range| object.text.get(range)) {
            Some(managed_fields) => text_with_managed_fields(&text, managed_fields)
                .ok_or_else(|| "the converted object has no metadata, or has it twice".to_owned()),
            None => Ok(text),
        }
    }

    /// The response with all objects, in the order of the request.
    pub fn success(&self) -> Success {
        let uid = json!(self.uid);
        let text = format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{{"uid":{uid},"result":{{"status":"Success"}},"convertedObjects":["#
        );
        Success { text, is_empty: true }
    }

    /// The response when some object could not be converted.
    pub fn failure(&self, message: &str) -> String {
        let result = json!({"status": "Failure", "message": message});
        let response = json!({"uid": self.uid, "result": result, "convertedObjects": []});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}).to_string()
    }
}

impl Success {
    /// Adds the next object.
    ///
    /// # Errors
    /// All of them take too much. One sentence for the client.
    pub fn push(&mut self, object: &str) -> Result<(), String> {
        if self.text.len() + object.len() > MAX_CONVERTED_BYTES {
            return Err(format!(
                "the converted objects take more than {} MiB together; list fewer at once (`kubectl get --chunk-size`)",
                MAX_CONVERTED_BYTES >> 20
            ));
        }
        if !self.is_empty {
            self.text.push(',');
        }
        self.is_empty = false;
        self.text.push_str(object);
        Ok(())
    }

    /// The memory of the response so far.
    pub fn bytes(&self) -> usize {
        self.text.capacity()
    }

    /// The whole response.
    pub fn end(mut self) -> String {
        self.text.push_str("]}}");
        self.text
    }
}

fn original(object: &RawValue) -> Result<Original, String> {
    let read = serde_json::from_str::<RawObject<'_>>(object.get()).ok();
    // With each part once, so that the guest, the host and the API server mean the same one.
    let read = read.filter(|_| Parts::of(object.get()).is_some());
    let Some(RawObject { api_version, kind, metadata }) = read else {
        return Err(format!("the ConversionReview carries something without metadata: {}", DENIAL.text(object.get())));
    };
    let reference =
        ObjectRef { kind: Kind::new(&api_version, &kind), name: Name::new(&metadata.namespace, &metadata.name) };
    Ok(Original { text: object.get().into(), reference })
}
