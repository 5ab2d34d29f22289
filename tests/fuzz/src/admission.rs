//! An AdmissionReview or a ConversionReview to a guest's request, and the guest's result to the response. An input is the
//! review on one line, then what the guest returns: an object on the second line and texts on the others.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_core::admission::review::{Answer, Review};
use mortise_core::admission::{AdmissionBackend, Checked, Operation, Verdict, Violation};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::review::Review as ConversionReview;
use mortise_core::conversion::{Conversion, ConversionBackend};
use mortise_core::digest::Digest;
use mortise_core::limits::CallLimits;
use mortise_core::manifest::Manifest;
use mortise_core::webhook::Purpose;
use mortise_core::well_known::GENERATED_ANNOTATION;
use serde_json::Value;

/// The plugin: it admits a kind of its own and one of others, and converts its own.
const MANIFEST: &str = include_str!("admission/manifest.json");
/// The most warnings of a response.
const MAX_WARNINGS: usize = 16;
/// The time of the request.
const NOW_UNIX_MS: u64 = 1_700_000_000_000;

static BACKENDS: LazyLock<(Arc<AdmissionBackend>, ConversionBackend)> = LazyLock::new(|| {
    let manifest = Manifest::parse(MANIFEST).expect("the manifest of this target is valid");
    let (digest, config): (_, Arc<str>) = (Digest("sha256:0".into()), "{}".into());
    let (specs, limits) = (manifest.admission.into(), CallLimits::default());
    let admission = AdmissionBackend { digest: digest.clone(), config: Arc::clone(&config), limits, specs };
    let conversion = ConversionBackend { digest, config, limits, specs: manifest.conversion.into() };
    (Arc::new(admission), conversion)
});

pub(crate) fn run(input: &[u8]) {
    let (review, rest) = crate::two_lines(input);
    let (object, texts) = crate::two_lines(rest);
    let (object, texts) = (String::from_utf8_lossy(object), String::from_utf8_lossy(texts));
    match ConversionReview::parse(review) {
        Ok(conversion) => convert(review, &conversion, &object),
        Err(why) => assert!(!why.is_empty()),
    }
    match Review::parse(review, &BACKENDS.0) {
        Ok(parsed) => admit(review, &parsed, &object, &texts),
        Err(why) => assert!(!why.is_empty()),
    }
}

/// The request in a review. None when only a parser that reads a part of it accepts it, which skips the rest.
fn request_of(review: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(review).ok().map(|review| review["request"].clone()).filter(Value::is_object)
}

fn admit(text: &[u8], review: &Review, object: &str, texts: &str) {
    let Some(request) = request_of(text) else { return };
    for purpose in [Purpose::Mutate, Purpose::Validate] {
        let Some(asked) = review.request(purpose, NOW_UNIX_MS) else { continue };
        assert!(purpose == Purpose::Validate || asked.operation != Operation::Delete);
        for text in [&asked.object].into_iter().chain(&asked.old) {
            assert!(crate::json_of(text)["metadata"]["managedFields"].is_null());
        }
    }
    let violations: Vec<Violation> = texts.lines().map(violation).collect();
    let warnings: Vec<String> = texts.lines().map(str::to_owned).collect();
    let completed = review.answer("podset", Verdict::Completed(object.to_owned()));
    check_patch(&request, object, &completed);
    for answer in [
        completed,
        review.admitted(),
        review.unavailable(429, texts),
        review.unavailable(503, object),
        review.answer("podset", Verdict::Checked(Checked::new(violations, warnings))),
        review.answer("podset", Verdict::Fault(GuestFault::BadOutcome { message: texts.to_owned() })),
        review.answer("podset", Verdict::HostFault(texts.to_owned())),
    ] {
        check_answer(&request, &answer);
    }
}

/// "spec.image: Required value", or a sentence about the object as a whole.
fn violation(line: &str) -> Violation {
    let (field, message) = line.split_once(": ").unwrap_or(("", line));
    Violation::new(field, message)
}

/// Every response has the request's UID and one verdict, and says why when it refuses.
fn check_answer(request: &Value, answer: &Answer) {
    let review = crate::json_of(&answer.text);
    let response = &review["response"];
    assert_eq!((&review["kind"], &review["apiVersion"]), (&"AdmissionReview".into(), &"admission.k8s.io/v1".into()));
    assert_eq!(response["uid"], request["uid"], "of {request}");
    let is_allowed = response["allowed"].as_bool().expect("a response has a verdict");
    assert_eq!(is_allowed, answer.code == 200);
    let warnings = response["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(warnings.len() <= MAX_WARNINGS);
    warnings.iter().for_each(|warning| crate::check_message(warning.as_str().expect("a warning is text")));
    if is_allowed {
        assert!(response["status"].is_null() && response["patch"].is_null() == response["patchType"].is_null());
    } else {
        assert_eq!(response["status"]["code"], answer.code);
        assert!(response["status"]["message"].is_string() && response["status"]["reason"].is_string());
        assert!(response["patch"].is_null());
        for cause in response["status"]["details"]["causes"].as_array().into_iter().flatten() {
            crate::check_message(cause["field"].as_str().expect("a cause has a field"));
            crate::check_message(cause["message"].as_str().expect("a cause has a message"));
        }
    }
}

/// A patch makes the object with its defaults from the one that the API server sent, and changes nothing of others.
fn check_patch(request: &Value, completed: &str, answer: &Answer) {
    let response = &crate::json_of(&answer.text)["response"];
    let Some(patch) = response["patch"].as_str() else { return };
    let patch = STANDARD.decode(patch).expect("a patch is base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch is a JSON patch");
    let before = if request["operation"] == "DELETE" { &request["oldObject"] } else { &request["object"] };
    let mut after = before.clone();
    json_patch::patch(&mut after, &patch).unwrap_or_else(|error| panic!("{error}: {patch} does not fit {before}"));
    for field in ["apiVersion", "kind", "status"] {
        assert_eq!(before[field], after[field], "{patch}");
    }
    let (before, metadata) = (&before["metadata"], &after["metadata"]);
    for field in before.as_object().into_iter().flatten().map(|(field, _)| field) {
        let is_open = field == "labels" || field == "annotations";
        assert!(is_open || before[field] == metadata[field], "metadata.{field} by {patch}");
    }
    // Of values that the guest does not see the patch says nothing.
    if !before["annotations"][GENERATED_ANNOTATION].is_null() || completed.contains(GENERATED_ANNOTATION) {
        return;
    }
    if let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    assert_eq!(after, crate::json_of(completed), "by {patch}");
}

fn convert(text: &[u8], review: &ConversionReview, object: &str) {
    let Some(request) = request_of(text) else { return };
    let (mut success, mut count) = (review.success(), 0);
    for source in review.objects() {
        BACKENDS.1.converts(&source.reference().kind);
        if let Some(asked) = review.request(source, &BACKENDS.1, NOW_UNIX_MS) {
            assert!(json_if_read(&asked.object)["metadata"]["managedFields"].is_null());
        }
        let before = json_if_read(source.text());
        for result in [
            Conversion::Object(object.to_owned()),
            Conversion::Object(converted_as_asked(&before, &request)),
            Conversion::Refused(object.to_owned()),
            Conversion::Fault(GuestFault::BadOutcome { message: object.to_owned() }),
            Conversion::HostFault(object.to_owned()),
        ] {
            match review.converted("podset", source, result) {
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
