//! Bodies: what is read, and in which words it is refused. Through requests.

use serde_json::{Value, json};

use crate::Method::{self, Patch, Post};
use crate::request::Request;
use crate::testing::{quiet, request, respond};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The status, the message or the name, and the warnings of a request with this body.
fn send(method: Method, target: &str, media_type: &str, body: &str) -> (u16, String, Vec<String>) {
    let request =
        Request { body: body.into(), ..request(method, target, &[("content-type", media_type)], &Value::Null) };
    let mut cluster = quiet();
    let old = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    if method == Patch {
        respond(&mut cluster, &super::super::testing::request(Post, MAPS, &[], &old));
    }
    let response = respond(&mut cluster, &request);
    let value = response.body.document().unwrap();
    let shown = if response.status < 300 { &value["metadata"]["name"] } else { &value["message"] };
    let warnings = response.headers.into_iter().filter(|(name, _)| *name == "Warning").map(|(_, value)| value);
    (response.status, shown.as_str().unwrap_or_default().to_owned(), warnings.collect())
}

#[test]
fn bodies_that_are_no_object_are_refused_in_the_words_of_the_api_server() {
    let types = "the body of the request was in an unknown format - accepted media types include";
    let wanted =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    for (media_type, body, code, message) in [
        ("text/html", "{}", 415, format!("{types}: application/json, application/yaml, application/vnd.kubernetes.protobuf")),
        (
            "application/json",
            "",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)".to_owned(),
        ),
        (
            "application/json",
            "nonsense",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character 'o' in literal null (expecting 'u') (6e6f6e73656e7365)".to_owned(),
        ),
        (
            "application/json",
            "[]",
            400,
            format!("the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {wanted} (5b5d)"),
        ),
        (
            "application/json",
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            400,
            "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion".to_owned(),
        ),
        (
            "application/json",
            r#"{"kind":"Foo","apiVersion":"v1"}"#,
            400,
            "Foo in version \"v1\" cannot be handled as a ConfigMap: no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"".to_owned(),
        ),
    ] {
        let (got, said, _) = send(Post, MAPS, media_type, body);
        assert_eq!((got, said), (code, message), "{body}");
    }
    let large = format!("{{\"data\":{{\"k\":\"{}\"}}}}", "x".repeat(3 * 1024 * 1024));
    let (code, message, _) = send(Post, MAPS, "application/json", &large);
    assert_eq!((code, message.as_str()), (413, "Request entity too large: limit is 3145728"));
}

