//! Bodies that no client should send. Whatever is in a field, the API server answers, and the controllers and the
//! tables bear with what it let through. It must not know what the answers are.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Method::{Delete, Get, Patch, Post, Put};
use crate::path::{self, Path};
use crate::testing::{request, respond, start};
use crate::{Cluster, Method, Options, Reply, Step};

/// How deep the deepest value is: more than any schema, less than the parser refuses.
const DEPTH: usize = 60;
/// Every place gets one wrong value, in one of so many verbs: with all values in all verbs the test takes ten minutes.
const SHARE: usize = 3;
/// How many steps of the controllers an accepted object gets.
const STEPS: usize = 60;

/// A kind: where its objects are, their subresources, and one with many fields.
#[derive(Deserialize)]
struct Kind {
    path: String,
    subresources: Vec<String>,
    object: Value,
}

/// What is sent: objects of many kinds, and what queries, headers and paths have in them.
#[derive(Deserialize)]
struct Samples {
    kinds: Vec<Kind>,
    texts: Vec<String>,
    names: Vec<String>,
    headers: Vec<String>,
    paths: Vec<String>,
}

fn samples() -> Samples {
    serde_json::from_str(include_str!("malformed.json")).unwrap()
}

/// What is put in the place of every field.
fn wrong() -> Vec<Value> {
    let deep = |open: &str, close: &str| {
        serde_json::from_str(&format!("{}1{}", open.repeat(DEPTH), close.repeat(DEPTH))).unwrap()
    };
    vec![
        Value::Null,
        json!(-1),
        json!(u64::MAX),
        json!(1.5e300),
        json!(true),
        json!(""),
        json!("\u{0}\u{e9}/{$.}[%"),
        json!([]),
        json!([null, 1, [], {}]),
        json!({}),
        json!({"": null, "a": {"$patch": "delete"}, "name": 1}),
        json!([{"name": null}, {"name": "a", "$patch": "replace"}]),
        json!(format!("{}1{}", "(".repeat(3_000), ")".repeat(3_000))),
        json!(format!("{}true", "!".repeat(3_000))),
        json!(format!("{}1", "-".repeat(3_001))),
        json!(format!("{}1{}", "[".repeat(3_000), "]".repeat(3_000))),
        json!("1e999999999"),
        json!("9999999999999999999999999999Ei"),
        json!("{.a[?(@.b==\"x\")].c[-1:99999999999999999999:0]}"),
        json!("a{1000}{1000}{1000}"),
        json!("0/0 0-99999999999 * * *"),
        json!("99999999-12-31T00:00:00Z"),
        json!("9999-12-31T23:59:59Z"),
        json!("-009999-01-01T00:00:00Z"),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(2147483647),
        json!("101%"),
        json!("99999999999999999999%"),
        deep("[", "]"),
        deep("{\"a\":", "}"),
    ]
}

/// The places of all values below one, as JSON pointers; the one of the whole is empty.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                places(value, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                places(item, &format!("{path}/{at}"), found);
            }
        }
        _ => {}
    }
}

/// A cluster with a definition, and nothing that runs by itself yet.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(Options::default(), start());
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {
            "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "list": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
        "additionalPrinterColumns": [{"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"}],
    });
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version]},
    });
    let made = request(Post, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &[], &definition);
    assert_eq!(respond(&mut cluster, &made).status, 201);
    work(&mut cluster);
    cluster
}

fn work(cluster: &mut Cluster) {
    let mut now = start();
    for _ in 0..STEPS {
        match cluster.step(&[], now) {
            Reply::Done(Step::Worked) => {}
            Reply::Done(Step::Idle(Some(next))) if next < start() + jiff::SignedDuration::from_secs(3) => {
                now = next.max(now)
            }
            _ => return,
        }
    }
}

/// An object with its type, as server-side apply and definitions want it.
fn typed(cluster: &Cluster, kind: &Kind) -> Value {
    let Path::Resource(address) = path::parse(&kind.path) else { panic!("{} is no resource", kind.path) };
    let resource = cluster.resource(address.group, address.version, address.plural).unwrap();
    let mut object = kind.object.clone();
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = (*resource.kind).into();
    object
}

