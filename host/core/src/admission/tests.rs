//! Reviews and results in, responses out; backends in, configurations out.

use expect_test::expect;
use serde_json::{Value, json};

use super::configuration::{Change, Configuration, Resources, change, plugin_of, wanted};
use super::review::{Answer, Review};
use super::*;
use crate::allocations::counted;
use crate::manifest::Operations;
use crate::object::Kind;
use crate::webhook::{Address, Endpoint, Subject, at_path};

fn spec() -> AdmissionSpec {
    AdmissionSpec {
        kind: Kind::new("example.com/v1", "Greeting"),
        resource: Some("greetings".into()),
        operations: Operations { create: true, update: true, delete: false },
        mutate: true,
        validate: true,
    }
}

fn serving(spec: AdmissionSpec) -> AdmissionBackend {
    AdmissionBackend {
        digest: Digest("sha256:00".into()),
        config: "{}".into(),
        limits: CallLimits::default(),
        specs: [spec].into(),
    }
}

fn endpoint() -> Endpoint {
    Endpoint {
        address: Address::Url("https://127.0.0.1:9443".into()),
        ca_bundle: Some("Q0E=".into()),
        namespace: "mortise-system".into(),
    }
}

fn greeting() -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Greeting",
        "metadata": {"name": "a", "namespace": "n", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"who": ""},
    })
}

/// The configuration of the plugin "greeting" in the host's namespace, where no other kinds are discovered.
fn configured(of: Configuration, serving: &AdmissionBackend) -> Option<Value> {
    wanted(of, "greeting", "mortise-system", serving, &endpoint(), &Resources::new())
}

fn review(operation: &str, object: &Value, old: &Value) -> Review {
    review_for(spec(), operation, object, old)
}

fn review_for(spec: AdmissionSpec, operation: &str, object: &Value, old: &Value) -> Review {
    let request = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "name": "a", "namespace": "n", "operation": operation, "object": object, "oldObject": old,
            "kind": {"group": "example.com", "version": "v1", "kind": "Greeting"},
            "resource": {"group": "example.com", "version": "v1", "resource": "greetings"},
            "userInfo": {"username": "admin"}, "options": null, "dryRun": false,
        },
    });
    Review::parse(request.to_string().as_bytes(), &Arc::new(serving(spec))).unwrap()
}

fn response(answer: &Answer) -> Value {
    let review: Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!((&review["kind"], &review["response"]["uid"]), (&json!("AdmissionReview"), &json!("u-1")));
    review["response"].clone()
}

fn violation(field: &str, message: &str) -> Violation {
    Violation::new(field, message)
}

fn checked(violations: Vec<Violation>) -> Verdict {
    Verdict::Checked(Checked::new(violations, []))
}

#[test]
fn a_request_has_the_stored_object_and_the_new_one_without_managed_fields() {
    let create = review("CREATE", &greeting(), &Value::Null);
    let request = create.request(Purpose::Validate, 7).unwrap();
    assert_eq!((request.operation, request.old, request.now_unix_ms), (Operation::Create, None, 7));
    let object: Value = serde_json::from_str(&request.object).unwrap();
    assert_eq!(object["metadata"], json!({"name": "a", "namespace": "n"}));

    let with_delete = AdmissionSpec { operations: Operations { delete: true, ..spec().operations }, ..spec() };
    let deleted = review_for(with_delete, "DELETE", &Value::Null, &greeting());
    let request = deleted.request(Purpose::Validate, 0).unwrap();
    assert_eq!((request.operation, Some(&request.object)), (Operation::Delete, request.old.as_ref()));
    assert_eq!(deleted.request(Purpose::Mutate, 0), None);
}

