//! A ConversionReview to a guest's request for each object, and the guest's results to the response. An input is the review on one
//! line and what the guest returns on the other, or says what to make of both.

use mortise_core::contract::GuestFault;
use mortise_core::conversion::Conversion;
use mortise_core::conversion::review::{Original, Review};
use serde_json::Value;

use crate::admission::{BACKENDS, NOW_UNIX_MS, request_of};
use crate::cost::{self, Bound};
use crate::worst::{Maker, list};

/// Of each byte of a review while it is read: a list of the smallest objects, `{"metadata":{}}`, has a reference in 16 bytes, and
/// grows by doubling. What is kept of an object comes beside.
const PARSE_FACTOR: usize = 8;
/// Of each byte of both texts of an object: members of an object, which are a name and a reference, in five bytes each.
const CHECK_FACTOR: usize = 32;

pub(crate) fn run(input: &[u8]) {
    match Maker::of(input) {
        Some(mut maker) => {
            let (review, object) = made(&mut maker);
            read(review.as_bytes(), &object);
        }
        None => {
            let (review, object) = crate::two_lines(input);
            read(review, &String::from_utf8_lossy(object));
        }
    }
}

/// A review and what the guest returns for each of its objects.
fn made(maker: &mut Maker<'_>) -> (String, String) {
    let object = match maker.up_to(1) {
        0 => r#"{"metadata":{}}"#.to_owned(),
        _ => maker.object("app.example.com/v1", "PodSet"),
    };
    let count = maker.count(object.len() + 1);
    let objects = list(&object, count);
    let converted = if maker.up_to(1) == 0 { maker.object("app.example.com/v1beta1", "PodSet") } else { maker.value() };
    let request = format!(r#"{{"uid":"u","desiredAPIVersion":"app.example.com/v1beta1","objects":{objects}}}"#);
    (format!(r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{request}}}"#), converted)
}

fn read(text: &[u8], object: &str) {
    let parse = || Review::parse(text);
    // What it keeps is known after it.
    let kept = |read: &Result<Review, String>| read.as_ref().map_or_else(String::capacity, Review::bytes);
    let peak = kept(&parse()) + PARSE_FACTOR * text.len();
    match cost::within("parsing a review", Bound { input: text.len(), peak }, parse, kept) {
        Ok(review) => convert(text, &review, object),
        Err(why) => assert!(!why.is_empty()),
    }
}

/// The results of the first objects are checked: made reviews have thousands of one.
const CHECKED: usize = 16;

fn convert(text: &[u8], review: &Review, object: &str) {
    let Some(request) = request_of(text) else { return };
    let (mut success, mut count) = (review.success(), 0);
    for source in review.objects().iter().take(CHECKED) {
        BACKENDS.1.converts(&source.reference().kind);
        if let Some(asked) = review.request(source, &BACKENDS.1, NOW_UNIX_MS) {
            assert!(json_if_read(&asked.object)["metadata"]["managedFields"].is_null());
        }
        let before = json_if_read(source.text());
        for result in [
            Conversion::Object(object.to_owned()),
            Conversion::Object(converted_as_asked(&before, &request)),
            Conversion::Refused(object.to_owned()),
            Conversion::Fault(GuestFault::bad_outcome(object)),
            Conversion::HostFault(object.to_owned()),
        ] {
            match converted(review, source, &result) {
                Ok(result) => {
                    if let Ok(result) = serde_json::from_str(&result) {
                        check_identity(&before, &result, &request);
                        success.push(&result.to_string()).expect("an input is smaller than the bound");
                        count += 1;
                    }
                }
                Err(failure) => crate::check_message(&failure.message),
            }
        }
    }
    let (success, failure) = (crate::json_of(&success.end()), crate::json_of(&review.failure(object)));
    for response in [&success, &failure].map(|review| &review["response"]) {
        assert_eq!(response["uid"], request["uid"]);
        assert!(matches!(response["result"]["status"].as_str(), Some("Success" | "Failure")));
    }
    assert_eq!(success["response"]["convertedObjects"].as_array().map(Vec::len), Some(count));
}

fn converted(
    review: &Review,
    source: &Original,
    result: &Conversion,
) -> Result<String, Box<mortise_core::conversion::review::Failure>> {
    let input = source.text().len() + result.bytes();
    let work = || review.converted("podset", source, result.clone());
    cost::within("checking a converted object", Bound { input, peak: CHECK_FACTOR * input }, work, |result| {
        result.as_ref().map_or_else(|failure| 2 * failure.message.len(), String::capacity)
    })
}

/// Null when only a parser that skips a part of it reads it, such as what is nested deep.
fn json_if_read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// What a guest returns that changes the version alone.
fn converted_as_asked(source: &Value, request: &Value) -> String {
    let mut object = source.clone();
    object["apiVersion"] = request["desiredAPIVersion"].clone();
    object.to_string()
}

/// The API server refuses objects with another identity.
fn check_identity(source: &Value, converted: &Value, request: &Value) {
    assert_eq!(converted["apiVersion"], request["desiredAPIVersion"]);
    assert_eq!(converted["kind"], source["kind"]);
    for field in ["name", "namespace", "uid", "ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
        assert_eq!(converted["metadata"][field], source["metadata"][field], "metadata.{field}");
    }
}
