//! An AdmissionReview to a guest's request, and the guest's result to the response. An input is the review on one line, then what
//! the guest returns: an object on the second line and texts on the others. Or it says what to make of all three.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_core::admission::review::{Answer, Review};
use mortise_core::admission::{AdmissionBackend, Checked, Operation, Verdict, Violation};
use mortise_core::contract::GuestFault;
use mortise_core::conversion::ConversionBackend;
use mortise_core::digest::Digest;
use mortise_core::limits::CallLimits;
use mortise_core::manifest::Manifest;
use mortise_core::webhook::Purpose;
use mortise_core::well_known::GENERATED_ANNOTATION;
use serde_json::Value;

use crate::cost::{self, Bound};
use crate::worst::Maker;

/// The plugin: it admits a kind of its own and one of others, and converts its own.
const MANIFEST: &str = include_str!("admission/manifest.json");
/// The most warnings of a response.
const MAX_WARNINGS: usize = 16;
/// Of each byte of a review while it is read: its objects without their managedFields, and those without values of Secrets.
const PARSE_FACTOR: usize = 4;
/// Of each byte of both objects, while they are compared: members, which are a name and a reference, in five bytes each. Deeper
/// levels are part of the text of those above, so the text of a level is read again and not kept.
const PATCH_FACTOR: usize = 32;
/// Of each byte of the guest's texts, which are cut and escaped for JSON, and of the review, whose object they are about.
const TEXTS_FACTOR: usize = 16;
/// Texts of a response, whose list is a few KiB long.
const LIST_BYTES: usize = 8 << 10;
/// The time of the request.
pub(crate) const NOW_UNIX_MS: u64 = 1_700_000_000_000;

pub(crate) static BACKENDS: LazyLock<(Arc<AdmissionBackend>, ConversionBackend)> = LazyLock::new(|| {
    let manifest = Manifest::parse(MANIFEST).expect("the manifest of this target is valid");
    let (digest, config): (_, Arc<str>) = (Digest("sha256:0".into()), "{}".into());
    let (specs, limits) = (manifest.admission.into(), CallLimits::default());
    let admission = AdmissionBackend { digest: digest.clone(), config: Arc::clone(&config), limits, specs };
    let conversion = ConversionBackend { digest, config, limits, specs: manifest.conversion.into() };
    (Arc::new(admission), conversion)
});

pub(crate) fn run(input: &[u8]) {
    match Maker::of(input) {
        Some(mut maker) => {
            let (review, object, texts) = made(&mut maker);
            read(review.as_bytes(), &object, &texts);
        }
        None => {
            let (review, rest) = crate::two_lines(input);
            let (object, texts) = crate::two_lines(rest);
            read(review, &String::from_utf8_lossy(object), &String::from_utf8_lossy(texts));
        }
    }
}

/// A review, the object that the guest completes, and its texts.
fn made(maker: &mut Maker<'_>) -> (String, String, String) {
    let (object, other) = (maker.object("app.example.com/v1", "PodSet"), maker.object("app.example.com/v1", "PodSet"));
    let completed = if maker.up_to(3) == 0 { object.replace(":0", ":1") } else { other.clone() };
    let operation = maker.one(&["CREATE", "UPDATE", "DELETE"]);
    let request = format!(
        r#"{{"uid":"u","kind":{{"group":"app.example.com","version":"v1","kind":"PodSet"}},"resource":{{"group":"app.example.com","version":"v1","resource":"podsets"}},"operation":"{operation}","object":{object},"oldObject":{other}}}"#
    );
    let review = format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#);
    let line = format!("spec.{}: {}\n", "f".repeat(maker.count(64)), maker.text());
    let texts = line.repeat(maker.count(line.len()));
    (review, completed, texts)
}

fn read(text: &[u8], object: &str, texts: &str) {
    let backend = &BACKENDS.0;
    let parsed = cost::within(
        "parsing a review",
        Bound { input: text.len(), peak: PARSE_FACTOR * text.len() },
        || Review::parse(text, backend),
        |read| read.as_ref().map_or_else(String::capacity, Review::bytes),
    );
    match parsed {
        Ok(parsed) => admit(text, &parsed, object, texts),
        Err(why) => assert!(!why.is_empty()),
    }
}

/// The request in a review. None when only a parser that reads a part of it accepts it, which skips the rest.
pub(crate) fn request_of(review: &[u8]) -> Option<Value> {
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
    let checked = || {
        let violations: Vec<Violation> = texts.lines().map(violation).collect();
        review.answer("podset", Verdict::Checked(Checked::new(violations, texts.lines().map(str::to_owned))))
    };
    let kept = |answer: &Answer| answer.text.capacity();
    // A violation and a warning of each line, before there are few of them.
    let lines = texts.lines().count() * (size_of::<Violation>() + size_of::<String>() + 128);
    let input = text.len() + texts.len();
    let bound = Bound { input, peak: LIST_BYTES + TEXTS_FACTOR * input + 2 * lines };
    let checked = cost::within("refusing an object", bound, checked, kept);
    let input = text.len() + object.len();
    let completed = cost::within(
        "completing an object",
        Bound { input, peak: PATCH_FACTOR * input },
        || review.answer("podset", Verdict::Completed(object.to_owned())),
        kept,
    );
    check_patch(&request, object, &completed);
    for answer in [
        completed,
        review.admitted(),
        review.unavailable(429, texts),
        review.unavailable(503, object),
        checked,
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