#[test]
fn the_guest_gets_the_text_that_the_api_server_sent() {
    let body = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": "UPDATE", "resource": {"resource": "greetings"},
        "kind": {"group": "example.com", "version": "v1", "kind": "Greeting"},
        "object": {"spec": {"b": 1.50, "a": "\u00e9"}, "metadata": {"managedFields": [{}], "name": "a"}},
        "oldObject": {"metadata": {}}}}"#;
    let review = Review::parse(body.as_bytes(), &Arc::new(serving(spec()))).unwrap();
    let request = review.request(Purpose::Validate, 0).unwrap();
    assert_eq!(&*request.object, r#"{"spec": {"b": 1.50, "a": "\u00e9"}, "metadata": { "name": "a"}}"#);
    assert_eq!((request.old.as_deref(), review.name()), (Some(r#"{"metadata": {}}"#), "a"));
}

#[test]
fn a_kind_that_the_new_version_does_not_know_is_admitted_and_another_version_of_its_kind_waits() {
    let admits = |api_version: &str, kind: &str| {
        let spec = AdmissionSpec { kind: Kind::new(api_version, kind), ..spec() };
        let review = review_for(spec, "CREATE", &greeting(), &Value::Null);
        (review.request(Purpose::Validate, 0).is_some(), review.is_of_another_version())
    };
    assert_eq!(admits("example.com/v1", "Greeting"), (true, false));
    assert_eq!(admits("example.com/v1", "Other"), (false, false));
    assert_eq!(admits("example.com/v2", "Greeting"), (false, true));
}

#[test]
fn a_body_that_is_no_review_is_refused_with_the_reason() {
    let review = |version: &str, operation: &str| {
        let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
        let request = json!({"uid": "u", "operation": operation, "kind": kind, "resource": {"resource": "pods"}});
        json!({"apiVersion": version, "kind": "AdmissionReview", "request": request}).to_string()
    };
    for (body, words) in [
        ("{".to_owned(), "cannot be read"),
        (r#"{"apiVersion":"v1","kind":"Pod","request":{}}"#.to_owned(), "missing field"),
        (review("admission.k8s.io/v1beta1", "CREATE"), "mortise answers admission.k8s.io/v1"),
        (review("admission.k8s.io/v1", "CONNECT"), "the operation \"CONNECT\""),
        (review("admission.k8s.io/v1", "CREATE"), "carries no object"),
    ] {
        let error = Review::parse(body.as_bytes(), &Arc::new(serving(spec()))).unwrap_err();
        assert!(error.contains(words), "{words:?} is not in {error}");
    }
}

#[test]
fn a_violation_has_the_form_of_the_api_servers_own_validation() {
    let review = review("CREATE", &greeting(), &Value::Null);
    let required = violation("spec.who", "Required value: somebody has to be greeted");
    let one = review.answer("greeting", checked(vec![required.clone()]));
    assert_eq!(one.code, 422);
    expect![[r#"
        {
          "allowed": false,
          "status": {
            "code": 422,
            "details": {
              "causes": [
                {
                  "field": "spec.who",
                  "message": "Required value: somebody has to be greeted",
                  "reason": "FieldValueRequired"
                }
              ],
              "group": "example.com",
              "kind": "Greeting",
              "name": "a"
            },
            "message": "Greeting.example.com \"a\" is invalid: spec.who: Required value: somebody has to be greeted",
            "reason": "Invalid",
            "status": "Failure"
          },
          "uid": "u-1"
        }"#]]
    .assert_eq(&format!("{:#}", response(&one)));

    let two = response(&review.answer("greeting", checked(vec![required, violation("", "it is\nrude")])));
    let message = two["status"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("is invalid: [spec.who: Required value: somebody has to be greeted, it is rude]"),
        "{message}"
    );
    assert_eq!(two["status"]["details"]["causes"][1]["field"], "<nil>");
    assert_eq!(two["status"]["details"]["causes"][1]["reason"], "FieldValueInvalid");
}

#[test]
fn warnings_are_shown_whether_the_object_is_admitted_or_not() {
    let review = review("CREATE", &greeting(), &Value::Null);
    let warnings = vec!["spec.who: \"you\" is deprecated".to_owned()];
    for (violations, allowed) in [(vec![], true), (vec![violation("spec.who", "no")], false)] {
        let checked = Verdict::Checked(Checked::new(violations, warnings.clone()));
        let response = response(&review.answer("greeting", checked));
        assert_eq!((&response["allowed"], &response["warnings"]), (&json!(allowed), &json!(warnings)));
    }
}

#[test]
fn a_guests_refusal_is_one_line_and_cut_at_the_bounds_of_a_response() {
    let review = review("CREATE", &greeting(), &Value::Null);
    let answer = |checked: Checked| response(&review.answer("greeting", Verdict::Checked(checked)));
    let hostile = "no\u{1b}[2J\0\r\nallowed\u{202e}";
    let one = answer(Checked::new([violation("spec.\nwho", hostile)], [hostile.to_owned()]));
    assert_eq!(one["status"]["details"]["causes"][0]["message"], "no allowed");
    assert_eq!(one["status"]["details"]["causes"][0]["field"], "spec. who");
    assert_eq!(one["status"]["message"], "Greeting.example.com \"a\" is invalid: spec. who: no allowed");
    assert_eq!(one["warnings"], json!(["no allowed"]));

    let text = |chars: usize| "ä".repeat(chars);
    let longest = answer(Checked::new([violation(&text(253), &text(1_024))], [text(256)]));
    let cause = &longest["status"]["details"]["causes"][0];
    assert_eq!((&cause["field"], &cause["message"]), (&json!(text(253)), &json!(text(1_024))));
    assert_eq!(longest["warnings"], json!([text(256)]));
    let longer = answer(Checked::new([violation(&text(254), &text(1_025))], [text(257)]));
    let cause = &longer["status"]["details"]["causes"][0];
    let cut = |chars| json!(format!("{}…", text(chars)));
    assert_eq!((&cause["field"], &cause["message"]), (&cut(252), &cut(1_023)));
    assert_eq!(longer["warnings"], json!([cut(255)]));

    let many = answer(Checked::new(vec![violation("", "no"); 1_000], vec![text(256); 1_000]));
    assert_eq!(many["status"]["details"]["causes"].as_array().unwrap().len(), 64);
    assert_eq!(
        many["warnings"].as_array().unwrap().len(),
        16,
        "4,096 characters, of which the API server passes on all"
    );
}

/// The API server's object after the patch of a response.
fn patched(answer: &Answer) -> Value {
    patched_from(greeting(), answer)
}

fn patched_from(mut object: Value, answer: &Answer) -> Value {
    use base64::Engine as _;
    let response = response(answer);
    assert_eq!((&response["allowed"], &response["patchType"]), (&json!(true), &json!("JSONPatch")));
    let bytes = base64::engine::general_purpose::STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&bytes).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

#[test]
fn defaults_become_a_patch_that_leaves_everything_else_as_it_is() {
    let review = review("CREATE", &greeting(), &Value::Null);
    let mut completed = greeting();
    completed["metadata"].as_object_mut().unwrap().remove("managedFields");
    let unchanged = review.answer("greeting", Verdict::Completed(completed.to_string()));
    assert_eq!(response(&unchanged), json!({"uid": "u-1", "allowed": true}));

    completed["spec"] = json!({"who": "world", "times/day~": [1, 2]});
    completed["metadata"]["labels"] = json!({"tier": "web"});
    let patched = patched(&review.answer("greeting", Verdict::Completed(completed.to_string())));
    completed["metadata"]["managedFields"] = greeting()["metadata"]["managedFields"].clone();
    assert_eq!(patched, completed);
}

#[test]
fn x6_defaults_change_nothing_that_is_not_a_plugins() {
    let review = review("CREATE", &greeting(), &Value::Null);
    for (place, value, words) in [
        ("/kind", json!("Other"), "changed kind,"),
        ("/status", json!({"ready": true}), "changed status,"),
        ("/metadata/name", json!("b"), "changed metadata.name,"),
        ("/metadata/ownerReferences", json!([]), "changed metadata.ownerReferences,"),
        ("/metadata/finalizers", json!(["a/b"]), "changed metadata.finalizers,"),
        ("/metadata/labels", json!({"mortise.dev/plugin": "x"}), "labels[\"mortise.dev/plugin\"], which is the host's"),
    ] {
        let mut completed = greeting();
        completed["metadata"].as_object_mut().unwrap().remove("managedFields");
        let (parent, key) = place.rsplit_once('/').unwrap();
        completed.pointer_mut(parent).unwrap()[key] = value;
        let answer = review.answer("greeting", Verdict::Completed(completed.to_string()));
        assert_eq!((answer.code, answer.fault.as_ref().map(GuestFault::reason)), (500, Some("BadOutcome")), "{place}");
        let message = response(&answer)["status"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{place}: {message}");
    }
    let deep = format!(r#"{{"spec":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for text in ["{", "7", &*deep, r#"{"spec":1e999}"#, r#"{"spec":"\ud800"}"#] {
        let answer = review.answer("greeting", Verdict::Completed(text.to_owned()));
        assert_eq!(answer.fault.as_ref().map(GuestFault::reason), Some("BadOutcome"), "{text}");
    }
}

#[test]
fn a_fault_refuses_what_is_written_and_lets_go_what_is_deleted() {
    let trap = || Verdict::Fault(GuestFault::Trap { message: "panicked".to_owned(), detail: String::new() });
    let answer = review("UPDATE", &greeting(), &greeting()).answer("greeting", trap());
    let status = &response(&answer)["status"];
    assert_eq!((answer.code, &status["reason"]), (500, &json!("InternalError")));
    assert_eq!(status["message"], "the plugin \"greeting\" could not check it: the plugin trapped: panicked");
    assert!(answer.fault.is_some());

    let delete = review("DELETE", &Value::Null, &greeting());
    let answer = delete.answer("greeting", trap());
    assert_eq!(response(&answer)["allowed"], true);
    assert!(response(&answer)["warnings"][0].as_str().unwrap().contains("trapped"));
    assert!(answer.fault.is_some(), "the fault is counted");
    assert_eq!(response(&delete.unavailable(503, "not now"))["allowed"], true);
    let refused = response(&delete.answer("greeting", checked(vec![violation("", "others greet it")])));
    assert_eq!(refused["status"]["message"], "greetings.example.com \"a\" is forbidden: others greet it");
    let busy = review("CREATE", &greeting(), &Value::Null).unavailable(429, "too many");
    assert_eq!((busy.code, &response(&busy)["status"]["reason"]), (429, &json!("TooManyRequests")));

    // Kinds of others are admitted, as they would be without the host.
    let foreign = review_for(AdmissionSpec { resource: None, ..spec() }, "CREATE", &greeting(), &Value::Null);
    let answer = foreign.answer("greeting", trap());
    assert_eq!((&response(&answer)["allowed"], answer.fault.is_some()), (&json!(true), true));
    assert_eq!(response(&foreign.unavailable(429, "too many"))["warnings"], json!(["too many"]));
    assert_eq!(response(&foreign.answer("greeting", checked(vec![violation("", "no")])))["allowed"], false);
}

#[test]
fn a_plugins_kinds_become_webhooks_that_lock_nobody_out() {
    let found = configured(Configuration::ALL[1], &serving(spec())).unwrap();
    let labels = json!({"app.kubernetes.io/managed-by": "mortise", "mortise.dev/host-namespace": "mortise-system"});
    assert_eq!((&found["kind"], &found["metadata"]["labels"]), (&json!("ValidatingWebhookConfiguration"), &labels));
    assert_eq!(found["metadata"]["name"], "mortise-greeting");
    expect![[r#"
        [
          {
            "admissionReviewVersions": [
              "v1"
            ],
            "clientConfig": {
              "caBundle": "Q0E=",
              "url": "https://127.0.0.1:9443/validate/greeting"
            },
            "failurePolicy": "Fail",
            "matchConditions": [
              {
                "expression": "!has(object.metadata.deletionTimestamp)",
                "name": "is-not-being-deleted"
              }
            ],
            "matchPolicy": "Equivalent",
            "name": "validate.greetings.greeting.mortise.dev",
            "namespaceSelector": {
              "matchExpressions": [
                {
                  "key": "kubernetes.io/metadata.name",
                  "operator": "NotIn",
                  "values": [
                    "mortise-system"
                  ]
                }
              ]
            },
            "objectSelector": {},
            "rules": [
              {
                "apiGroups": [
                  "example.com"
                ],
                "apiVersions": [
                  "v1"
                ],
                "operations": [
                  "CREATE",
                  "UPDATE"
                ],
                "resources": [
                  "greetings"
                ],
                "scope": "*"
              }
            ],
            "sideEffects": "None",
            "timeoutSeconds": 10
          }
        ]"#]]
    .assert_eq(&format!("{:#}", found["webhooks"]));
}

#[test]
fn a_plugin_has_a_mutating_webhook_only_when_it_has_defaults_and_is_called_once_for_them() {
    let [mutating, _] = Configuration::ALL;
    let defaults = configured(mutating, &serving(spec())).unwrap();
    assert_eq!(defaults["webhooks"][0]["reinvocationPolicy"], "Never");
    assert_eq!(configured(mutating, &serving(AdmissionSpec { mutate: false, ..spec() })), None);
}

#[test]
fn deletes_and_kinds_of_others_go_on_when_the_host_is_away() {
    let operations = Operations { create: true, update: false, delete: true };
    let [mutating, validating] = Configuration::ALL;
    let own = serving(AdmissionSpec { operations, ..spec() });
    let found = configured(validating, &own).unwrap();
    let policies: Vec<_> = found["webhooks"].as_array().unwrap().iter().map(|hook| &hook["failurePolicy"]).collect();
    assert_eq!(policies, ["Fail", "Ignore"]);
    assert_eq!(found["webhooks"][1]["rules"][0]["operations"], json!(["DELETE"]));
    assert_eq!(configured(mutating, &own).unwrap()["webhooks"].as_array().unwrap().len(), 1);

    let foreign = serving(AdmissionSpec { resource: None, ..spec() });
    let discovered = Resources::from([(spec().kind, "hullos".into())]);
    let found = wanted(validating, "greeting", "mortise-system", &foreign, &endpoint(), &discovered).unwrap();
    assert_eq!(found["webhooks"][0]["rules"][0]["resources"], json!(["hullos"]), "as the API server names it");
    assert_eq!(found["webhooks"][0]["failurePolicy"], "Ignore");
    let excluded = &found["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*excluded, json!(["kube-system", "mortise-system"]));
}

#[test]
fn in_a_cluster_the_webhook_names_the_service() {
    let endpoint = Endpoint { address: Address::Service { name: "mortise-webhook".into(), port: 443 }, ..endpoint() };
    let client = endpoint.client(Subject::Admission(Purpose::Mutate), "greeting");
    assert_eq!(
        client["service"],
        json!({"namespace": "mortise-system", "name": "mortise-webhook", "path": "/mutate/greeting", "port": 443})
    );
    assert_eq!(client.get("url"), None);
}

#[test]
fn a_configuration_is_written_when_it_differs_and_known_by_the_hosts_label() {
    let of = Configuration::ALL[1];
    let wanted = || configured(of, &serving(spec()));
    assert_eq!(change(None, None), None);
    assert!(matches!(change(None, wanted()), Some(Change::Create(_))));

    let mut live = wanted().unwrap();
    // As an item of the API server's list.
    live.as_object_mut().unwrap().retain(|part, _| part != "apiVersion" && part != "kind");
    live["metadata"]["uid"] = json!("u-9");
    live["metadata"]["resourceVersion"] = json!("12");
    live["webhooks"][0]["aFieldOfALaterVersion"] = json!("default");
    assert_eq!(change(Some(&live), wanted()), None, "what the API server added is no difference");
    assert_eq!(
        change(Some(&live), None),
        Some(Change::Delete { name: "mortise-greeting".to_owned(), uid: "u-9".to_owned() })
    );

    live["webhooks"][0]["failurePolicy"] = json!("Ignore");
    live["metadata"]["labels"]["team"] = json!("web");
    let Some(Change::Update(body)) = change(Some(&live), wanted()) else { panic!("not updated") };
    assert_eq!(
        (&body["webhooks"][0]["failurePolicy"], &body["metadata"]["resourceVersion"]),
        (&json!("Fail"), &json!("12"))
    );
    assert_eq!((&body["kind"], &body["apiVersion"]), (&wanted().unwrap()["kind"], &wanted().unwrap()["apiVersion"]));
    assert_eq!(body["metadata"]["labels"]["team"], "web");

    assert_eq!(plugin_of(&live, "mortise-system"), Some("greeting"));
    assert_eq!(plugin_of(&live, "elsewhere"), None, "it belongs to another host");
    live["metadata"]["labels"] = json!({});
    assert_eq!(plugin_of(&live, "mortise-system"), None, "it has no label of the host");
}

#[test]
fn the_host_responds_before_the_api_server_times_out() {
    for (deadline_ms, seconds) in [(1, 10), (1_000, 10), (5_001, 11), (10_000, 15)] {
        let serving =
            AdmissionBackend { limits: CallLimits { deadline_ms, ..CallLimits::default() }, ..serving(spec()) };
        assert_eq!(serving.timeout_seconds(), seconds);
        assert!(serving.timeout() > Duration::from_millis(deadline_ms));
        assert!(serving.timeout() < Duration::from_secs(seconds));
    }
    assert_eq!(at_path("/mutate/a.b"), Some((Subject::Admission(Purpose::Mutate), "a.b")));
    assert_eq!(at_path("/convert/a"), Some((Subject::Conversion, "a")));
    for path in ["/", "/mutate", "/mutate/", "/converted/a", "/validate/a/b", "validate/a"] {
        assert_eq!(at_path(path), None, "{path}");
    }
}

#[test]
fn a_review_of_the_worst_objects_takes_some_times_its_text() {
    let worst = format!("[{}]", vec![r#"{"":0}"#; 100_000].join(","));
    let with = |metadata: &str| format!(r#"{{"metadata":{{{metadata}}},"spec":{worst},"status":{worst}}}"#);
    let body = |object: &str| {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","resource":{{"resource":"greetings"}},"kind":{{"group":"example.com","version":"v1","kind":"Greeting"}},"object":{object}}}}}"#
        )
    };
    let parse = |body: &str| counted(|| Review::parse(body.as_bytes(), &Arc::new(serving(spec()))));
    let text = body(&with(&format!(r#""managedFields":{worst}"#)));
    let (count, review) = parse(&text);
    assert!(count.allocated_bytes < 3 * text.len(), "{} of {}", count.allocated_bytes, text.len());

    let completed = review.unwrap().request(Purpose::Mutate, 0).unwrap().object.replace("0}]}", "0},{\"\":1}]}");
    let (count, ()) = counted(|| {
        let (_, review) = parse(&text);
        let answer = review.unwrap().answer("greeting", Verdict::Completed(completed.clone()));
        assert_eq!(answer.fault.unwrap().reason(), "BadOutcome", "it changed the status");
    });
    assert!(count.allocated_bytes < 16 * text.len(), "{} of {}", count.allocated_bytes, text.len());
}

#[test]
fn a_check_sees_every_value_of_an_object_whatever_its_annotations_say() {
    let record = r#"{"image":{"recipe":"alphanumeric-8","drawnAt":"2026-01-01T00:00:00Z"}}"#;
    for annotation in [record, "["] {
        let mut object = greeting();
        object["metadata"]["annotations"] = json!({"mortise.dev/generated": annotation});
        object["data"] = json!({"image": "evil"});
        object["stringData"] = json!({"image": "evil"});
        for (operation, old) in [("CREATE", Value::Null), ("UPDATE", object.clone())] {
            let request = review(operation, &object, &old).request(Purpose::Validate, 0).unwrap();
            let seen: Value = serde_json::from_str(&request.object).unwrap();
            assert_eq!((&seen["data"], &seen["stringData"]), (&object["data"], &object["stringData"]), "{annotation}");
        }
    }
}

#[test]
fn defaults_below_a_long_key_become_a_patch_of_some_times_the_objects_text() {
    let (key, items) = ("k".repeat(40_000), 40_000);
    let object = |value: &str| {
        let list = vec![value; items].join(",");
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Greeting","metadata":{{"name":"a"}},"spec":{{"{key}":[{list}]}}}}"#
        )
    };
    let before: Value = serde_json::from_str(&object("{}")).unwrap();
    let review = review("CREATE", &before, &Value::Null);
    let completed = object(r#"{"a":1}"#);
    let bytes = completed.len();
    let (count, answer) = counted(|| review.answer("greeting", Verdict::Completed(completed)));
    assert!(answer.text.len() < 2 * bytes, "{} of {bytes}", answer.text.len());
    assert!(count.allocated_bytes < 30 * bytes, "{} of {bytes}", count.allocated_bytes);
    assert_eq!(patched_from(before, &answer)["spec"][&key][items - 1], json!({"a": 1}));
}

#[test]
fn x6_metadata_with_more_members_than_are_looked_at_is_refused() {
    let labels: serde_json::Map<String, Value> = (0..=1 << 16).map(|number| (number.to_string(), json!("a"))).collect();
    let mut object = greeting();
    object["metadata"]["labels"] = labels.into();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    let review = review("CREATE", &object, &Value::Null);
    object["metadata"]["labels"]["mortise.dev/plugin"] = json!("x");
    let answer = review.answer("greeting", Verdict::Completed(object.to_string()));
    let message = response(&answer)["status"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("changed metadata.labels, which has more than 65536 members"), "{message}");
}
