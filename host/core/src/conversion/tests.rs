//! Reviews and results in, responses out.

use serde_json::{Value, json};

use super::review::Review;
use super::*;
use crate::allocations::counted;

fn serving() -> ConversionBackend {
    ConversionBackend {
        digest: Digest("sha256:00".into()),
        config: "{}".into(),
        limits: CallLimits::default(),
        specs: [ConversionSpec {
            kind: Kind::new("example.com/v1", "Gauge"),
            crd: "gauges.example.com".into(),
            versions: vec!["v1".into(), "v1alpha1".into()],
        }]
        .into(),
    }
}

fn gauge() -> Value {
    json!({
        "apiVersion": "example.com/v1alpha1", "kind": "Gauge",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u-2", "managedFields": [{"manager": "kubectl"}],
            "annotations": {"mortise.dev/child": "x", "own": "1"},
        },
        "spec": {"size": "10Mi"},
    })
}

fn review(objects: &[Value]) -> Review {
    let request = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-1", "desiredAPIVersion": "example.com/v1", "objects": objects},
    });
    Review::parse(request.to_string().as_bytes()).unwrap()
}

/// The gauge after the guest's change.
fn converted(change: impl FnOnce(&mut Value)) -> Result<Value, Box<review::Failure>> {
    let review = review(&[gauge()]);
    let before = &review.objects()[0];
    let request = review.request(before, &serving(), 0).unwrap();
    let mut after: Value = serde_json::from_str(&request.object).unwrap();
    after["apiVersion"] = json!(&*request.to_api_version);
    change(&mut after);
    let converted = review.converted("gauges", before, Conversion::Object(after.to_string()))?;
    Ok(serde_json::from_str(&converted).unwrap())
}

#[test]
fn the_guest_converts_to_the_wanted_version_without_managed_fields_which_the_host_puts_back() {
    let review = review(&[gauge()]);
    let request = review.request(&review.objects()[0], &serving(), 7).unwrap();
    assert_eq!((&*request.to_api_version, request.now_unix_ms), ("example.com/v1", 7));
    assert!(!request.object.contains("managedFields"));
    let made = converted(|after| {
        after["spec"] = json!({"value": 10});
        after["metadata"]["labels"] = json!({"new": "1"});
        after["metadata"]["annotations"] = json!({"mortise.dev/child": "x"});
    });
    let mut wanted = gauge();
    wanted["apiVersion"] = json!("example.com/v1");
    wanted["spec"] = json!({"value": 10});
    wanted["metadata"]["labels"] = json!({"new": "1"});
    wanted["metadata"]["annotations"] = json!({"mortise.dev/child": "x"});
    assert_eq!(made.unwrap(), wanted);
}

#[test]
fn a_backend_converts_any_version_of_its_kinds_and_nothing_else() {
    assert!(serving().converts(&Kind::new("example.com/v1alpha1", "Gauge")));
    for (api_version, kind) in [("example.com/v1", "Dial"), ("example.org/v1", "Gauge"), ("v1", "Gauge"), ("", "")] {
        assert!(!serving().converts(&Kind::new(api_version, kind)), "{api_version} {kind}");
    }
}

#[test]
fn an_object_that_has_the_wanted_version_needs_no_call() {
    let mut object = gauge();
    object["apiVersion"] = json!("example.com/v1");
    let review = review(&[object]);
    assert_eq!(review.request(&review.objects()[0], &serving(), 0), None);
}

#[test]
fn another_object_than_the_requested_one_is_a_fault_that_names_the_change() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 6] = [
        (|after| after["kind"] = json!("Dial"), "the converted object is of the kind \"Dial\""),
        (|after| after["apiVersion"] = json!("example.com/v2"), "and \"example.com/v1\" was requested"),
        (|after| after["metadata"]["name"] = json!("b"), "conversion changed metadata.name"),
        (|after| after["metadata"]["finalizers"] = json!(["x"]), "conversion changed metadata.finalizers"),
        (
            |after| after["metadata"]["annotations"]["mortise.dev/child"] = json!("y"),
            "metadata.annotations[\"mortise.dev/child\"], which is the host's",
        ),
        (|after| *after = json!([]), "the converted object is of the kind null"),
    ];
    for (change, words) in cases {
        let failure = converted(change).unwrap_err();
        assert!(failure.message.contains(words), "{}", failure.message);
        assert!(failure.message.starts_with("the plugin \"gauges\" could not convert Gauge n/a to example.com/v1"));
        assert!(matches!(failure.fault, Some(GuestFault::BadOutcome { .. })), "{failure:?}");
    }
}

#[test]
fn h15_a_converted_object_that_is_nested_without_end_is_refused() {
    let review = review(&[gauge()]);
    let deep = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Gauge","metadata":{{"name":"a","namespace":"n"}},"spec":{}{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let failure = review.converted("gauges", &review.objects()[0], Conversion::Object(deep)).unwrap_err();
    assert!(failure.message.contains("is not JSON: recursion limit exceeded"), "{}", failure.message);
}