#[test]
fn faulty_fields_are_refused_reported_or_dropped() {
    let body = r#"{"metadata":{"name":"a","foo":1},"data":{"k":"1","k":"2"}}"#;
    let strict = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"data.k\", unknown field \"metadata.foo\"";
    let (code, message, _) = send(Post, &format!("{MAPS}?fieldValidation=Strict"), "application/json", body);
    assert_eq!((code, message.as_str()), (400, strict));
    let warnings = [r#"299 - "duplicate field \"data.k\"""#, r#"299 - "unknown field \"metadata.foo\"""#];
    for target in [MAPS.to_owned(), format!("{MAPS}?fieldValidation=Warn")] {
        let (code, name, warned) = send(Post, &target, "application/json", body);
        assert_eq!((code, name.as_str(), warned), (201, "a", warnings.map(ToOwned::to_owned).to_vec()));
    }
    let (code, _, warned) = send(Post, &format!("{MAPS}?fieldValidation=Ignore"), "application/json", body);
    assert_eq!((code, warned), (201, vec![]));
}

#[test]
fn yaml_is_read_as_json_is() {
    let (code, name, warned) =
        send(Post, MAPS, "application/yaml", "metadata:\n  name: a\ndata:\n  k: \"1\"\n  k: \"2\"\n");
    assert_eq!((code, name.as_str()), (201, "a"));
    assert_eq!(warned, [r#"299 - "line 5: key \"k\" already set in map""#]);
    let (code, message, _) = send(Post, MAPS, "application/yaml", "a: [");
    assert_eq!(code, 400, "{message}");
    let applied = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  name: a\n";
    let target = format!("{MAPS}/a?fieldManager=m&fieldValidation=Strict");
    let (code, message, _) = send(Patch, &target, "application/apply-patch+yaml", applied);
    let wanted = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key \"name\" already set in map";
    assert_eq!((code, message.as_str()), (400, wanted));
}

#[test]
fn patches_are_refused_in_the_words_of_the_api_server() {
    let merge = "application/merge-patch+json";
    for (query, media_type, body, code, message) in [
        ("", "application/json", "{}", 415, "415: Unsupported Media Type".to_owned()),
        ("", merge, "{", 400, "error decoding patch: unexpected end of JSON input".to_owned()),
        ("", merge, r#"{"metadata":{"name":"b"}}"#, 400, "the name of the object (b) does not match the name on the URL (m)".to_owned()),
        ("?force=true", merge, "{}", 422, "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch".to_owned()),
        ("?dryRun=x", merge, "{}", 422, "PatchOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"".to_owned()),
        ("?fieldValidation=x", merge, "{}", 422, "PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"".to_owned()),
        ("?fieldManager=a\nb", merge, "{}", 422, "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)".to_owned()),
        ("", merge, r#"{"metadata":{"resourceVersion":"1"}}"#, 409, "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; please apply your changes to the latest version and try again".to_owned()),
        ("", "application/json-patch+json", r#"[{"op":"remove","path":"/gone"}]"#, 422, "the server rejected our request due to an error in our request".to_owned()),
    ] {
        let (got, said, _) = send(Patch, &format!("{MAPS}/m{query}"), media_type, body);
        assert_eq!((got, said), (code, message), "{query} {body}");
    }
    let (code, said, _) =
        send(Patch, &format!("{MAPS}/m?fieldValidation=Strict"), merge, r#"{"foo":1,"data":{"k":"1","k":"2"}}"#);
    assert_eq!(code, 422);
    assert!(said.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{said}");
    assert!(said.ends_with(": strict decoding error: duplicate field \"data.k\", unknown field \"foo\""), "{said}");
    let long = format!("{MAPS}?fieldManager={}", "m".repeat(129));
    let (code, said, _) = send(Post, &long, "application/json", r#"{"metadata":{"name":"a"}}"#);
    let wanted = "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
    assert_eq!((code, said.as_str()), (422, wanted));
}

#[test]
fn what_a_form_of_a_web_page_can_send_is_refused_of_every_verb() {
    let of_default = |rest: &str| format!("/api/v1/namespaces/default/{rest}");
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
    let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale".to_owned();
    for (method, target) in [
        (Post, MAPS.to_owned()),
        (Post, of_default("serviceaccounts/s/token")),
        (Post, of_default("pods/p/binding")),
        (Post, of_default("pods/p/eviction")),
        (Post, review),
        (Method::Put, of_default("configmaps/m")),
        (Method::Put, scale.clone()),
        (Patch, of_default("configmaps/m")),
        (Patch, scale),
        (Method::Delete, of_default("configmaps/m")),
        (Method::Delete, MAPS.to_owned()),
    ] {
        for media_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let mut cluster = quiet();
            respond(&mut cluster, &request(Post, MAPS, &[], &json!({"metadata": {"name": "m"}})));
            let deployment = json!({
                "metadata": {"name": "d"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}}},
            });
            let made = request(Post, "/apis/apps/v1/namespaces/default/deployments", &[], &deployment);
            assert_eq!(respond(&mut cluster, &made).status, 201);
            let before = cluster.revision();
            let body = json!({"metadata": {"name": "m"}, "spec": {}});
            let sent = request(method, &target, &[("content-type", media_type)], &body);
            assert_eq!(respond(&mut cluster, &sent).status, 415, "{method:?} {target} {media_type}");
            assert_eq!(cluster.revision(), before, "{method:?} {target}");
        }
    }
}