/// What is created next, whose admission, schema or controllers read what was taken before.
const OTHERS: [(&str, &str); 3] = [
    (
        "/api/v1/namespaces/default/pods",
        r#"{"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#,
    ),
    ("/api/v1/namespaces/default/configmaps", r#"{"metadata": {"name": "c"}, "data": {"k": "v"}}"#),
    (
        "/apis/example.com/v1/namespaces/default/gears",
        r#"{"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "x": "a", "l": [{"k": "v"}]}"#,
    ),
];

/// Sends a body, and looks at what came of it. Says whether the API server took it.
fn send(cluster: &Cluster, method: Method, target: &str, content_type: &str, body: &Value) -> bool {
    let mut cluster = cluster.clone();
    let mut sent = request(method, target, &[("content-type", content_type)], body);
    sent.body = body.to_string().into_bytes();
    let Reply::Done(answer) = cluster.request(&sent, &[], start()) else { return true };
    let taken = answer.status < 300;
    if taken && method != Delete {
        for (path, object) in OTHERS {
            let object: Value = serde_json::from_str(object).unwrap();
            cluster.request(&request(Post, path, &[], &object), &[], start());
        }
        work(&mut cluster);
        let list = target.split('?').next().and_then(|path| path.rsplit_once("/a")).map_or(target, |(list, _)| list);
        let table = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        respond(&mut cluster, &request(Get, list, &[table], &Value::Null));
    }
    taken
}

#[test]
fn no_body_makes_the_cluster_panic() {
    let (empty, wrong) = (cluster(), wrong());
    let mut panics = Vec::new();
    let (mut turn, mut taken) = (0, 0);
    for kind in samples().kinds {
        let object = typed(&empty, &kind);
        let name = object["metadata"]["name"].as_str().unwrap();
        let one = format!("{}/{name}", kind.path);
        let mut full = empty.clone();
        let made = respond(&mut full, &request(Post, &kind.path, &[], &object));
        assert_eq!(made.status, 201, "{}: {:?}", kind.path, made.body);
        let mut found = Vec::new();
        places(&object, "", &mut found);
        for place in &found {
            turn += 1;
            let value = &wrong[turn % wrong.len()];
            let mut body = object.clone();
            *body.pointer_mut(place).unwrap() = value.clone();
            let step = json!([{"op": "add", "path": place, "value": value}]);
            let mut requests = vec![
                (&empty, Post, kind.path.clone(), "application/json", &body),
                (&full, Put, one.clone(), "application/json", &body),
                (&full, Patch, one.clone(), "application/merge-patch+json", &body),
                (&full, Patch, one.clone(), "application/strategic-merge-patch+json", &body),
                (&full, Patch, one.clone(), "application/json-patch+json", &step),
                (&full, Patch, format!("{one}?fieldManager=m&force=true"), "application/apply-patch+yaml", &body),
                (&full, Delete, one.clone(), "application/json", &body),
            ];
            for subresource in &kind.subresources {
                let target = format!("{one}/{subresource}");
                requests.push((&full, Put, target.clone(), "application/json", &body));
                requests.push((&full, Post, target.clone(), "application/json", &body));
                requests.push((&full, Patch, target, "application/merge-patch+json", &body));
            }
            for (cluster, method, target, content_type, body) in requests.into_iter().skip(turn % SHARE).step_by(SHARE)
            {
                match catch_unwind(AssertUnwindSafe(|| send(cluster, method, &target, content_type, body))) {
                    Ok(was_taken) => taken += usize::from(was_taken),
                    Err(_) => panics.push(format!("{method:?} {target} as {content_type}: {place} is {value}")),
                }
            }
        }
    }
    assert!(panics.is_empty(), "{panics:#?}");
    assert!(taken > 100, "{taken} are taken: the bodies do not get far");
}

#[test]
fn no_query_header_or_text_makes_the_cluster_panic() {
    let mut cluster = cluster();
    let Samples { texts, names, headers, paths, .. } = samples();
    let deep = ["[", "{\"a\":", "- ", "a:\n ", "? ", "&a [", "\"\\"].map(|text| text.repeat(50_000));
    let mut bodies: Vec<&[u8]> = vec![
        b"",
        b"\xff\xfe",
        b"{",
        b"[1,",
        b"k8s\0",
        b"k8s\0\x0a\xff\xff\xff\xff\x0f",
        b"&a [*a, *a]",
        b"a: !!binary x\n? [b]\n: c",
        b"{\"a\":\"\\ud800\"}",
    ];
    bodies.extend(deep.iter().map(String::as_bytes));
    let methods = [Get, Post, Put, Patch, Delete];
    let mut turn = 0;
    for (path, method) in paths.iter().flat_map(|path| methods.map(|method| (path, method))) {
        let mut all = vec![request(method, path, &[], &Value::Null)];
        turn += 1;
        for text in texts.iter().skip(turn % 9).step_by(9) {
            all.extend(names.iter().map(|name| {
                let mut one = request(method, path, &[], &json!({}));
                one.query = vec![(name.clone(), text.clone()), ("watch".to_owned(), "false".to_owned())];
                one
            }));
            all.extend(headers.iter().map(|name| request(method, path, &[(name, text)], &json!({}))));
        }
        for (body, kind) in bodies.iter().flat_map(|body| {
            [
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
                "application/apply-patch+yaml",
            ]
            .map(|kind| (body, kind))
        }) {
            let mut one = request(method, path, &[("content-type", kind)], &Value::Null);
            one.body = body.to_vec();
            all.push(one);
        }
        for one in all {
            cluster.request(&one, &[], start());
        }
    }
}