#[test]
fn a_response_has_all_objects_or_the_reason_why_it_has_none() {
    let review = review(&[gauge()]);
    let mut success = review.success();
    success.push(&gauge().to_string()).unwrap();
    let success: Value = serde_json::from_str(&success.end()).unwrap();
    let response = json!({"uid": "u-1", "result": {"status": "Success"}, "convertedObjects": [gauge()]});
    assert_eq!((&success["response"], &success["kind"]), (&response, &json!("ConversionReview")));
    let refused = review.converted("gauges", &review.objects()[0], Conversion::Refused("no\nsize".into())).unwrap_err();
    assert_eq!((&*refused.message, &refused.fault), ("Gauge n/a: no size", &None));
    let failure: Value = serde_json::from_str(&review.failure(&refused.message)).unwrap();
    assert_eq!(failure["response"]["result"], json!({"status": "Failure", "message": "Gauge n/a: no size"}));
}

#[test]
fn a_failed_conversion_is_one_line_of_bounded_length() {
    let review = review(&[gauge()]);
    let message = |answer| review.converted("gauges", &review.objects()[0], answer).unwrap_err().message;
    assert_eq!(message(Conversion::Refused("no\u{1b}[2J\r\nsize\u{202e}".into())), "Gauge n/a: no size");
    let long = message(Conversion::Refused("ä".repeat(2_000)));
    assert!(long.chars().count() == 1_024 && long.ends_with("ä…"), "{long}");
    let kind = json!({"apiVersion": "example.com/v1", "kind": "K".repeat(1 << 20)}).to_string();
    let failure = review.converted("gauges", &review.objects()[0], Conversion::Object(kind)).unwrap_err();
    let fault = failure.fault.unwrap().message();
    assert!(fault.len() < 1_100 && failure.message.len() < 1_100, "what is logged of it too: {} bytes", fault.len());
}

#[test]
fn a_body_that_is_no_review_is_refused_with_the_reason() {
    let parse = |body: Value| Review::parse(body.to_string().as_bytes()).unwrap_err();
    let mut other = json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "v1", "objects": []},
    });
    assert!(parse(other.clone()).contains("mortise answers apiextensions.k8s.io/v1 ConversionReview"));
    other["apiVersion"] = json!("apiextensions.k8s.io/v1");
    other["request"]["objects"] = json!([7]);
    assert!(parse(other).contains("something without metadata: 7"));
    assert!(Review::parse(b"{").unwrap_err().contains("cannot be read"));
}

/// A review of a text that is a list of objects.
fn review_of(objects: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"u","desiredAPIVersion":"example.com/v1","objects":{objects}}}}}"#
    )
}

#[test]
fn a_review_of_the_worst_objects_takes_some_times_its_text_from_its_parse_to_its_response() {
    let worst = |count| format!("[{}]", vec![r#"{"":0}"#; count].join(","));
    let object = format!(
        r#"{{"apiVersion":"example.com/v1alpha1","kind":"Gauge","metadata":{{"name":"a","managedFields":{}}},"spec":{}}}"#,
        worst(100_000),
        worst(100_000)
    );
    let small = r#"{"apiVersion":"example.com/v1alpha1","kind":"Gauge","metadata":{}}"#;
    for objects in [format!("[{object},{object}]"), format!("[{}]", vec![small; 20_000].join(","))] {
        let text = review_of(&objects);
        let (count, review) = counted(|| Review::parse(text.as_bytes()).unwrap());
        assert!(count.allocated_bytes < 8 * text.len(), "{} of {}", count.allocated_bytes, text.len());
        assert!(count.held_bytes < 6 * text.len().cast_signed(), "{} of {}", count.held_bytes, text.len());
        let (count, ()) = counted(|| {
            let mut success = review.success();
            for object in review.objects() {
                let request = review.request(object, &serving(), 0).unwrap();
                let converted = request.object.replace("v1alpha1", "v1");
                success.push(&review.converted("gauges", object, Conversion::Object(converted)).unwrap()).unwrap();
            }
            drop(success.end());
        });
        assert!(count.allocated_bytes < 40 * text.len(), "{} of {}", count.allocated_bytes, text.len());
    }
}

#[test]
fn a_review_of_more_objects_than_the_bound_is_refused_and_one_of_as_many_is_not() {
    let objects = |count| review_of(&format!("[{}]", vec![r#"{"metadata":{}}"#; count].join(",")));
    assert_eq!(Review::parse(objects(1 << 15).as_bytes()).unwrap().objects().len(), 1 << 15);
    let error = Review::parse(objects((1 << 15) + 1).as_bytes()).unwrap_err();
    assert!(error.starts_with("the ConversionReview has more than 32768 objects"), "{error}");
    for other in ["{}", "7", r#"{"$serde_json::private::RawValue":"[]"}"#] {
        assert!(Review::parse(review_of(other).as_bytes()).unwrap_err().contains("its objects are no list"), "{other}");
    }
    for twice in [r#"{"metadata":{},"metadata":{}}"#, r#"{"metadata":{"managedFields":[],"managedFields":[]}}"#] {
        let error = Review::parse(review_of(&format!("[{twice}]")).as_bytes()).unwrap_err();
        assert!(error.contains("something without metadata"), "{error}");
    }
}

#[test]
fn converted_objects_that_take_more_than_the_bound_together_are_refused() {
    let review = review(&[gauge()]);
    let mut success = review.success();
    let object = format!("{:?}", "a".repeat(4 << 20));
    for _ in 0..3 {
        success.push(&object).unwrap();
    }
    assert!(success.push(&object).unwrap_err().contains("more than 16 MiB together"));
}
